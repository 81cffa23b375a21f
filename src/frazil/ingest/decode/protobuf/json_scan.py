"""The compiled writer of JSON for google.protobuf.Struct, Value and ListValue: what `json.to_json` writes of the same bytes.

What it does not write it declines: bytes that are no such message, and what only Protobuf's own parser puts together
(a field or a key that comes twice, a member of a oneof after another, fields that nobody knows).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from frazil.ingest.decode.json_text import FALSE, NULL, ROOM, TRUE, has_room, write_double, write_string, write_word
from frazil.ingest.decode.memory import COMPILED, U8, load8, load64, store8
from frazil.ingest.decode.protobuf.cells import LENGTH_MASK
from frazil.ingest.decode.protobuf.layout import LIST_VALUE, STRUCT, VALUE
from frazil.ingest.decode.protobuf.program import I64
from frazil.ingest.decode.protobuf.wire import is_utf8, read_length

_NEXT_ONE = -1

MAX_LEVELS = 100
"""So many levels deep Protobuf's own parser reads messages in messages."""

# Tags: of the only field of Struct and of ListValue, of the fields of an entry, of those of Value.
_ONLY = 0x0A
_KEY, _ENTRY_VALUE = 0x0A, 0x12
_NULL, _NUMBER, _TEXT, _BOOLEAN, _STRUCT, _LIST = 0x08, 0x11, 0x1A, 0x20, 0x2A, 0x32

# What is open at the place of the walk: a Struct (its first entry, the next one, the one after the last) or a ListValue
# (whether it has a value, the address of the next one, that of its end), and the level of the message.
_KIND, _FIRST, _NEXT, _END, _LEVEL = range(5)

