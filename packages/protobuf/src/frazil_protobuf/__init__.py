"""Protobuf messages to columns."""
