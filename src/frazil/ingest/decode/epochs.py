"""Times to the microsecond, which is what Iceberg's types hold: what is less is cut off, towards the past. Of numbers that
count time since 1970-01-01T00:00:00Z in a unit that the pipeline file names, and of texts.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

DIGITS = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""Digits between a unit and the microsecond."""
# Microseconds of 0001-01-01 and 10000-01-01: what lies outside was written in another unit.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_800_000_000
_FINER = re.compile(r"(\.[0-9]{6})[0-9]+")


@dataclass(frozen=True)
class Moments:
    """micros: int64, null where there is no such time. is_outside: before the year 1 or after 9999."""

    micros: pa.Array
    is_outside: NDArray[np.bool_]


def from_numbers(array: pa.Array, unit: str) -> Moments:
    """The moments that numbers of any Arrow type stand for."""
    if not pa.types.is_signed_integer(array.type):
        return _one_by_one(array.to_pylist(), unit)
    numbers = np.asarray(array.fill_null(0)).astype(np.int64)
    there = np.asarray(array.is_valid())
    if unit == "ns":
        micros = np.floor_divide(numbers, 1000)
        is_outside = np.zeros(numbers.size, np.bool_)  # 64 bits of nanoseconds end in 2262.
    else:
        factor = 10 ** DIGITS[unit]
        is_outside = ((numbers < FIRST_US // factor) | (numbers >= LAST_US // factor)) & there
        micros = np.where(is_outside, 0, numbers) * factor
    return Moments(pa.array(micros, pa.int64(), mask=~there | is_outside), is_outside)


def _one_by_one(numbers: list[Any], unit: str) -> Moments:
    found = [None if number is None else _micros(number, unit) for number in numbers]
    is_outside = np.array([micros is not None and not FIRST_US <= micros < LAST_US for micros in found], np.bool_)
    return Moments(
        pa.array([None if bad else micros for micros, bad in zip(found, is_outside, strict=True)], pa.int64()),
        is_outside,
    )


def _micros(number: float | Decimal, unit: str) -> int:
    if not math.isfinite(number):
        return LAST_US
    spelt = (
        number if isinstance(number, Decimal) else Decimal(repr(number))
    )  # What was written, not the binary fraction.
    return math.floor(Fraction(spelt) * Fraction(10) ** DIGITS[unit])


def from_texts(texts: pa.StringArray, target: pa.TimestampType) -> pa.Array | None:
    """The moments that texts in ISO 8601 spell; None where one of them spells none, or takes a look at each to tell."""
    is_finer = len(texts) > 0 and _FINER.search(texts[int(np.asarray(texts.is_valid()).argmax())].as_py() or "")
    for unit in ("ns", "us") if is_finer else ("us", "ns"):
        with suppress(pa.ArrowInvalid):  # As slow as all the rest where many are refused.
            found = texts.cast(pa.timestamp(unit, target.tz))
            return found if unit == "us" else from_numbers(found.cast(pa.int64()), unit).micros.cast(target)
    return None


def cut_texts(texts: pa.StringArray) -> pa.StringArray:
    """Texts of times without the digits of a second that are less than a microsecond."""
    return pc.replace_substring_regex(texts, _FINER.pattern, r"\1")
