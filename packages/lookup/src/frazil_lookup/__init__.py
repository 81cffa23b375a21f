"""Reference tables that the records of a table are joined with."""
