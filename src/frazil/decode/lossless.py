"""Lossless conversions of columns: numbers, bytes, UUIDs, days, times of day and timestamps.

Also values and types as people read them.

A time that its column cannot hold is a bad record with its reason: it is outside the years 1 to 9999, or the column's zone
does not have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg import types as t

from frazil.decode.columns import TextBytes, as_text, bitmap, offsets_from, read_utf8
from frazil.decode.conversion import Conversion, ValuePlace
from frazil.decode.epochs import (
    FIRST_US,
    LAST_US,
    SKIPPED,
    are_skipped,
    convert_zone,
    differ_in_zone,
    from_numbers,
    to_local,
    zone_settings,
)
from frazil.decode.values_as_json import as_json, json_texts
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import arrow_type, children_of, replace_children, unsliced
from frazil.schema.conflicts import KEYS_AS_TEXT, declaration_for
from frazil.schema.parts import parts_of, type_word, types_in

# Decimals of up to this many digits are recovered from the nearest float (IEEE 754; FLT_DIG and DBL_DIG of C).
_RECOVERABLE_DIGITS = {pa.float32(): 6, pa.float64(): 15}
_ROOMY = 60
_WIDEST = 76


def may_convert(written: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type may be equal in the other: numbers to numbers, bytes to bytes and days to times
    without a zone.
    """
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    is_number = [any(is_kind(kind) for is_kind in kinds) for kind in (written, wanted)]
    if pa.types.is_floating(written) and not pa.types.is_floating(wanted):
        return False
    is_bytes = [pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) for kind in (written, wanted)]
    is_day = pa.types.is_date(written) and pa.types.is_timestamp(wanted)
    return all(is_number) or all(is_bytes) or (is_day and wanted.tz is None)


def mismatch_of(written: t.IcebergType, wanted: t.IcebergType) -> tuple[ErrorClass, str]:
    """Returns the class of error of values that a column cannot hold, and the words for it in a message."""
    if isinstance(written, TextBytes):
        return ErrorClass.INVALID_TEXT, "is not UTF-8 and does not fit"
    is_narrower = isinstance(written, t.LongType) and isinstance(wanted, t.IntegerType)
    if may_convert(arrow_type(written), arrow_type(wanted)) and (isinstance(wanted, t.DecimalType) or is_narrower):
        return ErrorClass.OUT_OF_RANGE, "is out of the range of"
    return ErrorClass.TYPE_MISMATCH, "does not fit"


