"""JSON Schema: the types of fields of records that are JSON text behind a schema of a registry."""
