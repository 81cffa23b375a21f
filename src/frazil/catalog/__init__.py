"""The catalog: its ports, its in-memory twin, and what Frazil stores in a table's metadata."""