_SIGN, _INFINITY = np.uint64(2**63), np.uint64(0x7FF0000000000000)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _compare(base: int, one: int, other: int) -> int:
    """Below, above or equal to 0, as the one text comes before the other, after it or is the same."""
    i = base + (one >> 32)
    k = base + (other >> 32)
    length = min(one & LENGTH_MASK, other & LENGTH_MASK)
    n = 0
    while n + 8 <= length and load64(i + n) == load64(k + n):
        n += 8
    while n < length:
        if load8(i + n) != load8(k + n):
            return load8(i + n) - load8(k + n)
        n += 1
    return (one & LENGTH_MASK) - (other & LENGTH_MASK)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _sort(base: int, entries: I64, spare: I64, first: int, end: int) -> bool:
    """Puts entries in the order of their keys, by a merge sort. False when two keys are equal: then they have no order."""
    count = end - first
    width = 1
    is_spare = False
    while width < count:
        source, target = (spare, entries) if is_spare else (entries, spare)
        for start in range(first, end, 2 * width):
            middle = min(start + width, end)
            stop = min(start + 2 * width, end)
            a = start
            b = middle
            for n in range(start, stop):
                order = -1
                if a < middle and b < stop:
                    order = _compare(base, source[a, 0], source[b, 0])
                    if order == 0:
                        return False
                if a < middle and (b >= stop or order < 0):
                    target[n, 0], target[n, 1] = source[a, 0], source[a, 1]
                    a += 1
                else:
                    target[n, 0], target[n, 1] = source[b, 0], source[b, 1]
                    b += 1
        is_spare = not is_spare
        width *= 2
    if is_spare:
        for n in range(first, end):
            entries[n, 0], entries[n, 1] = spare[n, 0], spare[n, 1]
    return True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _read_entry(base: int, i: int, end: int) -> tuple[int, int]:
    """Places of the key and of the value of a Struct's entry; -1 where the entry is to be declined."""
    key = (i - base) << 32
    value = key
    if i < end and load8(i) == _KEY:
        i, length = read_length(i + 1, end)
        if i < 0 or not is_utf8(i, i + length):
            return -1, 0
        key = (i - base) << 32 | length
        i += length
    if i < end and load8(i) == _ENTRY_VALUE:
        i, length = read_length(i + 1, end)
        if i < 0:
            return -1, 0
        value = (i - base) << 32 | length
        i += length
    return key if i == end else -1, value


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _read_entries(base: int, i: int, end: int, entries: I64, count: int) -> int:
    """The entries of a Struct, behind the `count` that are there: how many are there then, -1 where it is to be declined."""
    while i < end:
        if load8(i) != _ONLY:
            return -1
        i, length = read_length(i + 1, end)
        if i < 0:
            return -1
        key, value = _read_entry(base, i, i + length)
        if key < 0:
            return -1
        entries[count, 0] = key
        entries[count, 1] = value
        count += 1
        i += length
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _write_scalar(at: int, i: int, end: int) -> int:
    """A Value that is a number, a boolean or null; 0 where it is to be declined."""
    if i == end:
        return write_word(at, NULL)
    tag = load8(i)
    left = end - i - 1
    if tag == _NUMBER and left == 8 and load64(i + 1) & ~_SIGN < _INFINITY:
        return write_double(at, load64(i + 1))
    if tag == _BOOLEAN and left == 1 and load8(i + 1) <= 1:
        return write_word(at, TRUE if load8(i + 1) == 1 else FALSE)
    if tag == _NULL and left == 1 and load8(i + 1) < 0x80:
        return write_word(at, NULL)
    return 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_values(
    base: int,
    places: I64,
    valid: U8,
    kind: int,
    entries: I64,
    spare: I64,
    out: int,
    room: int,
    row: int,
    ends: I64,
    declined: U8,
) -> int:
    """Writes the messages of one kind at `places`, from `row` on, that are `valid`: see `WriteValues`.

    entries, spare: room for as many entries as one of them has.
    """
    opened = np.zeros((MAX_LEVELS + 1, 5), np.int64)
    limit = out + room
    while row < places.size:
        ends[row + 1] = ends[row]
        if valid[row] == 0:
            row += 1
            continue
        at = out + ends[row]
        i = base + (places[row] >> 32)
        end = i + (places[row] & LENGTH_MASK)
        what = kind
        level = 0
        depth = 0
        count = 0
        is_good = True
        is_first = True
        while is_good:
            if at + ROOM > limit:
                return row
            if what == VALUE:
                what = _NEXT_ONE
                tag = load8(i) if i < end else 0
                if tag == _TEXT or tag == _STRUCT or tag == _LIST:
                    i, length = read_length(i + 1, end)
                    if i < 0 or i + length != end:
                        is_good = False
                    elif tag == _STRUCT or tag == _LIST:
                        what = STRUCT if tag == _STRUCT else LIST_VALUE
                        level += 1
                        is_good = level <= MAX_LEVELS
                    elif not has_room(at, limit, i, length):
                        return row
                    elif is_utf8(i, end):
                        at = write_string(at, i, length)
                    else:
                        is_good = False
                else:
                    at = _write_scalar(at, i, end)
                    is_good = at != 0
            elif what == STRUCT or what == LIST_VALUE:
                f = depth
                depth += 1
                opened[f, _KIND] = what
                opened[f, _LEVEL] = level
                opened[f, _FIRST] = count
                opened[f, _NEXT] = i
                opened[f, _END] = end
                if what == STRUCT:
                    opened[f, _NEXT] = count
                    count = _read_entries(base, i, end, entries, count)
                    is_good = count >= 0 and _sort(base, entries, spare, opened[f, _FIRST], count)
                    opened[f, _END] = count
                store8(at, 0x7B if what == STRUCT else 0x5B)
                at += 1
                is_first = True
                what = _NEXT_ONE
                continue
            elif depth == 0:
                break
            else:
                f = depth - 1
                i = opened[f, _NEXT]
                is_struct = opened[f, _KIND] == STRUCT
                if i == opened[f, _END]:
                    store8(at, 0x7D if is_struct else 0x5D)
                    at += 1
                    count = opened[f, _FIRST]
                    depth = f
                    is_first = False
                    continue
                if not is_first:
                    store8(at, 0x2C)
                    at += 1
                what = VALUE
                level = opened[f, _LEVEL] + 1
                if is_struct:
                    level += 1  # An entry is a message too.
                    opened[f, _NEXT] = i + 1
                    key = entries[i, 0]
                    end = base + (entries[i, 1] >> 32) + (entries[i, 1] & LENGTH_MASK)
                    length = key & LENGTH_MASK
                    if not has_room(at, limit, base + (key >> 32), length):
                        return row
                    at = write_string(at, base + (key >> 32), length)
                    store8(at, 0x3A)
                    at += 1
                    i = base + (entries[i, 1] >> 32)
                else:
                    end = opened[f, _END]
                    is_good = load8(i) == _ONLY
                    i, length = read_length(i + 1, end)
                    is_good = is_good and i >= 0
                    end = i + length
                    opened[f, _NEXT] = end
                is_good = is_good and level <= MAX_LEVELS
            is_first = False
        if is_good:
            ends[row + 1] = at - out
        else:
            declined[row] = 1
        row += 1
    return row
