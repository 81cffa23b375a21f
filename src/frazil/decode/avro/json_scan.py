"""The compiled writer of JSON for Avro values that contain their own type: one function for every schema, which follows
the steps of `json_code`. Their bytes have been walked over (`scan`), so numbers, lengths and depth are right.

What it does not write it declines: texts that are not UTF-8, maps with equal keys, values with very many names.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from frazil.decode.avro.faults import MAX_JSON_CHARACTERS
from frazil.decode.avro.json_code import (
    BOOLEAN,
    BYTES,
    CALL,
    DOUBLE,
    ENUM,
    FIXED,
    FLOAT,
    INTEGER,
    ITEM,
    JUMP,
    LIST,
    RETURN,
    TEXT,
    UNION,
)
from frazil.decode.avro.numbers import read_block, read_float_bits, read_number
from frazil.decode.avro.scan import I64, MAX_OPEN, U8
from frazil.decode.avro.values import has_same, is_text
from frazil.decode.json_text import (
    FALSE,
    ROOM,
    TRUE,
    has_room,
    write_base64,
    write_double,
    write_integer,
    write_string,
    write_word,
)
from frazil.decode.memory import COMPILED, copy_bytes, load8, load64, store8, widen_float

# What is open at the place of the walk: an array or map (its step, items left in the block, whether there was one, its
# first key), or a routine (its step).
_STEP, _LEFT, _ANY, _FIRST_KEY = range(4)
_LOW = 0xFFFFFFFF


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_values(
    origin: int,
    words: I64,
    steps: I64,
    table: I64,
    literals: int,
    keys: I64,
    out: int,
    room: int,
    row: int,
    ends: I64,
    declined: U8,
) -> int:
    """Writes the values that the words from `row` on name: see `WriteValues`. A word of 0 is no value.

    origin, literals: the addresses of the bodies and of the code's literals. keys: room for as many keys as one value has.
    """
    opened = np.zeros((MAX_OPEN, 4), np.int64)
    limit = out + room
    while row < words.size:
        ends[row + 1] = ends[row]
        if words[row] == 0:
            row += 1
            continue
        begin = out + ends[row]
        at = begin
        i = origin + (words[row] & _LOW)
        end = i + (words[row] >> 32)
        step = 0
        depth = 0
        key_count = 0
        spelt = 0
        is_written = True
        while True:
            length = steps[step, 2]
            spelt += length
            if spelt > MAX_JSON_CHARACTERS:
                is_written = False
                break
            if at + length + ROOM > limit:
                return row
            copy_bytes(at, literals + steps[step, 1], length)
            at += length
            op = steps[step, 0]
            if op == TEXT or op == BYTES or op == FIXED:
                length = steps[step, 3]
                if op != FIXED:
                    i, length = read_number(i, end)
                if not has_room(at, limit, i, length):
                    return row
                if op != TEXT:
                    at = write_base64(at, i, length)
                elif is_text(i, i + length):
                    at = write_string(at, i, length)
                else:
                    is_written = False
                    break
                i += length
                step += 1
            elif op == INTEGER:
                i, value = read_number(i, end)
                at = write_integer(at, value)
                step += 1
            elif op == UNION:
                i, value = read_number(i, end)
                step = table[steps[step, 3] + value, 0]
            elif op == JUMP:
                step = steps[step, 3]
            elif op == CALL or op == LIST:
                opened[depth, _STEP] = step
                opened[depth, _LEFT] = 0
                opened[depth, _ANY] = 0
                opened[depth, _FIRST_KEY] = key_count
                depth += 1
                step = steps[step, 3]
            elif op == RETURN:
                if depth == 0:
                    break
                depth -= 1
                step = opened[depth, _STEP] + 1
            elif op == ITEM:
                f = depth - 1
                if opened[f, _LEFT] == 0:
                    i, value, _ = read_block(i, end)
                    if value == 0:
                        if steps[step, 4] != 0 and has_same(origin, keys, opened[f, _FIRST_KEY], key_count):
                            is_written = False
                            break
                        key_count = opened[f, _FIRST_KEY]
                        depth = f
                        step += 1
                        continue
                    opened[f, _LEFT] = value
                if opened[f, _ANY] != 0:
                    store8(at, 0x2C)
                    at += 1
                opened[f, _ANY] = 1
                opened[f, _LEFT] -= 1
                if steps[step, 4] != 0:
                    i, length = read_number(i, end)
                    if not has_room(at, limit, i, length):
                        return row
                    if not is_text(i, i + length):
                        is_written = False
                        break
                    keys[key_count] = (i - origin) | length << 32
                    key_count += 1
                    at = write_string(at, i, length)
                    store8(at, 0x3A)
                    at += 1
                    i += length
                step = steps[step, 3]
            elif op == BOOLEAN:
                at = write_word(at, TRUE if load8(i) != 0 else FALSE)
                i += 1
                step += 1
            elif op == DOUBLE:
                at = write_double(at, load64(i))
                i += 8
                step += 1
            elif op == FLOAT:
                at = write_double(at, widen_float(read_float_bits(i)))
                i += 4
                step += 1
            elif op == ENUM:
                i, value = read_number(i, end)
                value += steps[step, 3]
                length = table[value, 1]
                spelt += length
                if at + length + ROOM > limit:
                    return row
                copy_bytes(at, literals + table[value, 0], length)
                at += length
                step += 1
            else:  # WRITE
                step += 1
        if is_written:
            ends[row + 1] = at - out
        else:
            declined[row] = 1
        row += 1
    return row
