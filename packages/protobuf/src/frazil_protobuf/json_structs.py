"""The JSON text of google.protobuf.Struct, Value and ListValue, compiled: what `json.to_json` returns of the same bytes.

Many topics have such fields, and Protobuf's library takes 30 times as long (docs/decisions/0029-json-text-by-libraries.md).
Declined, for the library to decide: bytes that are no such message, numbers that have no JSON, and what only the
library's parser merges (a key that comes twice, a Value with two members, unknown fields, tags of several bytes).

A place is the first byte (from `base`) times 2**32 plus the length.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from frazil.raw_memory import COMPILED, U8, is_on_disk, is_utf8, load8, load64, store8
from frazil_protobuf.json_writer import FALSE, NULL, ROOM, TRUE, has_room, write_double, write_string, write_word
from frazil_protobuf.program import I64, LENGTH_MASK
from frazil_protobuf.wire import read_length

STRUCT, LIST, VALUE, _NEXT = range(4)
"""What is written; `_NEXT`: the next entry or element of the innermost object or array, or its end."""

MAX_LEVELS = 100
"""How many levels deep Protobuf's own parser reads messages in messages."""

# Tags: of the only field of Struct and ListValue, of the two fields of a Struct's entry, of the fields of Value.
_ONLY_TAG, _KEY_TAG, _VALUE_TAG = 0x0A, 0x0A, 0x12
_NULL_TAG, _NUMBER_TAG, _TEXT_TAG, _BOOLEAN_TAG, _STRUCT_TAG, _LIST_TAG = 0x08, 0x11, 0x1A, 0x20, 0x2A, 0x32

# Of each open object or array: what it is, its level, whether something is written in it, and what comes next and where it
# ends, as numbers of entries for an object and as addresses for an array; of an object its first entry.
_WHAT, _LEVEL, _HAS_ANY, _AT, _END, _FIRST = range(6)

