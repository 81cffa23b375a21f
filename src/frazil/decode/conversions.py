"""Lossless conversions with rules of their own: UUIDs and their texts, days and times of day as numbers in a declared
column, and any value as text where a column is declared so.

Conversions between numbers, and between bytes, are in `lossless`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimeType,
    UUIDType,
)

from frazil.decode.columns import as_text
from frazil.decode.epochs import FIRST_US, LAST_US
from frazil.decode.json_texts import as_json, json_texts
from frazil.decode.uuid_text import format_uuids, read_uuids

DAY = "d"
"""The unit of numbers in a column of days."""
_DAY_US = 86_400_000_000
_PARTS = {"s": 1_000_000, "ms": 1000, "us": 1}
_NO_TEXT = (StringType, BinaryType, FixedType)


@dataclass(frozen=True)
class Converted:
    """Converted values."""

    #: The values in the column's type, null where a value cannot be converted.
    array: pa.Array
    #: Which values are out of the type's range: bool of shape (n_values,).
    is_outside: NDArray[np.bool_]


def convert(
    array: pa.Array, written: IcebergType, wanted: IcebergType, unit: str | None, is_coerced: bool
) -> Converted | None:
    """Returns the values in the column's type; None where there is no rule for these two types.

    unit: of numbers in a declared column of days or times of day. is_coerced: whether the column is declared to accept
    values of other types as text.
    """
    if isinstance(written, StringType) and isinstance(wanted, UUIDType):
        return _converted(read_uuids(array)[0])
    if isinstance(written, UUIDType) and isinstance(wanted, StringType):
        return _converted(format_uuids(array))
    if isinstance(wanted, StringType) and is_coerced and not isinstance(written, _NO_TEXT):
        return _converted(texts_of(array, written))
    if isinstance(written, IntegerType | LongType) and unit is not None:
        if isinstance(wanted, DateType):
            return days_of(array)
        if isinstance(wanted, TimeType):
            return times_of(array, unit)
    return None


def _converted(array: pa.Array) -> Converted:
    return Converted(array, np.zeros(len(array), np.bool_))


def days_of(numbers: pa.Array) -> Converted:
    """Returns the days from integers that count days since 1970-01-01, of the years 1 to 9999."""
    found = np.asarray(numbers.fill_null(0)).astype(np.int64)
    is_outside = (found < FIRST_US // _DAY_US) | (found >= LAST_US // _DAY_US)
    mask = is_outside | np.asarray(numbers.is_null())
    days = np.where(is_outside, 0, found).astype(np.int32)
    return Converted(pa.array(days, pa.int32(), mask=mask).cast(pa.date32()), is_outside)


def times_of(numbers: pa.Array, unit: str) -> Converted:
    """Returns the times of day from integers that count `unit` since midnight; parts of a microsecond are truncated."""
    found = np.asarray(numbers.fill_null(0)).astype(np.int64)
    of_day = _DAY_US * 1000 if unit == "ns" else _DAY_US // _PARTS[unit]
    is_outside = (found < 0) | (found >= of_day)
    inside = np.where(is_outside, 0, found)
    micros = inside // 1000 if unit == "ns" else inside * _PARTS[unit]
    mask = is_outside | np.asarray(numbers.is_null())
    return Converted(pa.array(micros, pa.int64(), mask=mask).cast(pa.time64("us")), is_outside)


def texts_of(array: pa.Array, kind: IcebergType) -> pa.Array:
    """Returns each value as text: a scalar as it is, everything nested as JSON; null for null."""
    there = readable(array, kind).drop_null()
    if isinstance(kind, (StructType, ListType, MapType)):
        texts = _of_nested(there)
    elif pa.types.is_floating(there.type):
        texts = _of_floats(there)
    elif pa.types.is_decimal(there.type):
        texts = _of_decimals(there)
    else:
        texts = pc.replace_substring_regex(json_texts(there), '^"(.*)"$', r"\1")
    places = np.cumsum(np.asarray(array.is_valid())) - 1
    return texts.take(pa.array(places, mask=np.asarray(array.is_null())))


def _of_nested(array: pa.Array) -> pa.Array:
    try:
        return pa.array([as_text(as_json(one)) for one in array.to_pylist(maps_as_pydicts="lossy")], pa.string())
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
    plain = pa.array([format(one, "f") for one in array.filter(has_exponent).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, has_exponent, plain)


def readable(array: pa.Array, kind: IcebergType) -> pa.Array:
    """Returns the values for people to read: UUIDs as text, at every depth; others unchanged."""
    if isinstance(kind, UUIDType) and pa.types.is_fixed_size_binary(array.type):
        return format_uuids(array)
    if not has_uuid(kind):
        return array
    if array.offset:
        # The children are used as they are in memory: an array that is a slice is copied first.
        array = pa.concat_arrays([array])
    if isinstance(kind, StructType):
        children = [readable(array.field(n), member.field_type) for n, member in enumerate(kind.fields)]
        arrow = pa.struct([pa.field(member.name, one.type) for member, one in zip(kind.fields, children, strict=True)])
        return pa.Array.from_buffers(arrow, len(array), array.buffers()[:1], array.null_count, children=children)
    if isinstance(kind, ListType):
        items = readable(array.values, kind.element_type)
        arrow = pa.list_(pa.field("element", items.type))
        return pa.Array.from_buffers(arrow, len(array), array.buffers()[:2], array.null_count, children=[items])
    assert isinstance(kind, MapType)
    values = readable(array.items, kind.value_type)
    arrow = pa.map_(array.keys.type, pa.field("value", values.type))
    entries = pa.StructArray.from_arrays([array.keys, values], fields=[arrow.key_field, arrow.item_field])
    return pa.Array.from_buffers(arrow, len(array), array.buffers()[:2], array.null_count, children=[entries])


def has_uuid(kind: IcebergType) -> bool:
    """Whether a type is a UUID, or has one inside, other than as the key of a map."""
    if isinstance(kind, StructType):
        return any(has_uuid(member.field_type) for member in kind.fields)
    if isinstance(kind, ListType):
        return has_uuid(kind.element_type)
    return has_uuid(kind.value_type) if isinstance(kind, MapType) else isinstance(kind, UUIDType)


def format_type(kind: IcebergType) -> str:
    """Returns a type as the pipeline file writes it."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(_member(member) for member in kind.fields)}>"
    if isinstance(kind, ListType):
        return f"list<{format_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{format_type(kind.key_type)}, {format_type(kind.value_type)}>"
    return str(kind)


def _member(member: NestedField) -> str:
    return f"{member.name}: {format_type(member.field_type)}"
