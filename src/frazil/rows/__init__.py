"""Record values, keys and metadata to the rows of a table, for every format."""
