"""The schema registry: its port, the implementation on Confluent's API, the in-memory twin, and references between
schemas.
"""
