"""Producers of the three registry formats, each through the same ten changes of its schema, and what a table must make of
what they wrote.

Every format writes the records of `_record`; what a change is called in it, its schema reports: Avro renames by an
alias, the others by a field of another name.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from frazil_protobuf.protoc import compile_proto

Row = dict[str, Any]
ADD, WIDEN, WIDEN_FRACTIONS, REORDER, WIDEN_INSIDE = 2, 3, 4, 5, 6
REMOVE, WIDEN_ITEMS, RENAME, LOOSEN, DEFAULT = 7, 8, 9, 10, 11
"""The versions, by what is new in them."""
VERSIONS = DEFAULT
LATE = VERSIONS + 1
"""A version that nobody registers until all is over: its one field more is `late`."""
_NEVER = 99
_AT = datetime(2026, 1, 31, 12, 30, 0, 123000, tzinfo=UTC)


@dataclass(frozen=True)
class Written:
    """The bytes of a value without its frame, and the row that they must become; absent columns are null."""

    body: bytes
    row: Row


@dataclass(frozen=True)
class Writer:
    """One format: its name in a pipeline file and in the registry, the text of each version, and how to write.

    is_loosening: whether a column that the table requires becomes optional for its records, as LOOSEN asks.
    """

    format: str
    kind: str
    text: Callable[[int], str]
    write: Callable[[int, int], Written]
    has_indexes: bool = False
    is_loosening: bool = False

    def frame(self, schema_id: int, body: bytes) -> bytes:
        """The record's value: Confluent's wire format."""
        return b"\x00" + struct.pack(">i", schema_id) + (b"\x00" if self.has_indexes else b"") + body


def _record(version: int, number: int) -> Row:
    """What is written by a version of the schema, in every format."""
    big = 2**40 + number
    name = None if number % 3 else f"c{number}"
    is_there = version < LOOSEN or number % 2 == 1
    inside: Row = {"x": number} if version < WIDEN_INSIDE else {"x": big, "y": f"y{number}"}
    since: list[tuple[int, int, str, Any]] = [
        (1, _NEVER, "id", number),
        (1, WIDEN, "a", number),
        (WIDEN, _NEVER, "a", big),
        (1, WIDEN_FRACTIONS, "b", number / 4),
        (WIDEN_FRACTIONS, _NEVER, "b", number / 3),
        (1, _NEVER, "o", f"o{number}" if is_there else None),
        (1, REMOVE, "s", f"s{number}"),
        (ADD, RENAME, "c", name),
        (RENAME, _NEVER, "note", name),
        (REORDER, _NEVER, "loc", inside),
        (REMOVE, WIDEN_ITEMS, "tags", [number, number + 1][: number % 3]),
        (WIDEN_ITEMS, _NEVER, "tags", [number, big][: number % 3]),
        (WIDEN_ITEMS, _NEVER, "m", {f"k{n}": n / 7 for n in range(number % 3)}),
        (DEFAULT, _NEVER, "at", _AT),
        (LATE, _NEVER, "late", f"l{number}"),
    ]
    return {field: value for first, end, field, value in since if first <= version < end}


def _row(record: Row, **more: Any) -> Row:
    """The row of a record; inside, too, every member is there."""
    inside = {"loc": {"y": None, **record["loc"]}} if "loc" in record else {}
    return {**record, **inside, **more}


# ---- Avro


def _avro_text(version: int) -> str:
    return json.dumps({"type": "record", "name": "Event", "namespace": "shop", "fields": _avro_fields(version)})


def _avro_fields(version: int) -> list[dict[str, Any]]:
    at = [
        _field("x", "int" if version < WIDEN_INSIDE else "long"),
        *([_optional("y", "string")] if version >= WIDEN_INSIDE else []),
    ]
    renamed = _optional("c", "string") if version < RENAME else {**_optional("note", "string"), "aliases": ["c"]}
    decimal = {"type": "bytes", "logicalType": "decimal", "scale": 2}
    digits = 9 if version < WIDEN_FRACTIONS else 12
    since: list[tuple[int, int, dict[str, Any]]] = [
        (1, _NEVER, _field("id", "long")),
        (1, _NEVER, _field("a", "int" if version < WIDEN else "long")),
        (1, _NEVER, _field("b", "float" if version < WIDEN_FRACTIONS else "double")),
        (1, _NEVER, _field("d", {**decimal, "precision": digits})),
        (1, _NEVER, _field("o", "string") if version < LOOSEN else _optional("o", "string")),
        (1, REMOVE, _field("s", "string")),
        (ADD, _NEVER, renamed),
        (REORDER, _NEVER, _field("loc", {"type": "record", "name": "Loc", "fields": at})),
        (REMOVE, _NEVER, _field("tags", {"type": "array", "items": "int" if version < WIDEN_ITEMS else "long"})),
        (WIDEN_ITEMS, _NEVER, _field("m", {"type": "map", "values": "double"})),
        (DEFAULT, _NEVER, _field("at", {"type": "long", "logicalType": "timestamp-millis"})),
        (DEFAULT, _NEVER, _field("e", {"type": "enum", "name": "Colour", "symbols": ["red", "green"]})),
        (DEFAULT, _NEVER, {**_field("q", "int"), "default": 7}),
        (LATE, _NEVER, _field("late", "string")),
    ]
    fields = [field for first, end, field in since if first <= version < end]
    return fields if version < REORDER else fields[::-1]


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _optional(name: str, kind: str) -> dict[str, Any]:
    return {**_field(name, ["null", kind]), "default": None}


def _write_avro(version: int, number: int) -> Written:
    more: Row = {"d": Decimal(number if version < WIDEN_FRACTIONS else 10**9 + number) / 100}
    if version >= DEFAULT:
        more |= {"e": ("red", "green")[number % 2], "q": number}
    record = _record(version, number) | more
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(_avro_text(version))), record)
    row = _row(record)
    if version >= RENAME:  # Its column continues under the name that it had.
        row["c"] = row.pop("note")
    return Written(body.getvalue(), row)


# ---- Protobuf


def _proto_text(version: int) -> str:
    inside = "int32 x = 1;" if version < WIDEN_INSIDE else "string y = 2; int64 x = 1;"
    since: list[tuple[int, int, str]] = [
        (1, _NEVER, "int64 id = 1;"),
        (1, _NEVER, "int32 a = 2;" if version < WIDEN else "int64 a = 2;"),
        (1, _NEVER, "float b = 3;" if version < WIDEN_FRACTIONS else "double b = 3;"),
        (1, REMOVE, "string s = 4;"),
        (1, _NEVER, "string o = 5;" if version < LOOSEN else "optional string o = 5;"),
        (ADD, RENAME, "optional string c = 6;"),
        (RENAME, _NEVER, "optional string note = 6;"),
        (REORDER, _NEVER, f"message Loc {{ {inside} }} Loc loc = 7;"),
        (WIDEN_INSIDE, _NEVER, "oneof pick { string t = 8; int64 u = 9; }"),
        (REMOVE, _NEVER, "repeated int32 tags = 10;" if version < WIDEN_ITEMS else "repeated int64 tags = 10;"),
        (WIDEN_ITEMS, _NEVER, "map<string, double> m = 11;"),
        (DEFAULT, _NEVER, "google.protobuf.Timestamp at = 12;"),
        (DEFAULT, _NEVER, "enum Colour { RED = 0; GREEN = 1; } Colour e = 13;"),
        (DEFAULT, _NEVER, "int32 q = 14;"),  # Nobody ever sets it: Protobuf's own default is what it has.
        (LATE, _NEVER, "string late = 15;"),
    ]
    fields = [field for first, end, field in since if first <= version < end]
    body = " ".join(fields if version < REORDER else fields[::-1])
    return f'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; message Event {{ {body} }}'


@lru_cache
def _message_of(version: int) -> Any:
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(compile_proto(_proto_text(version)))
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Event"))


def _write_protobuf(version: int, number: int) -> Written:
    record = _record(version, number)
    row = _row(record)
    if version >= WIDEN_INSIDE:
        picked: Row = {"t": f"t{number}"} if number % 2 else {"u": number}
        record |= picked
        row |= {"t": None, "u": None, **picked}
    if version >= DEFAULT:
        record["e"] = number % 2
        row |= {"e": ("RED", "GREEN")[number % 2], "q": 0}
    at = record.pop("at", None)
    message = _message_of(version)(**{name: value for name, value in record.items() if value is not None})
    if at is not None:
        message.at.FromDatetime(at)
    return Written(message.SerializeToString(), row)


# ---- JSON Schema, with the types that Kafka Connect writes into it


def _json_text(version: int) -> str:
    of = {"int": ("integer", "int32"), "long": ("integer", "int64"), "float": ("number", "float32")}
    of["double"] = ("number", "float64")
    plain = {name: {"type": kind, "connect.type": connect} for name, (kind, connect) in of.items()}
    text = {"type": "string"}
    inside = {"x": plain["int"]} if version < WIDEN_INSIDE else {"x": plain["long"], "y": text}
    since: list[tuple[int, int, str, Row]] = [
        (1, _NEVER, "id", {"type": "integer"}),
        (1, _NEVER, "a", plain["int" if version < WIDEN else "long"]),
        (1, _NEVER, "b", plain["float" if version < WIDEN_FRACTIONS else "double"]),
        (1, _NEVER, "o", text),
        (1, REMOVE, "s", text),
        (ADD, RENAME, "c", {"type": ["null", "string"]}),
        (RENAME, _NEVER, "note", {"type": ["null", "string"]}),
        (
            REORDER,
            _NEVER,
            "loc",
            {"type": "object", "properties": inside},
        ),
        (REMOVE, _NEVER, "tags", {"type": "array", "items": plain["int" if version < WIDEN_ITEMS else "long"]}),
        (WIDEN_ITEMS, _NEVER, "m", {"type": "object", "additionalProperties": plain["double"]}),
        (DEFAULT, _NEVER, "at", {**text, "format": "date-time"}),
        (DEFAULT, _NEVER, "e", {"enum": ["red", "green"]}),
        (DEFAULT, _NEVER, "q", {"type": "integer", "default": 7}),
        (LATE, _NEVER, "late", text),
    ]
    named = [(name, kind) for first, end, name, kind in since if first <= version < end]
    required = ["id", "o"] if version < LOOSEN else ["id"]
    properties = dict(named if version < REORDER else named[::-1])
    return json.dumps({"type": "object", "title": "Event", "properties": properties, "required": required})


def _write_json(version: int, number: int) -> Written:
    record = _record(version, number)
    if version >= DEFAULT:
        record |= {"e": ("red", "green")[number % 2], "q": number}
    written = {name: value for name, value in record.items() if name != "o" or value is not None}
    return Written(json.dumps(written, default=datetime.isoformat).encode(), _row(record))


WRITERS = (
    Writer("avro", "AVRO", _avro_text, _write_avro, is_loosening=True),
    Writer("protobuf", "PROTOBUF", _proto_text, _write_protobuf, has_indexes=True, is_loosening=True),
    Writer("json_schema", "JSON", _json_text, _write_json),
)
