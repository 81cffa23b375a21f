"""Avro bodies to columns."""
