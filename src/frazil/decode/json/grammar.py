"""RFC 8259, compiled: one function per production, each from an address to the address after it.

The entire grammar is checked, also in skipped values, so a text that passes is JSON. A negative result means that it is
not. UTF-8 itself is checked elsewhere, for a whole column at once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from frazil.raw_memory import COMPILED, U8, load8, load64, store8, trailing_zeros

# Kinds of value. ESCAPED is a string with at least one backslash in it.
ABSENT, NULL, FALSE, TRUE, INT, DOUBLE, STRING, ESCAPED, OBJECT, ARRAY = range(10)

NOT_JSON = -1
NESTED_TOO_DEEP = -2
MAX_DEPTH = 512

_ONES = np.uint64(0x0101010101010101)
_HIGHS = np.uint64(0x8080808080808080)
_SPACES = np.uint64(0x2020202020202020)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)


def new_stack() -> U8:
    """Returns the memory for a nesting of MAX_DEPTH levels."""
    return np.empty(MAX_DEPTH, np.uint8)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def skip_space(i: int, end: int) -> int:
    """Returns the first address from `i` on that holds no white space, or `end`."""
    while i < end:
        c = load8(i)
        if c > 0x20 or (c != 0x20 and c != 0x0A and c != 0x0D and c != 0x09):
            break
        i += 1
    return i


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _skip_plain(i: int, end: int) -> int:
    """Returns the address of the first quote, backslash or control character from `i` on, or `end`; eight bytes at a
    time.

    Per byte of a word, `(x - 1) & ~x & 0x80` is set where x is 0 (and perhaps above the first such byte, which is why
    only the lowest hit counts); `(x - 0x20) & ~x & 0x80` where x is below 0x20.
    """
    while i + 8 <= end:
        word = load64(i)
        quotes = word ^ _QUOTES
        slashes = word ^ _BACKSLASHES
        hits = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes) | ((word - _SPACES) & ~word)
        hits &= _HIGHS
        if hits != 0:
            return i + (trailing_zeros(hits) >> 3)
        i += 8
    while i < end:
        c = load8(i)
        if c < 0x20 or c == 0x22 or c == 0x5C:
            break
        i += 1
    return i


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _skip_escape(i: int, end: int) -> int:
    """Returns the address after the escape whose backslash is at `i`."""
    if i + 1 >= end:
        return NOT_JSON
    c = load8(i + 1)
    if c == 0x75:
        if i + 6 > end:
            return NOT_JSON
        for k in range(i + 2, i + 6):
            h = load8(k)
            if not (48 <= h <= 57 or 65 <= h <= 70 or 97 <= h <= 102):
                return NOT_JSON
        return i + 6
    if c == 0x22 or c == 0x5C or c == 0x2F or c == 0x62 or c == 0x66 or c == 0x6E or c == 0x72 or c == 0x74:
        return i + 2
    return NOT_JSON


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_string(i: int, end: int) -> tuple[int, int]:
    """Returns the address of the closing quote, from the byte after the opening quote, and the kind, which shows
    whether there are escapes.
    """
    kind = STRING
    while True:
        i = _skip_plain(i, end)
        if i >= end:
            return NOT_JSON, kind
        c = load8(i)
        if c == 0x22:
            return i, kind
        if c != 0x5C:
            return NOT_JSON, kind
        kind = ESCAPED
        i = _skip_escape(i, end)
        if i < 0:
            return NOT_JSON, kind


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _skip_digits(i: int, end: int) -> int:
    while i < end and 48 <= load8(i) <= 57:
        i += 1
    return i


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _scan_number(i: int, end: int) -> tuple[int, int]:
    kind = INT
    if load8(i) == 0x2D:
        i += 1
    first = i
    i = _skip_digits(i, end)
    if i == first or (load8(first) == 48 and i - first > 1):
        return NOT_JSON, kind
    if i < end and load8(i) == 0x2E:
        kind = DOUBLE
        first = i + 1
        i = _skip_digits(first, end)
        if i == first:
            return NOT_JSON, kind
    if i < end and (load8(i) | 0x20) == 0x65:
        kind = DOUBLE
        i += 1
        if i < end and (load8(i) == 0x2B or load8(i) == 0x2D):
            i += 1
        first = i
        i = _skip_digits(first, end)
        if i == first:
            return NOT_JSON, kind
    return i, kind


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_decimal(i: int, end: int) -> tuple[int, int, int, int, int]:
    """Returns the address after the number at `i`, its kind, its digits as an unsigned integer, the number of digits
    after the point, and of all digits. More than 18 digits do not count; an exponent makes them 99.
    """
    kind = INT
    if load8(i) == 0x2D:
        i += 1
    first = i
    total = 0
    while i < end:
        digit = load8(i) ^ 48
        if digit > 9:
            break
        total = total * 10 + digit
        i += 1
    digits = i - first
    point = 0
    if digits == 0 or (digits > 1 and load8(first) == 48):
        return NOT_JSON, kind, 0, 0, 0
    if i < end and load8(i) == 0x2E:
        kind = DOUBLE
        i += 1
        after = i
        while i < end:
            digit = load8(i) ^ 48
            if digit > 9:
                break
            total = total * 10 + digit
            i += 1
        point = i - after
        digits += point
        if point == 0:
            return NOT_JSON, kind, 0, 0, 0
    if i < end and (load8(i) | 0x20) == 0x65:
        j, kind = _scan_number(first, end)
        return j, kind, 0, 0, 99
    return i, kind, total, point, digits


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _scan_word(i: int, end: int) -> tuple[int, int]:
    """Returns the address after the true, false or null at `i`, and its kind."""
    if i + 4 <= end:
        if load8(i) == 0x74 and load8(i + 1) == 0x72 and load8(i + 2) == 0x75 and load8(i + 3) == 0x65:
            return i + 4, TRUE
        if load8(i) == 0x6E and load8(i + 1) == 0x75 and load8(i + 2) == 0x6C and load8(i + 3) == 0x6C:
            return i + 4, NULL
    if i + 5 <= end and load8(i) == 0x66 and load8(i + 1) == 0x61 and load8(i + 2) == 0x6C:
        if load8(i + 3) == 0x73 and load8(i + 4) == 0x65:
            return i + 5, FALSE
    return NOT_JSON, NULL


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_scalar(i: int, end: int) -> tuple[int, int]:
    """Returns the address after the string, number or word at `i`, and its kind."""
    c = load8(i)
    if c == 0x22:
        j, kind = scan_string(i + 1, end)
        return (j + 1 if j >= 0 else j), kind
    if c == 0x2D or 48 <= c <= 57:
        return _scan_number(i, end)
    return _scan_word(i, end)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def skip_key(i: int, end: int) -> int:
    """Returns the address of a member's value, from its key's opening quote."""
    if i >= end or load8(i) != 0x22:
        return NOT_JSON
    j, _ = scan_string(i + 1, end)
    if j < 0:
        return NOT_JSON
    i = skip_space(j + 1, end)
    if i >= end or load8(i) != 0x3A:
        return NOT_JSON
    return skip_space(i + 1, end)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _leave_containers(i: int, end: int, stack: int, depth: int, floor: int) -> tuple[int, int]:
    """Closes containers and passes a comma after a value; returns the start of the next value and its depth (`floor`:
    everything is closed).
    """
    while depth > floor:
        i = skip_space(i, end)
        if i >= end:
            return NOT_JSON, depth
        c = load8(i)
        if c == load8(stack + depth - 1) + 2:
            depth -= 1
            i += 1
            continue
        if c != 0x2C:
            return NOT_JSON, depth
        i = skip_space(i + 1, end)
        if load8(stack + depth - 1) == 0x7B:
            i = skip_key(i, end)
        break
    return i, depth


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def skip_container(i: int, end: int, stack: int, floor: int) -> int:
    """Returns the address after the object or array at `i`, which is inside `floor` others.

    `stack`, the address of `new_stack`, holds the opening bytes in place of recursion, so 100,000 levels are only
    refused.
    """
    depth = floor
    while True:
        if i < 0 or i >= end:
            return NOT_JSON
        c = load8(i)
        opens = c == 0x7B or c == 0x5B
        if opens:
            if depth >= MAX_DEPTH:
                return NESTED_TOO_DEEP
            store8(stack + depth, c)
            depth += 1
            i = skip_space(i + 1, end)
            if i >= end:
                return NOT_JSON
            if load8(i) != c + 2:
                if c == 0x7B:
                    i = skip_key(i, end)
                continue
            depth -= 1
            i += 1
        else:
            i, _ = scan_scalar(i, end)
            if i < 0:
                return NOT_JSON
        i, depth = _leave_containers(i, end, stack, depth, floor)
        if i < 0 or depth == floor:
            return i


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def scan_value(i: int, end: int, stack: int, floor: int) -> tuple[int, int]:
    """Returns the address after the value at `i`, and its kind. stack, floor: see `skip_container`."""
    if i >= end:
        return NOT_JSON, NULL
    c = load8(i)
    if c == 0x7B:
        return skip_container(i, end, stack, floor), OBJECT
    if c == 0x5B:
        return skip_container(i, end, stack, floor), ARRAY
    return scan_scalar(i, end)
