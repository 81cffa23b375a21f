"""The compiled writer of JSON for messages that no struct can hold: what `json.to_json` writes of the same bytes, by one
function for every message, which looks into the tables of `json_code`.

What it does not write it declines: bytes that are no such message, values that have no JSON, and what only Protobuf's
own parser puts together (a field or a key that comes twice, a second member of a oneof, groups, extensions),
google.protobuf.Any and FieldMask.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from frazil.decode.json_text import NULL as NULL_WORD
from frazil.decode.json_text import ROOM, has_room, write_string, write_word
from frazil.decode.memory import COMPILED, U8, copy_bytes, load8, load64, store8
from frazil.decode.protobuf.cells import LENGTH_MASK
from frazil.decode.protobuf.json_code import (
    BOOLEAN,
    CHILD,
    COUNT,
    DOUBLE,
    DURATION,
    ENUM,
    FIRST,
    IS_CLOSED,
    KEY,
    KIND,
    LIST,
    LIST_VALUE,
    MAP,
    MESSAGE,
    NAME_AT,
    NAME_LENGTH,
    OTHER,
    RECORD,
    SHAPE,
    SLOTS,
    STRUCT,
    TEXT,
    TIMESTAMP,
    TYPE,
    VALUE,
    WIRE,
    WORDS,
    WRAPPER,
)
from frazil.decode.protobuf.json_fields import (
    ONLY_TAG,
    end_of,
    find,
    read_fields,
    read_map,
    read_part,
    read_struct,
)
from frazil.decode.protobuf.json_scalars import (
    is_odd,
    read_integer,
    sort_entries,
    write_duration,
    write_key,
    write_scalar,
    write_timestamp,
)
from frazil.decode.protobuf.program import I64
from frazil.decode.protobuf.wire import is_utf8, read_length

MAX_LEVELS = 100
"""So many levels deep Protobuf's own parser reads messages in messages."""

# Tags of the fields of Value.
_NULL, _NUMBER, _TEXT, _BOOLEAN, _STRUCT, _LIST = 0x08, 0x11, 0x1A, 0x20, 0x2A, 0x32

# What comes next, besides a message of some kind.
_NEXT_ONE, _SCALAR = -1, -2

# What is open at the place of the walk. Of all: what it is, its message's level, its first entry, whether something of it
# is written. Of a Struct or map: its entry to be written next, the one after the last, its field (-1: of a Struct). Of a
# ListValue: the addresses of its next value and of its end. Of a record: the field that was written last and the one after
# the last of its fields, its first slot; of a list in it whether it is open (1; 2: with an element written), the entry
# that is next plus 1, and what is left of a packed run.
_WHAT, _LEVEL, _FIRST_ENTRY, _ANY, _NEXT, _END, _FIELD, _SLOT, _LISTING, _CHAIN, _RUN, _RUN_END = range(12)

