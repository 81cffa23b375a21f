"""The command line: one file per command, which parses options, calls and prints; decisions are made in `ops` and
below.
"""
