"""The state of one table in a running pipeline, in small records; each has its rules beside it."""
