"""Avro records: bytes and their writer's schema to values, and what becomes of them (docs/reference/avro.md)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

from frazil_verify.model import connect_types, times
from frazil_verify.model.faults import Fault, Unreadable
from frazil_verify.model.json_values import How
from frazil_verify.model.rows import Outcome, Walk
from frazil_verify.model.settings import Path, Settings, Table
from frazil_verify.model.types import MapOf, Plain
from frazil_verify.model.written import (
    BINARY,
    INT,
    LONG,
    STRING,
    Anything,
    Written,
    rescued_of,
    timestamp,
    value_of,
)

Schema = Any
_PLAIN = {"boolean", "int", "long", "float", "double", "bytes", "string"}
_NUMBERS = {
    "date": Plain("date"),
    "time-millis": Plain("time"),
    "time-micros": Plain("time"),
    "timestamp-millis": Plain("timestamptz"),
    "timestamp-micros": Plain("timestamptz"),
    "local-timestamp-millis": Plain("timestamp"),
    "local-timestamp-micros": Plain("timestamp"),
}


@dataclass(frozen=True, slots=True)
class AvroNode:
    """A value with its schema; of a union the branch that it has."""

    schema: Schema
    value: Any

    @property
    def is_null(self) -> bool:
        """See Node."""
        return self.value is None

    @property
    def has_type(self) -> bool:
        """See Node. A schema has the types of all columns, whatever the value is."""
        return self.value is not None

    @property
    def levels(self) -> int:
        """See Node."""
        return 0

    def members(self) -> Sequence[tuple[str, AvroNode]] | None:
        """See Node."""
        if _kind(self.schema) != "record":
            return None
        return [(part["name"], self.value[part["name"]]) for part in self.schema["fields"]]

    def elements(self) -> Sequence[AvroNode] | None:
        """See Node."""
        return list(self.value) if _kind(self.schema) == "array" else None

    def entries(self, kind: MapOf) -> Sequence[tuple[AvroNode, AvroNode]] | None:  # noqa: ARG002  (keys are text)
        """See Node."""
        if _kind(self.schema) != "map":
            return None
        return [(AvroNode("string", key), value) for key, value in self.value]

    def plain(self, kind: Plain, how: How) -> Any:
        """See Node."""
        if _kind(self.schema) in ("record", "array", "map"):
            raise Fault("type_mismatch")
        return value_of(written_of(self.schema, self.value), kind, how)

    def own_faults(self) -> Sequence[str]:
        """See Node."""
        return ()

    def inner_faults(self) -> Sequence[str]:
        """See Node."""
        return ()

    def unfit(self, _: str, /) -> tuple[Sequence[tuple[Path, AvroNode, tuple[str, ...]]], bool]:
        """See Node."""
        return (), True

    def rescued(self) -> Any:
        """See Node."""
        if _kind(self.schema) in ("record", "array", "map"):
            return Anything()
        return rescued_of(written_of(self.schema, self.value))


def outcome_of(settings: Settings, table: Table, value: bytes | None, schemas: Mapping[int, str]) -> Outcome:
    """Returns what becomes of a record's value. schemas: texts by id."""
    try:
        schema, body = schema_and_body(value, schemas)
        root = read_avro(parsed(schema), body)
    except Unreadable as fault:
        return Outcome.dead(fault, "*")
    return Walk(settings, table).run(root)


def schema_and_body(value: bytes | None, schemas: Mapping[int, str]) -> tuple[str, bytes]:
    """Returns the schema and the body of a value in Confluent's wire format."""
    if value is None:
        raise Unreadable("tombstone")
    if len(value) < 5 or value[0] != 0:
        raise Unreadable("no_wire_format", "malformed")
    (number,) = struct.unpack(">I", value[1:5])
    if number not in schemas:
        raise Unreadable("unknown_schema_id")
    return schemas[number], value[5:]


@cache
def parsed(text: str) -> Schema:
    """Returns a schema with its names replaced by what they name."""
    return _resolved(json.loads(text), {})


def _resolved(schema: Schema, known: dict[str, Schema]) -> Schema:
    if isinstance(schema, str):
        return known.get(schema, schema)
    if isinstance(schema, list):
        return [_resolved(branch, known) for branch in schema]
    made = dict(schema)
    if made["type"] in ("record", "enum", "fixed"):
        known[made["name"]] = made
    if made["type"] == "record":
        made["fields"] = [{**part, "type": _resolved(part["type"], known)} for part in made["fields"]]
    elif made["type"] == "array":
        made["items"] = _resolved(made["items"], known)
    elif made["type"] == "map":
        made["values"] = _resolved(made["values"], known)
    return made


def _kind(schema: Schema) -> str:
    return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else str(schema["type"])


def read_avro(schema: Schema, body: bytes) -> AvroNode:
    """Returns the value of a body.

    Raises: Unreadable where the body has none, or more.
    """
    reader = _Reader(body)
    result = reader.value(schema)
    if reader.at != len(body):
        raise Unreadable("malformed")
    return result


