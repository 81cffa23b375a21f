"""Producers of the three registry formats, each through ten versions of its schema, and what a table must make of what
they wrote.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from frazil.registry.protobuf import compile_proto

Row = dict[str, Any]
VERSIONS = 10
_AT = datetime(2026, 1, 31, 12, 30, 0, 123000, tzinfo=UTC)


@dataclass(frozen=True)
class Written:
    """The bytes of a value without its frame, and the row that they must become; absent columns are null."""

    body: bytes
    row: Row


@dataclass(frozen=True)
class Writer:
    """One format: its name in a pipeline file and in the registry, the text of each version, and how to write."""

    format: str
    kind: str
    text: Callable[[int], str]
    write: Callable[[int, int], Written]
    has_indexes: bool = False

    def frame(self, schema_id: int, body: bytes) -> bytes:
        """The record's value: Confluent's wire format."""
        return b"\x00" + struct.pack(">i", schema_id) + (b"\x00" if self.has_indexes else b"") + body


# ---- Avro: fields added, widened, moved, removed and renamed, at the top and inside


def _avro_text(version: int) -> str:
    return json.dumps({"type": "record", "name": "Event", "namespace": "shop", "fields": _avro_fields(version)})


def _avro_fields(version: int) -> list[dict[str, Any]]:
    at = [_field("x", "int" if version < 6 else "long"), *([_optional("y", "string")] if version >= 6 else [])]
    renamed = _optional("c", "string") if version < 9 else {**_optional("note", "string"), "aliases": ["c"]}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    since: list[tuple[range, dict[str, Any]]] = [
        (range(1, 99), _field("id", "long")),
        (range(1, 99), _field("a", "int" if version < 3 else "long")),
        (range(1, 99), _field("b", "float" if version < 4 else "double")),
        (range(1, 7), _field("s", "string")),
        (range(2, 99), renamed),
        (range(5, 99), _field("loc", {"type": "record", "name": "Loc", "fields": at})),
        (range(7, 99), _field("tags", {"type": "array", "items": "int" if version < 8 else "long"})),
        (range(8, 99), _field("m", {"type": "map", "values": "double"})),
        (range(VERSIONS, 99), _field("d", decimal)),
        (range(VERSIONS, 99), _field("e", {"type": "enum", "name": "Colour", "symbols": ["red", "green"]})),
        (range(VERSIONS, 99), _field("at", {"type": "long", "logicalType": "timestamp-millis"})),
    ]
    fields = [field for versions, field in since if version in versions]
    return fields if version < 5 else fields[::-1]


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _optional(name: str, kind: str) -> dict[str, Any]:
    return {**_field(name, ["null", kind]), "default": None}


def _write_avro(version: int, number: int) -> Written:
    big = 2**40 + number
    row: Row = {"id": number, "a": number if version < 3 else big, "b": number / 4 if version < 4 else number / 3}
    record = dict(row)
    if version < 7:
        record["s"] = row["s"] = f"s{number}"
    if version >= 2:
        row["c"] = record["note" if version >= 9 else "c"] = None if number % 3 else f"c{number}"
    if version >= 5:
        loc: Row = {"x": number if version < 6 else big}
        record["loc"] = loc if version < 6 else {**loc, "y": f"y{number}"}
        row["loc"] = {"y": None, **record["loc"]}
    if version >= 7:
        record["tags"] = row["tags"] = [number, number + 1 if version < 8 else big][: number % 3]
    if version >= 8:
        record["m"] = row["m"] = {f"k{n}": n / 7 for n in range(number % 3)}
    if version >= VERSIONS:
        more = {"d": Decimal(number) / 100, "e": ("red", "green")[number % 2], "at": _AT}
        record |= more
        row |= more
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(_avro_text(version))), record)
    return Written(body.getvalue(), row)


# ---- Protobuf: fields added, a message at a time

_PROTO = [
    "int64 id = 1; int32 a = 2;",
    "string s = 3;",
    "double x = 4;",
    "repeated int32 tags = 5;",
    "message In { int64 q = 1; } In inner = 6;",
    "map<string, int64> m = 7;",
    "optional bool flag = 8;",
    "oneof pick { string t = 9; int64 u = 10; }",
    "enum Colour { RED = 0; GREEN = 1; } Colour colour = 11;",
    "google.protobuf.Timestamp at = 12;",
]


def _proto_text(version: int) -> str:
    head = 'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; message Event { '
    return head + " ".join(_PROTO[:version]) + " }"


@lru_cache
def _message_of(version: int) -> Any:
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(compile_proto(_proto_text(version)))
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Event"))


def _write_protobuf(version: int, number: int) -> Written:
    message = _message_of(version)(id=number, a=number % 5)
    row: Row = {"id": number, "a": number % 5}
    steps: list[Callable[[], None]] = [
        lambda: _set(message, row, "s", f"s{number}"),
        lambda: _set(message, row, "x", number / 3),
        lambda: _extend(message, row, [number, -number][: number % 3]),
        lambda: _nest(message, row, number),
        lambda: _fill(message, row, {f"k{n}": 2**40 + n for n in range(number % 3)}),
        lambda: _set(message, row, "flag", None if number % 3 == 0 else number % 2 == 0),
        lambda: _pick(message, row, number),
        lambda: _set(message, row, "colour", number % 2, ("RED", "GREEN")[number % 2]),
        lambda: _stamp(message, row),
    ]
    for step in steps[: version - 1]:
        step()
    return Written(message.SerializeToString(), row)


def _set(message: Any, row: Row, name: str, value: Any, stored: Any = None) -> None:
    if value is not None:
        setattr(message, name, value)
    row[name] = value if stored is None else stored


def _extend(message: Any, row: Row, tags: list[int]) -> None:
    message.tags.extend(tags)
    row["tags"] = tags


def _nest(message: Any, row: Row, number: int) -> None:
    row["inner"] = None
    if number % 4:
        message.inner.q = number
        row["inner"] = {"q": number}


def _fill(message: Any, row: Row, entries: Mapping[str, int]) -> None:
    for name, value in entries.items():
        message.m[name] = value
    row["m"] = dict(entries)


def _pick(message: Any, row: Row, number: int) -> None:
    row |= {"t": f"t{number}", "u": None} if number % 2 else {"t": None, "u": number}
    if number % 2:
        message.t = row["t"]
    else:
        message.u = number


def _stamp(message: Any, row: Row) -> None:
    message.at.FromDatetime(_AT)
    row["at"] = _AT


# ---- JSON Schema: properties added

_PROPERTIES: list[dict[str, Any]] = [
    {"id": {"type": "integer"}, "a": {"type": "number"}},
    {"s": {"type": "string"}},
    {"at": {"type": "string", "format": "date-time"}},
    {"obj": {"type": "object", "properties": {"p": {"type": "integer"}}}},
    {"obj": {"type": "object", "properties": {"p": {"type": "integer"}, "q": {"type": "string"}}}},
    {"arr": {"type": "array", "items": {"type": "number"}}},
    {"flag": {"type": ["null", "boolean"]}},
    {"m": {"type": "object", "additionalProperties": {"type": "integer"}}},
    {"uid": {"type": "string", "format": "uuid"}},
    {"day": {"type": "string", "format": "date"}},
]
_UUID = "12345678-1234-5678-1234-567812345678"


def _json_text(version: int) -> str:
    properties: dict[str, Any] = {}
    for more in _PROPERTIES[:version]:
        properties |= more
    return json.dumps({"type": "object", "title": "Event", "properties": properties})


def _write_json(version: int, number: int) -> Written:
    record: Row = {"id": number, "a": number if number % 2 else number / 4}
    row: Row = {"id": number, "a": float(record["a"])}
    parts: list[tuple[Row, Row]] = [
        ({"s": f"s{number}"}, {}),
        ({"at": "2026-01-31T12:30:00.123Z"}, {"at": _AT}),
        ({"obj": {"p": number}}, {"obj": {"p": number, "q": None}}),
        ({"obj": {"p": number, "q": "q"}}, {}),
        ({"arr": [number / 2] * (number % 3)}, {}),
        ({"flag": None if number % 3 == 0 else True}, {}),
        ({"m": {"k": number}}, {}),
        ({"uid": _UUID}, {}),
        ({"day": "2026-01-31"}, {"day": date(2026, 1, 31)}),
    ]
    for written, stored in parts[: version - 1]:
        record |= written
        row |= {**written, **stored}
    return Written(json.dumps(record).encode(), row)


WRITERS = (
    Writer("avro", "AVRO", _avro_text, _write_avro),
    Writer("protobuf", "PROTOBUF", _proto_text, _write_protobuf, has_indexes=True),
    Writer("json_schema", "JSON", _json_text, _write_json),
)
