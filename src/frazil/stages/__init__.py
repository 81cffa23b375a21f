"""Stages of a table: a room each, with its settings, what the driver makes of them, and what tasks do with changes."""
