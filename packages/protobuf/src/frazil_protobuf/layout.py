"""The constants of a schema's tables and of the results of a walk over records (`scan`)."""

from __future__ import annotations

# How the values of a field are read. LEAF and LEAF_GROUP are messages that are kept as bytes.
VARINT, FIXED32, FIXED64, TEXT, BYTES, MESSAGE, GROUP, LEAF, LEAF_GROUP = range(9)

# Columns of the table of fields: the tag that it is most likely written with, how it is read, its wire type, the start
# of its cells, the start of its elements' cells, the elements' domain (0: not repeated), its message, the start of its
# oneof's cells (-1: none), cells of an element.
TAG, OP, WIRE, AT, ELEMENT_AT, DOMAIN, CHILD, ONEOF_AT, CELLS = range(9)
FIELD_WIDTH = 9

# Columns of the table of messages: its first field, the number of fields, the start of its part of the index, its size
# - 1.
FIRST, COUNT, INDEX_AT, INDEX_MASK = range(4)
NOTHING, ROOT = range(2)  # Messages: the one for unknown groups, and the record.

# Faults of a record.
OK, CUT, LONG_VARINT, BAD_TAG, BAD_WIRE, OPEN_GROUP, STRAY_END, UNEVEN, BAD_TEXT, TOO_DEEP, TOO_LARGE = range(11)

MAX_DEPTH = 64
MAX_CELLS = 2**24
"""The cells that the elements of one record may need, in addition to eight for each of its bytes: about 150 MB."""

MAX_NUMBER = 2**29 - 1

SPREAD = 0x9E3779B1
SPREAD_SHIFT = 15
"""A field's number is looked up from `(number * SPREAD >> SPREAD_SHIFT) & mask` on: neighbouring numbers are far apart,
so that the search for an unknown number ends soon.
"""
