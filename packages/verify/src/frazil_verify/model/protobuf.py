"""Protobuf messages to values, and what becomes of them (docs/reference/protobuf.md)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import DecodeError

from frazil_verify.model import times
from frazil_verify.model.faults import Fault, Unreadable
from frazil_verify.model.json_values import How
from frazil_verify.model.rows import Outcome, Walk
from frazil_verify.model.settings import Path, Settings, Table
from frazil_verify.model.types import MapOf, Plain
from frazil_verify.model.written import BINARY, INT, LONG, STRING, Anything, Written, rescued_of, value_of

_PLAIN: Mapping[str, Plain] = {
    "int32": INT,
    "sint32": INT,
    "uint32": LONG,
    "int64": LONG,
    "uint64": Plain("decimal", (20, 0)),
    "float": Plain("float"),
    "double": Plain("double"),
    "bool": Plain("boolean"),
    "string": STRING,
    "bytes": BINARY,
}
COLORS = ("NONE", "RED", "GREEN")
_TIMESTAMP = ".google.protobuf.Timestamp"
_PROTO = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True)
class Field:
    """A field of the message. type: of the .proto file, `Color`, `Point` or `Timestamp`. label: `optional`, `repeated`,
    `map` (of such values by text) or nothing.
    """

    number: int
    name: str
    type: str
    label: str = ""

    def text(self) -> str:
        """Returns its line of the .proto file."""
        kind = "google.protobuf.Timestamp" if self.type == "Timestamp" else self.type
        if self.label == "map":
            return f"map<string, {kind}> {self.name} = {self.number};"
        return f"{self.label} {kind} {self.name} = {self.number};".strip()


def proto_text(fields: Sequence[Field]) -> str:
    """Returns the .proto file of a message `M` with these fields."""
    lines = "\n  ".join(field.text() for field in fields)
    colors = " ".join(f"{name} = {number};" for number, name in enumerate(COLORS))
    return (
        'syntax = "proto3";\nimport "google/protobuf/timestamp.proto";\n'
        f"message M {{\n  {lines}\n}}\nmessage Point {{ int32 x = 1; optional string label = 2; }}\n"
        f"enum Color {{ {colors} }}\n"
    )


@cache
def message_class(fields: tuple[Field, ...]) -> Any:
    """Returns the class of messages `M`."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="M")
    for field in fields:
        _add(message, field)
    point = file.message_type.add(name="Point")
    point.field.add(name="x", number=1, type=_PROTO.TYPE_INT32, label=_PROTO.LABEL_OPTIONAL)
    _add(point, Field(2, "label", "string", "optional"))
    colors = file.enum_type.add(name="Color")
    for number, name in enumerate(COLORS):
        colors.value.add(name=name, number=number)
    pool = descriptor_pool.DescriptorPool()
    times_file = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times_file)
    pool.Add(times_file)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))


def _add(message: Any, field: Field) -> None:
    made = message.field.add(name=field.name, number=field.number, label=_PROTO.LABEL_OPTIONAL)
    if field.label == "map":
        entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_PROTO.TYPE_STRING, label=_PROTO.LABEL_OPTIONAL)
        _add(entry, Field(2, "value", field.type))
        made.type, made.type_name, made.label = _PROTO.TYPE_MESSAGE, f".M.{entry.name}", _PROTO.LABEL_REPEATED
        return
    if field.type in ("Point", "Timestamp"):
        made.type, made.type_name = _PROTO.TYPE_MESSAGE, ".Point" if field.type == "Point" else _TIMESTAMP
    elif field.type == "Color":
        made.type, made.type_name = _PROTO.TYPE_ENUM, ".Color"
    else:
        made.type = _PROTO.Type.Value(f"TYPE_{field.type.upper()}")
    if field.label == "repeated":
        made.label = _PROTO.LABEL_REPEATED
    elif field.label == "optional":
        made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


_POINT = (Field(1, "x", "int32"), Field(2, "label", "string", "optional"))


