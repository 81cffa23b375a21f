"""What a task reports of one table: a record for each room that acts on it, with its own way to be put together and read."""
