"""Writes the table of types of docs/reference/debezium.md from what the reader does: `make docs`. The tests compare the
two.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.types import IcebergType

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope, Reading, WriterSchema
from frazil.schema.evolve import new_schema
from frazil.stages.changes import Changes
from frazil.write.target import TableTarget
from tests.unit.decode.avro_bodies import spell

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "debezium.md"
_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium."
_AVRO_LOGICAL = {
    f"{_CONNECT}Date": "date",
    f"{_CONNECT}Time": "time-millis",
    f"{_CONNECT}Timestamp": "timestamp-millis",
}
"""What Connect's converter for Avro adds to types of Connect itself."""
_AVRO = {"int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double"}


@dataclass(frozen=True)
class Row:
    """One line of the page: what the source's column is, its type in Kafka Connect, a value as JSON writes it."""

    words: str
    kind: str
    value: Any
    name: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    inner: tuple[tuple[str, str], ...] = ()
    iceberg: str = ""

    def connect(self, name: str = "v") -> dict[str, Any]:
        """The field in the schema that a JSON message carries."""
        node: dict[str, Any] = {"type": self.kind, "optional": True, "field": name}
        if self.name:
            node |= {"name": self.name, "version": 1}
        if self.parameters:
            node["parameters"] = dict(self.parameters)
        if self.kind == "array":
            node["items"] = {"type": self.inner[0][1], "optional": True}
        if self.kind == "map":
            node |= {"keys": {"type": "string"}, "values": {"type": "string", "optional": True}}
        if self.kind == "struct":
            node["fields"] = [{"type": kind, "optional": True, "field": member} for member, kind in self.inner]
        return node

    def avro(self) -> Any:
        """The field's type in the schema that Connect's Avro converter makes."""
        node: dict[str, Any] = {"type": _AVRO.get(self.kind, self.kind)}
        if self.kind == "array":
            node["items"] = ["null", _AVRO.get(self.inner[0][1], self.inner[0][1])]
        if self.kind == "map":
            node["values"] = ["null", "string"]
        if self.kind == "struct":
            fields = [{"name": n, "type": ["null", _AVRO.get(k, k)], "default": None} for n, k in self.inner]
            node = {"type": "record", "name": "Inner", "namespace": "io.debezium.data", "fields": fields}
        if self.name:
            node |= {"connect.name": self.name, "connect.version": 1}
        if self.parameters:
            node["connect.parameters"] = dict(self.parameters)
        if self.name in _AVRO_LOGICAL:
            node["logicalType"] = _AVRO_LOGICAL[self.name]
        if self.name == f"{_CONNECT}Decimal":
            node |= {
                "logicalType": "decimal",
                "precision": int(self.parameters.get("connect.decimal.precision", 64)),
                "scale": int(self.parameters["scale"]),
            }
        return node

    def avro_value(self) -> Any:
        """The value as Avro's writer wants it."""
        return _bytes(self.value, self.kind, dict(self.inner))


def _bytes(value: Any, kind: str, inner: Mapping[str, str]) -> Any:
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "struct":
        return {name: _bytes(member, inner[name], {}) for name, member in value.items()}
    return value


_DECIMAL = f"{_CONNECT}Decimal"
_NUMERIC = {"scale": "2", "connect.decimal.precision": "12"}
_WKB = base64.b64encode(bytes.fromhex("0101000000000000000000f03f0000000000000040")).decode()
_VARIABLE = (("scale", "int32"), ("value", "bytes"))
_SHAPE = (("wkb", "bytes"), ("srid", "int32"))
_POINT = (("x", "float64"), ("y", "float64"), ("wkb", "bytes"), ("srid", "int32"))
_TIME = f"{_DEBEZIUM}time."