def cast_losslessly(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns the values that are equal in the target type; null for the others."""
    if not may_convert(array.type, target):
        return pa.nulls(len(array), target)
    if pa.types.is_decimal(array.type) and pa.types.is_floating(target):
        return _nearest_floats(array, target)
    if pa.types.is_decimal(array.type) or pa.types.is_decimal(target) or not pa.types.is_primitive(target):
        if pa.types.is_integer(array.type):
            # Arrow checks the precision for the largest integer of the type.
            array = array.cast(pa.decimal256(_ROOMY, target.scale))
        array = pc.if_else(_is_in_range(array, target), array, pa.scalar(None, array.type))
        back = _way_back(array.type, target)
        try:
            converted = array.cast(target, safe=not pa.types.is_decimal(array.type))
            same = pc.equal(converted.cast(back), array.cast(back))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # Arrow refuses all of them for some.
            return _cast_one_by_one(array, target)
        return pc.if_else(pc.fill_null(same, False), converted, pa.scalar(None, target))
    converted = array.cast(target, safe=False)
    again = converted.cast(array.type, safe=False)
    same = pc.equal(array, again)
    if pa.types.is_floating(array.type):
        same = pc.or_(same, pc.is_nan(array))
    elif pa.types.is_floating(target):  # A value rounded up to 2**63 does not convert back the same on every machine.
        same = pc.and_(same, pc.and_(pc.less(converted, 2.0**63), pc.greater_equal(converted, -(2.0**63))))
    return pc.if_else(pc.fill_null(same, False), converted, pa.scalar(None, target))


def _nearest_floats(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns the nearest float or double of each decimal that can be recovered from it; null for the others. Arrow's
    own cast misses the nearest one for many: 99.99 becomes 99.99000000000001.
    """
    floats = array.cast(pa.string()).cast(target)
    unit, digits = Decimal((0, (1,), -array.type.scale)), _RECOVERABLE_DIGITS[target]
    same = np.ones(len(array), np.bool_)
    if array.type.precision > digits:
        most = pa.scalar(Decimal((0, (9,) * digits, -array.type.scale)), array.type)
        same = np.array(pc.fill_null(pc.less_equal(pc.abs(array), most), False))
    with localcontext(Context(prec=_WIDEST, traps=[])):
        for row in np.flatnonzero(~same & np.asarray(array.is_valid())).tolist():
            same[row] = Decimal(floats[row].as_py()).quantize(unit) == array[row].as_py()
    return pc.if_else(pa.array(same), floats, pa.scalar(None, target))


def _is_in_range(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns the values that are not too large, or too long, for the target type, as far as a quick check can decide."""
    if pa.types.is_fixed_size_binary(target) and not pa.types.is_decimal(target):
        return pc.equal(pc.binary_length(array), target.byte_width)
    if not pa.types.is_decimal(array.type) or pa.types.is_floating(target):
        return pa.repeat(True, len(array))
    if pa.types.is_integer(target):
        most = 2 ** (target.bit_width - 1) - 1
        least = -most - 1
    else:
        digits = target.precision - target.scale
        if digits >= array.type.precision - array.type.scale:
            return pa.repeat(True, len(array))
        most = 10**digits
        least = -most
    wide = pa.decimal256(_WIDEST, array.type.scale)
    values = array.cast(wide)
    inside = pc.and_(
        pc.less_equal(values, pa.scalar(Decimal(most), wide)), pc.greater_equal(values, pa.scalar(Decimal(least), wide))
    )
    if pa.types.is_integer(target):
        return inside
    return pc.and_(inside, pc.not_equal(pc.abs(values), pa.scalar(Decimal(most), wide)))


def _way_back(written: pa.DataType, target: pa.DataType) -> pa.DataType:
    """Returns the type in which values and converted values are compared: Arrow checks the precision for the largest
    integer of a type.
    """
    if pa.types.is_decimal(written) and pa.types.is_integer(target):
        return pa.decimal256(_WIDEST, written.scale)
    return written


def _cast_one_by_one(array: pa.Array, target: pa.DataType) -> pa.Array:
    out: list[Any] = []
    back = _way_back(array.type, target)
    for value in array:
        try:
            converted = value.cast(target)
            out.append(converted.as_py() if converted.cast(back).equals(value.cast(back)) else None)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            out.append(None)
    return pa.array(out, target)


_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]
"""The positions of the digits in a text."""


def read_uuids(texts: pa.StringArray) -> tuple[pa.FixedSizeBinaryArray, NDArray[np.bool_]]:
    """Returns the bytes, null where there is no text, and which texts are no UUID in the form 8-4-4-4-12 (null too):
    bool of shape (n_texts,).
    """
    good = pc.fill_null(pc.match_substring_regex(texts, _UUID), False)
    is_uuid = np.asarray(good)
    digits = pa.concat_arrays([pc.replace_substring(texts.filter(good), "-", "")])  # From the beginning of its buffer.
    raw = bytes.fromhex(digits.buffers()[2].to_pybytes().decode("ascii")) if len(digits) else b""
    every = pa.Array.from_buffers(pa.binary(16), len(digits), [None, pa.py_buffer(raw)])
    return every.take(pa.array(np.cumsum(is_uuid) - 1, mask=~is_uuid)), np.asarray(texts.is_valid()) & ~is_uuid


def format_uuids(array: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Returns the texts of UUIDs, in lower case and the form 8-4-4-4-12; null where there is no UUID."""
    rows = len(array)
    is_present = np.asarray(array.is_valid())
    raw = pa.concat_arrays([array.drop_null()]).buffers()[1]  # From the beginning of its buffer.
    digits = np.frombuffer(raw.to_pybytes().hex().encode() if raw is not None else b"", np.uint8)
    out = np.full((digits.size // 32, 36), ord("-"), np.uint8)
    out[:, _DIGITS] = digits.reshape(-1, 32)
    buffers = [
        None if is_present.all() else bitmap(is_present),
        pa.py_buffer(offsets_from(is_present * 36)),
        pa.py_buffer(out),
    ]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


DAY = "d"
"""The unit of numbers in a column of days."""
_DAY_US = 86_400_000_000
_PARTS = {"s": 1_000_000, "ms": 1000, "us": 1}
_NO_TEXT = (t.StringType, t.BinaryType, t.FixedType)


@dataclass(frozen=True)
class Converted:
    """Converted values."""

    #: The values in the column's type, null where a value cannot be converted.
    array: pa.Array
    #: Which values are out of the type's range: bool of shape (n_values,).
    is_outside: NDArray[np.bool_]


def convert(
    array: pa.Array, written: t.IcebergType, wanted: t.IcebergType, unit: str | None, is_coerced: bool
) -> Converted | None:
    """Returns the values in the column's type; None where there is no rule for these two types.

    unit: of numbers in a declared column of days or times of day. is_coerced: whether the column is declared to accept
    values of other types as text.
    """
    if isinstance(written, t.StringType) and isinstance(wanted, t.UUIDType):
        return _converted(read_uuids(array)[0])
    if isinstance(written, t.UUIDType) and isinstance(wanted, t.StringType):
        return _converted(format_uuids(array))
    if isinstance(written, TextBytes) and isinstance(wanted, t.StringType):
        return _converted(read_utf8(array))
    if isinstance(wanted, t.StringType) and is_coerced and not isinstance(written, _NO_TEXT):
        return _converted(texts_of(array, written))
    if isinstance(written, t.IntegerType | t.LongType) and unit is not None:
        if isinstance(wanted, t.DateType):
            return days_of(array)
        if isinstance(wanted, t.TimeType):
            return times_of(array, unit)
    return None


def _converted(array: pa.Array) -> Converted:
    return Converted(array, np.zeros(len(array), np.bool_))


def days_of(numbers: pa.Array) -> Converted:
    """Returns the days from integers that count days since 1970-01-01, of the years 1 to 9999."""
    day_numbers = np.asarray(numbers.fill_null(0)).astype(np.int64)
    is_outside = (day_numbers < FIRST_US // _DAY_US) | (day_numbers >= LAST_US // _DAY_US)
    mask = is_outside | np.asarray(numbers.is_null())
    days = np.where(is_outside, 0, day_numbers).astype(np.int32)
    return Converted(pa.array(days, pa.int32(), mask=mask).cast(pa.date32()), is_outside)


def times_of(numbers: pa.Array, unit: str) -> Converted:
    """Returns the times of day from integers that count `unit` since midnight; parts of a microsecond are truncated."""
    counts = np.asarray(numbers.fill_null(0)).astype(np.int64)
    of_day = _DAY_US * 1000 if unit == "ns" else _DAY_US // _PARTS[unit]
    is_outside = (counts < 0) | (counts >= of_day)
    inside = np.where(is_outside, 0, counts)
    micros = inside // 1000 if unit == "ns" else inside * _PARTS[unit]
    mask = is_outside | np.asarray(numbers.is_null())
    return Converted(pa.array(micros, pa.int64(), mask=mask).cast(pa.time64("us")), is_outside)


def texts_of(array: pa.Array, kind: t.IcebergType) -> pa.Array:
    """Returns each value as text: a scalar as it is, everything nested as JSON; null for null."""
    values = readable(array, kind).drop_null()
    if isinstance(kind, (t.StructType, t.ListType, t.MapType)):
        texts = _of_nested(values)
    elif pa.types.is_floating(values.type):
        texts = _of_floats(values)
    elif pa.types.is_decimal(values.type):
        texts = _of_decimals(values)
    else:
        texts = pc.replace_substring_regex(json_texts(values), '^"(.*)"$', r"\1")
    places = np.cumsum(np.asarray(array.is_valid())) - 1
    return texts.take(pa.array(places, mask=np.asarray(array.is_null())))


def _of_nested(array: pa.Array) -> pa.Array:
    try:
        return pa.array([as_text(as_json(value)) for value in array.to_pylist(maps_as_pydicts="lossy")], pa.string())
    except (OverflowError, ValueError):  # Python has no times before the year 1 or after 9999.
        return json_texts(array)


def _of_floats(array: pa.Array) -> pa.Array:
    """Returns the shortest digits that read back as the same number in the array's own width."""
    texts = pc.replace_substring_regex(array.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    endless = pc.if_else(pc.is_nan(array), "NaN", pc.if_else(pc.greater(array, 0), "Infinity", "-Infinity"))
    return pc.if_else(pc.is_finite(array), texts, endless)


def _of_decimals(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    has_exponent = pc.match_substring(texts, "E")
    if not pc.any(has_exponent).as_py():
        return texts
    plain = pa.array([format(value, "f") for value in array.filter(has_exponent).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, has_exponent, plain)


def readable(array: pa.Array, kind: t.IcebergType) -> pa.Array:
    """Returns the values for people to read: UUIDs as text, at every depth; others unchanged."""
    if isinstance(kind, t.UUIDType) and pa.types.is_fixed_size_binary(array.type):
        return format_uuids(array)
    parts = parts_of(kind)
    if not parts or not has_uuid(kind):
        return array
    array = unsliced(array)
    children = [readable(child, part.field_type) for child, part in zip(children_of(array), parts, strict=True)]
    return replace_children(array, [part.name for part in parts], children)


def has_uuid(kind: t.IcebergType) -> bool:
    """Whether a type is a UUID, or has one inside, other than as the key of a map."""
    return any(isinstance(inner, t.UUIDType) for _, inner in types_in(kind))


def remedy_of_values(conversion: Conversion, kinds: tuple[t.IcebergType, t.IcebergType], place: ValuePlace) -> str:
    """Returns the remedy for a column of a type that holds some values of the written type, as the end of a message;
    empty where none helps, or a single record may be wrong.
    """
    (written, wanted), path = kinds, conversion.reading.in_row(place.path)
    if differ_in_zone(written, wanted):
        return f"; {KEYS_AS_TEXT}" if conversion.reading.is_key_column else f": {zone_settings(path, wanted)}"
    is_exact = isinstance(wanted, t.IntegerType | t.LongType | t.DecimalType)
    has_digits = isinstance(written, t.DecimalType) and is_exact and written.scale > getattr(wanted, "scale", -1)
    is_helped = isinstance(written, TextBytes) or isinstance(wanted, t.FixedType) or has_digits
    if conversion.reading.is_key_column or not is_helped:
        return ""
    declared = declaration_for(path, type_word(written), type_word(wanted))
    return declared and f"; {declared}"


def format_type(kind: t.IcebergType) -> str:
    """Returns a type as the pipeline file writes it."""
    if isinstance(kind, t.StructType):
        return f"struct<{', '.join(f'{member.name}: {format_type(member.field_type)}' for member in kind.fields)}>"
    if isinstance(kind, t.ListType):
        return f"list<{format_type(kind.element_type)}>"
    if isinstance(kind, t.MapType):
        return f"map<{format_type(kind.key_type)}, {format_type(kind.value_type)}>"
    return str(kind)


def convert_times(conversion: Conversion, array: pa.Array, wanted: t.IcebergType, place: ValuePlace) -> pa.Array | None:
    """Returns times of a column with a zone, or numbers of one with a unit, in the column's type; None for others."""
    zone, unit = _zone_at(conversion, place), conversion.unit_at(place.path)
    times = _in_zone(conversion, array, wanted, place, zone) if zone is not None else None
    if (
        times is None
        and unit is not None
        and _is_number(array.type)
        and isinstance(wanted, t.TimestampType | t.TimestamptzType)
    ):
        return _from_epoch(conversion, array, wanted, place, unit)
    return times


def _zone_at(conversion: Conversion, place: ValuePlace) -> str | None:
    return conversion.reading.zone_at.get(place.path) if conversion.reading.declared.zones else None


def _in_zone(
    conversion: Conversion, array: pa.Array, wanted: t.IcebergType, place: ValuePlace, zone: str
) -> pa.Array | None:
    """Returns what `convert_zone` does, and refuses the times that it cannot convert."""
    times = convert_zone(array, wanted, zone)
    if times is None:
        return None
    lost = np.asarray(array.is_valid()) & np.asarray(times.is_null())
    if lost.any() and isinstance(wanted, t.TimestamptzType):
        skipped = lost & are_skipped(array, zone)
        conversion.refuse(
            array, skipped, place.owner, place.path, ErrorClass.OUT_OF_RANGE, SKIPPED.replace("{zone}", zone)
        )
        lost &= ~skipped
    _refuse_far_times(conversion, array, lost, place, f"{wanted} in {zone}")
    return times


def _from_epoch(
    conversion: Conversion, array: pa.Array, wanted: t.IcebergType, place: ValuePlace, unit: str
) -> pa.Array:
    moments = from_numbers(array, unit)
    _refuse_far_times(conversion, array, moments.is_outside, place, f"{wanted}({unit})")
    zone = _zone_at(conversion, place)
    if zone is None or not isinstance(wanted, t.TimestampType):
        return moments.micros.cast(arrow_type(wanted))
    local = to_local(moments.micros.cast(pa.timestamp("us", tz="UTC")), zone)
    lost = np.asarray(moments.micros.is_valid()) & np.asarray(local.is_null())
    _refuse_far_times(conversion, array, lost, place, f"{wanted} in {zone}")
    return local


def _refuse_far_times(
    conversion: Conversion, array: pa.Array, bad: NDArray[np.bool_], place: ValuePlace, wanted: str
) -> None:
    if bad.any():
        reason = f"{{value}} is out of the range of {wanted}"
        conversion.refuse(array, bad, place.owner, place.path, ErrorClass.OUT_OF_RANGE, reason)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
