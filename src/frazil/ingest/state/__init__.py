"""What a running pipeline knows of one table, in small records; each has its rules beside it."""