ROWS = [
    Row("boolean, bit(1)", "boolean", True, iceberg="boolean"),
    Row("smallint", "int16", 7, iceberg="int"),
    Row("integer", "int32", 7, iceberg="int"),
    Row("bigint", "int64", 7, iceberg="long"),
    Row(
        "bigint unsigned (`bigint.unsigned.handling.mode=long`) [with its type](#unsigned-numbers)",
        "int64",
        7,
        parameters={"__debezium.source.column.type": "BIGINT UNSIGNED"},
        iceberg="decimal(20, 0)",
    ),
    Row("real", "float32", 1.5, iceberg="float"),
    Row("double precision", "float64", 1.5, iceberg="double"),
    Row("text, varchar, char, citext, inet, cidr, macaddr, ranges", "string", "text", iceberg="string"),
    Row("bytea, varbinary, blob (`binary.handling.mode=bytes`)", "bytes", "AQI=", iceberg="binary"),
    Row(
        "numeric(12,2) (`decimal.handling.mode=precise`)", "bytes", "JxE=", _DECIMAL, _NUMERIC, iceberg="decimal(12, 2)"
    ),
    Row("decimal without a precision", "bytes", "JxE=", _DECIMAL, {"scale": "2"}, iceberg="decimal(38, 2)"),
    Row(
        "numeric without a scale, money in some sources",
        "struct",
        {"scale": 3, "value": "JxE="},
        f"{_DEBEZIUM}data.VariableScaleDecimal",
        inner=_VARIABLE,
        iceberg="string",
    ),
    Row("numeric (`decimal.handling.mode=string`)", "string", "100.01", iceberg="string"),
    Row("numeric (`decimal.handling.mode=double`)", "float64", 100.01, iceberg="double"),
    Row("date (`time.precision.mode` adaptive)", "int32", 20455, f"{_TIME}Date", iceberg="date"),
    Row("date (connect)", "int32", 20455, f"{_CONNECT}Date", iceberg="date"),
    Row("date (isostring)", "string", "2026-01-02Z", f"{_TIME}IsoDate", iceberg="date"),
    Row("time(3) (adaptive)", "int32", 11045500, f"{_TIME}Time", iceberg="time"),
    Row("time (connect)", "int32", 11045500, f"{_CONNECT}Time", iceberg="time"),
    Row(
        "time (adaptive, adaptive_time_microseconds, microseconds)",
        "int64",
        11045500001,
        f"{_TIME}MicroTime",
        iceberg="time",
    ),
    Row("time (nanoseconds)", "int64", 11045500001000, f"{_TIME}NanoTime", iceberg="time"),
    Row("time (isostring)", "string", "03:04:05.500001Z", f"{_TIME}IsoTime", iceberg="time"),
    Row("time with time zone", "string", "10:15:30Z", f"{_TIME}ZonedTime", iceberg="string"),
    Row("timestamp(3) (adaptive)", "int64", 1767323045678, f"{_TIME}Timestamp", iceberg="timestamp"),
    Row("timestamp (connect)", "int64", 1767323045678, f"{_CONNECT}Timestamp", iceberg="timestamp"),
    Row("timestamp (adaptive, microseconds)", "int64", 1767323045678901, f"{_TIME}MicroTimestamp", iceberg="timestamp"),
    Row("timestamp (nanoseconds)", "int64", 1767323045678901000, f"{_TIME}NanoTimestamp", iceberg="timestamp"),
    Row("timestamp (isostring)", "string", "2026-01-02T03:04:05.678901Z", f"{_TIME}IsoTimestamp", iceberg="timestamp"),
    Row(
        "timestamp with time zone",
        "string",
        "2026-01-02T03:04:05.678901Z",
        f"{_TIME}ZonedTimestamp",
        iceberg="timestamptz",
    ),
    Row("interval (`interval.handling.mode=numeric`)", "int64", 93600000000, f"{_TIME}MicroDuration", iceberg="long"),
    Row("interval (string)", "string", "P0Y0M1DT2H0M0S", f"{_TIME}Interval", iceberg="string"),
    Row("year", "int32", 2026, f"{_TIME}Year", iceberg="int"),
    Row("json, jsonb", "string", '{"k": 1}', f"{_DEBEZIUM}data.Json", iceberg="string"),
    Row("xml", "string", "<a/>", f"{_DEBEZIUM}data.Xml", iceberg="string"),
    Row("uuid", "string", "11111111-2222-3333-4444-555555555555", f"{_DEBEZIUM}data.Uuid", iceberg="uuid"),
    Row("enum", "string", "red", f"{_DEBEZIUM}data.Enum", {"allowed": "red,blue"}, iceberg="string"),
    Row("set of MySQL", "string", "a,b", f"{_DEBEZIUM}data.EnumSet", {"allowed": "a,b"}, iceberg="string"),
    Row("bit(n), bit varying", "bytes", "BQ==", f"{_DEBEZIUM}data.Bits", {"length": "3"}, iceberg="binary"),
    Row("hstore (`hstore.handling.mode=map`)", "map", {"a": "1"}, iceberg="map<string, string>"),
    Row("hstore (json)", "string", '{"a":"1"}', f"{_DEBEZIUM}data.Json", iceberg="string"),
    Row("text[]", "array", ["a", "b"], inner=(("element", "string"),), iceberg="list<string>"),
    Row("bigint[]", "array", [1, 2], inner=(("element", "int64"),), iceberg="list<long>"),
    Row(
        "geometry, geography",
        "struct",
        {"wkb": _WKB, "srid": 4326},
        f"{_DEBEZIUM}data.geometry.Geometry",
        inner=_SHAPE,
        iceberg="struct<wkb: binary, srid: int>",
    ),
    Row(
        "point",
        "struct",
        {"x": 1.0, "y": 2.0, "wkb": _WKB, "srid": None},
        f"{_DEBEZIUM}data.geometry.Point",
        inner=_POINT,
        iceberg="struct<x: double, y: double, wkb: binary, srid: int>",
    ),
    Row("ltree", "string", "a.b", f"{_DEBEZIUM}data.Ltree", iceberg="string"),
    Row(
        "vector",
        "array",
        [1.0, 2.0],
        f"{_DEBEZIUM}data.DoubleVector",
        inner=(("element", "float64"),),
        iceberg="list<double>",
    ),
]


