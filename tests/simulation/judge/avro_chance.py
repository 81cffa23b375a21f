"""Tables and records of Avro by chance: several versions of a schema in one topic, and columns of other types."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastavro import parse_schema, schemaless_writer

from frazil_verify.model.connect_types import CONNECT, DEBEZIUM
from frazil_verify.model.settings import Column, Settings
from tests.simulation.judge.chance import Chance
from tests.simulation.judge.json_chance import METADATA, ZONES

Schema = Any
_NAMES = ("a", "b", "c", "user", "userId", "lineCount", "size", "x1", "items", "tags", "n0", "N1", "_id", "größe")
_COLUMNS = {
    "int": ("long", "int", "double", "decimal(9,2)", "string", "date", "time(s)", "timestamptz(s)", "boolean"),
    "long": ("int", "float", "double", "decimal(20,0)", "string", "timestamptz(us)", "timestamp(ms)"),
    "float": ("double", "float", "long"),
    "double": ("float", "double", "long", "decimal(9,2)"),
    "boolean": ("boolean", "int", "string"),
    "string": ("string", "binary", "uuid", "long"),
    "bytes": ("binary", "string", "fixed[2]", "uuid"),
    "date": ("date", "timestamp", "timestamptz", "int"),
    "timestamp-millis": ("timestamptz", "long", "timestamp"),
    "timestamp-micros": ("timestamptz", "long", "timestamp"),
    "local-timestamp-micros": ("timestamp", "timestamptz", "long"),
    "time-micros": ("time", "long"),
    "uuid": ("uuid", "string"),
    "decimal": ("decimal(12,2)", "decimal(12,4)", "decimal(9,1)", "double", "long", "binary"),
    f"{CONNECT}Timestamp": ("timestamp", "timestamptz", "long"),
    f"{DEBEZIUM}Timestamp": ("timestamp", "timestamptz", "long"),
    f"{DEBEZIUM}MicroTimestamp": ("timestamp", "timestamptz", "long"),
    f"{DEBEZIUM}NanoTimestamp": ("timestamp", "timestamptz", "long"),
    f"{DEBEZIUM}IsoTimestamp": ("timestamp", "timestamptz", "string"),
    f"{DEBEZIUM}ZonedTimestamp": ("timestamptz", "timestamp", "string"),
    f"{DEBEZIUM}MicroTime": ("time", "long"),
    f"{CONNECT}Date": ("date", "int"),
}
"""Kinds of fields with the columns that are declared for them, some of which store few values."""


@dataclass(frozen=True)
class Field:
    """A field of a version. draw: makes a value for fastavro."""

    name: str
    kind: str
    schema: Schema
    draw: Callable[[], Any]


@dataclass
class AvroChance:
    """One table with the versions of its schema."""

    chance: Chance
    schemas: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chance = self.chance
        self._records = 0
        first = [self._field(name, 0) for name in chance.some(_NAMES, 0.6)] or [self._field("a", 0)]
        self._versions = [first]
        for _ in range(chance.upto(2)):
            self._versions.append(self._next(self._versions[-1]))
        if chance.maybe(0.3):
            chance.one(self._versions).append(self._field("extra", 0))
        self.settings = self._settings(first)
        self._parsed = [parse_schema(self._schema(version)) for version in self._versions]
        self._ids: list[int] = []

    def register(self, register: Callable[[str, str], int]) -> None:
        """Gives the versions their ids. register: a schema's kind and text."""
        for version in self._versions:
            text = json.dumps(self._schema(version))
            number = register("avro", text)
            self._ids.append(number)
            self.schemas[number] = text

    def record(self) -> bytes | None:
        """Returns a record's value."""
        chance = self.chance
        place = chance.upto(len(self._versions) - 1)
        version = self._versions[place]
        out = io.BytesIO()
        schemaless_writer(out, self._parsed[place], {part.name: part.draw() for part in version})
        raw = b"\0" + struct.pack(">I", self._ids[place]) + out.getvalue()
        if not chance.maybe(0.01):
            return raw
        return chance.one((raw[: chance.upto(len(raw))], raw + b"\1", b"\0\0\0\0\x63" + raw[5:], b"", b"{}", None))

    def _schema(self, version: list[Field]) -> Schema:
        return {"type": "record", "name": "R", "fields": [{"name": one.name, "type": one.schema} for one in version]}

    def _settings(self, fields: list[Field]) -> Settings:
        chance = self.chance
        columns = {}
        for one in fields:
            known = _COLUMNS.get(one.kind)
            if known is not None and chance.maybe(0.5):
                kind = chance.one(known)
                is_time = kind in ("timestamp", "timestamptz")
                zone = chance.one(ZONES) if is_time and chance.maybe(0.6) else ""
                columns[one.name] = Column(kind, coerce=kind == "string" and chance.maybe(0.5), zone=zone)
        unknown = chance.one(("add", "add", "add", "drop", "rescue"))
        evolution = chance.one(("evolve", "evolve", "add_only", "freeze"))
        if unknown == "rescue" or evolution == "freeze":
            columns = columns or {"id": Column("long")}
        out = [one.name for one in fields if one.name not in columns and chance.maybe(0.06)]
        return Settings(
            columns=columns,
            unknown_fields=unknown,
            schema_evolution=evolution,
            rescue=chance.maybe(0.4),
            exclude=tuple((name,) for name in out),
            column_case=chance.one(("keep", "keep", "lower", "snake")),
            metadata=METADATA,
        )

    def _next(self, version: list[Field]) -> list[Field]:
        """Returns another version: fields are gone, new, or wider."""
        chance, found = self.chance, list[Field]()
        for one in version:
            if chance.maybe(0.1):
                continue
            wider = {"int": "long", "float": "double"}.get(one.kind)
            found.append(self._of_kind(one.name, wider) if wider is not None and chance.maybe(0.4) else one)
        names = [name for name in _NAMES if name not in {one.name for one in version}]
        return [*found, *(self._field(name, 0) for name in chance.some(names, 0.2))]

    def _field(self, name: str, level: int) -> Field:
        chance = self.chance
        kinds = (*_COLUMNS, "enum", "fixed", "array", "map", "record") if level < 2 else tuple(_COLUMNS)
        return self._of_kind(name, chance.one(kinds), level)

    def _of_kind(self, name: str, kind: str, level: int = 0) -> Field:
        chance = self.chance
        schema, draw = self._made(kind, level)
        if chance.maybe(0.6):
            share = chance.one((0.05, 0.5))
            return Field(name, kind, ["null", schema], lambda: None if chance.maybe(share) else draw())
        return Field(name, kind, schema, draw)

    def _made(self, kind: str, level: int) -> tuple[Schema, Callable[[], Any]]:
        chance = self.chance
        if kind in ("array", "map"):
            inner = self._field("inner", level + 1)
            if kind == "array":
                return {"type": "array", "items": inner.schema}, lambda: [inner.draw() for _ in range(chance.upto(3))]
            return (
                {"type": "map", "values": inner.schema},
                lambda: {f"k{chance.upto(9)}": inner.draw() for _ in range(chance.upto(3))},
            )
        if kind == "record":
            parts = [self._field(name, level + 1) for name in ("p", "q", "lineNo")]
            self._records += 1
            schema = {"type": "record", "name": f"P{self._records}"}
            schema["fields"] = [{"name": one.name, "type": one.schema} for one in parts]  # type: ignore[assignment]
            return schema, lambda: {one.name: one.draw() for one in parts}
        if kind in ("enum", "fixed"):
            self._records += 1
            if kind == "enum":
                return (
                    {"type": "enum", "name": f"E{self._records}", "symbols": ["RED", "BLUE"]},
                    lambda: chance.one(("RED", "BLUE")),
                )
            return {"type": "fixed", "name": f"F{self._records}", "size": 2}, lambda: chance.one((b"\0\xff", b"ab"))
        return _plain(chance, kind)


