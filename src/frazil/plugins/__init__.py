"""What is chosen by name, in Frazil or in an installed package, by group of entry points. It is below every other room."""
