"""Configurations of other tools made into a pipeline file: a table of answers and a reader for each tool."""