_SIGN, _INFINITY = np.uint64(2**63), np.uint64(0x7FF0000000000000)
_COMMA, _COLON = 0x2C, 0x3A


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _read_member(base: int, tag: int, i: int, end: int) -> tuple[int, int]:
    """A field with a length, of which the tag is one byte, if it is at `i`: the address after it, negative where it is cut
    short, and its place.
    """
    if i >= end or load8(i) != tag:
        return i, (i - base) << 32
    i, length = read_length(i + 1, end)
    return i + length if i >= 0 else i, (i - base) << 32 | length


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _read_entries(base: int, i: int, end: int, entries: I64, count: int) -> int:
    """Appends the places of a Struct's keys and values to the `count` entries: the new count, -1 where it is declined."""
    while i < end:
        if load8(i) != _ONLY_TAG:
            return -1
        i, length = read_length(i + 1, end)
        if i < 0:
            return -1
        stop = i + length
        i, entries[count, 0] = _read_member(base, _KEY_TAG, i, stop)
        if i >= 0:
            i, entries[count, 1] = _read_member(base, _VALUE_TAG, i, stop)
        if i != stop:
            return -1
        key = base + (entries[count, 0] >> 32)
        if not is_utf8(key, key + (entries[count, 0] & LENGTH_MASK)):
            return -1
        count += 1
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _compare(base: int, key: int, other: int) -> int:
    """Below, above or equal to 0, as the one key comes before the other, after it or is the same."""
    i = base + (key >> 32)
    k = base + (other >> 32)
    length = min(key & LENGTH_MASK, other & LENGTH_MASK)
    n = 0
    while n + 8 <= length and load64(i + n) == load64(k + n):
        n += 8
    while n < length:
        if load8(i + n) != load8(k + n):
            return load8(i + n) - load8(k + n)
        n += 1
    return (key & LENGTH_MASK) - (other & LENGTH_MASK)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _sort_entries(base: int, entries: I64, spare: I64, first: int, end: int) -> bool:
    """Puts entries in the order of their keys, by a merge sort: no keys, however chosen, take longer than n log n. False
    when two keys are equal.
    """
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
def write_structs(
    base: int,
    places: I64,
    valid: U8,
    root: int,
    entries: I64,
    spare: I64,
    out: int,
    room: int,
    row: int,
    ends: I64,
    declined: U8,
) -> int:
    """Writes the messages at `places`, from `row` on, that are `valid`: see `WriteValues`.

    root: whether they are of STRUCT, LIST or VALUE. entries, spare: room for as many entries as a message has bytes.
    """
    opened = np.zeros((MAX_LEVELS + 2, 6), np.int64)
    limit = out + room
    while row < places.size:
        ends[row + 1] = ends[row]
        if valid[row] == 0:
            row += 1
            continue
        at = out + ends[row]
        i = base + (places[row] >> 32)
        end = i + (places[row] & LENGTH_MASK)
        what = root
        level = 0
        depth = 0
        count = 0
        is_good = True
        while is_good:
            if at + ROOM > limit:
                return row
            if what == VALUE:
                what = _NEXT
                tag = load8(i) if i < end else 0
                left = end - i - 1
                if i == end or (tag == _NULL_TAG and left == 1 and load8(i + 1) < 0x80):
                    at = write_word(at, NULL)
                elif tag == _NUMBER_TAG and left == 8 and load64(i + 1) & ~_SIGN < _INFINITY:
                    at = write_double(at, load64(i + 1))
                elif tag == _BOOLEAN_TAG and left == 1 and load8(i + 1) <= 1:
                    at = write_word(at, TRUE if load8(i + 1) != 0 else FALSE)
                elif tag == _TEXT_TAG or tag == _STRUCT_TAG or tag == _LIST_TAG:
                    i, length = read_length(i + 1, end)
                    if i < 0 or i + length != end:
                        is_good = False
                    elif tag != _TEXT_TAG:
                        what = STRUCT if tag == _STRUCT_TAG else LIST
                        level += 1
                        is_good = level <= MAX_LEVELS
                    elif not is_utf8(i, end):
                        is_good = False
                    elif not has_room(at, limit, i, length):
                        return row
                    else:
                        at = write_string(at, i, length)
                else:
                    is_good = False
            elif what != _NEXT:
                f = depth
                depth += 1
                opened[f, _WHAT] = what
                opened[f, _LEVEL] = level
                opened[f, _HAS_ANY] = 0
                opened[f, _FIRST] = count
                if what == STRUCT:
                    opened[f, _AT] = count
                    count = _read_entries(base, i, end, entries, count)
                    opened[f, _END] = count
                    is_good = count >= 0 and _sort_entries(base, entries, spare, opened[f, _AT], count)
                else:
                    opened[f, _AT] = i
                    opened[f, _END] = end
                store8(at, 0x7B if what == STRUCT else 0x5B)
                at += 1
                what = _NEXT
            elif depth == 0:
                break
            else:
                f = depth - 1
                is_struct = opened[f, _WHAT] == STRUCT
                i = opened[f, _AT]
                if i == opened[f, _END]:
                    store8(at, 0x7D if is_struct else 0x5D)
                    at += 1
                    count = opened[f, _FIRST]
                    depth = f
                    continue
                if opened[f, _HAS_ANY] != 0:
                    store8(at, _COMMA)
                    at += 1
                opened[f, _HAS_ANY] = 1
                level = opened[f, _LEVEL] + 1
                if is_struct:
                    level += 1  # An entry is a message too.
                    opened[f, _AT] = i + 1
                    key = base + (entries[i, 0] >> 32)
                    length = entries[i, 0] & LENGTH_MASK
                    if not has_room(at, limit, key, length):
                        return row
                    at = write_string(at, key, length)
                    store8(at, _COLON)
                    at += 1
                    length = entries[i, 1] & LENGTH_MASK
                    i = base + (entries[i, 1] >> 32)
                else:
                    is_good = load8(i) == _ONLY_TAG
                    i, length = read_length(i + 1, opened[f, _END])
                    is_good = is_good and i >= 0
                    opened[f, _AT] = i + length
                end = i + length
                what = VALUE
                is_good = is_good and level <= MAX_LEVELS
        if is_good:
            ends[row + 1] = at - out
        else:
            declined[row] = 1
        row += 1
    return row


def warm_up(compiles_all: bool) -> None:
    """Loads the compiled writer where it is on disk; with `compiles_all` also where it must be compiled first."""
    if compiles_all or is_on_disk(write_structs):
        numbers, flags, entries = np.zeros(1, np.int64), np.zeros(0, np.uint8), np.zeros((0, 2), np.int64)
        write_structs(0, numbers[:0], flags, STRUCT, entries, entries, 0, 0, 0, numbers, flags)
