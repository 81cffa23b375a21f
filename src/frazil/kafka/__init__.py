"""Kafka: the ports for topics, records and writing, and their implementations on a cluster."""
