"""Frazil turns Kafka topics into maintained Apache Iceberg tables."""

__version__ = "0.1.0"
