"""Envelopes in JSON opened: the members of each message, read where they are in its text."""
