"""Rows as the bytes of Kafka records: JSON, JSON in Kafka Connect's envelope of schema and payload, Avro of the registry.

JSON is written column by column and then joined row by row. Every format keeps every value: times have their
microseconds, and decimals their digits.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as t

from frazil.decode.values_as_json import as_json, json_texts
from frazil.schema.arrow import children_of, unsliced, with_children
from frazil_replay.avro import avro_rows, avro_schema

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]")
_CONNECT: Mapping[type[t.IcebergType], tuple[str, str]] = {
    t.BooleanType: ("boolean", ""),
    t.IntegerType: ("int32", ""),
    t.LongType: ("int64", ""),
    t.FloatType: ("float", ""),
    t.DoubleType: ("double", ""),
    t.StringType: ("string", ""),
    t.BinaryType: ("bytes", ""),
    t.FixedType: ("bytes", ""),
    t.UUIDType: ("string", "io.debezium.data.Uuid"),
    t.DateType: ("int32", "org.apache.kafka.connect.data.Date"),
    t.TimeType: ("int64", "io.debezium.time.MicroTime"),
    t.TimestampType: ("int64", "io.debezium.time.MicroTimestamp"),
    t.TimestamptzType: ("string", "io.debezium.time.ZonedTimestamp"),
}
"""The type, and the name of its meaning, that Connect has for a column. Connect's own times are milliseconds; Debezium's
are not.
"""


class Encoder(Protocol):
    """Makes records' bytes of rows."""

    def encode(self, rows: pa.RecordBatch) -> Sequence[bytes]:
        """Returns the bytes of each row."""


class JsonEncoder:
    """Writes an object for each row."""

    def __init__(self, fields: Sequence[t.NestedField]) -> None:
        self._kinds = [field.field_type for field in fields]
        names = [json.dumps(field.name, ensure_ascii=False) for field in fields]
        self._heads = [f"{',' if number else '{'}{name}:" for number, name in enumerate(names)]

    def encode(self, rows: pa.RecordBatch) -> Sequence[bytes]:
        """See Encoder."""
        return _bytes_of(self.texts(rows, _as_text))

    def texts(self, rows: pa.RecordBatch, as_leaf: _Leaf) -> pa.Array:
        """Returns the objects as text, with values without parts in the form of `as_leaf`."""
        parts: list[pa.Array | str] = []
        for head, kind, column in zip(self._heads, self._kinds, rows.columns, strict=True):
            parts += [head, _json_column(_converted(column, kind, as_leaf))]
        return pc.binary_join_element_wise(*parts, "}", "")


class ConnectJsonEncoder:
    """Writes Connect's schema and an object for each row, as Connect's JsonConverter does with `schemas.enable`."""

    def __init__(self, fields: Sequence[t.NestedField], name: str) -> None:
        self._payload = JsonEncoder(fields)
        schema = {**_connect_type(t.StructType(*fields)), "optional": False, "name": name}
        self._head = f'{{"schema":{json.dumps(schema, ensure_ascii=False, separators=(",", ":"))},"payload":'

    def encode(self, rows: pa.RecordBatch) -> Sequence[bytes]:
        """See Encoder."""
        return _bytes_of(pc.binary_join_element_wise(self._head, self._payload.texts(rows, _as_connect), "}", ""))


class AvroEncoder:
    """Writes Avro behind the id of its schema, in Confluent's wire format."""

    def __init__(self, fields: Sequence[t.NestedField], name: str, register: Callable[[str], int]) -> None:
        """name: of the record. register: returns the id of a schema."""
        self._schema = avro_schema(fields, _NOT_A_NAME.sub("_", name))
        self._written = fastavro.parse_schema(_of_registry(self._schema))
        self._head = b"\0" + register(json.dumps(_of_registry(self._schema))).to_bytes(4, "big")

    def encode(self, rows: pa.RecordBatch) -> Sequence[bytes]:
        """See Encoder."""
        return [self._encode_row(row) for row in avro_rows([rows], self._schema)]

    def _encode_row(self, row: Mapping[str, Any]) -> bytes:
        stream = io.BytesIO()
        stream.write(self._head)
        fastavro.schemaless_writer(stream, self._written, row)
        return stream.getvalue()


