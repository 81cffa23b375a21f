"""The command line: a file for each command, or for a few of one theme, which parses options, calls and prints.

Decisions are made in `ops` and below.
"""
