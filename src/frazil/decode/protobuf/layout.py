"""The numbers that a schema's tables are made of, and what a walk over records (`scan`) answers in."""

from __future__ import annotations

# How the values of a field are read. LEAF and LEAF_GROUP are messages that are not taken apart.
VARINT, FIXED32, FIXED64, TEXT, BYTES, MESSAGE, GROUP, LEAF, LEAF_GROUP = range(9)

# Columns of the table of fields: the tag that it is most likely written with, how it is read, its wire type, where its
# cells begin, those of its elements, the elements' domain (0: not repeated), the message it is, where the cells of its
# oneof begin (-1: none), cells of an element.
TAG, OP, WIRE, AT, ELEMENT_AT, DOMAIN, CHILD, ONEOF_AT, CELLS = range(9)
FIELD_WIDTH = 9

# Columns of the table of messages: the first of its fields, how many, where its part of the index begins, its size - 1.
FIRST, COUNT, INDEX_AT, INDEX_MASK = range(4)
NOTHING, ROOT = range(2)  # Messages: what an unknown group is read as, and the record.

# What is wrong with a record.
OK, CUT, LONG_VARINT, BAD_TAG, BAD_WIRE, OPEN_GROUP, STRAY_END, UNEVEN, BAD_TEXT, TOO_DEEP, TOO_LARGE = range(11)

MAX_DEPTH = 64
MAX_CELLS = 2**24
"""Cells that the elements of one record may need, besides eight for each of its bytes: about 150 MB."""

MAX_NUMBER = 2**29 - 1

SPREAD = 0x9E3779B1
SPREAD_SHIFT = 15
"""A field's number is looked up from `(number * SPREAD >> SPREAD_SHIFT) & mask` on: neighbours lie apart, so that a
number that nobody has is soon not found."""