def _plain(chance: Chance, kind: str) -> tuple[Schema, Callable[[], Any]]:
    if kind == "decimal":
        schema = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
        return _raw(schema), lambda: _bytes(chance.one((0, 1250, 1225, 1200, -99, 999_999_999, chance.upto(10**8))))
    if kind.startswith((CONNECT, DEBEZIUM)):
        return _named(chance, kind)
    if kind in _DRAWS:
        return kind, lambda: _DRAWS[kind](chance)
    base = "string" if kind == "uuid" else "int" if kind == "date" else "long"
    return _raw({"type": base, "logicalType": kind}), lambda: _logical(chance, kind)


def _raw(schema: dict[str, Any]) -> Schema:
    """Returns the schema under a name of its own for the logical type, which fastavro is not to convert."""
    return schema


def _bytes(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _logical(chance: Chance, kind: str) -> Any:
    if kind == "uuid":
        digits = "".join(chance.one("0123456789abcdef") for _ in range(32))
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    if kind == "date":
        return chance.between(-30000, 60000)
    if kind == "time-micros":
        return chance.upto(86_399_999_999)
    return chance.between(-(2**31), 2**32) * (1_000 if kind.endswith("millis") else 1_000_000) + chance.upto(999)


def _named(chance: Chance, name: str) -> tuple[Schema, Callable[[], Any]]:
    short = name.rpartition(".")[2]
    if short == "IsoTimestamp" or short == "ZonedTimestamp":
        return (
            {"type": "string", "connect.name": name},
            lambda: (
                f"20{chance.between(10, 36)}-0{chance.between(1, 9)}-11T0{chance.upto(9)}:30:00.{chance.upto(999999):06}Z"
            ),
        )
    if short == "Date":
        return {"type": "int", "connect.name": name, "logicalType": "date"}, lambda: chance.between(-30000, 30000)
    if short == "MicroTime":
        return {"type": "long", "connect.name": name}, lambda: chance.upto(86_399_999_999)
    factor = {"Timestamp": 1_000, "MicroTimestamp": 1_000_000, "NanoTimestamp": 1_000_000_000}[short]
    schema: dict[str, Any] = {"type": "long", "connect.name": name, "connect.version": 1}
    if name.startswith(CONNECT):
        schema["logicalType"] = "timestamp-millis"
    return schema, lambda: chance.between(-(2**30), 2**31) * factor + chance.upto(factor - 1)


_DRAWS: dict[str, Callable[[Chance], Any]] = {
    "int": lambda chance: chance.one((0, -1, 2**31 - 1, -(2**31), 16777216, 16777217, 12345678, chance.upto(9999))),
    "long": lambda chance: chance.one((0, 2**53, 2**53 + 1, 2**31, -(2**63), 2**63 - 1, chance.upto(10**9))),
    "float": lambda chance: chance.one(
        (0.0, -0.0, 0.5, 1.5, float("nan"), float("inf"), struct.unpack("<f", b"\xcd\xcc\xcc=")[0])
    ),
    "double": lambda chance: chance.one((0.0, 0.1, 0.5, 1e300, float("nan"), -1.0, chance.share())),
    "boolean": lambda chance: chance.maybe(0.5),
    "string": lambda chance: chance.one(("", "text", "é 😀", "12", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6")),
    "bytes": lambda chance: chance.one((b"", b"\0\xff", b"text", b"0123456789abcdef", b"\xca")),
}
