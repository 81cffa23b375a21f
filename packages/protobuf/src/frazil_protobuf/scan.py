"""One compiled walk over Protobuf records, for every schema: the schema is a table that the walk reads.

Every field of the schema, at every place where it can occur, has a column of cells: in `words` its 64 bits (a number as
it is on the wire, a text as place and length in the buffer, a list as its count so far) and in `flags` whether it is
present. A column belongs to a *domain*: domain 0 has a cell per record, that of a repeated field a cell per element.
The elements of one list are consecutive, because a list ends before the next of its kind begins.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.raw_memory import COMPILED, I32, U8, is_utf8, load8, load64
from frazil_protobuf.layout import (
    AT,
    BAD_TAG,
    BAD_TEXT,
    BAD_WIRE,
    BYTES,
    CELLS,
    CHILD,
    COUNT,
    CUT,
    DOMAIN,
    ELEMENT_AT,
    FIRST,
    FIXED32,
    FIXED64,
    INDEX_AT,
    INDEX_MASK,
    LEAF,
    LEAF_GROUP,
    LONG_VARINT,
    MAX_CELLS,
    MAX_DEPTH,
    MAX_NUMBER,
    MESSAGE,
    NOTHING,
    OK,
    ONEOF_AT,
    OP,
    OPEN_GROUP,
    ROOT,
    SPREAD,
    SPREAD_SHIFT,
    STRAY_END,
    TAG,
    TEXT,
    TOO_DEEP,
    TOO_LARGE,
    UNEVEN,
    VARINT,
    WIRE,
)
from frazil_protobuf.wire import (
    CUT_SHORT,
    TOO_LONG,
    WIRE_BYTES,
    WIRE_FIXED32,
    WIRE_FIXED64,
    WIRE_GROUP,
    WIRE_GROUP_END,
    WIRE_VARINT,
    read_fixed32,
    read_length,
    read_varint,
)

I64 = NDArray[np.int64]

_STACK_WIDTH = 8


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _fault_of(i: int) -> int:
    return LONG_VARINT if i == TOO_LONG else CUT


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _skip(i: int, end: int, wire: int) -> int:
    """Returns the address after an unknown value that is no group."""
    if wire == WIRE_VARINT:
        i, _ = read_varint(i, end)
        return i
    if wire == WIRE_BYTES:
        i, length = read_length(i, end)
        return i + length if i >= 0 else i
    i += 8 if wire == WIRE_FIXED64 else 4
    return i if i <= end else CUT_SHORT


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_messages(
    base: int,
    starts: I32,
    ends: I32,
    fields: I64,
    messages: I64,
    index_numbers: I64,
    index_fields: I64,
    column_at: I64,
    column_domain: I64,
    capacity: I64,
    used: I64,
    words: I64,
    flags: U8,
    fault: U8,
    where: I32,
    slow: U8,
) -> None:
    """Reads the records from `base + starts[n]` to `base + ends[n]` into `words` and `flags`, which are 0 on entry.

    capacity: cells per domain; the columns of domains but the first have one more, for values without room. used: cells
    needed, per domain; where it exceeds `capacity`, only `used` and `fault` are valid, and the scan must be repeated with
    room enough. Records with a `fault` on entry are skipped. fault, where: the fault of a record and its field (-1:
    none); a faulty record leaves nothing in the cells. slow: 1 for a record that this walk reads wrong unless it is
    rewritten (see below).
    """
    saved = np.zeros(capacity.size, np.int64)
    stack = np.empty((MAX_DEPTH, _STACK_WIDTH), np.int64)
    used[:] = 0
    for row in range(starts.size):
        used[0] = row + 1
        if fault[row] != OK:
            continue
        saved[0] = row
        for d in range(1, capacity.size):
            saved[d] = used[d]
        i = base + starts[row]
        end = base + ends[row]
        budget = MAX_CELLS + 8 * (end - i)
        message = ROOT
        slot = row
        guess = messages[ROOT, FIRST]
        last = guess + messages[ROOT, COUNT]
        depth = 0
        group = 0  # The number of the group that this message is; 0 when it has a length.
        owner = -1  # The field that this message is the value of.
        leaf = -1  # The field to store the place of a group that is kept as bytes.
        opened = 0
        bad = OK
        while True:
            if i >= end:
                if group != 0:
                    bad = OPEN_GROUP
                if group != 0 or depth == 0:
                    break
                depth -= 1
                message, slot, end, guess = stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3]
                group, owner, leaf, opened = stack[depth, 4], stack[depth, 5], stack[depth, 6], stack[depth, 7]
                last = messages[message, FIRST] + messages[message, COUNT]
                continue
            begin = i
            tag = load8(i)
            i += 1
            if tag >= 0x80:
                i, tag = read_varint(begin, end)
                if i < 0 or i - begin > 5:
                    bad = _fault_of(i) if i < 0 else LONG_VARINT
                    break
            wire = tag & 7
            if guess < last and fields[guess, TAG] == tag:
                # Producers write fields in the order of their numbers: the next one is tried before any is looked up.
                field = guess
            else:
                number = tag >> 3
                if number < 1 or number > MAX_NUMBER:
                    bad = BAD_TAG
                    break
                if wire == WIRE_GROUP_END:
                    if number != group:
                        bad = STRAY_END
                        break
                    if leaf >= 0:
                        slow[row] |= flags[leaf]
                        words[leaf] = (opened - base) << 32 | (begin - opened)
                        flags[leaf] = 1
                    # A group ends at its end tag, not where the message around it does.
                    depth -= 1
                    message, slot, end, guess = stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3]
                    group, owner, leaf, opened = stack[depth, 4], stack[depth, 5], stack[depth, 6], stack[depth, 7]
                    last = messages[message, FIRST] + messages[message, COUNT]
                    continue
                if wire > WIRE_FIXED32:
                    bad = BAD_WIRE
                    break
                at = messages[message, INDEX_AT]
                mask = messages[message, INDEX_MASK]
                k = (number * SPREAD >> SPREAD_SHIFT) & mask
                while index_numbers[at + k] != number and index_numbers[at + k] != 0:
                    k = (k + 1) & mask
                field = index_fields[at + k]
            packed = False
            if field >= 0 and wire != fields[field, WIRE]:
                if wire == WIRE_BYTES and fields[field, DOMAIN] > 0 and fields[field, OP] <= FIXED64:
                    packed = True
                else:
                    field = -1
            if field < 0:
                # An unknown field, or one in another wire type, which Protobuf treats the same.
                if wire == WIRE_GROUP:
                    if depth >= MAX_DEPTH:
                        bad = TOO_DEEP
                        break
                    stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = message, slot, end, guess
                    stack[depth, 4], stack[depth, 5], stack[depth, 6], stack[depth, 7] = group, owner, leaf, opened
                    depth += 1
                    message = NOTHING
                    guess = 0
                    last = 0
                    group = tag >> 3
                    leaf = -1
                    continue
                i = _skip(i, end, wire)
                if i < 0:
                    bad = _fault_of(i)
                    break
                continue

            domain = fields[field, DOMAIN]
            op = fields[field, OP]
            at = fields[field, AT] + slot
            guess = field + 1 if domain == 0 or packed else field
            if packed:
                i, length = read_length(i, end)
                if i < 0:
                    bad = _fault_of(i)
                    owner = field
                    break
                stop = i + length
                element_at = fields[field, ELEMENT_AT]
                most = capacity[domain]
                first = used[domain]
                element = first
                if op == VARINT:
                    while i < stop:
                        i, value = read_varint(i, stop)
                        if i < 0:
                            bad = _fault_of(i)
                            break
                        if element < most:
                            words[element_at + element] = value
                        element += 1
                else:
                    width = 8 if op == FIXED64 else 4
                    if length & (width - 1) != 0:
                        bad = UNEVEN
                    else:
                        while i < stop:
                            if element < most:
                                words[element_at + element] = np.int64(load64(i)) if width == 8 else read_fixed32(i)
                            element += 1
                            i += width
                if bad != OK:
                    owner = field
                    break
                words[at] += element - first
                used[domain] = element
                continue

            inner = slot
            if domain > 0:
                inner = used[domain]
                used[domain] = inner + 1
                words[at] += 1
                budget -= fields[field, CELLS]
                if budget < 0:
                    bad = TOO_LARGE
                    owner = field
                    break
                if inner > capacity[domain]:
                    inner = capacity[domain]
                at = fields[field, ELEMENT_AT] + inner
            elif fields[field, ONEOF_AT] >= 0:
                # The last member counts. A message that is replaced would leave its own fields behind.
                oneof = fields[field, ONEOF_AT] + slot
                before = words[oneof] - 1
                if before >= 0 and before != field and (op >= MESSAGE or fields[before, OP] >= MESSAGE):
                    slow[row] = 1
                words[oneof] = field + 1

            if op == VARINT:
                value = 0
                if i < end:
                    value = load8(i)
                    i += 1
                    if value >= 0x80:
                        i, value = read_varint(i - 1, end)
                else:
                    i = CUT_SHORT
                if i >= 0:
                    words[at] = value
                    flags[at] = 1
            elif op == FIXED64:
                if i + 8 <= end:
                    words[at] = np.int64(load64(i))
                    flags[at] = 1
                    i += 8
                else:
                    i = CUT_SHORT
            elif op == FIXED32:
                if i + 4 <= end:
                    words[at] = read_fixed32(i)
                    flags[at] = 1
                    i += 4
                else:
                    i = CUT_SHORT
            elif op <= BYTES:
                i, length = read_length(i, end)
                if i >= 0:
                    if op == TEXT and not is_utf8(i, i + length):
                        bad = BAD_TEXT
                        owner = field
                        break
                    words[at] = (i - base) << 32 | length
                    flags[at] = 1
                    i += length
            elif op == LEAF:
                i, length = read_length(i, end)
                if i >= 0:
                    # Twice: the two are one message, written in two parts.
                    slow[row] |= flags[at]
                    words[at] = (i - base) << 32 | length
                    flags[at] = 1
                    i += length
            else:
                length = 0
                if op == MESSAGE:
                    i, length = read_length(i, end)
                if i >= 0:
                    if depth >= MAX_DEPTH:
                        bad = TOO_DEEP
                        owner = field
                        break
                    stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = message, slot, end, guess
                    stack[depth, 4], stack[depth, 5], stack[depth, 6], stack[depth, 7] = group, owner, leaf, opened
                    depth += 1
                    owner = field
                    slot = inner
                    leaf = -1
                    if op == MESSAGE:
                        end = i + length
                        group = 0
                    else:
                        group = tag >> 3
                    if op == LEAF_GROUP:
                        message = NOTHING
                        leaf = at
                        opened = i
                    else:
                        message = fields[field, CHILD]
                        flags[at] = 1
                    guess = messages[message, FIRST]
                    last = guess + messages[message, COUNT]
                    continue
            if i < 0:
                bad = _fault_of(i)
                owner = field
                break
        if bad != OK:
            fault[row] = bad
            where[row] = owner
            slow[row] = 0
            for c in range(column_at.size):
                d = column_domain[c]
                for s in range(min(saved[d], capacity[d]), min(used[d], capacity[d])):
                    words[column_at[c] + s] = 0
                    flags[column_at[c] + s] = 0
            for d in range(1, capacity.size):
                used[d] = saved[d]
