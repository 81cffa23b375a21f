"""Values that a change does not carry, taken from the row that the change replaces."""
