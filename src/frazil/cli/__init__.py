"""The command line: one file per command, which parses options, calls and prints.

Decisions are made in `ops` and below.
"""
