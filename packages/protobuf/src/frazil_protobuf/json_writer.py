"""JSON text, written by compiled walks: byte for byte what Python's `json.dumps` writes with `ensure_ascii=False`.

Each function writes from the address `out` on and returns the address after it. The caller has made sure of the room:
ROOM for a number, ROOM and SPREAD times as many bytes as there are for text.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import bitmap
from frazil.raw_memory import COMPILED, U8, high64, load8, load64, store8, store64

_LEAST_POWER, _MAX_POWER = -292, 324


def _power(exponent: int) -> int:
    """Returns 10**exponent as 128 bits, the highest of them set, rounded up."""
    if exponent >= 0:
        shift = (10**exponent).bit_length() - 128
        return -(-(10**exponent) // 2**shift) if shift > 0 else 10**exponent << -shift
    whole = 10**-exponent
    return -(-(2 ** (127 + whole.bit_length())) // whole)


_POWERS = np.array(
    [[power >> 64, power & (2**64 - 1)] for power in map(_power, range(_LEAST_POWER, _MAX_POWER + 1))], np.uint64
)
_FRACTION = np.uint64(2**52 - 1)
_WIDTH = np.uint64(52)  # Of the fraction, in bits.
_ONE, _TWO, _FOUR = np.uint64(1), np.uint64(2), np.uint64(4)
_FORTY = np.uint64(40)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _scaled(power: int, factor: np.uint64) -> np.uint64:
    """Returns factor * 10**power * 2**n for the n that gives an integer of 64 bits; its last bit is set when it is not
    exact.
    """
    high = _POWERS[power - _LEAST_POWER, 0]
    low = high64(_POWERS[power - _LEAST_POWER, 1], factor)
    middle = high * factor
    whole = high64(high, factor)
    total = middle + low
    if total < middle:
        whole += _ONE
    return whole | _ONE if total > _ONE else whole


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def shortest_digits(bits: np.uint64) -> tuple[np.uint64, int]:
    """Returns digits and exponent of ten of a finite double other than 0, without its sign; the last digit is not 0."""
    exponent: int = np.int64(bits >> _WIDTH) & 0x7FF  # type: ignore[assignment]
    fraction = bits & _FRACTION
    is_narrow = fraction == _NONE and exponent > 1  # Below a power of two the neighbour is only half as far.
    if exponent == 0:
        exponent = 1
    else:
        fraction |= _ONE << _WIDTH
    exponent -= 1075
    if -52 <= exponent <= 0 and fraction & ((_ONE << np.uint64(-exponent)) - _ONE) == _NONE:
        return _without_zeros(fraction >> np.uint64(-exponent), 0)
    ten = (exponent * 1262611 - (524031 if is_narrow else 0)) >> 22
    shift = np.uint64(exponent + ((-ten * 1741647) >> 19) + 1)
    middle = fraction * _FOUR
    low = _scaled(-ten, (middle - (_ONE if is_narrow else _TWO)) << shift)
    value = _scaled(-ten, middle << shift)
    high = _scaled(-ten, (middle + _TWO) << shift)
    if fraction & _ONE != _NONE:  # Halfway between two doubles counts as the even one.
        low += _ONE
        high -= _ONE
    whole = value // _FOUR
    if whole >= _TEN:
        tens = whole // _TEN
        is_below = low <= _FORTY * tens
        is_above = _FORTY * tens + _FORTY <= high
        if is_below != is_above:
            return _without_zeros(tens + _ONE if is_above else tens, ten + 1)
    is_below = low <= _FOUR * whole
    is_above = _FOUR * whole + _FOUR <= high
    if is_below == is_above:
        half = _FOUR * whole + _TWO
        is_above = value > half or (value == half and whole & _ONE != _NONE)
    return _without_zeros(whole + _ONE if is_above else whole, ten)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _without_zeros(digits: np.uint64, exponent: int) -> tuple[np.uint64, int]:
    while digits % _TEN == _NONE:
        digits //= _TEN
        exponent += 1
    return digits, exponent


I64 = NDArray[np.int64]

ROOM, SPREAD = 48, 6

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHORT = np.zeros(256, np.uint8)
_SHORT[np.frombuffer(b'"\\\b\f\n\r\t', np.uint8)] = np.frombuffer(b'"\\bfnrt', np.uint8)
_QUOTE, _BACKSLASH = 0x22, 0x5C
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES = np.uint64(0x2222222222222222), np.uint64(0x5C5C5C5C5C5C5C5C)
_BLANKS = np.uint64(0x2020202020202020)
_NONE, _TEN = np.uint64(0), np.uint64(10)
_SIGN = np.uint64(2**63)
NULL, FALSE, TRUE = (np.frombuffer(word, np.uint8) for word in (b"null", b"false", b"true"))

WriteValues = Callable[[int, int, int, I64, U8], int]
"""Writes the texts of one row and those after it: takes an address, the room there, the row, the places where the texts
end, and what is declined. Returns the first row for whose text there is no room."""


def write_texts(
    valid: NDArray[np.bool_], guess: int, write: WriteValues, write_one: Callable[[int], str | None]
) -> pa.Array:
    """A column of texts, null where it is not `valid`, which `write` skips.

    guess: how many bytes they may have in all. write_one: what `write` declines, as for damaged values; None for null.
    """
    rows = valid.size
    out = np.empty(guess + ROOM, np.uint8)
    ends, declined = np.zeros(rows + 1, np.int64), np.zeros(rows, np.uint8)
    row = 0
    while (row := write(int(out.ctypes.data), out.size, row, ends, declined)) < rows:
        wider = np.empty(out.size * 2, np.uint8)
        wider[: ends[row]] = out[: ends[row]]
        out = wider
    is_declined = declined.view(np.bool_)
    others = [write_one(each) for each in np.flatnonzero(is_declined).tolist()]
    size = int(ends[rows]) + sum(len(text.encode()) for text in others if text is not None)
    kind, offsets = (pa.string(), ends.astype(np.int32)) if size < 2**31 else (pa.large_string(), ends)
    buffers = [bitmap(valid & ~is_declined), pa.py_buffer(offsets), pa.py_buffer(out[: ends[rows]])]
    array = pa.Array.from_buffers(kind, rows, buffers)
    return pc.replace_with_mask(array, pa.array(is_declined), pa.array(others, kind)) if others else array


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def has_room(at: int, limit: int, i: int, length: int) -> bool:
    """Whether there is room for the bytes at `i` as JSON text, and for a number."""
    if at + SPREAD * length + ROOM <= limit:
        return True
    size = 2 * length + ROOM
    for n in range(length):
        if load8(i + n) < 0x20:
            size += SPREAD - 2
    return at + size <= limit


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_word(out: int, word: U8) -> int:
    """A few bytes that are the same always, as NULL, FALSE and TRUE."""
    for n in range(word.size):
        store8(out + n, word[n])
    return out + word.size


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _write_character(out: int, c: int) -> int:
    if c >= 0x20 and c != _QUOTE and c != _BACKSLASH:
        store8(out, c)
        return out + 1
    store8(out, _BACKSLASH)
    if _SHORT[c] != 0:
        store8(out + 1, _SHORT[c])
        return out + 2
    store8(out + 1, 0x75)  # u
    store8(out + 2, 0x30)
    store8(out + 3, 0x30)
    store8(out + 4, _HEX[c >> 4])
    store8(out + 5, _HEX[c & 0xF])
    return out + 6


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_string(out: int, i: int, length: int) -> int:
    """The UTF-8 at `i`, in quotes."""
    store8(out, _QUOTE)
    out += 1
    end = i + length
    while i + 8 <= end:
        word = load64(i)
        quotes = word ^ _QUOTES
        backslashes = word ^ _BACKSLASHES
        special = ((word - _BLANKS) & ~word) | ((quotes - _ONES) & ~quotes) | ((backslashes - _ONES) & ~backslashes)
        if special & _HIGHS == _NONE:
            store64(out, word)
            out += 8
        else:
            for n in range(8):
                out = _write_character(out, load8(i + n))
        i += 8
    while i < end:
        out = _write_character(out, load8(i))
        i += 1
    store8(out, _QUOTE)
    return out + 1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def count_digits(number: np.uint64) -> int:
    count = 1
    while number >= _TEN:
        number //= _TEN
        count += 1
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_digits(out: int, number: np.uint64, count: int) -> int:
    """The last `count` digits of a number, zeros before it."""
    for n in range(count - 1, -1, -1):
        store8(out + n, 0x30 + np.int64(number % _TEN))
        number //= _TEN
    return out + count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_unsigned(out: int, number: np.uint64) -> int:
    """A number without a sign."""
    return write_digits(out, number, count_digits(number))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _write_zeros(out: int, count: int) -> int:
    for n in range(count):
        store8(out + n, 0x30)
    return out + count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def write_double(out: int, bits: np.uint64) -> int:
    """A finite double as Python's `repr` has it."""
    size = bits & ~_SIGN
    if size != bits:
        store8(out, 0x2D)
        out += 1
    if size == _NONE:
        return _write_decimal(out, _NONE, 0)
    digits, exponent = shortest_digits(size)
    return _write_decimal(out, digits, exponent)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _write_decimal(out: int, digits: np.uint64, exponent: int) -> int:
    """digits * 10**exponent."""
    count = count_digits(digits)
    point = count + exponent  # So many digits are before the point.
    if point <= -4 or point > 16:
        return _write_exponent(
            _write_fraction(out, digits, count, 1) if count > 1 else write_unsigned(out, digits), point
        )
    if point <= 0:
        out = _write_zeros(out, 1)
        store8(out, 0x2E)
        return write_digits(_write_zeros(out + 1, -point), digits, count)
    if point < count:
        return _write_fraction(out, digits, count, point)
    out = _write_zeros(write_digits(out, digits, count), point - count)
    store8(out, 0x2E)
    return _write_zeros(out + 1, 1)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _write_fraction(out: int, digits: np.uint64, count: int, point: int) -> int:
    """Digits with a point among them."""
    write_digits(out + 1, digits, count)
    for n in range(point):
        store8(out + n, load8(out + n + 1))
    store8(out + point, 0x2E)
    return out + count + 1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _write_exponent(out: int, point: int) -> int:
    store8(out, 0x65)
    store8(out + 1, 0x2D if point < 1 else 0x2B)
    exponent = np.uint64(abs(point - 1))
    return write_digits(out + 2, exponent, max(2, count_digits(exponent)))
