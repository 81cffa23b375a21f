"""Message indexes of the Confluent wire format: which message of its schema a record is.

Source: "Wire format" in Confluent's documentation of Schema Registry. After the schema's id come a count and as many
indexes, all of them zigzag varints: [1, 0] is the first message inside the second. [0], which nearly every record has,
is written as one byte 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import Bodies, Fault
from frazil.decode.memory import COMPILED, I32, U8, load8
from frazil.decode.protobuf.wire import read_varint

MAX_INDEXES = 32
MESSAGE_INDEX_FAULTS = (
    Fault("malformed", "the record is cut short within its message indexes"),
    Fault("malformed", f"the record's message indexes are negative, or more than {MAX_INDEXES}"),
)
_CUT, _ABSURD = 1, 2
_WORD_BYTES = 8
_MAX_INDEX = 2**31 - 1


U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Indexed:
    """Records with the message that each one is."""

    #: The distinct index paths, in the order of their first record.
    paths: list[tuple[int, ...]]
    #: The index in `paths` of each record, -1 for a faulty one: int32 of shape (n_records,).
    path: I32
    #: The bytes after the indexes.
    bodies: Bodies
    #: 0, or the 1-based index in MESSAGE_INDEX_FAULTS: uint8 of shape (n_records,).
    fault: U8


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
