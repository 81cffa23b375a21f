"""Tables and records of JSON Schema by chance: values are read like JSON, and the schema has the types of new columns."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from frazil_verify.model.settings import Column, Settings
from frazil_verify.model.types import ListOf, MapOf, Plain, StructOf, Type
from tests.simulation.judge.chance import Chance
from tests.simulation.judge.json_chance import METADATA, TYPES, ZONES, good_text, odd_text

_NAMES = ("a", "b", "c", "userId", "lineCount", "größe", "x1", "items", "tags", "n0", "N1", "_id", "with space")
_PLAIN: dict[str, dict[str, Any]] = {
    "long": {"type": "integer"},
    "int": {"type": "integer", "connect.type": "int32"},
    "double": {"type": "number"},
    "float": {"type": "number", "connect.type": "float32"},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "date": {"type": "string", "format": "date"},
    "timestamptz": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "binary": {"type": "string", "contentEncoding": "base64"},
}


@dataclass(frozen=True)
class Field:
    """A property. kind: the type of a new column; None where the schema leaves it out."""

    name: str
    kind: Type | None
    share: float


@dataclass
class SchemaChance:
    """One table with two versions of its schema."""

    chance: Chance
    ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance = self.chance
        first = [Field(name, self._kind(0), chance.one((1.0, 0.9, 0.3))) for name in chance.some(_NAMES, 0.6)]
        self._versions = [first, [*first, Field("later", self._kind(0), 0.8)]]
        self.settings = self._settings(first)

    def register(self, register: Callable[[str, str], int]) -> None:
        """Gives the versions their ids."""
        self.ids.clear()
        for version in self._versions:
            properties = {one.name: {} if one.kind is None else self._schema(one.kind) for one in version}
            self.ids.append(register("json_schema", json.dumps({"type": "object", "properties": properties})))

    def record(self) -> bytes | None:
        """Returns a record's value."""
        chance = self.chance
        place = chance.upto(1)
        is_clean = chance.maybe(0.85)
        pairs = []
        for one in self._versions[place]:
            if chance.maybe(one.share):
                kind = self._drawn(one)
                text = good_text(chance, kind) if is_clean or chance.maybe(0.8) else odd_text(chance)
                pairs.append((one.name, "null" if chance.maybe(0.05) else text))
        if not is_clean and chance.maybe(0.2):
            pairs.append((f"extra{chance.upto(2)}", str(chance.upto(9))))
        body = "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {text}" for name, text in pairs) + "}"
        raw = b"\0" + struct.pack(">I", self.ids[place]) + body.encode()
        if not chance.maybe(0.01):
            return raw
        return chance.one((raw[: chance.upto(len(raw))], raw + b"}", b"\0\0\0\0\x63" + raw[5:], b"", b"{}", None))

    def _drawn(self, one: Field) -> Type:
        declared = self.settings.columns.get(one.name)
        return declared.kind if declared is not None else one.kind or Plain("long")

    def _kind(self, level: int) -> Type | None:
        chance = self.chance
        choice = chance.upto(14 if level < 2 else 9)
        if choice <= 9:
            return Plain(tuple(_PLAIN)[choice])
        if choice == 10:
            return None
        inner = self._kind(level + 1) or Plain("long")
        if choice == 11:
            return ListOf(inner)
        if choice == 12:
            return MapOf(Plain("string", is_declared=True), inner)
        return StructOf((("p", inner), ("q", self._kind(level + 1) or Plain("string"))))

    def _schema(self, kind: Type) -> dict[str, Any]:
        match kind:
            case ListOf(element):
                return {"type": "array", "items": self._schema(element)}
            case MapOf(_, value):
                return {"type": "object", "additionalProperties": self._schema(value)}
            case StructOf(members):
                return {"type": "object", "properties": {name: self._schema(member) for name, member in members}}
        return _PLAIN[kind.name]

    def _settings(self, fields: list[Field]) -> Settings:
        chance, columns = self.chance, dict[str, Column]()
        for one in fields:
            if chance.maybe(0.2):
                kind = chance.one(TYPES)
                zone = chance.one(ZONES) if kind.startswith("timestamp") and chance.maybe(0.5) else ""
                columns[one.name] = Column(kind, coerce=kind == "string" and chance.maybe(0.5), zone=zone)
        unknown = chance.one(("add", "add", "add", "drop", "rescue"))
        evolution = chance.one(("evolve", "evolve", "add_only", "freeze"))
        if unknown == "rescue" or evolution == "freeze":
            columns = columns or {"id": Column("long")}
        return Settings(
            columns=columns,
            unknown_fields=unknown,
            schema_evolution=evolution,
            rescue=chance.maybe(0.4),
            exclude=tuple((one.name,) for one in fields if one.name not in columns and chance.maybe(0.06)),
            column_case=chance.one(("keep", "keep", "lower", "snake")),
            metadata=METADATA,
        )
