"""Finds the members of many JSON objects in one pass, with those of known objects inside them.

Irregular objects are left to another pass: a nested object with an unknown, duplicate or escaped key stays one slice,
and gets a pass of its own that starts at it. So every fault is found by the pass whose root has it.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.decode.json.grammar import (
    ABSENT,
    ARRAY,
    ESCAPED,
    INT,
    NESTED_TOO_DEEP,
    NOT_JSON,
    NULL,
    OBJECT,
    scan_decimal,
    scan_scalar,
    scan_string,
    scan_value,
    skip_container,
    skip_space,
)
from frazil.decode.json.scan import DUPLICATE_KEY, ESCAPED_KEY, MALFORMED, OK, TOO_DEEP
from frazil.raw_memory import COMPILED, I32, U8, high64, load8, load64

# The columns of a tree's two tables. A node is an object; its own fields are consecutive, and so is its whole subtree.
KEY_AT, KEY_LENGTH, CHILD, READ_AS, SLOT = range(5)
FIRST, LAST, SUBTREE_LAST, NODES_LAST, INDEX_AT, INDEX_MASK = range(6)
SLICES_ONLY, INTEGERS, DOUBLES, LISTS = range(4)  # The part of a field's value that is read in passing.
MAX_TREE_DEPTH = 32
MAX_UNINDEXED_FIELDS = 16
"""Objects with more fields have an index of their keys: else a text of n keys would take n times as many comparisons."""
_NO_CAPACITY = -3
# Up to here plain arithmetic is exact: below 10**18 an integer is within 64 bits, below 10**15 one division of two
# exact doubles rounds once.
_INTEGER_DIGITS, _DOUBLE_DIGITS = 18, 15
_MIX = np.uint64(0x9E3779B97F4A7C15)
_POWERS = np.array([10.0**k for k in range(_DOUBLE_DIGITS + 1)])


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def same_bytes(i: int, k: int, length: int, end: int) -> bool:
    """Whether `length` bytes are equal at `i`, in a text that ends at `end`, and at `k`, where words can be read."""
    n = 0
    while n + 8 <= length:
        if load64(i + n) != load64(k + n):
            return False
        n += 8
    rest = length - n
    if rest == 0:
        return True
    if i + n + 8 <= end:
        return bool((load64(i + n) ^ load64(k + n)) << np.uint64(64 - 8 * rest) == np.uint64(0))
    while n < length:
        if load8(i + n) != load8(k + n):
            return False
        n += 1
    return True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _mixed(left: np.uint64, other: np.uint64) -> np.uint64:
    return np.uint64(high64(left, other) ^ (left * other))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def hash_key(i: int, length: int, seed: int) -> int:
    """Returns a number from 0 to 2**31 - 1 for `length` bytes, which is unpredictable without the seed."""
    mixed = np.uint64(seed)
    n = 0
    while n + 8 <= length:
        mixed = _mixed(mixed ^ load64(i + n), _MIX ^ np.uint64(seed))
        n += 8
    word = np.uint64(length) << np.uint64(56)
    while n < length:
        word = word << np.uint64(8) | np.uint64(load8(i + n))
        n += 1
    return int(_mixed(mixed ^ word, _MIX ^ np.uint64(seed)) >> np.uint64(33))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def index_keys(keys: int, fields: I32, nodes: I32, index: I32, seed: int) -> None:
    """Fills `index`: for each node with a part of it the fields by the hashes of their keys, -1 where there is none."""
    for node in range(nodes.shape[0]):
        mask = nodes[node, INDEX_MASK]
        if mask == 0:
            continue
        at = nodes[node, INDEX_AT]
        for field in range(nodes[node, FIRST], nodes[node, LAST]):
            k = hash_key(keys + fields[field, KEY_AT], fields[field, KEY_LENGTH], seed) & mask
            while index[at + k] >= 0:
                k = (k + 1) & mask
            index[at + k] = field


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _find_indexed(
    i: int, length: int, end: int, keys: int, fields: I32, index: I32, at: int, mask: int, seed: int
) -> int:
    """Returns the field as `_find_key` does, of a node that has an index."""
    k = hash_key(i, length, seed) & mask
    while index[at + k] >= 0:
        f = index[at + k]
        if fields[f, KEY_LENGTH] == length and same_bytes(i, keys + fields[f, KEY_AT], length, end):
            return int(f)
        k = (k + 1) & mask
    return -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _find_key(i: int, length: int, end: int, keys: int, fields: I32, first: int, last: int, guess: int) -> int:
    """Returns the field whose key is at `i`, or -1: the expected one is compared first, then the others. A closing
    quote is part of a key.
    """
    for n in range(last - first):
        f = guess + n
        if f >= last:
            f -= last - first
        if fields[f, KEY_LENGTH] == length and same_bytes(i, keys + fields[f, KEY_AT], length, end):
            return f
    return -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _note_unknown(base: int, row: int, i: int, length: int, unknown: I32, count: int, seed: int) -> int:
    """Records the first occurrence of each unknown key, while there is capacity: (row, first byte, length, hash)."""
    if count == unknown.shape[0]:
        return count
    mixed = hash_key(i, length, seed)
    for u in range(count):
        if unknown[u, 3] == mixed and unknown[u, 2] == length:
            n = 0
            while n < length and load8(i + n) == load8(base + unknown[u, 1] + n):
                n += 1
            if n == length:
                return count
    unknown[count, 0] = row
    unknown[count, 1] = i - base
    unknown[count, 2] = length
    unknown[count, 3] = mixed
    return count + 1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _to_colon(i: int, end: int) -> int:
    """Returns the address of a member's value, from the byte after its key's closing quote; `end` without a colon."""
    if i < end and load8(i) != 0x3A:
        i = skip_space(i, end)
    if i >= end or load8(i) != 0x3A:
        return end
    i += 1
    return i if i < end and load8(i) > 0x20 else skip_space(i, end)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _first_member(i: int, end: int) -> int:
    """Returns the address of the first key's quote, after an opening brace; the address after the object, negated; 0
    when neither follows.
    """
    i = skip_space(i, end)
    if i >= end:
        return 0
    c = load8(i)
    if c == 0x7D:
        return -(i + 1)
    return i if c == 0x22 else 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _next_member(i: int, end: int) -> int:
    """Returns the address of the next key's quote, after a value; else as `_first_member`."""
    if i < end and load8(i) <= 0x20:
        i = skip_space(i, end)
    if i >= end:
        return 0
    c = load8(i)
    if c == 0x7D:
        return -(i + 1)
    if c != 0x2C:
        return 0
    i += 1
    if i < end and load8(i) <= 0x20:
        i = skip_space(i, end)
    return i if i < end and load8(i) == 0x22 else 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _forget(nodes: I32, node: int, row: int, kind: U8, done: U8) -> None:
    """Removes what was found under a node."""
    for f in range(nodes[node, FIRST], nodes[node, SUBTREE_LAST]):
        kind[f, row] = ABSENT
    for n in range(node, nodes[node, NODES_LAST]):
        done[n, row] = 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _scan_list(
    base: int, i: int, end: int, stack_address: int, depth: int, elements: I32, kinds: U8, slot: int, n: int
) -> tuple[int, int]:
    """Writes the elements of the array at `i` to their places from `n` on; returns the address after it, and the next
    place.
    """
    i = skip_space(i + 1, end)
    if i < end and load8(i) == 0x5D:
        return i + 1, n
    while True:
        if n >= kinds.shape[1]:
            return _NO_CAPACITY, n
        j, kind = scan_value(i, end, stack_address, depth + 1)
        if j < 0:
            return j, n
        elements[slot, 0, n] = i - base
        elements[slot, 1, n] = j - base
        kinds[slot, n] = kind
        n += 1
        i = skip_space(j, end)
        if i >= end:
            return NOT_JSON, n
        c = load8(i)
        if c == 0x5D:
            return i + 1, n
        if c != 0x2C:
            return NOT_JSON, n
        i = skip_space(i + 1, end)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_tree(
    base: int,
    starts: I32,
    ends: I32,
    kinds: U8,
    root: int,
    keys: int,
    fields: I32,
    nodes: I32,
    index: I32,
    seed: int,
    has_canonical_keys: bool,
    value_start: I32,
    value_end: I32,
    value_kind: U8,
    done: U8,
    integers: NDArray[np.int64],
    doubles: NDArray[np.float64],
    elements: I32,
    element_kinds: U8,
    counts: I32,
    emitted: NDArray[np.int64],
    needs_pass: U8,
    value_counts: I32,
    error: U8,
    unknown: I32,
    stack: U8,
) -> int:
    """Finds the members of the objects in `starts`/`ends`, as objects of the node `root`: one value slice per field and
    row.

    `keys` is the address of the keys, `index` and `seed` are as in `index_keys`. The three `value_*` have the shape
    (fields, rows); kinds are ABSENT on entry. Rows whose kind is not OBJECT, with an `error`, or `done` already are
    skipped. `ends` may lie after the object when the rest is white space. `has_canonical_keys`: escapes in keys are
    canonical, so that equal keys are equal bytes. `done` has the shape (nodes, rows): nested objects whose members were
    found in passing. Numbers of fields that are read as such go to `integers` or `doubles` at once; `needs_pass` is set for
    a field with a number that plain arithmetic does not read exactly. The elements of lists go to `elements` one after
    another, `emitted` of each field, `counts` of each row; `needs_pass` is set for a field without more room, or with rows
    out of order. `value_counts` gets the number of each object's members other than null, known or not. Each unknown key
    of the root is recorded once; returns their number.
    """
    unknown_count = 0
    stack_address = stack.ctypes.data
    outer = np.empty((MAX_TREE_DEPTH, 3), np.int64)  # The objects that are open: node, field, first byte.
    for row in range(starts.size):
        if kinds[row] != OBJECT or error[row] != OK or done[root, row] != 0:
            continue
        end = base + ends[row]
        depth = 0
        value_count = 0
        node = root
        guess = first = nodes[node, FIRST]
        last = nodes[node, LAST]
        fault = MALFORMED
        i = _first_member(base + starts[row] + 1, end)
        while True:
            if i <= 0:
                if depth == 0:
                    break
                depth -= 1
                at = outer[depth, 2]
                if i < 0:
                    done[node, row] = 1
                    i = -i
                else:
                    _forget(nodes, node, row, value_kind, done)
                    i = skip_container(at, end, stack_address, depth)
                node = outer[depth, 0]
                first = nodes[node, FIRST]
                last = nodes[node, LAST]
                if i < 0:
                    if depth == 0 and i == NESTED_TOO_DEEP:
                        fault = TOO_DEEP
                    i = 0
                    continue
                field = outer[depth, 1]
                value_start[field, row] = at - base
                value_end[field, row] = i - base
                value_kind[field, row] = OBJECT
                if depth == 0:
                    value_count += 1
                guess = field + 1
                i = _next_member(i, end)
                continue
            i += 1
            # Records of one producer keep one order of keys: the next one is tried before anything is looked up.
            field = -1
            if guess < last:
                length = fields[guess, KEY_LENGTH]
                if i + length <= end and same_bytes(i, keys + fields[guess, KEY_AT], length, end):
                    field = guess
                    j = i + length
            if field < 0:
                j, kind = scan_string(i, end)
                if j < 0:
                    i = 0
                    continue
                if kind == ESCAPED and not has_canonical_keys:
                    if depth == 0:
                        fault = ESCAPED_KEY
                    i = 0
                    continue
                j += 1
                mask = nodes[node, INDEX_MASK]
                if mask == 0:
                    field = _find_key(i, j - i, end, keys, fields, first, last, guess)
                else:
                    field = _find_indexed(i, j - i, end, keys, fields, index, nodes[node, INDEX_AT], mask, seed)
                if field < 0:
                    if depth > 0:
                        i = 0
                        continue
                    unknown_count = _note_unknown(base, row, i, j - 1 - i, unknown, unknown_count, seed)
            i = _to_colon(j, end)
            if i >= end:
                i = 0
                continue
            c = load8(i)
            again = field >= 0 and value_kind[field, row] != ABSENT
            if c == 0x22:
                j, kind = scan_scalar(i, end)
            elif c == 0x7B:
                if field >= 0 and not again and fields[field, CHILD] >= 0 and depth < MAX_TREE_DEPTH:
                    outer[depth, 0] = node
                    outer[depth, 1] = field
                    outer[depth, 2] = i
                    depth += 1
                    node = fields[field, CHILD]
                    guess = first = nodes[node, FIRST]
                    last = nodes[node, LAST]
                    i = _first_member(i + 1, end)
                    continue
                j = skip_container(i, end, stack_address, depth)
                kind = OBJECT
            elif c == 0x5B:
                kind = ARRAY
                if field >= 0 and not again and fields[field, READ_AS] == LISTS and needs_pass[field] == 0:
                    slot = fields[field, SLOT]
                    n = emitted[slot]
                    j, n = _scan_list(base, i, end, stack_address, depth, elements, element_kinds, slot, n)
                    counts[slot, row] = n - emitted[slot]
                    emitted[slot] = n
                    if root > 0 or j == _NO_CAPACITY:
                        needs_pass[field] = 1
                        j = skip_container(i, end, stack_address, depth)
                else:
                    j = skip_container(i, end, stack_address, depth)
            elif field >= 0 and DOUBLES >= fields[field, READ_AS] >= INTEGERS and (c == 0x2D or 48 <= c <= 57):
                j, kind, total, exponent, digits = scan_decimal(i, end)
                if fields[field, READ_AS] == INTEGERS:
                    if kind == INT and digits <= _INTEGER_DIGITS:
                        integers[fields[field, SLOT], row] = -total if c == 0x2D else total
                    else:
                        needs_pass[field] = 1
                elif digits <= _DOUBLE_DIGITS:
                    number = float(total)
                    if exponent != 0:
                        number = number / _POWERS[exponent]
                    doubles[fields[field, SLOT], row] = -number if c == 0x2D else number
                else:
                    needs_pass[field] = 1
            else:
                j, kind = scan_scalar(i, end)
            if j < 0:
                if depth == 0 and j == NESTED_TOO_DEEP:
                    fault = TOO_DEEP
                i = 0
                continue
            if again:
                if depth == 0:
                    fault = DUPLICATE_KEY
                i = 0
                continue
            if field >= 0:
                value_start[field, row] = i - base
                value_end[field, row] = j - base
                value_kind[field, row] = kind
                guess = field + 1
            if depth == 0 and kind != NULL:
                value_count += 1
            i = _next_member(j, end)
        if i < 0 and skip_space(-i, end) == end:
            fault = OK
            value_counts[row] = value_count
        else:
            _forget(nodes, root, row, value_kind, done)
        error[row] = fault
    return unknown_count
