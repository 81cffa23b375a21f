"""The schema registry: its port, Confluent's API, the in-memory twin, and references between schemas."""
