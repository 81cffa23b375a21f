"""Messages of Protobuf with fields by chance: their .proto text, their descriptors, and the class that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

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
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors(fields).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))


def descriptors(fields: tuple[Field, ...]) -> descriptor_pb2.FileDescriptorSet:
    """Returns the descriptors of the file of messages `M`."""
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
    times_file = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times_file)
    return descriptor_pb2.FileDescriptorSet(file=[times_file, file])


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
