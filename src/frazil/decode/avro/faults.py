"""The faults of an Avro body: a number in the compiled loops, a Fault with a message elsewhere."""

from __future__ import annotations

from frazil.decode.columns import Fault

OK = 0
CUT_SHORT = 1
LEFT_OVER = 2
LONG_NUMBER = 3
WIDE_INT = 4
BAD_LENGTH = 5
BAD_BOOLEAN = 6
NO_BRANCH = 7
NO_SYMBOL = 8
BAD_BLOCK = 9
TOO_MANY_ITEMS = 10
TOO_MANY_EMPTY = 11
TOO_MANY_CELLS = 12
TOO_DEEP = 13
NO_TIME = 14
FAR_MOMENT = 15
BAD_TEXT = 16
SAME_KEY = 17
WIDE_DECIMAL = 18
NO_DECIMAL = 19
NO_UUID = 20
LONG_JSON = 21

MAX_ITEMS = 1_000_000
"""The largest number of items of one array or map."""

MAX_EMPTY_ITEMS = 1_000
"""The largest number of items of one record that take no bytes (null, records without fields): without a limit 4 bytes
are a million items.
"""

FREE_CELLS, CELLS_PER_BYTE = 100_000, 64
"""The number of values, absent ones included, that a record's array elements may take, and the additional number for
each byte of the record.
"""

MAX_JSON_CHARACTERS = 16 * 2**20
"""The largest number of characters in names of fields, branches and symbols of one value that is written as JSON."""

FAULTS = (
    Fault("malformed", "the body is cut short: it ends inside a value"),
    Fault("malformed", "bytes are left over after the value: the body was written with another schema"),
    Fault("malformed", "a number has more than 10 bytes or 64 bits"),
    Fault("malformed", "an int is out of the range of 32 bits"),
    Fault("malformed", "a length is negative or goes beyond the end of the body"),
    Fault("malformed", "a boolean is neither 0 nor 1"),
    Fault("malformed", "a union has no branch of that number"),
    Fault("malformed", "an enum has no symbol of that number"),
    Fault("malformed", "a block of an array or map does not have the size that it gives"),
    Fault("too_large", f"an array or map has more than {MAX_ITEMS:,} items"),
    Fault("too_large", f"more than {MAX_EMPTY_ITEMS:,} array items take no bytes"),
    Fault(
        "too_large",
        f"the items of arrays and maps would become more than {FREE_CELLS:,} values in columns, and {CELLS_PER_BYTE}"
        " per byte, absent ones included: split it",
    ),
    Fault("too_deep", "the value is nested more than 64 levels deep"),
    Fault("out_of_range", "a time is not within the 24 hours of a day"),
    Fault("out_of_range", "{value} is a time outside of the years 1 to 9999"),
    Fault("invalid_text", "a string is not UTF-8"),
    Fault("duplicate_key", "a map has the same key twice"),
    Fault("out_of_range", "a decimal has more digits than its precision"),
    Fault("malformed", "a decimal has no bytes"),
    Fault("type_mismatch", "a string is not a UUID in the form 8-4-4-4-12"),
    Fault("too_large", "the JSON of a value that contains its own type would be too long"),
)
"""The Fault with number n is at index n - 1."""
