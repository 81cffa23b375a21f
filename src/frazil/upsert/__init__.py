"""Upsert tables: changes are read, deduplicated to the latest change per key, and committed together with the deletes
of the rows that they replace.
"""
