"""Values of Kafka Connect's and Debezium's logical types (times, decimals, UUIDs) from their written form.

A column is converted at once: losslessly, except for parts of a microsecond, which are truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg import types as t

from frazil.decode.connect.unscaled import (
    digit_texts,
    scaled_decimals,
    unscaled_numbers,
    with_scale,
    without_padding,
)
from frazil.decode.decimals import MAX_DECIMAL_DIGITS
from frazil.decode.epochs import (
    FIRST_DAY,
    LAST_DAY,
    find_far_years,
    from_numbers,
    inside_years,
    read_texts,
    strict_cast,
)
from frazil.decode.lossless import read_uuids

_FIRST_YEAR, _LAST_YEAR = 1, 9999


def member(array: pa.Array, name: str) -> pa.Array | None:
    """Returns the values of a message's field, null where there is no message; None where it has no such field."""
    place = array.type.get_field_index(name) if pa.types.is_struct(array.type) else -1
    return None if place < 0 else pc.struct_field(array, [place])


def _numbers(array: pa.Array, *names: str) -> list[NDArray[np.int64]] | None:
    """Returns the fields as integers, 0 where they are absent; None for another message."""
    numbers = [member(array, name) for name in names]
    if any(number is None or not pa.types.is_integer(number.type) for number in numbers):
        return None
    return [np.asarray(pc.fill_null(number, 0)).astype(np.int64) for number in numbers]


