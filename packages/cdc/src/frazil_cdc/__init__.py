"""Further envelopes of changes: messages of Canal, and of AWS DMS."""
