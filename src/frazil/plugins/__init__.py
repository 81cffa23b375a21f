"""What can be added from outside: formats, envelopes and catalogs by name. Pure data, below every other room."""
