"""Upsert tables: changes are read, deduplicated to the latest per key, and committed.

The commit has the deletes of the rows that they replace too.
"""
