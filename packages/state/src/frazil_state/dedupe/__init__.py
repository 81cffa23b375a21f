"""Append tables without duplicates: a row whose identifying columns the table has already is dropped and counted.

Tasks write rows and report what identifies them (`id_rows`). The driver looks the ids up in the table's own files, decides
in the order of the records which rows are duplicates (`decide`), and deletes these in the commit that adds them (`commit`).
"""
