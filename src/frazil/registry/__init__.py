"""The schema registry: what is asked of it (`port`), the real one, its twin in memory, and what schemas mean."""