_SIGN, _INFINITY = np.uint64(2**63), np.uint64(0x7FF0000000000000)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_messages(
    base: int,
    places: I64,
    valid: U8,
    messages: I64,
    fields: I64,
    numbers: I64,
    words: I64,
    literals: int,
    entries: I64,
    spare: I64,
    slots: I64,
    out: int,
    room: int,
    row: int,
    ends: I64,
    declined: U8,
) -> int:
    """Writes the messages at `places`, from `row` on, that are `valid`: see `WriteValues`.

    messages, fields, numbers, words, literals: see `JsonCode`, the last one an address. entries, spare: room for as many
    entries as a message has bytes. slots: room for those of MAX_LEVELS messages in each other.
    """
    opened = np.zeros((MAX_LEVELS + 2, 12), np.int64)
    limit = out + room
    while row < places.size:
        ends[row + 1] = ends[row]
        if valid[row] == 0:
            row += 1
            continue
        at = out + ends[row]
        i = base + (places[row] >> 32)
        end = i + (places[row] & LENGTH_MASK)
        message = 0
        what = messages[0, KIND]
        field = -1
        level = 0
        depth = 0
        count = 0
        slot_count = 0
        is_good = True
        while is_good:
            if at + ROOM > limit:
                return row
            if what == _SCALAR:
                kind = fields[field, TYPE]
                what = _NEXT_ONE
                if kind == ENUM:
                    number = read_integer(kind, i, end)
                    first = fields[field, CHILD]
                    word = find(words, first, first + fields[field, WORDS], number)
                    if word >= 0:
                        length = words[word, 2]
                        if at + length + ROOM > limit:
                            return row
                        copy_bytes(at, literals + words[word, 1], length)
                        at += length
                    else:
                        is_good = fields[field, IS_CLOSED] == 0
                        at = write_scalar(at, kind, i, end)
                    is_good = is_good and (i < end or fields[field, IS_CLOSED] == 0)
                elif is_odd(kind, i, end):
                    is_good = False
                elif kind >= TEXT and not has_room(at, limit, i, end - i):
                    return row
                else:
                    at = write_scalar(at, kind, i, end)
            elif what == VALUE:
                what = _NEXT_ONE
                tag = load8(i) if i < end else 0
                left = end - i - 1
                if i == end or (tag == _NULL and left == 1 and load8(i + 1) < 0x80):
                    at = write_word(at, NULL_WORD)
                elif tag == _NUMBER and left == 8 and load64(i + 1) & ~_SIGN < _INFINITY:
                    at = write_scalar(at, DOUBLE, i + 1, end)
                elif tag == _BOOLEAN and left == 1 and load8(i + 1) <= 1:
                    at = write_scalar(at, BOOLEAN, i + 1, end)
                elif tag == _TEXT or tag == _STRUCT or tag == _LIST:
                    i, length = read_length(i + 1, end)
                    if i < 0 or i + length != end:
                        is_good = False
                    elif tag != _TEXT:
                        what = STRUCT if tag == _STRUCT else LIST_VALUE
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
            elif what == RECORD or what == STRUCT or what == LIST_VALUE:
                f = depth
                depth += 1
                opened[f, _WHAT] = what
                opened[f, _LEVEL] = level
                opened[f, _FIRST_ENTRY] = count
                opened[f, _ANY] = 0
                opened[f, _SLOT] = slot_count
                opened[f, _LISTING] = 0
                store8(at, 0x5B if what == LIST_VALUE else 0x7B)
                at += 1
                if what == RECORD:
                    opened[f, _FIELD] = messages[message, FIRST] - 1
                    opened[f, _NEXT] = messages[message, FIRST]
                    opened[f, _END] = messages[message, FIRST] + messages[message, COUNT]
                    count = read_fields(
                        base, i, end, message, messages, fields, numbers, entries, slots, slot_count, count
                    )
                    slot_count += messages[message, SLOTS]
                    is_good = count >= 0
                elif what == STRUCT:
                    opened[f, _FIELD] = -1
                    opened[f, _NEXT] = count
                    count = read_struct(base, i, end, entries, count)
                    opened[f, _END] = count
                    is_good = count >= 0 and sort_entries(base, TEXT, entries, spare, opened[f, _NEXT], count)
                else:
                    opened[f, _NEXT] = i
                    opened[f, _END] = end
                what = _NEXT_ONE
            elif what == TIMESTAMP or what == DURATION:
                at = write_timestamp(at, i, end) if what == TIMESTAMP else write_duration(at, i, end)
                is_good = at != 0
                what = _NEXT_ONE
            elif what == WRAPPER:
                field = messages[message, FIRST]
                stop, place = read_part(base, 1, fields[field, TYPE], i, end)
                is_good = stop == end
                i = base + (place >> 32)
                what = _SCALAR
            elif what == OTHER:
                is_good = False
            elif depth == 0:
                break
            else:
                f = depth - 1
                level = opened[f, _LEVEL]
                opener = opened[f, _WHAT]
                place = -1  # Of the value that is to be written next.
                if opener == RECORD and opened[f, _LISTING] != 0:
                    field = opened[f, _FIELD]
                    if opened[f, _RUN] < opened[f, _RUN_END]:
                        i = opened[f, _RUN]
                        stop = end_of(fields[field, WIRE], i, opened[f, _RUN_END])
                        is_good = stop >= 0
                        opened[f, _RUN] = stop
                        place = (i - base) << 32 | (stop - i)
                    elif opened[f, _CHAIN] != 0:
                        entry = opened[f, _CHAIN] - 1
                        opened[f, _CHAIN] = entries[entry, 1]
                        place = entries[entry, 0]
                        if entries[entry, 2] != 0:
                            opened[f, _RUN] = base + (place >> 32)
                            opened[f, _RUN_END] = opened[f, _RUN] + (place & LENGTH_MASK)
                            continue
                    else:
                        store8(at, 0x5D)
                        at += 1
                        opened[f, _LISTING] = 0
                        continue
                    if opened[f, _LISTING] == 2:
                        store8(at, 0x2C)
                        at += 1
                    opened[f, _LISTING] = 2
                    level += 1
                elif opener == RECORD:
                    field = opened[f, _FIELD] + 1
                    first = opened[f, _SLOT] - opened[f, _NEXT]
                    while field < opened[f, _END] and slots[first + field, 0] == 0:
                        field += 1
                    if field == opened[f, _END]:
                        store8(at, 0x7D)
                        at += 1
                        count = opened[f, _FIRST_ENTRY]
                        slot_count = opened[f, _SLOT]
                        depth = f
                        continue
                    opened[f, _FIELD] = field
                    length = fields[field, NAME_LENGTH]
                    if at + length + ROOM > limit:
                        return row
                    if opened[f, _ANY] != 0:
                        store8(at, 0x2C)
                        at += 1
                    opened[f, _ANY] = 1
                    copy_bytes(at, literals + fields[field, NAME_AT], length)
                    at += length
                    entry = slots[first + field, 0] - 1
                    if fields[field, SHAPE] == LIST:
                        store8(at, 0x5B)
                        at += 1
                        opened[f, _LISTING] = 1
                        opened[f, _CHAIN] = entry + 1
                        opened[f, _RUN] = 0
                        opened[f, _RUN_END] = 0
                        continue
                    if fields[field, SHAPE] == MAP:
                        key_kind = fields[field, KEY]
                        opened[depth, _WHAT] = STRUCT
                        opened[depth, _LEVEL] = level
                        opened[depth, _FIRST_ENTRY] = count
                        opened[depth, _ANY] = 0
                        opened[depth, _NEXT] = count
                        opened[depth, _FIELD] = field
                        count = read_map(base, entry, key_kind, fields[field, TYPE], entries, count)
                        opened[depth, _END] = count
                        is_good = count >= 0 and level < MAX_LEVELS
                        is_good = is_good and sort_entries(base, key_kind, entries, spare, opened[depth, _NEXT], count)
                        depth += 1
                        store8(at, 0x7B)
                        at += 1
                        continue
                    place = entries[entry, 0]
                    level += 1
                else:
                    i = opened[f, _NEXT]
                    if i == opened[f, _END]:
                        store8(at, 0x5D if opener == LIST_VALUE else 0x7D)
                        at += 1
                        count = opened[f, _FIRST_ENTRY]
                        depth = f
                        continue
                    if opened[f, _ANY] != 0:
                        store8(at, 0x2C)
                        at += 1
                    opened[f, _ANY] = 1
                    field = opened[f, _FIELD]
                    level += 1
                    if opener == LIST_VALUE:
                        field = -1
                        is_good = load8(i) == ONLY_TAG
                        i, length = read_length(i + 1, opened[f, _END])
                        is_good = is_good and i >= 0
                        opened[f, _NEXT] = i + length
                        place = (i - base) << 32 | length
                    else:
                        level += 1  # An entry is a message too.
                        opened[f, _NEXT] = i + 1
                        key = entries[i, 0]
                        place = entries[i, 1]
                        key_kind = fields[field, KEY] if field >= 0 else TEXT
                        if key_kind == TEXT:
                            length = key & LENGTH_MASK
                            if not has_room(at, limit, base + (key >> 32), length):
                                return row
                            at = write_string(at, base + (key >> 32), length)
                        else:
                            at = write_key(at, key_kind, key)
                        store8(at, 0x3A)
                        at += 1
                i = base + (place >> 32)
                end = i + (place & LENGTH_MASK)
                if field < 0:
                    what = VALUE
                elif fields[field, TYPE] == MESSAGE:
                    message = fields[field, CHILD]
                    what = messages[message, KIND]
                else:
                    what = _SCALAR
                    level -= 1
                is_good = is_good and level <= MAX_LEVELS
        if is_good:
            ends[row + 1] = at - out
        else:
            declined[row] = 1
        row += 1
    return row
