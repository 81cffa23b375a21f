"""Rows that are merged of all records of their key: the table is the state, and the look-up of upserts reads it.

Tasks merge the records of a key into one part (`part_rows`), and the driver merges the parts of all tasks with the row in
the table (`state`). How values are merged is in `parts` and `sums`, and which columns have which function in `functions`.
"""
