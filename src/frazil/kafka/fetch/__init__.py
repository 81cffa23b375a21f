"""Kafka's records as tasks read them: requests over a socket of their own, record batches by compiled loops."""
