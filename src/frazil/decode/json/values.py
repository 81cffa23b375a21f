"""Value slices of one kind of column to numbers, flags and text: compiled loops, one per physical type.

Every function fills `valid` (0 = null) and `bad` (not 0 = the value does not fit); a bad value is never rounded,
truncated or guessed. Values that a loop cannot read exactly (17-digit doubles) are listed for an exact, slow reading.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.decode.json.grammar import ABSENT, DOUBLE, ESCAPED, FALSE, INT, NULL, STRING, TRUE
from frazil.raw_memory import COMPILED, I32, U8, copy_bytes, load8, load64, store8, store64

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

# Reasons why a value does not fit its column.
FITS, WRONG_KIND, OUT_OF_RANGE, NOT_INTEGRAL, LONE_SURROGATE, UNREADABLE, TWICE, SKIPPED = range(8)

SPARE = 16  # Bytes: texts up to this length are copied as two words.

# 10**0 .. 10**22 are exact as doubles; so is every integer up to 2**53: one division or product of the two is rounded
# once, that is, correctly (Clinger, "How to read floating point numbers accurately", 1990).
_POWERS = np.array([10.0**k for k in range(23)])


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def parse_bools(starts: I32, kinds: U8, out: U8, valid: U8, bad: U8) -> None:
    """Reads true and false."""
    for row in range(starts.size):
        kind = kinds[row]
        if kind == TRUE or kind == FALSE:
            out[row] = kind == TRUE
            valid[row] = 1
        elif kind != ABSENT and kind != NULL:
            bad[row] = WRONG_KIND


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _parse_int(i: int, end: int) -> tuple[np.int64, bool]:
    """Returns the integer at `i`, and whether it is within 64 bits."""
    negative = load8(i) == 0x2D
    if negative:
        i += 1
    if end - i > 19:
        return np.int64(0), False
    total = np.uint64(0)
    for k in range(i, end):
        total = total * np.uint64(10) + np.uint64(load8(k) - 48)
    if negative:
        if total > np.uint64(9223372036854775808):
            return np.int64(0), False
        return np.int64(np.uint64(0) - total), True
    if total > np.uint64(9223372036854775807):
        return np.int64(0), False
    return np.int64(total), True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def parse_integers(
    base: int, starts: I32, ends: I32, kinds: U8, least: int, most: int, out: I64, valid: U8, bad: U8, slow: I32
) -> int:
    """Reads integers from `least` to `most`. A number with a fraction or exponent fits when its value is such an
    integer; rows where more than 64 bits are needed to decide go to `slow`, and their count is returned.
    """
    count = 0
    for row in range(starts.size):
        kind = kinds[row]
        if kind == INT:
            value, within = _parse_int(base + starts[row], base + ends[row])
            if not within or value < least or value > most:
                bad[row] = OUT_OF_RANGE
            else:
                out[row] = value
                valid[row] = 1
        elif kind == DOUBLE:
            number, exact = _parse_double(base + starts[row], base + ends[row])
            if not exact or abs(number) > 9007199254740992.0:
                slow[count] = row
                count += 1
            elif number != np.floor(number):
                bad[row] = NOT_INTEGRAL
            elif number < least or number > most:
                bad[row] = OUT_OF_RANGE
            else:
                out[row] = np.int64(number)
                valid[row] = 1
        elif kind != ABSENT and kind != NULL:
            bad[row] = WRONG_KIND
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _parse_double(i: int, end: int) -> tuple[float, bool]:
    """Returns the number at `i`; False when one rounding does not suffice to be exact."""
    negative = load8(i) == 0x2D
    if negative:
        i += 1
    mantissa = np.uint64(0)
    exponent = 0
    fraction = False
    while i < end:
        c = load8(i)
        if 48 <= c <= 57:
            if mantissa > np.uint64(900719925474099):
                return 0.0, False
            mantissa = mantissa * np.uint64(10) + np.uint64(c - 48)
            if fraction:
                exponent -= 1
        elif c == 0x2E:
            fraction = True
        else:
            break
        i += 1
    if i < end:
        i += 1
        down = load8(i) == 0x2D
        if load8(i) == 0x2B or down:
            i += 1
        power = 0
        while i < end:
            power = power * 10 + (load8(i) - 48)
            if power > 400:
                return 0.0, False
            i += 1
        exponent += -power if down else power
    if exponent < -22 or exponent > 22 or mantissa > np.uint64(9007199254740992):
        return 0.0, False
    value = float(mantissa)
    value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
    return -value if negative else value, True


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def parse_doubles(base: int, starts: I32, ends: I32, kinds: U8, out: F64, valid: U8, bad: U8, slow: I32) -> int:
    """Reads numbers as the nearest IEEE 754 doubles; rows for the slow reading go to `slow`, and their count is
    returned.
    """
    count = 0
    for row in range(starts.size):
        kind = kinds[row]
        if kind == INT or kind == DOUBLE:
            value, exact = _parse_double(base + starts[row], base + ends[row])
            if exact:
                out[row] = value
            else:
                slow[count] = row
                count += 1
            valid[row] = 1
        elif kind != ABSENT and kind != NULL:
            bad[row] = WRONG_KIND
    return count


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _hex4(i: int) -> int:
    value = 0
    for k in range(i, i + 4):
        c = load8(k)
        digit = c - 48 if c <= 57 else (c & 0xDF) - 55
        value = value * 16 + digit
    return value


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _code_point(i: int, end: int) -> tuple[int, int]:
    """Returns the code point of the \\u escape at `i` and the byte after it; -1 for a single surrogate."""
    point = _hex4(i + 2)
    i += 6
    if 0xDC00 <= point <= 0xDFFF:
        return -1, i
    if 0xD800 <= point <= 0xDBFF:
        if i + 6 > end or load8(i) != 0x5C or load8(i + 1) != 0x75:
            return -1, i
        low = _hex4(i + 2)
        if low < 0xDC00 or low > 0xDFFF:
            return -1, i
        return 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00), i + 6
    return point, i


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _unescaped_length(i: int, end: int) -> int:
    """Returns the bytes of the string from `i` to `end` (without quotes) after its escapes are replaced; -1: no valid
    text.
    """
    length = 0
    while i < end:
        if load8(i) != 0x5C:
            length += 1
            i += 1
        elif load8(i + 1) == 0x75:
            point, i = _code_point(i, end)
            if point < 0:
                return -1
            length += 1 if point < 0x80 else 2 if point < 0x800 else 3 if point < 0x10000 else 4
        else:
            length += 1
            i += 2
    return length


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _put_point(o: int, point: int) -> int:
    """Writes `point` as UTF-8 at `o`; returns the address after it."""
    if point < 0x80:
        store8(o, point)
        return o + 1
    if point < 0x800:
        store8(o, 0xC0 | point >> 6)
        store8(o + 1, 0x80 | point & 0x3F)
        return o + 2
    if point < 0x10000:
        store8(o, 0xE0 | point >> 12)
        store8(o + 1, 0x80 | point >> 6 & 0x3F)
        store8(o + 2, 0x80 | point & 0x3F)
        return o + 3
    store8(o, 0xF0 | point >> 18)
    store8(o + 1, 0x80 | point >> 12 & 0x3F)
    store8(o + 2, 0x80 | point >> 6 & 0x3F)
    store8(o + 3, 0x80 | point & 0x3F)
    return o + 4


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _unescape(i: int, end: int, o: int) -> int:
    while i < end:
        c = load8(i)
        if c != 0x5C:
            store8(o, c)
            i += 1
            o += 1
            continue
        c = load8(i + 1)
        if c == 0x75:
            point, i = _code_point(i, end)
            o = _put_point(o, point)
            continue
        if c == 0x62:
            c = 8
        elif c == 0x66:
            c = 12
        elif c == 0x6E:
            c = 10
        elif c == 0x72:
            c = 13
        elif c == 0x74:
            c = 9
        store8(o, c)
        i += 2
        o += 1
    return o


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def measure_strings(
    base: int, starts: I32, ends: I32, kinds: U8, numbers: bool, offsets: I32, valid: U8, bad: U8
) -> None:
    """Writes the end of each row's text in the column to `offsets`, which has one entry more than there are rows.
    Together they are no longer than the texts they are in, which have 32-bit offsets.

    `numbers`: a number counts as the text it is written with (for columns that are read from text, as decimals are).
    """
    total = 0
    offsets[0] = 0
    for row in range(starts.size):
        kind = kinds[row]
        if kind == STRING:
            total += ends[row] - starts[row] - 2
            valid[row] = 1
        elif kind == ESCAPED:
            length = _unescaped_length(base + starts[row] + 1, base + ends[row] - 1)
            if length < 0:
                bad[row] = LONE_SURROGATE
            else:
                total += length
                valid[row] = 1
        elif numbers and (kind == INT or kind == DOUBLE):
            total += ends[row] - starts[row]
            valid[row] = 1
        elif kind != ABSENT and kind != NULL:
            bad[row] = WRONG_KIND
        offsets[row + 1] = total


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def copy_strings(base: int, starts: I32, ends: I32, kinds: U8, valid: U8, offsets: I32, out: int, limit: int) -> None:
    """Copies the texts that `measure_strings` found valid, one after another, to the address `out`, which has room for
    SPARE bytes more. `limit`: the address after the last byte that may be read.
    """
    for row in range(starts.size):
        if valid[row] == 0:
            continue
        o = out + offsets[row]
        i = base + starts[row]
        end = base + ends[row]
        if kinds[row] == ESCAPED:
            _unescape(i + 1, end - 1, o)
            continue
        if kinds[row] == STRING:
            i += 1
            end -= 1
        if end - i <= SPARE and i + SPARE <= limit:
            # Bytes written beyond the text's end are overwritten by the next one.
            store64(o, load64(i))
            store64(o + 8, load64(i + 8))
        else:
            copy_bytes(o, i, end - i)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def copy_texts(base: int, starts: I32, ends: I32, rows: I32, offsets: I32, out: int) -> None:
    """Copies the raw JSON texts of `rows`, one after another, to the address `out`."""
    o = 0
    for n in range(rows.size):
        row = rows[n]
        length = ends[row] - starts[row]
        copy_bytes(out + o, base + starts[row], length)
        o += length
        offsets[n + 1] = o
