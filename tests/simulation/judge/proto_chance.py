"""Tables and records of Protobuf by chance: versions of a message in one topic, and columns of other types."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from frazil_verify.model.protobuf import Messages
from frazil_verify.model.settings import Column, Settings
from tests.simulation.judge.chance import Chance
from tests.simulation.judge.json_chance import METADATA, ZONES
from tests.simulation.judge.proto_messages import Field, descriptors, message_class, proto_text

_NAMES = ("a", "b", "userId", "lineCount", "size", "x1", "items", "tags", "n0", "N1", "kind")
_COLUMNS = {
    "int32": ("long", "int", "double", "decimal(9,2)", "date", "time(s)", "boolean"),
    "sint32": ("int", "long"),
    "uint32": ("long", "int"),
    "int64": ("int", "double", "decimal(20,0)", "timestamptz(us)", "string"),
    "uint64": ("decimal(20,0)", "long", "decimal(38,0)"),
    "float": ("double", "float"),
    "double": ("float", "double"),
    "bool": ("boolean", "int"),
    "string": ("string", "binary", "long"),
    "bytes": ("binary", "string", "fixed[2]"),
    "Color": ("string", "int"),
    "Timestamp": ("timestamptz", "timestamp"),
    "Point": ("struct<x: long, label: string>", "struct<x: int>", "string"),
}


@dataclass
class ProtoChance:
    """One table with the versions of its message."""

    chance: Chance
    #: The messages of the versions, by id.
    messages: dict[int, Messages] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chance = self.chance
        first = [self._field(n, name) for n, name in enumerate(chance.some(_NAMES, 0.7), 1)] or [Field(1, "a", "int32")]
        second = [self._changed(one) for one in first if chance.maybe(0.9)]
        second.append(self._field(50, "later"))
        self._versions = [tuple(first), tuple(second)] if chance.maybe(0.6) else [tuple(first)]
        self.settings = self._settings(first)
        self._ids: list[int] = []

    def register(self, register: Callable[[str, str], int]) -> None:
        """Gives the versions their ids."""
        self._ids.clear()
        for version in self._versions:
            number = register("protobuf", proto_text(version))
            self._ids.append(number)
            self.messages[number] = Messages(descriptors(version).SerializeToString())

    def record(self) -> bytes | None:
        """Returns a record's value."""
        chance = self.chance
        place = chance.upto(len(self._versions) - 1)
        version = self._versions[place]
        message = message_class(version)()
        for one in version:
            if chance.maybe(0.85):
                self._fill(message, one)
        raw = b"\0" + struct.pack(">I", self._ids[place]) + b"\0" + bytes(message.SerializeToString(deterministic=True))
        if not chance.maybe(0.01):
            return raw
        return chance.one((raw[: chance.upto(len(raw))], raw + b"\x07", b"\0\0\0\0\x63\0" + raw[6:], b"", b"{}", None))

    def _fill(self, message: Any, one: Field) -> None:
        chance = self.chance
        if one.label == "map":
            for _ in range(chance.upto(2)):
                key = f"k{chance.upto(9)}"
                values = getattr(message, one.name)
                if one.type in ("Point", "Timestamp"):
                    self._set(values[key], one.type)
                else:
                    values[key] = _plain(chance, one.type)
        elif one.label == "repeated":
            for _ in range(chance.upto(3)):
                values = getattr(message, one.name)
                if one.type in ("Point", "Timestamp"):
                    self._set(values.add(), one.type)
                else:
                    values.append(_plain(chance, one.type))
        elif one.type in ("Point", "Timestamp"):
            getattr(message, one.name).SetInParent()
            self._set(getattr(message, one.name), one.type)
        else:
            setattr(message, one.name, _plain(chance, one.type))

    def _set(self, message: Any, kind: str) -> None:
        chance = self.chance
        if kind == "Timestamp":
            message.seconds, message.nanos = chance.between(-(2**31), 2**31), chance.upto(10**9 - 1)
        else:
            message.x = chance.upto(9)
            if chance.maybe(0.5):
                message.label = "p"

    def _field(self, number: int, name: str) -> Field:
        chance = self.chance
        return Field(number, name, chance.one(tuple(_COLUMNS)), chance.one(("", "", "optional", "repeated", "map")))

    def _changed(self, one: Field) -> Field:
        wider = {"int32": "int64", "float": "double"}.get(one.type)
        if wider is not None and one.label != "map" and self.chance.maybe(0.4):
            return Field(one.number, one.name, wider, one.label)
        return one

    def _settings(self, fields: list[Field]) -> Settings:
        chance, columns = self.chance, dict[str, Column]()
        for one in fields:
            if one.label in ("", "optional") and chance.maybe(0.5):
                kind = chance.one(_COLUMNS[one.type])
                columns[one.name] = Column(
                    kind, zone=chance.one(ZONES) if kind == "timestamp" and chance.maybe(0.6) else ""
                )
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


def _plain(chance: Chance, kind: str) -> Any:
    return chance.one(_VALUES[kind])


_VALUES: dict[str, tuple[Any, ...]] = {
    "int32": (0, 1, -1, 2**31 - 1, -(2**31), 16777217, 1234567, 12345678),
    "sint32": (0, -1, 2**31 - 1, -(2**31)),
    "uint32": (0, 1, 2**31, 2**32 - 1),
    "int64": (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 1_790_000_000_000_000),
    "uint64": (0, 7, 2**63, 2**64 - 1),
    "float": (0.0, 0.5, -1.5, float("nan"), float("inf")),
    "double": (0.0, 0.1, 0.5, 1e300, float("nan")),
    "bool": (True, False),
    "string": ("", "text", "é 😀", "12"),
    "bytes": (b"", b"\0\xff", b"text", b"ab", b"\xca"),
    "Color": (0, 1, 2, 7),
}
