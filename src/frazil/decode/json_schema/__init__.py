"""The types that a JSON Schema gives to the fields of a record."""
