"""What is kept of bad records, and how it comes back."""
