"""Shares: several tables divide the records of their topics among them by values (`routes` in the pipeline file).

A table is derived from each new value, up to a limit; one table takes the rest.
"""
