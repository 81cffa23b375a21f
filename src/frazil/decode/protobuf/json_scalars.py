"""Values that hold no messages as Protobuf's own JSON has them, compiled: numbers, moments, the keys of maps in order.

Each value is given as its bytes, without its tag; none at all are the default.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from frazil.decode.json_text import (
    FALSE,
    NULL,
    TRUE,
    count_digits,
    write_base64,
    write_digits,
    write_double,
    write_float,
    write_integer,
    write_string,
    write_unsigned,
    write_word,
)
from frazil.decode.memory import COMPILED, load8, load64, store8
from frazil.decode.protobuf.cells import LENGTH_MASK
from frazil.decode.protobuf.json_code import (
    BOOLEAN,
    DOUBLE,
    ENUM,
    FIXED,
    FLOAT,
    INT,
    LONG,
    LONG_FIXED,
    NULL_ENUM,
    SIGNED_FIXED,
    TEXT,
    UNSIGNED,
    UNSIGNED_LONG,
    ZIGZAG,
    ZIGZAG_LONG,
)
from frazil.decode.protobuf.program import I64
from frazil.decode.protobuf.wire import is_utf8, read_fixed32, read_varint

_QUOTE, _POINT = 0x22, 0x2E
_TEN, _NONE = np.uint64(10), np.uint64(0)
_DAY = 86_400
_NANOS = 1_000_000_000
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_MAX_SECONDS = 315_576_000_000


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _narrow(number: int) -> int:
    """The low 32 bits as a number with a sign."""
    number &= 0xFFFFFFFF
    return number - 0x100000000 if number > 0x7FFFFFFF else number


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_integer(kind: int, i: int, end: int) -> int:
    """The number that the bytes mean; of floats and doubles their bits, of unsigned longs the same bits with a sign."""
    if i == end:
        return 0
    if kind >= LONG_FIXED:
        return np.int64(load64(i))  # type: ignore[return-value]
    if kind >= FIXED:
        number = read_fixed32(i)
        return _narrow(number) if kind == SIGNED_FIXED else number
    _, number = read_varint(i, end)
    if kind == INT or kind == ENUM or kind == NULL_ENUM:
        return _narrow(number)
    if kind == UNSIGNED:
        return number & 0xFFFFFFFF
    if kind == ZIGZAG:
        number &= 0xFFFFFFFF
        return (number >> 1) ^ -(number & 1)
    if kind == ZIGZAG_LONG:
        return np.int64(np.uint64(number) >> np.uint64(1)) ^ -(number & 1)
    return number


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def is_odd(kind: int, i: int, end: int) -> bool:
    """Whether a value that holds no others is better left to Protobuf: booleans of several bytes, texts that are none, and
    floats whose shortest decimal is not the one it takes.
    """
    if kind == BOOLEAN:
        return i < end and (i + 1 < end or load8(i) > 1)
    if kind == TEXT:
        return not is_utf8(i, end)
    if kind == FLOAT and i < end:
        bits = read_fixed32(i)
        exponent = bits >> 23 & 0xFF
        if exponent == 0:
            return bits & 0x7FFFFF != 0
        return bits & 0x7FFFFF == 0 and exponent != 255 and abs(exponent - 127) > 64
    return False


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_scalar(at: int, kind: int, i: int, end: int) -> int:
    """A value of any kind but an enum's names: 64 bits in quotes, bytes as base64."""
    if kind == TEXT:
        return write_string(at, i, end - i)
    if kind > TEXT:
        return write_base64(at, i, end - i)
    number = read_integer(kind, i, end)
    if kind == BOOLEAN:
        return write_word(at, TRUE if number != 0 else FALSE)
    if kind == NULL_ENUM:
        return write_word(at, NULL)
    if kind == FLOAT:
        return write_float(at, np.uint64(number))
    if kind == DOUBLE:
        return write_double(at, np.uint64(number))
    if kind == LONG or kind == ZIGZAG_LONG or kind >= LONG_FIXED or kind == UNSIGNED_LONG:
        return write_key(at, kind, number)
    return write_integer(at, number)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_key(at: int, kind: int, number: int) -> int:
    """A number in quotes, a boolean's word in quotes."""
    store8(at, _QUOTE)
    if kind == BOOLEAN:
        at = write_word(at + 1, TRUE if number != 0 else FALSE)
    elif kind == UNSIGNED_LONG or kind == LONG_FIXED:
        at = write_unsigned(at + 1, np.uint64(number))
    else:
        at = write_integer(at + 1, number)
    store8(at, _QUOTE)
    return at + 1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _compare_texts(base: int, one: int, other: int) -> int:
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
def _compare_digits(one: np.uint64, other: np.uint64) -> int:
    """As texts: 10 comes before 9."""
    order = 0  # Where one is the beginning of the other.
    count = count_digits(one)
    other_count = count_digits(other)
    while count > other_count:
        one //= _TEN
        count -= 1
        order = 1
    while other_count > count:
        other //= _TEN
        other_count -= 1
        order = -1
    if one != other:
        return -1 if one < other else 1
    return order


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def compare_keys(base: int, kind: int, one: int, other: int) -> int:
    """Below, above or equal to 0, as the one key's text comes before the other's, after it or is the same."""
    if kind == TEXT:
        return _compare_texts(base, one, other)
    is_signed = kind != UNSIGNED_LONG and kind != LONG_FIXED
    if is_signed and one < 0 and other < 0:
        return _compare_digits(_NONE - np.uint64(one), _NONE - np.uint64(other))
    if is_signed and (one < 0 or other < 0):
        return -1 if one < 0 else 1
    return _compare_digits(np.uint64(one), np.uint64(other))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def sort_entries(base: int, kind: int, entries: I64, spare: I64, first: int, end: int) -> bool:
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
                    order = compare_keys(base, kind, source[a, 0], source[b, 0])
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
def _read_seconds(i: int, end: int) -> tuple[bool, int, int]:
    """Whether a Timestamp or Duration has its two fields at most once and in order; its seconds and nanos."""
    seconds = 0
    nanos = 0
    if i < end and load8(i) == 0x08:
        i, seconds = read_varint(i + 1, end)
    if 0 <= i < end and load8(i) == 0x10:
        i, nanos = read_varint(i + 1, end)
    return i == end, seconds, _narrow(nanos)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _write_fraction(at: int, nanos: int) -> int:
    """As many of 3, 6 or 9 digits as are needed, with a point; nothing for 0."""
    if nanos == 0:
        return at
    store8(at, _POINT)
    if nanos % 1_000_000 == 0:
        return write_digits(at + 1, np.uint64(nanos // 1_000_000), 3)
    if nanos % 1000 == 0:
        return write_digits(at + 1, np.uint64(nanos // 1000), 6)
    return write_digits(at + 1, np.uint64(nanos), 9)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_timestamp(at: int, i: int, end: int) -> int:
    """A moment as RFC 3339 has it; 0 where it is to be declined."""
    is_plain, seconds, nanos = _read_seconds(i, end)
    if not is_plain or seconds < _FIRST_SECOND or seconds > _LAST_SECOND or nanos < 0 or nanos >= _NANOS:
        return 0
    days = seconds // _DAY
    seconds -= days * _DAY
    # Days since 0000-03-01, in eras of 400 years; years begin in March, so that a leap day is their last.
    days += 719_468
    era = days // 146_097
    days -= era * 146_097
    year = (days - days // 1460 + days // 36_524 - days // 146_096) // 365
    days -= 365 * year + year // 4 - year // 100
    month = (5 * days + 2) // 153
    days -= (153 * month + 2) // 5
    year += 400 * era + (1 if month > 9 else 0)
    month += 3 if month < 10 else -9
    store8(at, _QUOTE)
    at = write_digits(at + 1, np.uint64(year), 4)
    store8(at, 0x2D)
    at = write_digits(at + 1, np.uint64(month), 2)
    store8(at, 0x2D)
    at = write_digits(at + 1, np.uint64(days + 1), 2)
    store8(at, 0x54)
    at = write_digits(at + 1, np.uint64(seconds // 3600), 2)
    store8(at, 0x3A)
    at = write_digits(at + 1, np.uint64(seconds // 60 % 60), 2)
    store8(at, 0x3A)
    at = _write_fraction(write_digits(at + 1, np.uint64(seconds % 60), 2), nanos)
    store8(at, 0x5A)
    store8(at + 1, _QUOTE)
    return at + 2


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_duration(at: int, i: int, end: int) -> int:
    """Seconds with an `s` behind; 0 where it is to be declined."""
    is_plain, seconds, nanos = _read_seconds(i, end)
    if not is_plain or seconds < -_MAX_SECONDS or seconds > _MAX_SECONDS or nanos <= -_NANOS or nanos >= _NANOS:
        return 0
    if (seconds < 0 and nanos > 0) or (seconds > 0 and nanos < 0):
        return 0
    store8(at, _QUOTE)
    at += 1
    if seconds < 0 or nanos < 0:
        store8(at, 0x2D)
        at += 1
    at = _write_fraction(write_unsigned(at, np.uint64(abs(seconds))), abs(nanos))
    store8(at, 0x73)
    store8(at + 1, _QUOTE)
    return at + 2
