"""Kafka Connect's own types and schemas."""
