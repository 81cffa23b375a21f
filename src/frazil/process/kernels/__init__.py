"""Functions of queries, on Arrow arrays."""
