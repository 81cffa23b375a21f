"""Compiled loops over the words of one slot: copies of bytes, text, decimals, UUIDs, equal keys of maps.

A word is the place of a value: first byte (from `origin`, the buffer's address) in the low 32 bits, length in the high
ones. The word of an absent value is 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.raw_memory import COMPILED, copy_bytes, is_utf8, load8, load64, store8, store64

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

FITS, WIDE, EMPTY = range(3)

_LOW = 0xFFFFFFFF
_FEW = 16


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def measure_slices(words: I64, offsets: I32) -> int:
    """Writes the end of each value's bytes in the column to `offsets`, which has one entry more than there are words,
    and returns the total.
    """
    total = 0
    offsets[0] = 0
    for row in range(words.size):
        total += words[row] >> 32
        offsets[row + 1] = total
    return total


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def copy_slices(origin: int, words: I64, out: int) -> None:
    """Copies the bytes of all values, one after another, to the address `out`."""
    for row in range(words.size):
        i = origin + (words[row] & _LOW)
        length = words[row] >> 32
        if length > 64:
            copy_bytes(out, i, length)
        elif length >= 8:
            last = length - 8
            n = 0
            while n < last:
                store64(out + n, load64(i + n))
                n += 8
            store64(out + last, load64(i + last))
        else:
            for n in range(length):
                store8(out + n, load8(i + n))
        out += length


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def copy_fixed(origin: int, words: I64, size: int, out: int) -> None:
    """Copies as `copy_slices`, with `size` bytes for each value, which are left unchanged for an absent one."""
    for row in range(words.size):
        if words[row] != 0:
            copy_bytes(out + row * size, origin + (words[row] & _LOW), size)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def find_no_text(origin: int, words: I64, bad: U8) -> None:
    """Sets `bad` where the bytes of a value are not UTF-8."""
    for row in range(words.size):
        i = origin + (words[row] & _LOW)
        if not is_utf8(i, i + (words[row] >> 32)):
            bad[row] = 1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _hex_digit(c: int) -> int:
    if 48 <= c <= 57:
        return c - 48
    c |= 0x20
    if 97 <= c <= 102:
        return c - 87
    return -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _read_uuid(i: int, out: int) -> bool:
    for group in range(16):
        if group == 4 or group == 6 or group == 8 or group == 10:
            if load8(i) != 0x2D:
                return False
            i += 1
        high = _hex_digit(load8(i))
        low = _hex_digit(load8(i + 1))
        if high < 0 or low < 0:
            return False
        store8(out + group, high << 4 | low)
        i += 2
    return True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_uuids(origin: int, words: I64, valid: U8, out: int, bad: U8) -> None:
    """Writes UUIDs of 16 bytes each from their texts; sets `bad` where a text is no UUID."""
    for row in range(words.size):
        if valid[row] == 0:
            continue
        if words[row] >> 32 != 36 or not _read_uuid(origin + (words[row] & _LOW), out + row * 16):
            bad[row] = 1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_decimals(origin: int, words: I64, valid: U8, most_high: int, most_low: int, out: I64, bad: U8) -> None:
    """Writes 128-bit numbers, low half first, from two's complement in big-endian order.

    most_high, most_low: the halves of the smallest magnitude that is too large. Such values are WIDE in `bad`.
    """
    limit_high = np.uint64(most_high)
    limit_low = np.uint64(most_low)
    for row in range(words.size):
        if valid[row] == 0:
            continue
        length = words[row] >> 32
        if length == 0:
            bad[row] = EMPTY
            continue
        i = origin + (words[row] & _LOW)
        sign = np.uint64(0)
        if load8(i) >= 0x80:
            sign = np.uint64(0xFFFFFFFFFFFFFFFF)
        while length > 16:
            if load8(i) != np.int64(sign & np.uint64(0xFF)):
                break
            i += 1
            length -= 1
        high = sign
        low = sign
        for n in range(min(length, 16)):
            high = high << np.uint64(8) | low >> np.uint64(56)
            low = low << np.uint64(8) | np.uint64(load8(i + n))
        # The remaining bits of the sign must equal the sign that the bytes began with.
        if length > 16 or (high >> np.uint64(63)) != (sign & np.uint64(1)):
            bad[row] = WIDE
            continue
        out[2 * row] = np.int64(low)
        out[2 * row + 1] = np.int64(high)
        if sign != np.uint64(0):
            low = ~low + np.uint64(1)
            high = ~high
            if low == np.uint64(0):
                high += np.uint64(1)
        if high > limit_high or (high == limit_high and low >= limit_low):
            bad[row] = WIDE


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _compare(origin: int, key: int, other: int) -> int:
    """Returns a number below, above or equal to 0: a total order of values, by length first."""
    length = key >> 32
    if length != other >> 32:
        return length - (other >> 32)
    i = origin + (key & _LOW)
    k = origin + (other & _LOW)
    n = 0
    while n + 8 <= length:
        a = load64(i + n)
        b = load64(k + n)
        if a != b:
            return -1 if a < b else 1
        n += 8
    while n < length:
        if load8(i + n) != load8(k + n):
            return load8(i + n) - load8(k + n)
        n += 1
    return 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _has_pair(origin: int, words: I64, first: int, end: int) -> bool:
    """Whether two of a few values are equal."""
    for a in range(first + 1, end):
        for b in range(first, a):
            if words[a] >> 32 == words[b] >> 32 and _compare(origin, words[a], words[b]) == 0:
                return True
    return False


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _has_pair_sorted(origin: int, words: I64, first: int, end: int) -> bool:
    """Whether two of many values are equal: by a merge sort, so that no choice of keys takes more than n log n
    comparisons.
    """
    count = end - first
    now = words[first:end].copy()
    then = np.empty(count, np.int64)
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            middle = min(start + width, count)
            stop = min(start + 2 * width, count)
            a = start
            b = middle
            for n in range(start, stop):
                order = 1
                if a < middle and b < stop:
                    order = _compare(origin, now[b], now[a])
                    if order == 0:
                        return True
                if a < middle and (b >= stop or order > 0):
                    then[n] = now[a]
                    a += 1
                else:
                    then[n] = now[b]
                    b += 1
        now, then = then, now
        width *= 2
    return False


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def has_same(origin: int, words: I64, first: int, end: int) -> bool:
    """Whether two of the values from the word `first` to before `end` are equal."""
    if end - first <= _FEW:
        return _has_pair(origin, words, first, end)
    return _has_pair_sorted(origin, words, first, end)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def find_equal_keys(origin: int, offsets: I32, words: I64, bad: U8) -> None:
    """Sets `bad` where two keys of a map are equal; the map's keys are the words from its offset to the next."""
    for row in range(offsets.size - 1):
        if has_same(origin, words, offsets[row], offsets[row + 1]):
            bad[row] = 1
