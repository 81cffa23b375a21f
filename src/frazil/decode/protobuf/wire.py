"""The Protobuf wire format, compiled: values read from an address, and the address after them.

Source: https://protobuf.dev/programming-guides/encoding. Negative addresses are faults.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from frazil.decode.memory import COMPILED, load8, load64, trailing_zeros

# Wire types.
WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_GROUP, WIRE_GROUP_END, WIRE_FIXED32 = range(6)

CUT_SHORT = -1
TOO_LONG = -2

_HIGHS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)
_LOW7, _HIGH7 = np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)
_LOW14, _HIGH14 = np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)
_LOW28, _HIGH28 = np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000)
_SHIFT7, _SHIFT14, _SHIFT28 = np.uint64(1), np.uint64(2), np.uint64(4)
_NO_BITS = np.uint64(0)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_varint(i: int, end: int) -> tuple[int, int]:
    """Returns the address after the varint at `i`, and its 64 bits as int64."""
    if i + 8 <= end:
        word = load64(i)
        stops = ~word & _HIGHS
        if stops != _NO_BITS:
            # Everything up to the first byte without a high bit; then seven bits of each byte moved together.
            size = (trailing_zeros(stops) + 1) >> 3
            word &= stops ^ (stops - _ONE)
            word = (word & _LOW7) | ((word & _HIGH7) >> _SHIFT7)
            word = (word & _LOW14) | ((word & _HIGH14) >> _SHIFT14)
            word = (word & _LOW28) | ((word & _HIGH28) >> _SHIFT28)
            return i + size, np.int64(word)  # type: ignore[return-value]
    value = 0
    shift = 0
    while i < end:
        byte = load8(i)
        i += 1
        if shift == 63 and byte > 1:
            return TOO_LONG, 0  # More than 64 bits, or than ten bytes.
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return i, value
        shift += 7
    return CUT_SHORT, 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_length(i: int, end: int) -> tuple[int, int]:
    """Returns the length at `i`, and the address of the first of so many bytes, which are all before `end`."""
    i, length = read_varint(i, end)
    if i >= 0 and (length < 0 or length > end - i):
        return CUT_SHORT, 0
    return i, length


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_fixed32(i: int) -> int:
    """Returns the four bytes at `i`, unsigned."""
    return load8(i) | load8(i + 1) << 8 | load8(i + 2) << 16 | load8(i + 3) << 24


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _sequence_length(i: int, end: int) -> int:
    """Returns the bytes of the UTF-8 sequence at `i`, which is not ASCII; 0 when it is invalid (Unicode 16, table 3-7)."""
    first = load8(i)
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if i + size > end:
        return 0
    second = load8(i + 1)
    least = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    most = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
    if second < least or second > most:
        return 0
    for k in range(2, size):
        if load8(i + k) & 0xC0 != 0x80:
            return 0
    return size


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def is_utf8(i: int, end: int) -> bool:
    """Whether the bytes are UTF-8."""
    while i < end:
        if i + 8 <= end and (load64(i) & _HIGHS) == _NO_BITS:
            i += 8
        elif load8(i) < 0x80:
            i += 1
        else:
            size = _sequence_length(i, end)
            if size == 0:
                return False
            i += size
    return True
