"""Rows of a source table by chance, as Kafka Connect writes them: alone or in Debezium's envelope, as JSON with its schema,
as JSON without one, or as Avro.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastavro import parse_schema, schemaless_writer

from frazil_verify.model.connect_types import CONNECT, DEBEZIUM
from frazil_verify.model.settings import Column, Settings
from tests.simulation.judge.chance import Chance
from tests.simulation.judge.json_chance import METADATA, ZONES

_NAMES = ("a", "b", "userId", "lineCount", "size", "x1", "tags", "n0", "N1", "größe")
_AVRO = {"int32": "int", "int64": "long", "float64": "double"}
_KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "int32": ("int32", ("long", "int")),
    "int64": ("int64", ("long", "decimal(20,0)", "int")),
    "boolean": ("boolean", ("boolean",)),
    "string": ("string", ("string", "long")),
    "float64": ("float64", ("double",)),
    f"{CONNECT}Decimal": ("bytes", ("decimal(12,2)", "decimal(9,2)")),
    f"{CONNECT}Date": ("int32", ("date", "int")),
    f"{CONNECT}Timestamp": ("int64", ("timestamp", "timestamptz", "timestamptz", "long")),
    f"{DEBEZIUM}Timestamp": ("int64", ("timestamp", "timestamptz", "long")),
    f"{DEBEZIUM}MicroTimestamp": ("int64", ("timestamp", "timestamptz", "long")),
    f"{DEBEZIUM}NanoTimestamp": ("int64", ("timestamp", "timestamptz", "long")),
    f"{DEBEZIUM}IsoTimestamp": ("string", ("timestamp", "timestamptz", "string")),
    f"{DEBEZIUM}ZonedTimestamp": ("string", ("timestamptz", "timestamp", "string")),
    f"{DEBEZIUM}MicroTime": ("int64", ("time", "long")),
    f"{DEBEZIUM}Date": ("int32", ("date", "int")),
}
"""Kinds of fields with Connect's type, and columns that are declared for them."""


@dataclass(frozen=True)
class Field:
    """A field of the rows."""

    name: str
    kind: str
    is_optional: bool

    @property
    def type(self) -> str:
        """Its type in Connect."""
        return _KINDS[self.kind][0]

    def connect(self) -> dict[str, Any]:
        """Returns its part of Connect's schema."""
        found: dict[str, Any] = {"field": self.name, "type": self.type, "optional": self.is_optional}
        if "." in self.kind:
            found |= {"name": self.kind, "version": 1}
        if self.kind.endswith("Decimal"):
            found["parameters"] = {"scale": "2", "connect.decimal.precision": "9"}
        return found

    def avro(self) -> dict[str, Any]:
        """Returns its field of an Avro record."""
        kind: Any = _AVRO.get(self.type, self.type)
        if "." in self.kind:
            kind = {"type": kind, "connect.name": self.kind, "connect.version": 1}
        if self.kind.endswith("Decimal"):
            kind |= {"scale": 2, "precision": 9, "logicalType": "decimal"}
            kind["connect.parameters"] = {"scale": "2", "connect.decimal.precision": "9"}
        if self.kind == f"{CONNECT}Timestamp":
            kind["logicalType"] = "timestamp-millis"
        if self.kind == f"{CONNECT}Date":
            kind["logicalType"] = "date"
        return {"name": self.name, "type": ["null", kind] if self.is_optional else kind}


