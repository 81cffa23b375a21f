"""Rows as versions: each has the time from which it is valid, and the time from which it is no longer.

Tasks report every change with its time (`event_rows`). The driver looks up the versions that the keys have in the table,
applies the changes to them in their order (`apply`), and writes the versions that differ (`commit`).
"""