def _of_registry(schema: Any) -> Any:
    """Returns an Avro schema without Iceberg's ids, and with Avro's own name for times without a time zone."""
    if isinstance(schema, list):
        return [_of_registry(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    is_local = schema.get("logicalType") == "timestamp-micros" and not schema.get("adjust-to-utc")
    avro_schema = {**schema, "logicalType": "local-timestamp-micros"} if is_local else schema
    return {
        name: _of_registry(member)
        for name, member in avro_schema.items()
        if not name.endswith("-id") and name != "adjust-to-utc"
    }


def _bytes_of(texts: pa.Array) -> Sequence[bytes]:
    values: list[bytes] = texts.cast(pa.binary()).to_pylist()
    return values


def _json_column(column: pa.Array) -> pa.Array:
    """Returns each value as JSON text."""
    if not column.null_count:
        return _json_values(column)
    texts = pa.array(["null"] * len(column), pa.string())
    return pc.replace_with_mask(texts, column.is_valid(), _json_values(column.drop_null()))


def _json_values(column: pa.Array) -> pa.Array:
    if not pa.types.is_nested(column.type):
        return json_texts(column)
    maps = "strict" if _has_text_keys(column.type) else None
    try:
        values = column.to_pylist(maps_as_pydicts=maps)
    except (OverflowError, ValueError, KeyError):  # Times that Python does not have, or a key twice.
        return json_texts(column)
    return pa.array([as_json(value) for value in values], pa.string())


def _has_text_keys(kind: pa.DataType) -> bool:
    """Whether the keys of every map in a type are text: JSON has objects for these maps, and pairs for others."""
    if pa.types.is_map(kind):
        return pa.types.is_string(kind.key_type) and _has_text_keys(kind.item_type)
    return all(_has_text_keys(kind.field(number).type) for number in range(kind.num_fields))


# ---- values in the form of a format

_Leaf = Callable[[pa.Array, t.IcebergType], pa.Array]


def _as_text(column: pa.Array, kind: t.IcebergType) -> pa.Array:
    if isinstance(kind, t.UUIDType):
        return pa.array([None if raw is None else str(UUID(bytes=raw)) for raw in column.to_pylist()], pa.string())
    return column


def _as_connect(column: pa.Array, kind: t.IcebergType) -> pa.Array:
    if isinstance(kind, t.TimestampType | t.TimeType):
        return column.view(pa.int64())
    if isinstance(kind, t.DateType):
        return column.view(pa.int32())
    if isinstance(kind, t.DecimalType):
        return pa.array(
            [None if value is None else _unscaled(value, kind.scale) for value in column.to_pylist()], pa.binary()
        )
    return _as_text(column, kind)


def _unscaled(value: Any, scale: int) -> bytes:
    sign, digits, exponent = value.as_tuple()  # Its own arithmetic rounds to 28 digits.
    number: int = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _converted(column: pa.Array, kind: t.IcebergType, as_leaf: _Leaf) -> pa.Array:
    """Returns the values with every part that has no parts in the form of `as_leaf`."""
    if isinstance(kind, t.StructType):
        kinds = [field.field_type for field in kind.fields]
    elif isinstance(kind, t.MapType):
        kinds = [kind.key_type, kind.value_type]
    elif isinstance(kind, t.ListType):
        kinds = [kind.element_type]
    else:
        return as_leaf(column, kind)
    column = unsliced(column)
    children = [column.keys, column.items] if isinstance(kind, t.MapType) else children_of(column)
    converted = [_converted(child, of, as_leaf) for child, of in zip(children, kinds, strict=True)]
    return with_children(column, _type_with(column.type, [child.type for child in converted]), converted)


def _type_with(kind: pa.DataType, inner: Sequence[pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(inner_type) for field, inner_type in zip(kind, inner, strict=True)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field.with_type(inner[0]), kind.item_field.with_type(inner[1]))
    return pa.list_(kind.value_field.with_type(inner[0]))


# ---- schemas of Connect


@functools.singledispatch
def _connect_type(kind: t.IcebergType) -> dict[str, Any]:
    """Returns Connect's schema of a type."""
    form, name = _CONNECT[type(kind)]
    return {"type": form, **({"name": name, "version": 1} if name else {})}


@_connect_type.register
def _(kind: t.DecimalType) -> dict[str, Any]:
    parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": parameters}


@_connect_type.register
def _(kind: t.StructType) -> dict[str, Any]:
    fields = [
        {**_connect_type(field.field_type), "optional": not field.required, "field": field.name}
        for field in kind.fields
    ]
    return {"type": "struct", "fields": fields}


@_connect_type.register
def _(kind: t.ListType) -> dict[str, Any]:
    return {"type": "array", "items": {**_connect_type(kind.element_type), "optional": not kind.element_required}}


@_connect_type.register
def _(kind: t.MapType) -> dict[str, Any]:
    values = {**_connect_type(kind.value_type), "optional": not kind.value_required}
    return {"type": "map", "keys": {**_connect_type(kind.key_type), "optional": False}, "values": values}
