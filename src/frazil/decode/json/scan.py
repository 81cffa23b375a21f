"""Finds every value of many JSON texts at once: compiled loops over one Arrow data buffer.

A value is a slice of that buffer: first byte, byte after the last (int32, relative to `base`, the buffer's address) and
kind. Nothing is copied here.
"""

from __future__ import annotations

from numba import njit

from frazil.decode.json.grammar import (
    ARRAY,
    NESTED_TOO_DEEP,
    OBJECT,
    scan_scalar,
    scan_value,
    skip_key,
    skip_space,
)
from frazil.raw_memory import COMPILED, I32, U8, load8

# Faults of a text. ESCAPED_KEY is no fault: a key is written with escapes that must be replaced first.
OK, NOT_OBJECT, MALFORMED, DUPLICATE_KEY, TOO_DEEP, ESCAPED_KEY, NOT_UTF8, TOMBSTONE, HALF_KEY = range(9)

MAX_UNKNOWN = 256


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_texts(base: int, starts: I32, ends: I32, kinds: U8, error: U8) -> None:
    """Finds the record values that begin an object: moves `starts` there, sets `kinds` to OBJECT or an `error`.

    A leading UTF-8 byte order mark is skipped, as RFC 8259 section 8.1 allows. Rows with an `error` are left unchanged.
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
        j, kind = scan_value(i, end, stack.ctypes.data, 0)
        if j < 0:
            error[row] = TOO_DEEP if j == NESTED_TOO_DEEP else MALFORMED
        elif skip_space(j, end) != end:
            error[row] = MALFORMED
        else:
            starts[row] = i - base
            ends[row] = j - base
            kinds[row] = kind


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def count_members(base: int, starts: I32, ends: I32, kinds: U8, kind: int, counts: I32, stack: U8) -> None:
    """Writes to `counts` for each row the elements of its array (`kind` ARRAY) or members of its object (OBJECT), 0
    where it is none.

    The rows were validated by the scan that found them.
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
            i, _ = scan_value(i, end, stack.ctypes.data, 0)
            n += 1
            i = skip_space(i, end)
            if load8(i) == 0x2C:
                i = skip_space(i + 1, end)
        counts[row] = n


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_members(
    base: int, starts: I32, ends: I32, kinds: U8, kind: int, out_start: I32, out_end: I32, out_kind: U8, stack: U8
) -> None:
    """Writes the elements of all arrays (`kind` ARRAY) or the members of all objects (OBJECT), one after another: the
    last row of each `out_*` holds value slices, and for objects row 0 key slices.
    """
    close, last = (0x5D, 0) if kind == ARRAY else (0x7D, 1)
    n = 0
    for row in range(starts.size):
        if kinds[row] != kind:
            continue
        end = base + ends[row]
        i = skip_space(base + starts[row] + 1, end)
        while load8(i) != close:
            if kind == OBJECT:
                j, value_kind = scan_scalar(i, end)
                out_start[0, n] = i - base
                out_end[0, n] = j - base
                out_kind[0, n] = value_kind
                i = skip_key(i, end)
            j, value_kind = scan_value(i, end, stack.ctypes.data, 0)
            out_start[last, n] = i - base
            out_end[last, n] = j - base
            out_kind[last, n] = value_kind
            n += 1
            i = skip_space(j, end)
            if load8(i) == 0x2C:
                i = skip_space(i + 1, end)