class _Reader:
    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def value(self, schema: Schema) -> AvroNode:
        """Reads one value."""
        kind = _kind(schema)
        if kind == "union":
            branch = self._long()
            if not 0 <= branch < len(schema):
                raise Unreadable("malformed")
            return self.value(schema[branch])
        if kind == "record":
            return AvroNode(schema, {part["name"]: self.value(part["type"]) for part in schema["fields"]})
        if kind == "array":
            return AvroNode(schema, self._blocks(lambda: self.value(schema["items"])))
        if kind == "map":
            entries = self._blocks(lambda: (self._text(), self.value(schema["values"])))
            if len({key for key, _ in entries}) < len(entries):
                raise Unreadable("duplicate_key")
            return AvroNode(schema, entries)
        return AvroNode(schema, self._plain(kind, schema))

    def _plain(self, kind: str, schema: Schema) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            result = self._bytes(1)[0]
            if result > 1:
                raise Unreadable("malformed")
            return result == 1
        if kind in ("int", "enum"):
            return self._int(schema["symbols"] if kind == "enum" else None)
        if kind == "long":
            return self._long()
        if kind in ("float", "double"):
            code, size = ("<f", 4) if kind == "float" else ("<d", 8)
            return struct.unpack(code, self._bytes(size))[0]
        if kind == "fixed":
            return self._bytes(schema["size"])
        return self._text() if kind == "string" else self._bytes(self._long())

    def _int(self, symbols: Sequence[str] | None) -> int | str:
        number = self._long()
        if not -(2**31) <= number < 2**31 or (symbols is not None and not 0 <= number < len(symbols)):
            raise Unreadable("malformed")
        return number if symbols is None else symbols[number]

    def _blocks(self, read: Any) -> list[Any]:
        result: list[Any] = []
        while True:
            count = self._long()
            if count == 0:
                return result
            if count < 0:
                count = -count
                self._long()
            if count > len(self.body):
                raise Unreadable("malformed", "too_large")
            result += [read() for _ in range(count)]

    def _text(self) -> str:
        try:
            return self._bytes(self._long()).decode()
        except UnicodeDecodeError:
            raise Unreadable("invalid_text", "malformed") from None

    def _bytes(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.body):
            raise Unreadable("malformed", "too_large", "invalid_text")
        self.at += size
        return self.body[self.at - size : self.at]

    def _long(self) -> int:
        number = shift = 0
        while True:
            byte = self._bytes(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= 70:
                raise Unreadable("malformed")
        if number >= 2**64:
            raise Unreadable("malformed")
        return (number >> 1) ^ -(number & 1)


def written_of(schema: Schema, value: Any) -> Written:
    """Returns a plain value with the type of a new column, and the type that it is encoded as."""
    kind = _kind(schema)
    details = schema if isinstance(schema, dict) else {}
    base = _base(kind, details)
    name = details.get("connect.name")
    if name is not None:
        named = connect_types.written_of(name, base, value, details.get("connect.parameters", {}))
        if named is not None:
            return named
    logical = details.get("logicalType")
    if logical is None:
        return Written.of(base, value)
    if logical == "decimal":
        return _decimal(details, base, value)
    if logical == "uuid":
        return _uuid(base, value)
    if (kind, logical) in _LOGICAL:
        return Written(_NUMBERS[logical], _time_of(logical, value), base, value)
    return Written.of(base, value)


_LOGICAL = {
    ("int", "date"), ("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-millis"),
    ("long", "timestamp-micros"), ("long", "local-timestamp-millis"), ("long", "local-timestamp-micros"),
}  # fmt: skip


def _base(kind: str, details: Mapping[str, Any]) -> Plain:
    if kind == "fixed":
        return Plain("fixed", (details["size"],))
    return {"bytes": BINARY, "string": STRING, "enum": STRING, "int": INT, "long": LONG}.get(kind, Plain(kind))


def _time_of(logical: str, value: int) -> Any:
    if logical == "date":
        return times.day_of(value)
    unit = "ms" if logical.endswith("millis") else "us"
    if logical.startswith("time-"):
        return times.time_since_midnight(Decimal(value), unit)
    return timestamp(value * (1000 if unit == "ms" else 1), not logical.startswith("local"))


def _decimal(details: Mapping[str, Any], base: Plain, value: bytes) -> Written:
    precision, scale = details["precision"], details.get("scale", 0)
    if precision > 38 or scale > precision:
        return Written.of(base, value)
    if not value:
        raise Fault("malformed")
    number = Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
    if abs(number) >= Decimal(10) ** (precision - scale):
        raise Fault("out_of_range")
    return Written(Plain("decimal", (precision, scale)), number, base, value)


def _uuid(base: Plain, value: Any) -> Written:
    if base == STRING:
        try:
            if len(value) != 36:
                raise ValueError(value)
            return Written(Plain("uuid"), UUID(value).bytes, base, value)
        except ValueError:
            raise Fault("type_mismatch") from None
    return Written(Plain("uuid"), value, base, value) if base.args == (16,) else Written.of(base, value)