def envelope_schema(rows: list[tuple[str, Row]]) -> dict[str, Any]:
    """The schema of a JSON message whose row has these fields."""
    fields = [row.connect(name) for name, row in rows]
    images = [
        {"type": "struct", "fields": fields, "optional": True, "name": "t.Value", "field": f}
        for f in ("before", "after")
    ]
    source = [{"type": "string", "optional": False, "field": "connector"}, {"type": "int64", "field": "ts_ms"}]
    others = [
        {"type": "struct", "fields": source, "optional": False, "name": "t.Source", "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    return {"type": "struct", "fields": [*images, *others], "optional": False, "name": "t.Envelope"}


def avro_schema(rows: list[tuple[str, Row]]) -> dict[str, Any]:
    """The schema of an Avro message whose row has these fields."""
    fields = [{"name": name, "type": ["null", row.avro()], "default": None} for name, row in rows]
    value = {"type": "record", "name": "Value", "fields": fields}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "t",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


def target_of(columns: Mapping[str, IcebergType], envelope: Envelope, reading: Reading) -> TableTarget:
    """A table with these columns and no place."""
    schema = new_schema(columns.items()).model_dump_json() if columns else ""
    return TableTarget("t", schema, reading=reading, envelope=envelope)


def read_both(row: Row, column: IcebergType | None = None) -> Iterator[tuple[IcebergType, Changes]]:
    """The column's type that records ask for, and the change that is read into it, or into a column of another type: from
    JSON with its schema, from Avro.
    """
    change = {
        "before": None,
        "after": {"v": row.value},
        "op": "c",
        "ts_ms": 1,
        "source": {"connector": "c", "ts_ms": 1},
    }
    wrapped = {"schema": envelope_schema([("v", row)]), "payload": change}
    yield _read(json.dumps(wrapped, separators=(",", ":")).encode(), Reading(format="json"), column)
    schema, body = avro_schema([("v", row)]), io.BytesIO()
    written = {"before": None, "after": {"v": row.avro_value()}, "op": "c", "ts_ms": 1}
    parsed = fastavro.parse_schema(_without_logical(schema))
    fastavro.schemaless_writer(body, parsed, written)
    reading = Reading(format="avro", schemas=(("1", WriterSchema("avro", json.dumps(schema))),))
    yield _read(b"\0\0\0\0\1" + body.getvalue(), reading, column)


def _without_logical(node: Any) -> Any:
    """The schema for a writer that gets its decimals as bytes."""
    if isinstance(node, list):
        return [_without_logical(one) for one in node]
    if isinstance(node, dict):
        return {key: _without_logical(one) for key, one in node.items() if key != "logicalType"}
    return node


def _read(value: bytes, reading: Reading, column: IcebergType | None) -> tuple[IcebergType, Changes]:
    records = {"value": pa.array([value], pa.binary())}
    found = read_envelope(target_of({}, Envelope("debezium"), reading), records)
    assert not found.decoded.mismatches, found.decoded.mismatches
    kind = found.decoded.requested_fields[()]["v"]
    return kind, read_envelope(target_of({"v": column or kind}, Envelope("debezium"), reading), records)


_INTRODUCTION = """\
# Debezium types

This page lists the column type of each source type, for JSON with its schema and for Avro. `make docs` generates the
table from the decoders, and a test verifies that both formats agree. See also [change data](../guides/cdc.md) and
[envelopes](envelopes.md).

| source column | Kafka Connect | name | Iceberg |
|---|---|---|---|"""
_NOTES = """
- A value that the type cannot represent makes its record a bad record: `infinity` as a timestamp, more digits than 38.
- Dates and timestamps have the years 1 to 9999, in UTC; others are out of range, including `infinity` as a date, for
  which Debezium writes a day millions of years away.
- A number with its own scale is a string of plain digits, without an exponent: `500` for the value 5 with the scale -2.
  In a key column trailing zeros of the fraction are removed, so that equal numbers are one key. A scale that adds more
  than 1,000 zeros is out of range.
- `NaN`, `Infinity` and `-Infinity` of `real` and `double precision` are kept: Kafka Connect's converter writes them as
  JSON strings, and the schema in the message defines them as numbers. In JSON without a schema they are strings, a type
  mismatch in a number column.
- Times are truncated to microseconds, towards the past, the precision of Iceberg's time types: the seventh digit of SQL
  Server's `datetime2`, `time` and `datetimeoffset` (their default precision), and nanoseconds of other sources. A
  column declared with the encoded type keeps all digits: `columns: {placed: long}` for numbers, `string` for strings.
  Use it for key columns, because two keys that differ by less than a microsecond would become one key.
- MySQL's `time` is a duration: a negative duration, or a duration of 24 hours or more, makes a bad record, and so does
  PostgreSQL's `24:00:00`. Declare such a column with the encoded type, `columns: {lasted: long}`: microseconds, which
  may be negative.
- A decimal with a negative scale, such as Oracle's `NUMBER(5,-2)`, is a decimal without a fraction, `decimal(7,0)`.
  With a scale above 38 it remains `binary`, its unscaled number: set `decimal.handling.mode=string` at the connector.
- `sparsevec` in JSON is `struct<dimensions: int, vector: map<int, double>>`, from position to value; in Avro a list of
  structs with `key` and `value`. Other maps with keys other than strings are handled alike: [Kafka
  Connect](connect.md#maps).
- A `Decimal` in a column declared as `string` is stored as its digits, even with more than 38 digits.
- A decimal without a declared scale is a string of its digits; it may be declared as `decimal(p,s)`.
- `binary.handling.mode` base64, base64-url-safe and hex are strings, and remain strings.
- Local timestamps in a column with a `zone` are times of that zone: [Kafka Connect](connect.md#times-without-a-zone).
- JSON **without** a schema has no types: numbers are `long` or `double`, texts `string`. Times are numbers, and
  decimals are base64 of unknown scale. Declare times with their unit (`columns: {placed: timestamp(us)}`), set
  `decimal.handling.mode=string` at the connector, or use Avro or JSON with its schema.

## Unsigned numbers

With `bigint.unsigned.handling.mode=long`, the connector's default, MySQL's `BIGINT UNSIGNED` is a Java long: a number
from 2⁶³ on is written as a negative number, 18446744073709551615 as -1. The message shows the real number only if the
connector adds the type of the source's column:

```properties
datatype.propagate.source.type=.+[.]BIGINT UNSIGNED.*
```

- With the parameter `__debezium.source.column.type` in the schema (JSON with its schema, Avro, JSON Schema, Protobuf) a
  new column is a `decimal(20,0)` with the real number, at every depth, as a key and in both images of a change.
- An existing `long` column stores the numbers up to 2⁶³ - 1. A larger number makes a bad record (`out_of_range`), whose
  message names a column for it.
- Without the parameter such numbers cannot be distinguished from negative numbers, and are stored as negative. Set
  `bigint.unsigned.handling.mode=precise`, or propagate the type.
- `INT UNSIGNED` and smaller types fit the Connect types that the connector chooses for them.
"""


def page() -> str:
    """The page as it should be."""
    return "\n".join([_INTRODUCTION, *_lines(), _NOTES])


def _lines() -> Iterator[str]:
    for row in ROWS:
        kinds = [spell(kind) for kind, _ in read_both(row)]
        assert len(set(kinds)) == 1, (row.words, kinds)
        short = row.name.removeprefix(_DEBEZIUM).removeprefix(_CONNECT)
        yield f"| {row.words} | {row.kind} | {f'`{short}`' if short else ''} | `{kinds[0]}` |"


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
