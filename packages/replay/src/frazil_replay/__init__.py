"""Rows and changes of tables, written back to Kafka as records."""