@dataclass
class ChangeChance:
    """The changes of one table. mode: rows, append, changelog or upsert. encoding: json, connect or avro."""

    chance: Chance
    mode: str
    encoding: str
    schemas: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chance = self.chance
        kinds = tuple(_KINDS)
        self.fields = [Field("id", "int64", False)]
        self.fields += [Field(name, chance.one(kinds), chance.maybe(0.7)) for name in chance.some(_NAMES, 0.6)]
        self.later = [Field("later", chance.one(kinds), True)] if chance.maybe(0.5) else []
        self.settings = self._settings()
        self._rows: dict[int, dict[str, Any]] = {}
        self._versions = [self.fields, [*self.fields, *self.later]]
        self._parsed: list[Any] = []
        self._ids: list[int] = []
        self.change_at: list[tuple[int, bool]] = []
        """The key of each record, and whether it deletes the row."""

    def register(self, register: Callable[[str, str], int]) -> None:
        """Makes Avro's schemas known."""
        if self.encoding != "avro":
            return
        self._ids.clear()
        self._parsed.clear()
        for version in self._versions:
            schema = self._avro(version)
            number = register("avro", json.dumps(schema))
            self._ids.append(number)
            self.schemas[number] = json.dumps(schema)
            self._parsed.append(parse_schema(schema))

    def more(self) -> Mapping[str, object]:
        """Returns the settings of the table that decide what its records are."""
        found: dict[str, object] = {"value": {"format": "avro" if self.encoding == "avro" else "json"}}
        if self.mode == "rows":
            return found
        found["envelope"] = "debezium"
        if self.mode == "changelog":
            found["changelog"] = True
        if self.mode == "upsert":
            found |= {"mode": "upsert", "key": {"format": "json"}, "key_columns": ["id"], "format_version": 2}
        return found

    def record(self) -> tuple[bytes | None, bytes | None]:
        """Returns a record's key and value."""
        chance = self.chance
        number = chance.upto(200)
        key = json.dumps({"id": number}).encode()
        version = chance.upto(1)
        if self.mode == "rows":
            return key, self._encoded(self._row(number, version), version)
        if chance.maybe(0.02):
            return self._odd(number, key)
        before = self._rows.get(number)
        op = chance.one("cr") if before is None else chance.one("uuudd")
        after = None if op == "d" else self._row(number, version)
        self.change_at.append((number, op == "d"))
        self._rows[number] = after or {}
        if after is None:
            del self._rows[number]
        known = before if self.mode != "append" or chance.maybe(0.5) else None
        if op == "d" and known is None:
            known = before
        return key, self._encoded({"before": known, "after": after, "op": op, "ts_ms": 1}, version)

    def _odd(self, number: int, key: bytes) -> tuple[bytes | None, bytes | None]:
        """A record that is no good change."""
        chance = self.chance
        choice = chance.upto(3)
        self.change_at.append((number, choice == 0))
        if choice == 0:
            self._rows.pop(number, None)
            return key, None
        row = self._row(number, 0)
        if choice == 1:
            return key, self._encoded({"before": None, "after": row, "op": "x", "ts_ms": 1}, 0)
        if choice == 2:
            return key, self._encoded({"before": None, "after": None, "op": "c", "ts_ms": 1}, 0)
        return key, self._encoded({"before": None, "after": row, "op": "c", "ts_ms": 1}, 0)[:-3]

    def _settings(self) -> Settings:
        chance, columns = self.chance, dict[str, Column]()
        for one in self.fields[1:]:
            if chance.maybe(0.6) and not (self.encoding == "json" and "." in one.kind):
                kind = chance.one(_KINDS[one.kind][1])
                is_time = kind in ("timestamp", "timestamptz")
                columns[one.name] = Column(kind, zone=chance.one(ZONES) if is_time and chance.maybe(0.7) else "")
        if self.encoding == "json" or chance.maybe(0.5):
            columns["id"] = Column("long")
        unknown = chance.one(("add", "add", "drop", "rescue"))
        if unknown != "add":
            columns["id"] = Column("long")
        metadata = dict(METADATA)
        if self.mode == "changelog":
            metadata |= {"op": "_op", "image": "_image", "source_ts": "_source_ts", "connector_ts": "_connector_ts"}
            metadata["unavailable"] = "_unavailable"
        if self.mode == "append":
            metadata["unavailable"] = "_unavailable"
        return Settings(
            columns=columns,
            unknown_fields=unknown,
            schema_evolution=chance.one(("evolve", "add_only")),
            rescue=chance.maybe(0.4),
            metadata=metadata,
        )

    def _row(self, number: int, version: int) -> dict[str, Any]:
        row: dict[str, Any] = {"id": number}
        for one in self._versions[version][1:]:
            if one.is_optional and self.chance.maybe(0.1):
                row[one.name] = None
            else:
                row[one.name] = _draw(self.chance, one.kind)
        return row

    def _encoded(self, value: dict[str, Any], version: int) -> bytes:
        if self.encoding == "avro":
            out = io.BytesIO()
            schemaless_writer(out, self._parsed[version], self._whole(value, version))
            return b"\0" + struct.pack(">I", self._ids[version]) + out.getvalue()
        if self.encoding == "json":
            return json.dumps(value, default=_base64, ensure_ascii=False).encode()
        row = {
            "type": "struct",
            "optional": self.mode != "rows",
            "fields": [one.connect() for one in self._versions[version]],
        }
        schema: dict[str, Any] = row
        if self.mode != "rows":
            images = [{**row, "field": name} for name in ("before", "after")]
            others = [
                {"type": "string", "optional": False, "field": "op"},
                {"type": "int64", "optional": True, "field": "ts_ms"},
            ]
            schema = {"type": "struct", "optional": False, "fields": [*images, *others]}
        return json.dumps({"schema": schema, "payload": value}, default=_base64, ensure_ascii=False).encode()

    def _whole(self, value: dict[str, Any], version: int) -> dict[str, Any]:
        """Returns the value with all fields of the version, in each image."""
        names = [one.name for one in self._versions[version]]
        if self.mode == "rows":
            return {name: value.get(name) for name in names}
        images = {
            name: None if value[name] is None else _with_required(value[name], self._versions[version])
            for name in ("before", "after")
        }
        return {**value, **images}

    def _avro(self, version: list[Field]) -> dict[str, Any]:
        row = {"type": "record", "name": "Value", "fields": [one.avro() for one in version]}
        if self.mode == "rows":
            return row
        return {
            "type": "record",
            "name": "Envelope",
            "fields": [
                {"name": "before", "type": ["null", row]},
                {"name": "after", "type": ["null", "Value"]},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": ["null", "long"]},
            ],
        }


