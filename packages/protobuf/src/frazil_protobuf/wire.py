"""The Protobuf wire format, compiled: values read from an address, and the address after them.

Source: https://protobuf.dev/programming-guides/encoding. Negative addresses are faults.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import Bodies, Fault
from frazil.decode.messages import Indexed
from frazil.error_classes import ErrorClass
from frazil.raw_memory import COMPILED, I32, U8, load8, load64, trailing_zeros

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


MAX_INDEXES = 32
MESSAGE_INDEX_FAULTS = (
    Fault(ErrorClass.MALFORMED, "the record is cut short within its message indexes"),
    Fault(ErrorClass.MALFORMED, f"the record's message indexes are negative, or more than {MAX_INDEXES}"),
)
_CUT, _ABSURD = 1, 2
_WORD_BYTES = 8
_MAX_INDEX = 2**31 - 1


U64 = NDArray[np.uint64]


def split_message_indexes(bodies: Bodies) -> Indexed:
    """Returns the records without the message indexes that they begin with. Bad records raise nothing."""
    rows = len(bodies)
    fault, size = np.zeros(rows, np.uint8), np.zeros(rows, np.int32)
    spelling = np.zeros(rows, np.uint64)
    _measure(bodies.base, contiguous(bodies.start), contiguous(bodies.end), size, spelling, fault)
    rest = Bodies(bodies.buffer, bodies.start + size, bodies.end)
    if not (spelling.any() or fault.any()):
        return Indexed([(0,)] if rows else [], np.zeros(rows, np.int32), rest, fault)
    paths: dict[tuple[int, ...], int] = {}
    path = np.full(rows, -1, np.int32)
    short = np.flatnonzero((fault == 0) & (size <= _WORD_BYTES))
    words, first, code = np.unique(spelling[short], return_index=True, return_inverse=True)
    in_order = np.argsort(first)
    codes = np.empty(words.size, np.int32)
    for n in in_order.tolist():
        codes[n] = paths.setdefault(_indexes(int(words[n]).to_bytes(_WORD_BYTES, "little")), len(paths))
    path[short] = codes[code]
    for row in np.flatnonzero((fault == 0) & (size > _WORD_BYTES)).tolist():
        start = bodies.start[row]
        path[row] = paths.setdefault(_indexes(bodies.buffer[start : start + size[row]].tobytes()), len(paths))
    return Indexed(list(paths), path, rest, fault)


def contiguous(positions: I32) -> I32:
    """Returns the same positions as a contiguous, writable array: for another kind of array all loops would be compiled
    again.
    """
    return np.require(positions, np.int32, ["C", "A", "W"])


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _measure(base: int, starts: I32, ends: I32, sizes: I32, spelling: U64, fault: U8) -> None:
    """Writes the number of bytes of each record's indexes, and the first eight of those."""
    for row in range(starts.size):
        first = base + starts[row]
        end = base + ends[row]
        if first < end and load8(first) == 0:
            sizes[row] = 1
            continue
        i, count = read_varint(first, end)
        # Zigzag: even numbers are those that are not negative.
        if i >= 0 and (count & 1 or count < 0 or count > 2 * MAX_INDEXES):
            fault[row] = _ABSURD
            continue
        k = 0
        while i >= 0 and k < count >> 1:
            i, index = read_varint(i, end)
            if i >= 0 and (index & 1 or index < 0 or index > 2 * _MAX_INDEX):
                fault[row] = _ABSURD
                break
            k += 1
        if i < 0:
            fault[row] = _CUT
        if fault[row] == 0:
            sizes[row] = i - first
            word = np.uint64(0)
            for n in range(min(i - first, _WORD_BYTES)):
                word |= np.uint64(load8(first + n)) << np.uint64(8 * n)
            spelling[row] = word


def _indexes(raw: bytes) -> tuple[int, ...]:
    """Returns the indexes that these bytes begin with."""
    numbers: list[int] = []
    number = shift = 0
    for byte in raw:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number >> 1)
            number = shift = 0
            if len(numbers) > numbers[0]:
                break
    return tuple(numbers[1:]) or (0,)
