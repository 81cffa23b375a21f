"""Dead letters: the records that could not become rows, kept in dead-letter tables and replayed from there."""
