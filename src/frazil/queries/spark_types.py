"""Spark's types, as its JSON has them, of Iceberg's types and back, and the Arrow types in which tasks hold their values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyiceberg import types as t
from pyiceberg.schema import Schema

from frazil.types import FIRST_PLACEHOLDER_ID

# Spark has no type for uuid and fixed: such a field is only passed through (`expressions.py`).
_WORDS: dict[type[t.IcebergType], str] = {
    t.BooleanType: "boolean",
    t.IntegerType: "integer",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.StringType: "string",
    t.BinaryType: "binary",
    t.DateType: "date",
    t.TimeType: "time(6)",
    t.TimestampType: "timestamp_ntz",
    t.TimestamptzType: "timestamp",
    t.UUIDType: "string",
    t.FixedType: "binary",
}
_ICEBERG: dict[str, t.IcebergType] = {
    **{word: kind() for kind, word in _WORDS.items() if kind not in (t.UUIDType, t.FixedType)},
    "byte": t.IntegerType(),
    "short": t.IntegerType(),
}
_ARROW: dict[str, pa.DataType] = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
NO_TYPE = pa.large_binary()
"""In place of the Arrow type of values that tasks cannot hold, such as variants. No column of a record has it."""
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_TIME = re.compile(r"time\(\d\)")
_DAYS = re.compile(r"interval (day|hour|minute|second)( to .*)?")
_MONTHS = re.compile(r"interval (year|month)( to month)?")


def spark_struct(schema: Schema) -> dict[str, Any]:
    """Returns Spark's type of rows with these columns."""
    return _struct(schema.fields)


def spark_type(kind: t.IcebergType) -> Any:
    """Returns Spark's type of an Iceberg type."""
    if isinstance(kind, t.StructType):
        return _struct(kind.fields)
    if isinstance(kind, t.ListType):
        element = spark_type(kind.element_type)
        return {"type": "array", "elementType": element, "containsNull": not kind.element_required}
    if isinstance(kind, t.MapType):
        key, value = spark_type(kind.key_type), spark_type(kind.value_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": not kind.value_required}
    if isinstance(kind, t.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    return _WORDS[type(kind)]


def _struct(fields: tuple[t.NestedField, ...]) -> dict[str, Any]:
    members = [
        {"name": field.name, "type": spark_type(field.field_type), "nullable": not field.required, "metadata": {}}
        for field in fields
    ]
    return {"type": "struct", "fields": members}


def iceberg_type(kind: Any, ids: Iterator[int] | None = None) -> t.IcebergType | None:
    """Returns the Iceberg type of Spark's type, None where Iceberg has none. ids: of nested fields, placeholders unless
    given.
    """
    ids = itertools.count(FIRST_PLACEHOLDER_ID) if ids is None else ids
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        if decimal:
            return t.DecimalType(int(decimal[1]), int(decimal[2]))
        return t.TimeType() if _TIME.fullmatch(kind) else _ICEBERG.get(kind)
    nested = {"struct": _iceberg_struct, "array": _iceberg_list, "map": _iceberg_map}.get(kind["type"])
    return nested(kind, ids) if nested else None


def _iceberg_struct(kind: Any, ids: Iterator[int]) -> t.IcebergType | None:
    fields = []
    for member in kind["fields"]:
        own_id, of_member = next(ids), iceberg_type(member["type"], ids)
        if of_member is None or "collation" in str(member["metadata"]).lower():
            return None
        fields.append(t.NestedField(own_id, member["name"], of_member, required=not member["nullable"]))
    return t.StructType(*fields) if fields else None


def _iceberg_list(kind: Any, ids: Iterator[int]) -> t.IcebergType | None:
    own_id, element = next(ids), iceberg_type(kind["elementType"], ids)
    return None if element is None else t.ListType(own_id, element, element_required=not kind["containsNull"])


def _iceberg_map(kind: Any, ids: Iterator[int]) -> t.IcebergType | None:
    key_id, value_id = next(ids), next(ids)
    key, value = iceberg_type(kind["keyType"], ids), iceberg_type(kind["valueType"], ids)
    if key is None or value is None:
        return None
    return t.MapType(key_id, key, value_id, value, value_required=not kind["valueContainsNull"])


def arrow_of(kind: Any) -> pa.DataType | None:
    """Returns the Arrow type of values of Spark's type, every part of which may be null; None where tasks cannot hold
    them, such as variants. An interval of days to seconds is a duration in microseconds.
    """
    if isinstance(kind, str):
        return _arrow_word(kind)
    if kind["type"] == "struct":
        members = [(member["name"], arrow_of(member["type"])) for member in kind["fields"]]
        fields = [pa.field(name, of) for name, of in members if of is not None]
        return pa.struct(fields) if len(fields) == len(members) else None
    if kind["type"] == "array":
        element = arrow_of(kind["elementType"])
        return None if element is None else pa.list_(pa.field("element", element))
    if kind["type"] == "map":
        key, value = arrow_of(kind["keyType"]), arrow_of(kind["valueType"])
        is_known = key is not None and value is not None and not pa.types.is_null(key)
        return pa.map_(key, pa.field("value", value)) if is_known else None
    return None


def _arrow_word(word: str) -> pa.DataType | None:
    decimal = _DECIMAL.fullmatch(word)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if _TIME.fullmatch(word):
        return pa.time64("us")
    if _DAYS.fullmatch(word):
        return pa.duration("us")
    if _MONTHS.fullmatch(word):
        return pa.month_day_nano_interval()
    return _ARROW.get(word)


def has_fixed_bytes(kind: pa.DataType) -> bool:
    """Returns whether values of the Arrow type are, or have in them, bytes of a fixed number: a uuid or fixed field."""
    return _has(kind, pa.types.is_fixed_size_binary)


def has_time(kind: pa.DataType) -> bool:
    """Returns whether values of the Arrow type are, or have in them, times of a day."""
    return _has(kind, pa.types.is_time)


def _has(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    return is_wanted(kind) or any(_has(kind.field(n).type, is_wanted) for n in range(kind.num_fields))