def _with_required(row: dict[str, Any], version: list[Field]) -> dict[str, Any]:
    return {one.name: row.get(one.name) for one in version}


def _base64(value: Any) -> str:
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


def _draw(chance: Chance, kind: str) -> Any:
    short = kind.rpartition(".")[2]
    if short in _FACTORS:
        return chance.between(-(2**30), 2**31 - 1) * _FACTORS[short] + chance.upto(_FACTORS[short] - 1)
    return _DRAWS[short](chance)


def _text_of_time(chance: Chance) -> str:
    return f"20{chance.between(10, 36)}-0{chance.between(1, 9)}-11T0{chance.upto(9)}:30:00.{chance.upto(999999):06}Z"


_FACTORS = {"Timestamp": 1_000, "MicroTimestamp": 1_000_000, "NanoTimestamp": 1_000_000_000}
_DRAWS: Mapping[str, Callable[[Chance], Any]] = {
    "IsoTimestamp": _text_of_time,
    "ZonedTimestamp": _text_of_time,
    "Decimal": lambda chance: chance.between(-999_999_999, 999_999_999).to_bytes(5, "big", signed=True),
    "Date": lambda chance: chance.between(-30000, 24000),
    "MicroTime": lambda chance: chance.upto(86_399_999_999),
    "boolean": lambda chance: chance.maybe(0.5),
    "string": lambda chance: chance.one(("", "text", "é 😀", "12")),
    "float64": lambda chance: chance.one((0.5, -1.25, 1e300, 0.1)),
    "int32": lambda chance: chance.between(-(2**31), 2**31 - 1),
    "int64": lambda chance: chance.between(-(2**63), 2**63 - 1) if chance.maybe(0.1) else chance.upto(2**31),
}
