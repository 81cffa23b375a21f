"""The compiled walk over Avro bodies: one function for every schema, which follows the steps of `code`.

Every value becomes one word of a slot. Numbers: the value; floats: their bits; bytes, strings and fixed: first byte
(from the buffer's start) in the low 32 bits, length in the high ones; unions: the jump's word for the branch; arrays
and maps: the number of items. Slots begin as zeros, and the words of a faulty record are reset to zero.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.decode.avro.code import (
    BOOLEAN,
    BYTES,
    CALL,
    DOUBLE,
    EMPTY_ITEMS,
    FIXED,
    FLOAT,
    ITEM,
    JUMP,
    LIST,
    NUMBER,
    RETURN,
    SCRATCH,
    UNION,
    VALUE,
)
from frazil.decode.avro.numbers import (
    BAD_BLOCK,
    BAD_BOOLEAN,
    BAD_LENGTH,
    CELLS_PER_BYTE,
    CUT_SHORT,
    FREE_CELLS,
    LEFT_OVER,
    MAX_EMPTY_ITEMS,
    MAX_ITEMS,
    NO_BRANCH,
    OK,
    TOO_DEEP,
    TOO_MANY_CELLS,
    TOO_MANY_ITEMS,
    WIDE_INT,
    count_empty_items,
    read_block,
    read_float_bits,
    read_number,
)
from frazil.decode.avro.schema import MAX_LEVELS
from frazil.raw_memory import COMPILED, load8, load64

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# What is open at the place of the walk: an array or map (its step, the row it belongs to, items left in the block,
# address after the block or 0, items so far), or a routine (its step, row, first address, level).
_STEP, _ROW, _LEFT, _BLOCK_END, _TOTAL = range(5)
_START, _LEVEL = _LEFT, _BLOCK_END
MAX_OPEN = 2 * MAX_LEVELS + 8
"""The largest number of entries that are open at once."""
_MAX_ROWS = 2**31 - 1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def walk_records(
    origin: int,
    starts: I64,
    ends: I64,
    steps: I64,
    jumps: I64,
    slots: I64,
    firsts: I64,
    widths: I64,
    capacity: I64,
    counts: I64,
    words: I64,
    fault: U8,
    faulty_step: I64,
) -> None:
    """Fills the slots from bodies at the addresses `starts` to `ends`; those with a `fault` are skipped.

    origin: the buffer's address. steps: with each slot's place in `words` in place of the slot. slots, firsts: the
    context and the place of each slot. widths, capacity: the words in a row of each context and the rows there is room for
    (one more row takes those without room). counts: the rows needed of each context, which may exceed the capacity: then
    only counts and faults are valid, and the walk must be repeated.
    """
    contexts = widths.size
    saved = np.zeros(contexts, np.int64)
    opened = np.zeros((MAX_OPEN, 5), np.int64)
    for r in range(starts.size):
        if fault[r] != OK:
            continue
        i = starts[r]
        end = ends[r]
        for c in range(SCRATCH + 1, contexts):
            saved[c] = counts[c]
        step = 0
        row = r
        depth = 0
        level = 0
        empty_left = MAX_EMPTY_ITEMS
        bad = OK
        while True:
            op = steps[step, 0]
            at = steps[step, 1] + row
            if op == NUMBER:
                i, value = read_number(i, end)
                if i < 0:
                    bad = -i
                    break
                if value < steps[step, 2] or value > steps[step, 3]:
                    bad = steps[step, 4]
                    if steps[step, 5] != 0 and (value < -2147483648 or value > 2147483647):
                        bad = WIDE_INT
                    break
                words[at] = value
                step += 1
            elif op == BYTES:
                i, value = read_number(i, end)
                if i < 0:
                    bad = -i
                    break
                if value < 0 or value > end - i:
                    bad = BAD_LENGTH
                    break
                words[at] = (i - origin) | value << 32
                i += value
                step += 1
            elif op == UNION:
                i, value = read_number(i, end)
                if i < 0:
                    bad = -i
                    break
                if value < 0 or value >= steps[step, 2]:
                    bad = NO_BRANCH
                    break
                value += steps[step, 3]
                words[at] = jumps[value, 1]
                step = jumps[value, 0]
            elif op == DOUBLE:
                if end - i < 8:
                    bad = CUT_SHORT
                    break
                words[at] = np.int64(load64(i))
                i += 8
                step += 1
            elif op == BOOLEAN:
                if i >= end:
                    bad = CUT_SHORT
                    break
                value = load8(i)
                if value > 1:
                    bad = BAD_BOOLEAN
                    break
                words[at] = value
                i += 1
                step += 1
            elif op == FLOAT:
                if end - i < 4:
                    bad = CUT_SHORT
                    break
                words[at] = read_float_bits(i)
                i += 4
                step += 1
            elif op == FIXED:
                value = steps[step, 2]
                if end - i < value:
                    bad = CUT_SHORT
                    break
                words[at] = (i - origin) | value << 32
                i += value
                step += 1
            elif op == JUMP:
                step = steps[step, 2]
            elif op == LIST:
                level += 1
                if level > MAX_LEVELS:
                    bad = TOO_DEEP
                    break
                step = steps[step, 2]
                opened[depth, _STEP] = step
                opened[depth, _ROW] = row
                opened[depth, _LEFT] = 0
                opened[depth, _BLOCK_END] = 0
                opened[depth, _TOTAL] = 0
                depth += 1
            elif op == ITEM:
                f = depth - 1
                if opened[f, _LEFT] == 0:
                    if opened[f, _BLOCK_END] != 0 and opened[f, _BLOCK_END] != i:
                        bad = BAD_BLOCK
                        break
                    i, value, block_end = read_block(i, end)
                    if i < 0:
                        bad = -i
                        break
                    if value == 0:
                        row = opened[f, _ROW]
                        words[steps[step, 1] + row] = opened[f, _TOTAL]
                        depth = f
                        level -= 1
                        step += 1
                        continue
                    if value > end - i:
                        bad = CUT_SHORT
                        break
                    if value > MAX_ITEMS - opened[f, _TOTAL]:
                        bad = TOO_MANY_ITEMS
                        break
                    opened[f, _TOTAL] += value
                    opened[f, _LEFT] = value
                    opened[f, _BLOCK_END] = block_end
                opened[f, _LEFT] -= 1
                context = steps[step, 2]
                row = counts[context]
                counts[context] = row + 1
                if row >= capacity[context]:
                    row = capacity[context]
                step = steps[step, 3]
            elif op == EMPTY_ITEMS:
                i, value = count_empty_items(i, end, empty_left)
                if i < 0:
                    bad = -i
                    break
                empty_left -= value
                words[at] = value
                step += 1
            elif op == VALUE or op == CALL:
                if op == VALUE:
                    opened[depth, _LEVEL] = level
                    level = steps[step, 3]
                else:
                    level += 1
                if level > MAX_LEVELS:
                    bad = TOO_DEEP
                    break
                opened[depth, _STEP] = step
                opened[depth, _ROW] = row
                opened[depth, _START] = i
                depth += 1
                row = 0
                step = steps[step, 2]
            elif op == RETURN:
                depth -= 1
                step = opened[depth, _STEP]
                row = opened[depth, _ROW]
                if steps[step, 0] == VALUE:
                    level = opened[depth, _LEVEL]
                    start = opened[depth, _START]
                    words[steps[step, 1] + row] = (start - origin) | (i - start) << 32
                else:
                    level -= 1
                step += 1
            else:  # END
                if i != end:
                    bad = LEFT_OVER
                break
        counts[SCRATCH] = 0
        if bad == OK and contexts > SCRATCH + 1:
            cells = 0
            for c in range(SCRATCH + 1, contexts):
                cells += (counts[c] - saved[c]) * widths[c]
                if counts[c] > _MAX_ROWS:
                    bad = TOO_MANY_CELLS
            if cells > FREE_CELLS + CELLS_PER_BYTE * (end - starts[r]):
                bad = TOO_MANY_CELLS
        if bad != OK:
            fault[r] = bad
            # Inside a routine the entire value has the place.
            f = 0
            while f < depth and steps[opened[f, _STEP], 0] != VALUE:
                f += 1
            faulty_step[r] = opened[f, _STEP] if f < depth else step
            saved[0] = r
            counts[0] = r + 1
            saved[SCRATCH] = 0
            for s in range(slots.size):
                c = slots[s]
                for n in range(saved[c], min(counts[c], capacity[c] + 1)):
                    words[firsts[s] + n] = 0
            for c in range(SCRATCH + 1, contexts):
                counts[c] = saved[c]
