"""Schemas of tables: evolution, projection of record fields to columns, name conflicts, and selection of fields."""
