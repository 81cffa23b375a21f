"""Values of Kafka Connect's and Debezium's own types, as they are written, to what they mean: exact, but for parts of a
microsecond, which are cut off; a column at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from frazil.ingest.decode.connect.message_types import member, read_days, read_times
from frazil.ingest.decode.epochs import cut_texts, from_numbers, from_texts
from frazil.ingest.decode.uuid_text import read_uuids

_DAY_US = 86_400_000_000
_MOST_DIGITS = 38


@dataclass(frozen=True)
class Meaning:
    """The name of a type of Connect's or Debezium's, and its parameters: scale and precision of a decimal."""

    name: str
    scale: int = 0
    precision: int = _MOST_DIGITS


@dataclass(frozen=True)
class Meant:
    """Values with their type, and which of the written ones it cannot hold (null then)."""

    array: pa.Array
    kind: IcebergType
    bad: NDArray[np.bool_]


_Read = Callable[[pa.Array, Meaning, IcebergType | None], Meant | None]


def read_meaning(array: pa.Array, meaning: Meaning, wanted: IcebergType | None) -> Meant | None:
    """What the values mean; None for a type that means what is written. wanted: the type of the table's column."""
    read = _READERS.get(meaning.name)
    return read(array, meaning, wanted) if read is not None else None


def _lost(before: pa.Array, after: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(pc.and_(before.is_valid(), after.is_null()))


def _is_whole(array: pa.Array) -> bool:
    return bool(pa.types.is_integer(array.type))


def _days(array: pa.Array, _: Meaning, __: IcebergType | None) -> Meant | None:
    if pa.types.is_date(array.type) or not _is_whole(array):
        return None
    days = array.cast(pa.int64())
    inside = pc.and_(pc.greater_equal(days, -(2**31)), pc.less(days, 2**31))
    dates = pc.if_else(inside, days, None).cast(pa.int32()).cast(pa.date32())
    return Meant(dates, DateType(), _lost(array, dates))


def _time(factor: int, parts: int = 1) -> _Read:
    def read(array: pa.Array, _: Meaning, __: IcebergType | None) -> Meant | None:
        if not _is_whole(array):
            return None
        numbers = np.asarray(array.fill_null(0)).astype(np.int64)
        micros = np.floor_divide(numbers, parts)
        inside = (micros >= 0) & (micros < _DAY_US // factor)
        mask = ~inside | np.asarray(array.is_null())
        times = pa.array(np.where(inside, micros, 0) * factor, pa.int64(), mask=mask).cast(pa.time64("us"))
        return Meant(times, TimeType(), _lost(array, times))

    return read


def _moment(unit: str) -> _Read:
    def read(array: pa.Array, _: Meaning, __: IcebergType | None) -> Meant | None:
        if not _is_whole(array):
            return None
        micros = from_numbers(array, unit).micros.cast(pa.timestamp("us"))
        return Meant(micros, TimestampType(), _lost(array, micros))

    return read


def _text(kind: IcebergType, target: pa.TimestampType, strips_zone: bool, before: str = "") -> _Read:
    def read(array: pa.Array, _: Meaning, __: IcebergType | None) -> Meant | None:
        if not pa.types.is_string(array.type):
            return None
        words = _without_zone(array) if strips_zone else array
        words = pc.binary_join_element_wise(before, words, "") if before else words
        moments = from_texts(words, target)
        if moments is None:
            moments = strict_cast(cut_texts(words), target)
        if isinstance(kind, TimeType):
            moments = moments.cast(pa.int64()).cast(pa.time64("us"))
        return Meant(moments, kind, _lost(array, moments))

    return read


def _iso_date(array: pa.Array, _: Meaning, __: IcebergType | None) -> Meant | None:
    if not pa.types.is_string(array.type):
        return None
    days = strict_cast(_without_zone(array), pa.date32())
    return Meant(days, DateType(), _lost(array, days))


def _without_zone(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, "Z$", "")


def strict_cast(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """The values that the texts spell; null where one spells none."""
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:  # It refuses all for some of them.
        fits = pa.array([_can_cast(text, target) for text in texts], pa.bool_())
        return pc.if_else(fits, texts, None).cast(target)


def _can_cast(text: pa.Scalar, target: pa.DataType) -> bool:
    try:
        text.cast(target)
    except pa.ArrowInvalid:
        return False
    return True


def _uuid(array: pa.Array, _: Meaning, __: IcebergType | None) -> Meant | None:
    if not pa.types.is_string(array.type):
        return None
    found, bad = read_uuids(array)
    return Meant(found, UUIDType(), bad)


def unscaled_numbers(array: pa.Array) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Whole numbers in two's complement, the highest byte first, as decimal128(38, 0); and which have more than 16 bytes,
    none, or more than 38 digits.
    """
    array = pa.concat_arrays([array.cast(pa.binary())])
    rows = len(array)
    there = np.asarray(array.is_valid())
    offsets = np.frombuffer(array.buffers()[1], np.int32, rows + 1).astype(np.int64) if rows else np.zeros(1, np.int64)
    raw = np.frombuffer(array.buffers()[2], np.uint8) if array.buffers()[2] else np.zeros(0, np.uint8)
    starts, ends = offsets[:-1], offsets[1:]
    bad = there & ((ends - starts < 1) | (ends - starts > 16))
    good = there & ~bad
    words = np.zeros((rows, 16), np.uint8)
    rows_left = np.flatnonzero(good)
    words[rows_left] = np.where(raw[starts[rows_left]] >= 128, 255, 0)[:, None]
    for place in range(16):
        rows_left = rows_left[ends[rows_left] - starts[rows_left] > place]
        words[rows_left, place] = raw[ends[rows_left] - 1 - place]
    kind = pa.decimal128(_MOST_DIGITS, 0)
    most = pa.scalar(Decimal(10**_MOST_DIGITS - 1), kind)
    numbers = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(words)])
    large = np.asarray(pc.or_(pc.greater(numbers, most), pc.less(numbers, pc.negate(most))))
    bad |= good & large
    mask = pa.py_buffer(np.packbits(there & ~bad, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [mask, pa.py_buffer(words)]), bad


def _with_scale(numbers: pa.Array, scale: int) -> pa.Array:
    return pa.Array.from_buffers(pa.decimal128(_MOST_DIGITS, scale), len(numbers), numbers.buffers())


def _decimal(array: pa.Array, meaning: Meaning, _: IcebergType | None) -> Meant | None:
    if not pa.types.is_binary(array.type) or not 0 <= meaning.scale <= meaning.precision <= _MOST_DIGITS:
        return None
    numbers, bad = unscaled_numbers(array)
    numbers = _with_scale(numbers, meaning.scale)
    most = pa.scalar(Decimal((0, (9,) * meaning.precision, -meaning.scale)), numbers.type)
    inside = pc.and_(pc.less_equal(numbers, most), pc.greater_equal(numbers, pc.negate(most)))
    kind = pa.decimal128(meaning.precision, meaning.scale)
    fitting = pc.if_else(inside, numbers, None).cast(kind)
    return Meant(fitting, DecimalType(meaning.precision, meaning.scale), bad | _lost(array, fitting))


def _variable_decimal(array: pa.Array, _: Meaning, wanted: IcebergType | None) -> Meant | None:
    """A number with a scale of its own: as text, or as the decimal that the column is declared as."""
    places = [array.type.get_field_index(name) for name in ("scale", "value")] if pa.types.is_struct(array.type) else []
    if not places or min(places) < 0:
        return None
    scales, values = (pc.struct_field(array, [n]) for n in places)
    numbers, large = unscaled_numbers(values)
    each = np.asarray(scales.fill_null(0)).astype(np.int64)
    out = pa.nulls(len(array), pa.string())
    is_odd = large | (each < 0) | (each > _MOST_DIGITS)
    for scale in np.unique(each[~is_odd]).tolist():
        texts = _with_scale(numbers, scale).cast(pa.string())
        out = pc.if_else(pa.array((each == scale) & ~is_odd), texts, out)
    odd = np.flatnonzero(is_odd & np.asarray(values.is_valid()))
    if odd.size:
        texts = pa.array([str(_exact(values[n].as_py(), int(each[n]))) for n in odd.tolist()], pa.string())
        out = pc.replace_with_mask(out, pa.array(np.isin(np.arange(len(array)), odd)), texts)
    out = pc.if_else(pc.and_(pc.is_valid(scales), pc.is_valid(values)), out, None)
    if isinstance(wanted, DecimalType):
        numbers = strict_cast(out, pa.decimal128(wanted.precision, wanted.scale))
        return Meant(numbers, wanted, _lost(array, numbers))
    return Meant(out, StringType(), _lost(array, out))


def _exact(raw: bytes, scale: int) -> Decimal:
    number = int.from_bytes(raw, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(number)))
    return Decimal((int(number < 0), digits, -scale))


CONFLUENT_DECIMAL = "confluent.type.Decimal"
GOOGLE_DATE, GOOGLE_TIME = "google.type.Date", "google.type.TimeOfDay"
"""Messages that Confluent's ProtobufConverter has for Connect's decimals, dates and times."""
_UNKNOWN = -1


def confluent_decimal(precision: str | None, scale: str | None) -> Meaning:
    """A decimal in a message with its own scale, with the parameters of its field, as far as they are noted."""
    whole = scale is not None and scale.isdecimal() and (precision is None or precision.isdecimal())
    if not whole or scale is None:
        return Meaning(CONFLUENT_DECIMAL, _UNKNOWN)
    return Meaning(CONFLUENT_DECIMAL, int(scale), min(int(precision or _MOST_DIGITS), _MOST_DIGITS))


def _decimal_message(array: pa.Array, meaning: Meaning, wanted: IcebergType | None) -> Meant | None:
    """Numbers in messages, each with a scale of its own: of the type that the field notes, else their digits as text."""
    if not 0 <= meaning.scale <= meaning.precision or meaning.precision < 1:
        return _variable_decimal(array, meaning, wanted)
    scales, values = member(array, "scale"), member(array, "value")
    if scales is None or values is None:
        return None
    if (np.asarray(scales.drop_null()) == meaning.scale).all():
        return _decimal(values, meaning, wanted)
    return _variable_decimal(array, meaning, DecimalType(meaning.precision, meaning.scale))


def _date_message(array: pa.Array, _: Meaning, __: IcebergType | None) -> Meant | None:
    days = read_days(array)
    return None if days is None else Meant(days, DateType(), _lost(array, days))


def _time_message(array: pa.Array, _: Meaning, __: IcebergType | None) -> Meant | None:
    times = read_times(array)
    return None if times is None else Meant(times, TimeType(), _lost(array, times))


_DEBEZIUM, _CONNECT = "io.debezium.", "org.apache.kafka.connect.data."
VARIABLE_SCALE = Meaning(f"{_DEBEZIUM}data.VariableScaleDecimal")
"""A number with a scale of its own."""
_READERS: dict[str, _Read] = {
    f"{_CONNECT}Decimal": _decimal,
    f"{_CONNECT}Date": _days,
    f"{_CONNECT}Time": _time(1000),
    f"{_CONNECT}Timestamp": _moment("ms"),
    f"{_DEBEZIUM}time.Date": _days,
    f"{_DEBEZIUM}time.Time": _time(1000),
    f"{_DEBEZIUM}time.MicroTime": _time(1),
    f"{_DEBEZIUM}time.NanoTime": _time(1, 1000),
    f"{_DEBEZIUM}time.Timestamp": _moment("ms"),
    f"{_DEBEZIUM}time.MicroTimestamp": _moment("us"),
    f"{_DEBEZIUM}time.NanoTimestamp": _moment("ns"),
    f"{_DEBEZIUM}time.ZonedTimestamp": _text(TimestamptzType(), pa.timestamp("us", tz="UTC"), False),
    f"{_DEBEZIUM}time.IsoDate": _iso_date,
    f"{_DEBEZIUM}time.IsoTime": _text(TimeType(), pa.timestamp("us"), True, before="1970-01-01T"),
    f"{_DEBEZIUM}time.IsoTimestamp": _text(TimestampType(), pa.timestamp("us"), True),
    f"{_DEBEZIUM}data.Uuid": _uuid,
    VARIABLE_SCALE.name: _variable_decimal,
    CONFLUENT_DECIMAL: _decimal_message,
    GOOGLE_DATE: _date_message,
    GOOGLE_TIME: _time_message,
}
