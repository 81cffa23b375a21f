"""The report of a task on one table: a record for each part of ingestion that reads it, with its own `merge` and
`load`.
"""
