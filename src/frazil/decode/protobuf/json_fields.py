"""The fields of a message that is to be written as JSON, compiled: which there are, and where their values lie.

A place is the first byte (from `base`) times 2**32 plus the length. -1 and False mean that the message is to be declined:
see `json_scan`.
"""

from __future__ import annotations

from numba import njit

from frazil.decode.memory import COMPILED, load8
from frazil.decode.protobuf.cells import LENGTH_MASK
from frazil.decode.protobuf.json_code import (
    COUNT,
    FIRST,
    FIXED,
    HAS_REQUIRED,
    IS_EXTENDABLE,
    IS_IMPLICIT,
    IS_REQUIRED,
    LIST,
    LONG_FIXED,
    MESSAGE,
    ONE,
    ONEOF,
    SHAPE,
    SLOTS,
    TEXT,
    TYPE,
    UNREAD,
    WIRE,
)
from frazil.decode.protobuf.json_scalars import is_odd, read_integer
from frazil.decode.protobuf.layout import MAX_NUMBER
from frazil.decode.protobuf.program import I64
from frazil.decode.protobuf.wire import (
    WIRE_BYTES,
    WIRE_FIXED32,
    WIRE_FIXED64,
    WIRE_GROUP,
    WIRE_GROUP_END,
    WIRE_VARINT,
    read_length,
    read_varint,
)

