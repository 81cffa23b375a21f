"""Dead letters: the records that could not become rows, kept in dead-letter tables.

The package `deadletters` shows and replays them.
"""