def read_days(array: pa.Array) -> pa.Array | None:
    """Returns the days of `google.type.Date`; null where a message is no day, as without a month."""
    date_parts = _numbers(array, "year", "month", "day")
    if date_parts is None:
        return None
    year, month, day = date_parts
    fits = (year >= _FIRST_YEAR) & (year <= _LAST_YEAR) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    months = np.where(fits, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + np.where(fits, day - 1, 0)
    fits &= days.astype("datetime64[M]") == months
    mask = ~fits | np.asarray(array.is_null())
    return pa.array(days.astype(np.int64).astype(np.int32), pa.int32(), mask=mask).cast(pa.date32())


def read_times(array: pa.Array) -> pa.Array | None:
    """Returns the times of `google.type.TimeOfDay`, to the microsecond; null where a message is no time below 24 hours."""
    time_parts = _numbers(array, "hours", "minutes", "seconds", "nanos")
    if time_parts is None:
        return None
    hours, minutes, seconds, nanos = time_parts
    fits = (hours >= 0) & (hours < 24)
    for part, most in ((minutes, 60), (seconds, 60), (nanos, 1_000_000_000)):
        fits &= (part >= 0) & (part < most)
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + nanos // 1000
    mask = ~fits | np.asarray(array.is_null())
    return pa.array(np.where(fits, micros, 0) % _DAY_US, pa.int64(), mask=mask).cast(pa.time64("us"))


_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class LogicalType:
    """A logical type of Kafka Connect or Debezium."""

    #: The name of the type.
    name: str
    #: The scale of a decimal.
    scale: int = 0
    #: The precision of a decimal.
    precision: int = MAX_DECIMAL_DIGITS
    #: Whether its values identify rows, so that equal values must be written alike.
    is_key: bool = False
    #: Whether the column has a declared zone: local times are of that zone.
    has_zone: bool = False
    #: The declared unit of a local time's numbers; empty: the unit of the type.
    unit: str = ""

    @property
    def is_local(self) -> bool:
        """Whether its values are local times, which have no zone of their own."""
        return self.name in LOCAL_UNITS


@dataclass(frozen=True)
class ConnectValues:
    """Converted values."""

    #: The values, null where the type cannot hold the written value.
    array: pa.Array
    #: Their type.
    kind: t.IcebergType
    #: Which written values the type cannot hold: bool of shape (n_values,).
    bad: NDArray[np.bool_]
    #: Which of these are out of the type's range; None: none.
    far: NDArray[np.bool_] | None = None
    #: The written values as a message shows them; None: unchanged.
    shown: pa.Array | None = None


_Read = Callable[[pa.Array, LogicalType, t.IcebergType | None], ConnectValues | None]


def read_logical_type(array: pa.Array, logical_type: LogicalType, wanted: t.IcebergType | None) -> ConnectValues | None:
    """Returns the values converted to their logical type; None for a type that is used as written. wanted: the type of
    the table's column.
    """
    read = _READERS.get(logical_type.name)
    return read(array, logical_type, wanted) if read is not None else None


def _is_unconverted(before: pa.Array, after: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(pc.and_(before.is_valid(), after.is_null()))


def _from_integers(before: pa.Array, after: pa.Array, kind: t.IcebergType) -> ConnectValues:
    """Returns converted integers: those that have no value are out of the type's range."""
    bad = _is_unconverted(before, after)
    return ConnectValues(after, kind, bad, bad)


def _is_integral(array: pa.Array) -> bool:
    return bool(pa.types.is_integer(array.type))


def _days(array: pa.Array, _: LogicalType, __: t.IcebergType | None) -> ConnectValues | None:
    if pa.types.is_date(array.type) or not _is_integral(array):
        return None
    days = array.cast(pa.int64())
    inside = pc.and_(pc.greater_equal(days, FIRST_DAY), pc.less(days, LAST_DAY))
    dates = pc.if_else(inside, days, None).cast(pa.int32()).cast(pa.date32())
    return _from_integers(array, dates, t.DateType())


def _time(factor: int, parts: int = 1) -> _Read:
    def read(array: pa.Array, _: LogicalType, __: t.IcebergType | None) -> ConnectValues | None:
        if not _is_integral(array):
            return None
        numbers = np.asarray(array.fill_null(0)).astype(np.int64)
        micros = np.floor_divide(numbers, parts)
        inside = (micros >= 0) & (micros < _DAY_US // factor)
        mask = ~inside | np.asarray(array.is_null())
        times = pa.array(np.where(inside, micros, 0) * factor, pa.int64(), mask=mask).cast(pa.time64("us"))
        return _from_integers(array, times, t.TimeType())

    return read


def _moment(array: pa.Array, logical_type: LogicalType, _: t.IcebergType | None) -> ConnectValues | None:
    if not _is_integral(array):
        return None
    unit = logical_type.unit or LOCAL_UNITS[logical_type.name]
    micros = from_numbers(array, unit).micros.cast(pa.timestamp("us"))
    return _from_integers(array, micros, t.TimestampType())


def _timestamp(array: pa.Array, logical_type: LogicalType, wanted: t.IcebergType | None) -> ConnectValues | None:
    """Returns timestamps of Connect's own type: instants in a column of instants that has no declared zone, otherwise
    local times. Connect's converter for Avro gives them the logical type of instants, whatever the source has.
    """
    moments = _moment(array, logical_type, wanted)
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        moments = ConnectValues(array.cast(pa.timestamp("us")), t.TimestampType(), np.zeros(len(array), np.bool_))
    if moments is None or logical_type.has_zone or not isinstance(wanted, t.TimestamptzType):
        return moments
    return replace(moments, array=moments.array.cast(pa.timestamp("us", tz="UTC")), kind=wanted)


def _unsigned(array: pa.Array, _: LogicalType, wanted: t.IcebergType | None) -> ConnectValues | None:
    """Returns the numbers of unsigned 64-bit integers, which Java's long wraps: those from 2**63 on are written below 0."""
    if not _is_integral(array):
        return None
    signed = array.cast(pa.int64())
    wraps = np.asarray(pc.fill_null(pc.less(signed, 0), False))
    numbers = signed.cast(pa.decimal128(_UNSIGNED.precision, 0))
    if wraps.any():
        wrapped = pc.add(numbers, pa.scalar(Decimal(2**64), numbers.type)).cast(numbers.type)
        numbers = pc.if_else(pa.array(wraps), wrapped, numbers)
    if wanted is None or isinstance(wanted, t.DecimalType | t.FloatType | t.DoubleType | t.StringType):
        return ConnectValues(numbers, _UNSIGNED, np.zeros(len(array), np.bool_))
    long = pc.if_else(pa.array(wraps), pa.scalar(None, pa.int64()), signed)
    return ConnectValues(long, t.LongType(), wraps, wraps, signed.view(pa.uint64()))


def _timestamp_message(
    array: pa.Array, logical_type: LogicalType, wanted: t.IcebergType | None
) -> ConnectValues | None:
    """Returns the local times in messages that stand for Connect's timestamps, where their zone is declared."""
    return _timestamp(array, logical_type, wanted) if logical_type.has_zone else None


def _text(kind: t.IcebergType, target: pa.TimestampType, strips_zone: bool, before: str = "") -> _Read:
    def read(array: pa.Array, _: LogicalType, __: t.IcebergType | None) -> ConnectValues | None:
        if not pa.types.is_string(array.type):
            return None
        words = _without_zone(array) if strips_zone else array
        words = pc.binary_join_element_wise(before, words, "") if before else words
        moments = read_texts(words, target)
        if isinstance(kind, t.TimeType):
            moments = moments.cast(pa.int64()).cast(pa.time64("us"))
            return ConnectValues(moments, kind, _is_unconverted(array, moments))
        return _within_years(array, words, moments, kind)

    return read


def _iso_date(array: pa.Array, _: LogicalType, __: t.IcebergType | None) -> ConnectValues | None:
    if not pa.types.is_string(array.type):
        return None
    words = _without_zone(array)
    return _within_years(array, words, strict_cast(words, pa.date32()), t.DateType())


def _within_years(array: pa.Array, words: pa.Array, times: pa.Array, kind: t.IcebergType) -> ConnectValues:
    """Returns times parsed from texts, without those outside the years 1 to 9999."""
    inside, outside = inside_years(times)
    bad = _is_unconverted(array, inside)
    return ConnectValues(inside, kind, bad, outside | (bad & find_far_years(words)) if bad.any() else None)


def _without_zone(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, "[Zz]$", "")


def _uuid(array: pa.Array, _: LogicalType, __: t.IcebergType | None) -> ConnectValues | None:
    if not pa.types.is_string(array.type):
        return None
    uuids, bad = read_uuids(array)
    return ConnectValues(uuids, t.UUIDType(), bad)


def _decimal(array: pa.Array, logical_type: LogicalType, wanted: t.IcebergType | None) -> ConnectValues | None:
    """Returns numbers with one scale: as decimals, or as digits in a column of text, however many they are."""
    if not pa.types.is_binary(array.type):
        return None
    if isinstance(wanted, t.StringType):
        return _digits_of(array, pa.repeat(pa.scalar(logical_type.scale, pa.int32()), len(array)), False)
    if -MAX_DECIMAL_DIGITS < logical_type.scale < 0 < logical_type.precision:  # No decimal of Iceberg has such a scale.
        kind = t.DecimalType(min(logical_type.precision - logical_type.scale, MAX_DECIMAL_DIGITS), 0)
        scales = pa.repeat(pa.scalar(logical_type.scale, pa.int32()), len(array))
        decimals = scaled_decimals(array, scales, kind.precision, 0).array
        bad = _is_unconverted(array, decimals)
        return ConnectValues(decimals, kind, bad, bad & _has_bytes(array))
    if not 0 <= logical_type.scale <= logical_type.precision <= MAX_DECIMAL_DIGITS:
        return None
    numbers, bad = unscaled_numbers(without_padding(array))
    numbers = with_scale(numbers, logical_type.scale)
    most = pa.scalar(Decimal((0, (9,) * logical_type.precision, -logical_type.scale)), numbers.type)
    inside = pc.and_(pc.less_equal(numbers, most), pc.greater_equal(numbers, pc.negate(most)))
    kind = pa.decimal128(logical_type.precision, logical_type.scale)
    fitting = pc.if_else(inside, numbers, None).cast(kind)
    bad |= _is_unconverted(array, fitting)
    return ConnectValues(
        fitting, t.DecimalType(logical_type.precision, logical_type.scale), bad, bad & _has_bytes(array)
    )


def _variable_decimal(array: pa.Array, logical_type: LogicalType, wanted: t.IcebergType | None) -> ConnectValues | None:
    """Returns numbers with a scale of their own: as digits, or as the decimal that the column is declared as."""
    places = [array.type.get_field_index(name) for name in ("scale", "value")] if pa.types.is_struct(array.type) else []
    if not places or min(places) < 0:
        return None
    scales, values = (pc.struct_field(array, [n]) for n in places)
    if not isinstance(wanted, t.DecimalType):
        return _digits_of(values, scales, logical_type.is_key, array)
    decimals = scaled_decimals(values, scales, wanted.precision, wanted.scale).array
    bad = _is_unconverted(array, decimals)
    return ConnectValues(decimals, wanted, bad, bad & _has_bytes(values) & np.asarray(scales.is_valid()))


def _digits_of(values: pa.Array, scales: pa.Array, by_value: bool, array: pa.Array | None = None) -> ConnectValues:
    """Returns numbers as their digits. array: the messages that hold them; the numbers themselves unless given."""
    digits = digit_texts(values, scales, by_value)
    bad = _is_unconverted(values if array is None else array, digits)
    return ConnectValues(digits, t.StringType(), bad, bad & _has_bytes(values) & np.asarray(scales.is_valid()))


def _has_bytes(array: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(pc.fill_null(pc.greater(pc.binary_length(array), 0), False))


CONFLUENT_DECIMAL = "confluent.type.Decimal"
GOOGLE_DATE, GOOGLE_TIME = "google.type.Date", "google.type.TimeOfDay"
GOOGLE_TIMESTAMP = "google.protobuf.Timestamp"
"""Messages that Confluent's ProtobufConverter has for Connect's dates and times."""
_UNKNOWN = -1


def confluent_decimal(precision: str | None, scale: str | None) -> LogicalType:
    """Returns the logical type of a decimal in a message with its own scale, with the parameters of its field, if any."""
    is_valid = scale is not None and scale.isdecimal() and (precision is None or precision.isdecimal())
    if not is_valid or scale is None:
        return LogicalType(CONFLUENT_DECIMAL, _UNKNOWN)
    return LogicalType(CONFLUENT_DECIMAL, int(scale), min(int(precision or MAX_DECIMAL_DIGITS), MAX_DECIMAL_DIGITS))


def _decimal_message(array: pa.Array, logical_type: LogicalType, wanted: t.IcebergType | None) -> ConnectValues | None:
    """Returns numbers in messages, each with a scale of its own: as the type in the field's parameters, else as digits."""
    if not 0 <= logical_type.scale <= logical_type.precision or logical_type.precision < 1:
        return _variable_decimal(array, logical_type, wanted)
    scales, values = member(array, "scale"), member(array, "value")
    if scales is None or values is None:
        return None
    if (np.asarray(scales.drop_null()) == logical_type.scale).all():
        return _decimal(values, logical_type, wanted)
    kind = wanted if isinstance(wanted, t.StringType) else t.DecimalType(logical_type.precision, logical_type.scale)
    return _variable_decimal(array, logical_type, kind)


def _date_message(array: pa.Array, _: LogicalType, __: t.IcebergType | None) -> ConnectValues | None:
    days = read_days(array)
    return None if days is None else ConnectValues(days, t.DateType(), _is_unconverted(array, days))


def _time_message(array: pa.Array, _: LogicalType, __: t.IcebergType | None) -> ConnectValues | None:
    times = read_times(array)
    return None if times is None else ConnectValues(times, t.TimeType(), _is_unconverted(array, times))


_DEBEZIUM, _CONNECT = "io.debezium.", "org.apache.kafka.connect.data."
VARIABLE_SCALE = LogicalType(f"{_DEBEZIUM}data.VariableScaleDecimal")
"""A number with a scale of its own."""
_TIMESTAMP = f"{_CONNECT}Timestamp"
LOCAL_UNITS: Mapping[str, str] = {
    _TIMESTAMP: "ms",
    f"{_DEBEZIUM}time.Timestamp": "ms",
    f"{_DEBEZIUM}time.MicroTimestamp": "us",
    f"{_DEBEZIUM}time.NanoTimestamp": "ns",
    f"{_DEBEZIUM}time.IsoTimestamp": "",
    GOOGLE_TIMESTAMP: "",
}
"""Types of local times, with the unit of their numbers; empty for types that are not numbers."""
_UNSIGNED = t.DecimalType(20, 0)
UNSIGNED = LogicalType("BIGINT UNSIGNED")
"""An unsigned 64-bit integer that a connector writes as a long, as `bigint.unsigned.handling.mode=long` lets Debezium."""
_READERS: dict[str, _Read] = {
    UNSIGNED.name: _unsigned,
    f"{_CONNECT}Decimal": _decimal,
    f"{_CONNECT}Date": _days,
    f"{_CONNECT}Time": _time(1000),
    _TIMESTAMP: _timestamp,
    f"{_DEBEZIUM}time.Date": _days,
    f"{_DEBEZIUM}time.Time": _time(1000),
    f"{_DEBEZIUM}time.MicroTime": _time(1),
    f"{_DEBEZIUM}time.NanoTime": _time(1, 1000),
    f"{_DEBEZIUM}time.Timestamp": _moment,
    f"{_DEBEZIUM}time.MicroTimestamp": _moment,
    f"{_DEBEZIUM}time.NanoTimestamp": _moment,
    f"{_DEBEZIUM}time.ZonedTimestamp": _text(t.TimestamptzType(), pa.timestamp("us", tz="UTC"), False),
    f"{_DEBEZIUM}time.IsoDate": _iso_date,
    f"{_DEBEZIUM}time.IsoTime": _text(t.TimeType(), pa.timestamp("us"), True, before="1970-01-01T"),
    f"{_DEBEZIUM}time.IsoTimestamp": _text(t.TimestampType(), pa.timestamp("us"), True),
    f"{_DEBEZIUM}data.Uuid": _uuid,
    VARIABLE_SCALE.name: _variable_decimal,
    CONFLUENT_DECIMAL: _decimal_message,
    GOOGLE_DATE: _date_message,
    GOOGLE_TIME: _time_message,
    GOOGLE_TIMESTAMP: _timestamp_message,
}
