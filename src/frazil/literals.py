"""Values of columns as text, as the pipeline file has them, and times as text for messages.

The check of the file and the tasks use the same functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, localcontext

import pyarrow as pa
from pyiceberg import types as t

from frazil.errors import SpecError

_CONSTANT_TYPES: Mapping[type[t.IcebergType], pa.DataType] = {
    t.StringType: pa.string(),
    t.BooleanType: pa.bool_(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.DateType: pa.date32(),
    t.TimestampType: pa.timestamp("us"),
    t.TimestamptzType: pa.timestamp("us", tz="UTC"),
}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_897
"""The days 0001-01-01 and 10000-01-01, counted from 1970-01-01."""
_CALENDAR_YEARS, _CALENDAR_US = 400, 146_097 * _DAY_US
"""The period of the Gregorian calendar, in years and in microseconds."""


def parse_constant(text: str, kind: t.IcebergType) -> pa.Scalar:
    """Returns the value of a constant column.

    Raises: SpecError for a text that is not a value of the type.
    """
    target = _CONSTANT_TYPES.get(type(kind))
    if isinstance(kind, t.DecimalType):
        return _parse_decimal(text, kind)
    if target is None:
        words = "string, boolean, int, long, float, double, decimal(p,s), date, timestamp or timestamptz"
        raise SpecError(f"a constant cannot be a `{kind}`", remedy=f"write {words} as its type")
    try:
        # RFC 3339 allows a small t and z, Arrow does not.
        value = pa.scalar(text.upper() if pa.types.is_timestamp(target) else text).cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SpecError(
            f"`{text}` is not a value of the type {kind}", remedy=f"write a value of the type {kind}"
        ) from None
    if pa.types.is_floating(target) and value.as_py() in (float("inf"), float("-inf")) and "inf" not in text.lower():
        raise SpecError(f"`{text}` is out of the range of {kind}", remedy=f"write a value of the type {kind}")
    if pa.types.is_temporal(target) and not _FIRST_DAY <= value.cast(pa.date32()).value < _LAST_DAY:
        raise SpecError(f"`{text}` is outside the years 1 to 9999", remedy="write a time of the years 1 to 9999")
    return value


def _parse_decimal(text: str, kind: t.DecimalType) -> pa.Scalar:
    """Returns the decimal. Arrow's own cast returns another number where there are too many digits."""
    if _NUMBER.fullmatch(text):
        with localcontext(Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)):
            number, unit = Decimal(text), Decimal((0, (1,), -kind.scale))
            if not number or (number.adjusted() < kind.precision - kind.scale and _is_multiple(number, unit)):
                return pa.scalar(number.quantize(unit), pa.decimal128(kind.precision, kind.scale))
    raise SpecError(f"`{text}` is not a value of the type {kind}", remedy=f"write a value of the type {kind}")


def _is_multiple(number: Decimal, unit: Decimal) -> bool:
    last, least = number.normalize().as_tuple().exponent, unit.as_tuple().exponent
    return isinstance(last, int) and isinstance(least, int) and last >= least


def format_moment(micros: int, timespec: str = "auto") -> str:
    """Returns a time as ISO 8601 text without a zone, from microseconds since 1970, also before the year 1 and after
    9999, which Python's `datetime` does not have.
    """
    times, rest = divmod(micros, _CALENDAR_US)
    moment = _EPOCH + timedelta(microseconds=rest)
    year = moment.year + times * _CALENDAR_YEARS
    words = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return words + moment.isoformat(timespec=timespec)[4:].removesuffix("+00:00")


def format_day(days: int) -> str:
    """Returns a day as ISO 8601 text, from days since 1970."""
    return format_moment(days * _DAY_US)[: -len("T00:00:00")]
