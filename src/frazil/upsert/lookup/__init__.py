"""Live rows of the keys that a batch changes: which files may have them, and where in these files they are."""
