"""Functions of days and times in UTC, in the Gregorian calendar of all years."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.process.kernels.values import (
    ARITHMETIC_OVERFLOW,
    Kernel,
    Result,
    Value,
    both_there,
    failing,
    from_numbers,
    numbers,
)
from frazil.process.program import Call

_SECOND_US = 1_000_000
_DAY_US = 86_400_000_000
_MONTHS = {"year": 12, "yyyy": 12, "yy": 12, "quarter": 3, "month": 1, "mon": 1, "mm": 1}
_MICROS = {
    "day": _DAY_US, "dd": _DAY_US, "hour": 3_600_000_000, "minute": 60_000_000, "second": _SECOND_US,
    "millisecond": 1000, "microsecond": 1,
}  # fmt: skip
Days = NDArray[np.int64]
_DAY_NAMES = pa.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])


def _days(value: pa.Array) -> Days:
    return np.asarray(numbers(value)).astype(np.int64)


def _months(days: Days) -> Days:
    """Returns the months counted from January 1970."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def _first_of(months: Days) -> Days:
    """Returns the first day of months."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def _weekday(days: Days) -> Days:
    """Returns the days since Monday; 1970-01-01 was a Thursday."""
    return (days + 3) % 7


def _week_of_year(days: Days) -> Days:
    """The week of ISO 8601: that of the year in which its Thursday is."""
    thursday = days - _weekday(days) + 3
    return (thursday - _first_of(_months(thursday) // 12 * 12)) // 7 + 1


_FIELDS: dict[str, Callable[[Days], Days]] = {
    "Year": lambda days: _months(days) // 12 + 1970,
    "Quarter": lambda days: _months(days) % 12 // 3 + 1,
    "Month": lambda days: _months(days) % 12 + 1,
    "DayOfMonth": lambda days: days - _first_of(_months(days)) + 1,
    "DayOfYear": lambda days: days - _first_of(_months(days) // 12 * 12) + 1,
    "DayOfWeek": lambda days: (days + 4) % 7 + 1,
    "WeekDay": _weekday,
    "WeekOfYear": _week_of_year,
}
_OF_DAY = {"Hour": (3600, 24), "Minute": (60, 60), "Second": (1, 60)}


def _field(call: Call, value: pa.Array) -> pa.Array:
    return from_numbers(_FIELDS[call.function](_days(value)).astype(np.int32), pa.int32(), value)


def _of_day(call: Call, value: pa.Array) -> pa.Array:
    unit, limit = _OF_DAY[call.function]
    return from_numbers((numbers(value) // (unit * _SECOND_US) % limit).astype(np.int32), pa.int32(), value)


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
        return days - _weekday(days)
    if word not in _MONTHS:
        return None
    return _first_of(_months(days) // _MONTHS[word] * _MONTHS[word])


def _plus_days(sign: int) -> Callable[[Call, Value, Value], pa.Array]:
    """Days beyond 32 bits begin again at the other end, as Java's integers do."""

    def run(call: Call, start: Value, count: Value) -> pa.Array:
        days = np.asarray(numbers(start)).astype(np.int64) + sign * np.asarray(numbers(count)).astype(np.int64)
        return from_numbers(days.astype(np.int32), call.type, start, count)

    return run


def _days_between(_: Call, end: Value, start: Value) -> pa.Array:
    days = np.asarray(numbers(end)).astype(np.int64) - np.asarray(numbers(start)).astype(np.int64)
    return from_numbers(days.astype(np.int32), pa.int32(), end, start)


def _last_day(call: Call, value: pa.Array) -> pa.Array:
    return from_numbers((_first_of(_months(_days(value)) + 1) - 1).astype(np.int32), call.type, value)


def _since(unit_us: int) -> Callable[..., pa.Array]:
    def run(_: Call, value: pa.Array, *__: Any) -> pa.Array:
        return from_numbers(numbers(value) // unit_us, pa.int64(), value)

    return run


def _unix_timestamp(_: Call, value: pa.Array, __: pa.Scalar) -> pa.Array:
    """Whole seconds, rounded towards 1970, unlike UNIX_SECONDS."""
    micros = numbers(value)
    return from_numbers(np.sign(micros) * (np.abs(micros) // _SECOND_US), pa.int64(), value)


def _moment_of(factor: int) -> Callable[[Call, pa.Array], Result]:
    def run(call: Call, value: pa.Array) -> Result:
        values = numbers(value).astype(np.int64)
        bad = (values > (2**63 - 1) // factor) | (values < -(2**63 // factor))
        return failing(from_numbers(np.where(bad, 0, values) * factor, call.type, value), bad, ARITHMETIC_OVERFLOW)

    return run


def _plus_interval(call: Call, value: Value, interval: Value) -> Result:
    a, b = np.asarray(numbers(value)), np.asarray(numbers(interval))
    with np.errstate(over="ignore"):
        sums = a + b
    bad = ((a ^ sums) & (b ^ sums)) < 0
    have_values = both_there(value, interval)
    return failing(from_numbers(sums, call.type, value, interval), bad if have_values is None else bad & have_values,
                   ARITHMETIC_OVERFLOW)  # fmt: skip


def _day_name(_: Call, value: pa.Array) -> pa.Array:
    return _DAY_NAMES.take(pa.array(_weekday(_days(value)), mask=np.asarray(value.is_null())))


KERNELS = {
    **{name: Kernel(("date",), _field) for name in _FIELDS},
    **{name: Kernel(("timestamp", "ntz"), _of_day) for name in _OF_DAY},
    "TruncTimestamp": Kernel(("text!, timestamp",), _truncate_moment),
    "TruncDate": Kernel(("date, text!",), _truncate_day),
    "DateAdd": Kernel(("date, int",), _plus_days(1)),
    "DateSub": Kernel(("date, int",), _plus_days(-1)),
    "DateDiff": Kernel(("date, date",), _days_between),
    "LastDay": Kernel(("date",), _last_day),
    "DayName": Kernel(("date",), _day_name),
    "UnixTimestamp": Kernel(("timestamp, text!",), _unix_timestamp),
    "ToUnixTimestamp": Kernel(("timestamp, text!",), _unix_timestamp),
    "UnixSeconds": Kernel(("timestamp",), _since(_SECOND_US)),
    "UnixMillis": Kernel(("timestamp",), _since(1000)),
    "UnixMicros": Kernel(("timestamp",), _since(1)),
    "UnixDate": Kernel(("date",), lambda _, value: value.view(pa.int32())),
    "SecondsToTimestamp": Kernel(("long", "int"), _moment_of(_SECOND_US)),
    "MillisToTimestamp": Kernel(("long", "int"), _moment_of(1000)),
    "MicrosToTimestamp": Kernel(("long", "int"), _moment_of(1)),
    "TimestampAddInterval": Kernel(("timestamp, duration",), _plus_interval),
}
