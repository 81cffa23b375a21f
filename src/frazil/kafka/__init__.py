"""Kafka: the ports for topics, records and writing, their implementations on a cluster, and their in-memory twins."""
