"""Changes of rows: read, folded to the last of each key, and committed with what they replace."""
