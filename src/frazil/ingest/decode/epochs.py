"""Numbers that count time since 1970-01-01T00:00:00Z, in a unit that the pipeline file names: to microseconds, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DIGITS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""Digits between a unit and the microsecond."""
# Microseconds of 0001-01-01 and 10000-01-01: what lies outside was written in another unit.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_800_000_000


@dataclass(frozen=True)
class Moments:
    """micros: int64, null where there is no such time. is_outside: before the year 1 or after 9999; is_between: the number
    lies between two microseconds.
    """

    micros: pa.Array
    is_outside: NDArray[np.bool_]
    is_between: NDArray[np.bool_]


def from_numbers(array: pa.Array, unit: str) -> Moments:
    """The moments that numbers of any Arrow type stand for; nothing is rounded."""
    if not pa.types.is_signed_integer(array.type):
        return _one_by_one(array.to_pylist(), unit)
    numbers = np.asarray(array.fill_null(0)).astype(np.int64)
    there = np.asarray(array.is_valid())
    if unit == "ns":
        micros, rest = np.divmod(numbers, 1000)
        is_between = (rest != 0) & there
        is_outside = np.zeros(numbers.size, np.bool_)  # 64 bits of nanoseconds end in 2262.
    else:
        factor = 10 ** DIGITS[unit]
        is_between = np.zeros(numbers.size, np.bool_)
        is_outside = ((numbers < FIRST_US // factor) | (numbers >= LAST_US // factor)) & there
        micros = np.where(is_outside, 0, numbers) * factor
    return Moments(pa.array(micros, pa.int64(), mask=~there | is_outside | is_between), is_outside, is_between)


def _one_by_one(numbers: list[Any], unit: str) -> Moments:
    found: list[int | None] = []
    flags = np.zeros((2, len(numbers)), np.bool_)
    for row, number in enumerate(numbers):
        micros = None if number is None else _micros(number, unit)
        if micros is not None:
            flags[0, row] = not FIRST_US <= micros < LAST_US
            flags[1, row] = not flags[0, row] and micros.denominator != 1
        is_good = micros is not None and not flags[:, row].any()
        found.append(int(micros) if is_good and micros is not None else None)
    return Moments(pa.array(found, pa.int64()), flags[0], flags[1])


def _micros(number: float | Decimal, unit: str) -> Fraction:
    if not math.isfinite(number):
        return Fraction(LAST_US)
    return Fraction(number) * Fraction(10) ** DIGITS[unit]
