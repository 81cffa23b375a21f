"""Finds every value of many JSON texts at once: compiled loops over one Arrow data buffer.

A value is a slice of that buffer: first byte, byte after the last (int32, relative to `base`, the buffer's address) and
kind. Nothing is copied here.
"""

from __future__ import annotations

from numba import njit

from frazil.ingest.decode.json_grammar import (
    ABSENT,
    ARRAY,
    COMPILED,
    ESCAPED,
    I32,
    NESTED_TOO_DEEP,
    OBJECT,
    U8,
    scan_scalar,
    scan_string,
    scan_value,
    skip_key,
    skip_space,
)
from frazil.ingest.decode.memory import load8

# What is wrong with a text. SLOW_KEY is no fault: a key is written with escapes and must be spelt out first.
OK, NOT_OBJECT, MALFORMED, DUPLICATE_KEY, TOO_DEEP, SLOW_KEY, NOT_UTF8, TOMBSTONE, HALF_KEY, TOO_MANY_KEYS = range(10)

MAX_UNKNOWN = 256


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_texts(base: int, starts: I32, ends: I32, kinds: U8, error: U8) -> None:
    """Tells which record values begin an object: moves `starts` there, sets `kinds` to OBJECT or an `error`.

    A leading UTF-8 byte order mark is passed over, as RFC 8259 section 8.1 allows. Rows with an `error` are left alone.
    """
    for row in range(starts.size):
        if error[row] != OK:
            continue
        i = base + starts[row]
        end = base + ends[row]
        if end - i >= 3 and load8(i) == 0xEF and load8(i + 1) == 0xBB and load8(i + 2) == 0xBF:
            i += 3
        i = skip_space(i, end)
        starts[row] = i - base
        if i < end and load8(i) == 0x7B:
            kinds[row] = OBJECT
        else:
            error[row] = NOT_OBJECT


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_any(base: int, starts: I32, ends: I32, kinds: U8, error: U8, stack: U8) -> None:
    """Finds the one value that each text is, of any kind: narrows `starts` and `ends` to it, sets `kinds` or an `error`."""
    for row in range(starts.size):
        if error[row] != OK:
            continue
        i = skip_space(base + starts[row], base + ends[row])
        end = base + ends[row]
        j, kind = scan_value(i, end, stack)
        if j < 0:
            error[row] = TOO_DEEP if j == NESTED_TOO_DEEP else MALFORMED
        elif skip_space(j, end) != end:
            error[row] = MALFORMED
        else:
            starts[row] = i - base
            ends[row] = j - base
            kinds[row] = kind


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _same(i: int, k: int, length: int) -> bool:
    for n in range(length):
        if load8(i + n) != load8(k + n):
            return False
    return True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _find_key(i: int, length: int, keys: int, offsets: I32) -> int:
    """The number of the key at `i`, or -1. In `keys` a closing quote follows each key."""
    for f in range(offsets.size - 1):
        if offsets[f + 1] - offsets[f] - 1 == length and _same(i, keys + offsets[f], length):
            return f
    return -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _note_unknown(base: int, row: int, i: int, length: int, unknown: I32, count: int) -> int:
    """Keeps the first sight of each unknown key: (row, first byte, length)."""
    for u in range(count):
        if unknown[u, 2] == length and _same(i, base + unknown[u, 1], length):
            return count
    if count < unknown.shape[0]:
        unknown[count, 0] = row
        unknown[count, 1] = i - base
        unknown[count, 2] = length
        return count + 1
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _to_colon(i: int, end: int) -> int:
    """From the byte after a key's closing quote to its value; `end` when there is no colon."""
    if i < end and load8(i) != 0x3A:
        i = skip_space(i, end)
    if i >= end or load8(i) != 0x3A:
        return end
    i += 1
    return i if i < end and load8(i) > 0x20 else skip_space(i, end)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _next_member(i: int, end: int) -> int:
    """After a value: the next key's quote; the address after the object, negated; 0 when neither follows."""
    i = skip_space(i, end)
    if i >= end:
        return 0
    c = load8(i)
    if c == 0x7D:
        return -(i + 1)
    if c != 0x2C:
        return 0
    i = skip_space(i + 1, end)
    return i if i < end and load8(i) == 0x22 else 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_objects(
    base: int,
    starts: I32,
    ends: I32,
    kinds: U8,
    keys: int,
    key_offsets: I32,
    spelt_out: bool,
    value_start: I32,
    value_end: I32,
    value_kind: U8,
    error: U8,
    unknown: I32,
    stack: U8,
) -> int:
    """Takes the objects of `starts`/`ends` apart: one value slice per key and row.

    `keys` is the address of the known keys, each followed by a quote, `key_offsets` their places. The three `value_*`
    have the shape (keys, rows); kinds are ABSENT on entry. Rows whose kind is not OBJECT, or with an `error`, are
    passed over. `ends` may lie after the object when the rest is white space. `spelt_out`: escapes in keys are
    canonical, so that equal keys are equal bytes. Each unknown key is noted once; returns how many.
    """
    unknown_count = 0
    count = key_offsets.size - 1
    for row in range(starts.size):
        if kinds[row] != OBJECT or error[row] != OK:
            continue
        end = base + ends[row]
        i = skip_space(base + starts[row] + 1, end)
        guess = 0
        fault = MALFORMED
        if i < end and load8(i) == 0x7D:
            i = -(i + 1)
        elif i >= end or load8(i) != 0x22:
            i = 0
        while i > 0:
            i += 1
            # Records of one producer keep one order of keys: the next one is tried before anything is looked up.
            field = -1
            if guess < count:
                length = key_offsets[guess + 1] - key_offsets[guess]
                if i + length <= end and _same(i, keys + key_offsets[guess], length):
                    field = guess
                    j = i + length
            if field < 0:
                j, kind = scan_string(i, end)
                if j < 0:
                    break
                if kind == ESCAPED and not spelt_out:
                    fault = SLOW_KEY
                    break
                field = _find_key(i, j - i, keys, key_offsets)
                if field < 0:
                    unknown_count = _note_unknown(base, row, i, j - i, unknown, unknown_count)
                j += 1
            i = _to_colon(j, end)
            j, kind = scan_value(i, end, stack)
            if j < 0:
                fault = TOO_DEEP if j == NESTED_TOO_DEEP else MALFORMED
                break
            if field >= 0:
                if value_kind[field, row] != ABSENT:
                    fault = DUPLICATE_KEY
                    break
                value_start[field, row] = i - base
                value_end[field, row] = j - base
                value_kind[field, row] = kind
                guess = field + 1
            i = _next_member(j, end)
        if i < 0 and skip_space(-i, end) == end:
            fault = OK
        error[row] = fault
    return unknown_count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def count_members(base: int, starts: I32, ends: I32, kinds: U8, kind: int, counts: I32, stack: U8) -> None:
    """Per row: elements of its array (`kind` ARRAY) or members of its object (OBJECT), 0 where it is none.

    What is counted has been checked by the scan that found it.
    """
    close = 0x5D if kind == ARRAY else 0x7D
    for row in range(starts.size):
        if kinds[row] != kind:
            continue
        end = base + ends[row]
        i = skip_space(base + starts[row] + 1, end)
        n = 0
        while load8(i) != close:
            if kind == OBJECT:
                i = skip_key(i, end)
            i, _ = scan_value(i, end, stack)
            n += 1
            i = skip_space(i, end)
            if load8(i) == 0x2C:
                i = skip_space(i + 1, end)
        counts[row] = n


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_elements(
    base: int, starts: I32, ends: I32, kinds: U8, out_start: I32, out_end: I32, out_kind: U8, stack: U8
) -> None:
    """The elements of all arrays, one after another, as slices."""
    n = 0
    for row in range(starts.size):
        if kinds[row] != ARRAY:
            continue
        end = base + ends[row]
        i = skip_space(base + starts[row] + 1, end)
        while load8(i) != 0x5D:
            j, kind = scan_value(i, end, stack)
            out_start[n] = i - base
            out_end[n] = j - base
            out_kind[n] = kind
            n += 1
            i = skip_space(j, end)
            if load8(i) == 0x2C:
                i = skip_space(i + 1, end)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_entries(
    base: int, starts: I32, ends: I32, kinds: U8, out_start: I32, out_end: I32, out_kind: U8, stack: U8
) -> None:
    """The members of all objects, one after another: row 0 of each `out_*` holds key slices, row 1 value slices."""
    n = 0
    for row in range(starts.size):
        if kinds[row] != OBJECT:
            continue
        end = base + ends[row]
        i = skip_space(base + starts[row] + 1, end)
        while load8(i) != 0x7D:
            j, kind = scan_scalar(i, end)
            out_start[0, n] = i - base
            out_end[0, n] = j - base
            out_kind[0, n] = kind
            i = skip_key(i, end)
            j, kind = scan_value(i, end, stack)
            out_start[1, n] = i - base
            out_end[1, n] = j - base
            out_kind[1, n] = kind
            n += 1
            i = skip_space(j, end)
            if load8(i) == 0x2C:
                i = skip_space(i + 1, end)
