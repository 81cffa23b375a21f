"""Functions of days and times in UTC, in the Gregorian calendar of all years."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.queries.kernels.values import (
    ARITHMETIC_OVERFLOW,
    Kernel,
    Result,
    failing,
    from_numbers,
    numbers,
)
from frazil.queries.program import Call

_SECOND_US = 1_000_000
_DAY_US = 86_400_000_000
_MONTHS = {"year": 12, "yyyy": 12, "yy": 12, "quarter": 3, "month": 1, "mon": 1, "mm": 1}
_MICROS = {
    "day": _DAY_US, "dd": _DAY_US, "hour": 3_600_000_000, "minute": 60_000_000, "second": _SECOND_US,
    "millisecond": 1000, "microsecond": 1,
}  # fmt: skip
Days = NDArray[np.int64]


def _days(value: pa.Array) -> Days:
    return np.asarray(numbers(value)).astype(np.int64)


def _months(days: Days) -> Days:
    """Returns the months counted from January 1970."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def _first_of(months: Days) -> Days:
    """Returns the first day of months."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


_FIELDS: dict[str, Callable[[Days], Days]] = {
    "Year": lambda days: _months(days) // 12 + 1970,
    "Month": lambda days: _months(days) % 12 + 1,
    "DayOfMonth": lambda days: days - _first_of(_months(days)) + 1,
}


def _field(call: Call, value: pa.Array) -> pa.Array:
    return from_numbers(_FIELDS[call.function](_days(value)).astype(np.int32), pa.int32(), value)


def _hour(_: Call, value: pa.Array) -> pa.Array:
    return from_numbers((numbers(value) // _MICROS["hour"] % 24).astype(np.int32), pa.int32(), value)


def _truncate_moment(call: Call, unit: pa.Scalar, value: pa.Array) -> pa.Array:
    word, micros = unit.as_py().lower(), numbers(value)
    if word in _MICROS:
        return from_numbers(micros // _MICROS[word] * _MICROS[word], call.type, value)
    days = _truncated_days(word, micros // _DAY_US)
    return pa.nulls(len(value), call.type) if days is None else from_numbers(days * _DAY_US, call.type, value)


def _truncate_day(call: Call, value: pa.Array, unit: pa.Scalar) -> pa.Array:
    days = _truncated_days(unit.as_py().lower(), _days(value))
    if days is None:
        return pa.nulls(len(value), call.type)
    return from_numbers(days.astype(np.int32), call.type, value)


def _truncated_days(word: str, days: Days) -> Days | None:
    if word == "week":
        # 1970-01-01 was a Thursday.
        return days - ((days + 3) % 7)
    if word not in _MONTHS:
        return None
    return _first_of(_months(days) // _MONTHS[word] * _MONTHS[word])


def _since(unit_us: int) -> Callable[..., pa.Array]:
    def run(_: Call, value: pa.Array, *__: Any) -> pa.Array:
        return from_numbers(numbers(value) // unit_us, pa.int64(), value)

    return run


def _moment_of(factor: int) -> Callable[[Call, pa.Array], Result]:
    def run(call: Call, value: pa.Array) -> Result:
        values = numbers(value).astype(np.int64)
        bad = (values > (2**63 - 1) // factor) | (values < -(2**63 // factor))
        return failing(from_numbers(np.where(bad, 0, values) * factor, call.type, value), bad, ARITHMETIC_OVERFLOW)

    return run


KERNELS = {
    **{name: Kernel(("date",), _field) for name in _FIELDS},
    "Hour": Kernel(("timestamp", "ntz"), _hour),
    "TruncTimestamp": Kernel(("text!, timestamp",), _truncate_moment),
    "TruncDate": Kernel(("date, text!",), _truncate_day),
    "UnixSeconds": Kernel(("timestamp",), _since(_SECOND_US)),
    "UnixMillis": Kernel(("timestamp",), _since(1000)),
    "UnixMicros": Kernel(("timestamp",), _since(1)),
    "SecondsToTimestamp": Kernel(("long", "int"), _moment_of(_SECOND_US)),
    "MillisToTimestamp": Kernel(("long", "int"), _moment_of(1000)),
    "MicrosToTimestamp": Kernel(("long", "int"), _moment_of(1)),
}
