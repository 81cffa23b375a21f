"""Numbers and blocks of Avro's binary encoding, compiled (Avro specification 1.12, "Binary Encoding").

Each function takes an address and returns the address after what it reads; a negative one is a fault, negated.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from frazil.decode.avro.faults import (
    BAD_BLOCK,
    BAD_LENGTH,
    CUT_SHORT,
    LONG_NUMBER,
    MAX_ITEMS,
    TOO_MANY_EMPTY,
    TOO_MANY_ITEMS,
)
from frazil.decode.memory import COMPILED, load8

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
