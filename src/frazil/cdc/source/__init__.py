"""Where a change comes from: positions in the log of the source, order of commits, database and table, unsent values."""
