"""Numbers and blocks of Avro's binary encoding, compiled (Avro specification 1.12, "Binary Encoding").

Each function takes an address and returns the address after what it reads; a negative one is a fault, negated.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from frazil.decode.columns import Fault
from frazil.error_classes import ErrorClass
from frazil.raw_memory import COMPILED, load8

(
    OK, CUT_SHORT, LEFT_OVER, LONG_NUMBER, WIDE_INT, BAD_LENGTH, BAD_BOOLEAN, NO_BRANCH, NO_SYMBOL, BAD_BLOCK,
    TOO_MANY_ITEMS, TOO_MANY_EMPTY, TOO_MANY_CELLS, TOO_DEEP, NO_TIME, FAR_MOMENT, BAD_TEXT, SAME_KEY, WIDE_DECIMAL,
    NO_DECIMAL, NO_UUID, LONG_JSON,
) = range(22)  # fmt: skip

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
    Fault(ErrorClass.MALFORMED, "the body is cut short: it ends inside a value"),
    Fault(ErrorClass.MALFORMED, "bytes are left over after the value: the body was written with another schema"),
    Fault(ErrorClass.MALFORMED, "a number has more than 10 bytes or 64 bits"),
    Fault(ErrorClass.MALFORMED, "an int is out of the range of 32 bits"),
    Fault(ErrorClass.MALFORMED, "a length is negative or goes beyond the end of the body"),
    Fault(ErrorClass.MALFORMED, "a boolean is neither 0 nor 1"),
    Fault(ErrorClass.MALFORMED, "a union has no branch of that number"),
    Fault(ErrorClass.MALFORMED, "an enum has no symbol of that number"),
    Fault(ErrorClass.MALFORMED, "a block of an array or map does not have the size that it gives"),
    Fault(ErrorClass.TOO_LARGE, f"an array or map has more than {MAX_ITEMS:,} items"),
    Fault(ErrorClass.TOO_LARGE, f"more than {MAX_EMPTY_ITEMS:,} array items take no bytes"),
    Fault(
        ErrorClass.TOO_LARGE,
        f"the items of arrays and maps would become more than {FREE_CELLS:,} values in columns, and {CELLS_PER_BYTE}"
        " per byte, absent ones included: split it",
    ),
    Fault(ErrorClass.TOO_DEEP, "the value is nested more than 64 levels deep"),
    Fault(ErrorClass.OUT_OF_RANGE, "a time is not within the 24 hours of a day"),
    Fault(ErrorClass.OUT_OF_RANGE, "{value} is a time outside the years 1 to 9999"),
    Fault(ErrorClass.INVALID_TEXT, "a string is not UTF-8"),
    Fault(ErrorClass.DUPLICATE_KEY, "a map has the same key twice"),
    Fault(ErrorClass.OUT_OF_RANGE, "a decimal has more digits than its precision"),
    Fault(ErrorClass.MALFORMED, "a decimal has no bytes"),
    Fault(ErrorClass.TYPE_MISMATCH, "a string is not a UUID in the form 8-4-4-4-12"),
    Fault(ErrorClass.TOO_LARGE, "the JSON of a value that contains its own type would be too long"),
)
"""The Fault with number n is at index n - 1."""


_FAR = 2**62


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_number(i: int, end: int) -> tuple[int, int]:
    """Returns the address after the zig-zag number at `i`, and its value."""
    if i >= end:
        return -CUT_SHORT, 0
    c = load8(i)
    if c < 0x80:
        return i + 1, (c >> 1) ^ -(c & 1)
    total = np.uint64(c & 0x7F)
    shift = 7
    i += 1
    while i < end:
        c = load8(i)
        i += 1
        if shift == 63 and c > 1:
            return -LONG_NUMBER, 0
        total |= np.uint64(c & 0x7F) << np.uint64(shift)
        if c < 0x80:
            return i, int(np.int64(total >> np.uint64(1)) ^ -np.int64(total & np.uint64(1)))
        shift += 7
    return -CUT_SHORT, 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_block(i: int, end: int) -> tuple[int, int, int]:
    """Returns the address after the head of the block at `i`, its number of items, and the address after the block if
    the head gives its size, else 0.
    """
    i, count = read_number(i, end)
    if i < 0 or count >= 0:
        return i, count, 0
    count = max(count, -_FAR)  # The least integer cannot be negated.
    i, size = read_number(i, end)
    if i < 0:
        return i, 0, 0
    if size < 0 or size > end - i:
        return -BAD_LENGTH, 0, 0
    return i, -count, i + size


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def count_empty_items(i: int, end: int, limit: int) -> tuple[int, int]:
    """Returns the address after the blocks of an array whose items take no bytes, and the number of items, up to
    `limit`.
    """
    total = 0
    while True:
        i, count, block_end = read_block(i, end)
        if i < 0 or count == 0:
            return i, total
        if block_end != 0 and block_end != i:
            return -BAD_BLOCK, total
        if count > MAX_ITEMS - total:
            return -TOO_MANY_ITEMS, total
        total += count
        if total > limit:
            return -TOO_MANY_EMPTY, total


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_float_bits(i: int) -> int:
    """Returns the 32 bits of a float."""
    return load8(i) | load8(i + 1) << 8 | load8(i + 2) << 16 | load8(i + 3) << 24
