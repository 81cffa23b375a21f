"""Decimal texts to decimals of a precision and a scale: losslessly, or not at all.

Arrow's own cast is not used. It does not detect an overflow while it rescales, and it reads beyond its table of powers
for scales below -76 (pyarrow 26). Digits and the exponent are counted here before any of them is multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import bitmap
from frazil.raw_memory import COMPILED, I32, U8, high64, is_on_disk, load8

FITS, NO_NUMBER, TOO_WIDE = range(3)
"""The values of `Decimals.state`."""

MAX_DECIMAL_DIGITS = 38
# Exponents are added in 64 bits: one beyond this bound fits no decimal, whatever the digits before it.
_MAX_EXPONENT = 1 << 40


@dataclass(frozen=True)
class Decimals:
    """Decimals parsed from texts."""

    #: decimal128, null where there is no text or its number does not fit.
    array: pa.Array
    #: uint8 of shape (n_texts,): FITS, also for null; NO_NUMBER for a text that is no number; TOO_WIDE for a number with
    #: too many digits before or after the point.
    state: U8


def read_decimals(texts: pa.StringArray, precision: int, scale: int) -> Decimals:
    """Returns the numbers in texts: an optional sign, digits with an optional point, and an optional exponent of any
    length. Leading zeros and trailing zeros of a fraction do not count.
    """
    texts = pa.concat_arrays([texts.cast(pa.string())])  # From the beginning of its buffers.
    rows = len(texts)
    valid = np.asarray(texts.is_valid()).astype(np.uint8)
    state, out = np.zeros(rows, np.uint8), np.zeros(2 * rows, np.uint64)
    raw = texts.buffers()[2]
    if rows:
        offsets = np.frombuffer(texts.buffers()[1], np.int32, rows + 1)
        _parse(0 if raw is None else raw.address, offsets, precision, scale, out, valid, state)
    nulls = rows - int(np.count_nonzero(valid))
    buffers = [bitmap(valid) if nulls else None, pa.py_buffer(out)]
    return Decimals(pa.Array.from_buffers(pa.decimal128(precision, scale), rows, buffers, null_count=nulls), state)


def warm_up(compiles_all: bool) -> None:
    """Loads the compiled loop, for a process that others are forked from; compiles it only with `compiles_all`."""
    if compiles_all or is_on_disk(_parse):
        read_decimals(pa.array(["1"]), 1, 0)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _skip_digits(i: int, end: int) -> int:
    while i < end and load8(i) >= 48 and load8(i) <= 57:
        i += 1
    return i


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _read_exponent(i: int, end: int) -> tuple[int, bool]:
    """Returns the exponent at `i`, cut at the bound, and whether it is valid and ends with the text."""
    is_negative = i < end and load8(i) == 0x2D
    if i < end and (load8(i) == 0x2B or load8(i) == 0x2D):
        i += 1
    first = i
    total = 0
    while i < end and load8(i) >= 48 and load8(i) <= 57:
        total = min(total * 10 + load8(i) - 48, _MAX_EXPONENT)
        i += 1
    return (-total if is_negative else total), i > first and i == end


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _times_ten(low: Any, high: Any, digit: int) -> tuple[Any, Any]:
    """Returns a number of 128 bits times ten, plus a digit."""
    ten = np.uint64(10)
    product = low * ten
    top = high * ten + np.uint64(high64(low, ten))
    total = product + np.uint64(digit)
    if total < product:
        top += np.uint64(1)
    return total, top


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _read_mantissa(first: int, last: int, zeros: int) -> tuple[Any, Any]:
    """Returns the number of the digits from `first` to before `last`, with `zeros` more after them: 38 digits at most."""
    low = np.uint64(0)
    high = np.uint64(0)
    for i in range(first, last):
        c = load8(i)
        if c != 0x2E:
            low, high = _times_ten(low, high, c - 48)
    for _ in range(zeros):
        low, high = _times_ten(low, high, 0)
    return low, high


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _parse_one(i: int, end: int, precision: int, scale: int, out: Any, row: int) -> int:
    is_negative = i < end and load8(i) == 0x2D
    if i < end and (load8(i) == 0x2B or load8(i) == 0x2D):
        i += 1
    first = i
    i = _skip_digits(i, end)
    point = i
    if i < end and load8(i) == 0x2E:
        i = _skip_digits(i + 1, end)
    last = i
    if last - first == 0 or (last - first == 1 and point < last):
        return NO_NUMBER
    exponent = 0
    if i < end:
        if (load8(i) | 0x20) != 0x65:
            return NO_NUMBER
        exponent, is_complete = _read_exponent(i + 1, end)
        if not is_complete:
            return NO_NUMBER
    while first < last and (load8(first) == 48 or load8(first) == 0x2E):
        first += 1
    if first == last:
        return FITS  # Zero, whatever its exponent.
    while load8(last - 1) == 48 or load8(last - 1) == 0x2E:
        last -= 1
    digits = last - first
    if first < point < last:
        digits -= 1
    # Zeros after the digits in the unscaled number.
    zeros = exponent + scale + (point - last if last <= point else point + 1 - last)
    if zeros < 0 or digits + zeros > precision:
        return TOO_WIDE
    low, high = _read_mantissa(first, last, zeros)
    if is_negative:
        low = ~low + np.uint64(1)
        high = ~high
        if low == np.uint64(0):
            high += np.uint64(1)
    out[2 * row] = low
    out[2 * row + 1] = high
    return FITS


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _parse(base: int, offsets: I32, precision: int, scale: int, out: NDArray[np.uint64], valid: U8, state: U8) -> None:
    for row in range(offsets.size - 1):
        if valid[row] == 0:
            continue
        outcome = _parse_one(base + offsets[row], base + offsets[row + 1], precision, scale, out, row)
        if outcome != FITS:
            state[row] = outcome
            valid[row] = 0


_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"


def are_numbers(texts: pa.StringArray) -> NDArray[np.bool_]:
    """Returns which texts are numbers as Spark's `cast` reads them: bool of shape (n_texts,)."""
    return np.asarray(pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False))