@dataclass(frozen=True, slots=True)
class ProtoNode:
    """A value of a field. The message itself has the type `M`."""

    field: Field
    value: Any
    fields: tuple[Field, ...] = _POINT

    @property
    def is_null(self) -> bool:
        """See Node."""
        return self.value is None

    @property
    def has_type(self) -> bool:
        """See Node."""
        return self.value is not None

    @property
    def levels(self) -> int:
        """See Node."""
        return 0

    def members(self) -> Sequence[tuple[str, ProtoNode]] | None:
        """See Node."""
        if self.field.label in ("repeated", "map") or self.field.type not in ("M", "Point"):
            return None
        return [(field.name, ProtoNode(field, _present(self.value, field))) for field in self.fields]

    def elements(self) -> Sequence[ProtoNode] | None:
        """See Node."""
        if self.field.label != "repeated":
            return None
        return [ProtoNode(Field(0, "", self.field.type), value) for value in self.value]

    def entries(self, kind: MapOf) -> Sequence[tuple[ProtoNode, ProtoNode]] | None:  # noqa: ARG002  (keys are text)
        """See Node. Their order is not kept."""
        if self.field.label != "map":
            return None
        key, value = Field(1, "key", "string"), Field(2, "value", self.field.type)
        return [(ProtoNode(key, item), ProtoNode(value, self.value[item])) for item in sorted(self.value)]

    def plain(self, kind: Plain, how: How) -> Any:
        """See Node."""
        if self.field.label in ("repeated", "map") or self.field.type in ("M", "Point"):
            raise Fault("type_mismatch")
        if self.field.type in ("Color", "bool") and kind.name in ("int", "long"):
            return int(self.value)
        return value_of(self._written(), kind, how)

    def _written(self) -> Written:
        if self.field.type == "Timestamp":
            return Written.of(Plain("timestamptz"), _moment(self.value))
        if self.field.type == "Color":
            known = 0 <= self.value < len(COLORS)
            return Written.of(STRING, COLORS[self.value] if known else str(self.value))
        kind = _PLAIN[self.field.type]
        return Written.of(kind, Decimal(self.value) if kind.name == "decimal" else self.value)

    def own_faults(self) -> Sequence[str]:
        """See Node."""
        return ()

    def inner_faults(self) -> Sequence[str]:
        """See Node."""
        return ()

    def unfit(self, _: str, /) -> tuple[Sequence[tuple[Path, ProtoNode, tuple[str, ...]]], bool]:
        """See Node."""
        return (), True

    def rescued(self) -> Any:
        """See Node."""
        if self.field.label in ("repeated", "map") or self.field.type in ("M", "Point"):
            return Anything()
        return rescued_of(self._written())


def _present(message: Any, field: Field) -> Any:
    """Returns a field's value; None where it is absent and has presence."""
    if field.label in ("repeated", "map"):
        return getattr(message, field.name)
    if (field.label == "optional" or field.type in ("Point", "Timestamp")) and not message.HasField(field.name):
        return None
    return getattr(message, field.name)


def _moment(value: Any) -> Any:
    if not 0 <= value.nanos < 10**9:
        raise Fault("out_of_range")
    return times.local_instant(Decimal(value.seconds * 10**9 + value.nanos), "ns").replace(tzinfo=UTC)


def outcome_of(
    settings: Settings, table: Table, value: bytes | None, schemas: Mapping[int, tuple[Field, ...]]
) -> Outcome:
    """Returns what becomes of a record's value. schemas: the fields of the message by id."""
    try:
        fields, message = _read(value, schemas)
    except Unreadable as fault:
        return Outcome.dead(fault, "*")
    return Walk(settings, table).run(ProtoNode(Field(0, "", "M"), message, fields))


def _read(value: bytes | None, schemas: Mapping[int, tuple[Field, ...]]) -> tuple[tuple[Field, ...], Any]:
    if value is None:
        raise Unreadable("tombstone")
    if len(value) < 6 or value[0] != 0:
        raise Unreadable("no_wire_format", "malformed")
    (number,) = struct.unpack(">I", value[1:5])
    if number not in schemas:
        raise Unreadable("unknown_schema_id")
    if value[5] != 0:
        raise Unreadable("malformed")
    fields = schemas[number]
    try:
        return fields, message_class(fields).FromString(value[6:])
    except DecodeError:
        raise Unreadable("malformed", "invalid_text") from None
