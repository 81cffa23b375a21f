"""Conditions that the rows and the commits of a table are to meet."""
