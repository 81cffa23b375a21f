"""JSON texts to columns."""