ONLY_TAG = 0x0A
"""Of the one field of Struct and of ListValue."""


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def end_of(wire: int, i: int, end: int) -> int:
    """The address after a value at `i` that has no length before it; negative where it is cut short."""
    if wire == WIRE_VARINT:
        i, _ = read_varint(i, end)
        return i
    i += 8 if wire == WIRE_FIXED64 else 4
    return i if i <= end else -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _skip(i: int, end: int, number: int, wire: int) -> int:
    """The address after the value of a field that nobody knows; negative for groups and for what is none."""
    if number < 1 or number > MAX_NUMBER or wire > WIRE_FIXED32 or wire == WIRE_GROUP or wire == WIRE_GROUP_END:
        return -1
    if wire != WIRE_BYTES:
        return end_of(wire, i, end)
    i, length = read_length(i, end)
    return i + length if i >= 0 else i


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _wire_of(kind: int) -> int:
    if kind >= TEXT:
        return WIRE_BYTES
    return WIRE_VARINT if kind < FIXED else WIRE_FIXED32 if kind < LONG_FIXED else WIRE_FIXED64


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_part(base: int, number: int, kind: int, i: int, end: int) -> tuple[int, int]:
    """A field of that number if it is at `i`: the address after it, negative where it is cut short, and its place."""
    wire = _wire_of(kind)
    if i >= end or load8(i) != (number << 3 | wire):
        return i, (i - base) << 32
    i += 1
    if wire == WIRE_BYTES:
        i, length = read_length(i, end)
        return i + length if i >= 0 else i, (i - base) << 32 | length
    stop = end_of(wire, i, end)
    return stop, (i - base) << 32 | (stop - i)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _read_entry(base: int, place: int, key_kind: int, kind: int, entries: I64, at: int) -> bool:
    """Reads an entry of a map: its key's place or number, and its value's place. False where it is to be declined."""
    i = base + (place >> 32)
    end = i + (place & LENGTH_MASK)
    i, key = read_part(base, 1, key_kind, i, end)
    if i < 0:
        return False
    i, value = read_part(base, 2, kind, i, end)
    if i != end:
        return False
    start = base + (key >> 32)
    if is_odd(key_kind, start, start + (key & LENGTH_MASK)):
        return False
    entries[at, 0] = key if key_kind == TEXT else read_integer(key_kind, start, start + (key & LENGTH_MASK))
    entries[at, 1] = value
    return True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_struct(base: int, i: int, end: int, entries: I64, count: int) -> int:
    """The entries of a Struct, behind the `count` that are there: how many there are then, -1 where it is to be declined."""
    while i < end:
        if load8(i) != ONLY_TAG:
            return -1
        i, length = read_length(i + 1, end)
        if i < 0 or not _read_entry(base, (i - base) << 32 | length, TEXT, MESSAGE, entries, count):
            return -1
        count += 1
        i += length
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_map(base: int, entry: int, key_kind: int, kind: int, entries: I64, count: int) -> int:
    """The same of a map, whose entries are a chain that begins with `entry`."""
    while entry >= 0:
        if entries[entry, 2] != 0 or not _read_entry(base, entries[entry, 0], key_kind, kind, entries, count):
            return -1
        count += 1
        entry = entries[entry, 1] - 1
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def find(numbers: I64, first: int, end: int, number: int) -> int:
    """The place of a number among those of a message's fields or an enum's words; -1 where it is none of them."""
    while first < end:
        middle = (first + end) >> 1
        if numbers[middle, 0] == number:
            return middle
        if numbers[middle, 0] < number:
            first = middle + 1
        else:
            end = middle
    return -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_fields(
    base: int,
    i: int,
    end: int,
    message: int,
    messages: I64,
    fields: I64,
    numbers: I64,
    entries: I64,
    slots: I64,
    first_slot: int,
    count: int,
) -> int:
    """The fields of a record as entries (place, next of the same field plus 1, whether it is a packed run), behind the
    `count` that are there, and in its slots the first of each field plus 1, and the last. How many entries there are
    then, -1 where it is to be declined.
    """
    first = messages[message, FIRST]
    last = first + messages[message, COUNT]
    for slot in range(first_slot, first_slot + messages[message, SLOTS]):
        slots[slot, 0] = 0
    guess = first
    while i < end:
        begin = i
        i, tag = read_varint(i, end)
        if i < 0 or i - begin > 5:
            return -1
        number = tag >> 3
        wire = tag & 7
        if guess >= last or numbers[guess, 0] != number:
            guess = find(numbers, first, last, number)
            if guess < 0:
                guess = first
                i = _skip(i, end, number, wire)
                if i < 0 or messages[message, IS_EXTENDABLE] != 0:
                    return -1
                continue
        field = numbers[guess, 1]
        shape = fields[field, SHAPE]
        guess += 1 if shape == ONE else 0
        kind = fields[field, TYPE]
        is_run = wire == WIRE_BYTES and fields[field, WIRE] != wire
        if kind == UNREAD or (wire != fields[field, WIRE] and not (is_run and shape == LIST)):
            return -1
        if wire == WIRE_BYTES:
            i, length = read_length(i, end)
            stop = i + length if i >= 0 else i
        else:
            stop = end_of(wire, i, end)
        if stop < 0:
            return -1
        slot = first_slot + field - first
        if shape == ONE:
            # A field that comes twice is one, and so is a message in two parts; of a oneof the last member counts.
            oneof = fields[field, ONEOF]
            if slots[slot, 0] != 0 or (oneof >= 0 and slots[first_slot + oneof, 0] != 0):
                return -1
            if oneof >= 0:
                slots[first_slot + oneof, 0] = 1
            if kind < MESSAGE and is_odd(kind, i, stop):
                return -1
            if fields[field, IS_IMPLICIT] != 0 and (i == stop or (kind < TEXT and read_integer(kind, i, stop) == 0)):
                i = stop
                continue
        if not (is_run and i == stop):
            entries[count, 0] = (i - base) << 32 | (stop - i)
            entries[count, 1] = 0
            entries[count, 2] = 1 if is_run else 0
            count += 1
            if slots[slot, 0] == 0:
                slots[slot, 0] = count
            else:
                entries[slots[slot, 1], 1] = count
            slots[slot, 1] = count - 1
        i = stop
    if messages[message, HAS_REQUIRED] != 0:
        for field in range(first, last):
            if fields[field, IS_REQUIRED] != 0 and slots[first_slot + field - first, 0] == 0:
                return -1
    return count
