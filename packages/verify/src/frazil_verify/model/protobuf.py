"""Protobuf messages, decoded by Protobuf's own library, and what becomes of them (docs/reference/protobuf.md).

The library hides numbers of closed enums that have no name, and the order of a map's entries. So it is given descriptors of
the same bytes, in which enums are int32 and maps are lists of their entries.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from frazil_verify.model import times
from frazil_verify.model.faults import Fault, NotRead, Unreadable
from frazil_verify.model.json_values import How
from frazil_verify.model.rows import Outcome, Walk
from frazil_verify.model.settings import Path, Settings, Table
from frazil_verify.model.types import MapOf, Plain
from frazil_verify.model.written import BINARY, INT, LONG, STRING, Anything, Written, rescued_of, value_of

HEADER = 5
"""Bytes of Confluent's wire format before the indexes of the message."""
_PROTO = descriptor_pb2.FieldDescriptorProto
_UNSIGNED = Plain("decimal", (20, 0))
_SCALARS: Mapping[int, Plain] = {
    _PROTO.TYPE_INT32: INT,
    _PROTO.TYPE_SINT32: INT,
    _PROTO.TYPE_SFIXED32: INT,
    _PROTO.TYPE_UINT32: LONG,
    _PROTO.TYPE_FIXED32: LONG,
    _PROTO.TYPE_INT64: LONG,
    _PROTO.TYPE_SINT64: LONG,
    _PROTO.TYPE_SFIXED64: LONG,
    _PROTO.TYPE_UINT64: _UNSIGNED,
    _PROTO.TYPE_FIXED64: _UNSIGNED,
    _PROTO.TYPE_FLOAT: Plain("float"),
    _PROTO.TYPE_DOUBLE: Plain("double"),
    _PROTO.TYPE_BOOL: Plain("boolean"),
    _PROTO.TYPE_STRING: STRING,
    _PROTO.TYPE_BYTES: BINARY,
}
_GOOGLE = "google.protobuf."
_WRAPPERS = frozenset(
    f"{_GOOGLE}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_OF_CONNECT = frozenset(
    ("confluent.type.Decimal", "confluent.types.Decimal", "google.type.Date", "google.type.TimeOfDay")
)
_META = 1088
"""The number of the option `confluent.field_meta`."""
_MOST_FIELDS = 2000
_MOST_SECONDS = 315_576_000_000
_SECOND = 10**9


@dataclass(frozen=True)
class Field:
    """A field of a message, or the message itself."""

    name: str
    #: `plain`, `enum`, `message`, or of the well-known types `timestamp`, `duration`, `wrapper` and `paths`.
    form: str
    #: `one`, `list` or `map`.
    shape: str = "one"
    #: The type of a plain value.
    kind: Plain = STRING
    #: Whether an absent value differs from one with the default value.
    has_presence: bool = False
    #: The names of an enum's numbers.
    names: Mapping[int, str] = field(default_factory=dict)
    #: The fields of a message; of a map, its key and its value.
    members: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Message:
    """A message."""

    #: Its class, of which values are made.
    type: Any
    root: Field


@dataclass(frozen=True, slots=True)
class ProtoNode:
    """A value of a field."""

    field: Field
    value: Any

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
        if self.field.shape != "one" or self.field.form != "message":
            return None
        return [(part.name, ProtoNode(part, _present(self.value, part))) for part in self.field.members]

    def elements(self) -> Sequence[ProtoNode] | None:
        """See Node."""
        if self.field.shape == "one" and self.field.form == "paths":
            return [ProtoNode(Field("", "plain"), path) for path in self.value.paths]
        if self.field.shape != "list":
            return None
        item = replace(self.field, shape="one")
        return [ProtoNode(item, value) for value in self.value]

    def entries(self, kind: MapOf) -> Sequence[tuple[ProtoNode, ProtoNode]] | None:  # noqa: ARG002  (the schema has it)
        """See Node. The last entry of a key counts."""
        if self.field.shape != "map":
            return None
        key, value = self.field.members
        last: dict[Any, ProtoNode] = {}
        for entry in self.value:
            last.pop(entry.key, None)
            last[entry.key] = ProtoNode(value, entry.value)
        return [(ProtoNode(key, name), node) for name, node in last.items()]

    def plain(self, kind: Plain, how: How) -> Any:
        """See Node."""
        if self.field.form == "message" and self.field.shape == "one" and not self.field.members:
            if kind.name == "boolean":
                return True
            raise Fault("type_mismatch")
        if self.field.shape != "one" or self.field.form in ("message", "paths"):
            raise Fault("type_mismatch")
        is_number = self.field.form == "enum" or self.field.kind.name == "boolean"
        if is_number and self.field.form in ("enum", "plain") and kind.name in ("int", "long"):
            return int(self.value)
        return value_of(self._written(), kind, how)

    def _written(self) -> Written:
        if self.field.form == "timestamp":
            return Written.of(Plain("timestamptz"), _moment(self.value))
        if self.field.form == "duration":
            return Written.of(LONG, _micros(self.value))
        if self.field.form == "enum":
            return Written.of(STRING, self.field.names.get(self.value, str(self.value)))
        value = self.value.value if self.field.form == "wrapper" else self.value
        return Written.of(self.field.kind, Decimal(value) if self.field.kind == _UNSIGNED else value)

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
        if self.field.shape != "one" or self.field.form in ("message", "paths"):
            return Anything()
        return rescued_of(self._written())


def _present(message: Any, part: Field) -> Any:
    """Returns a field's value; None where it is absent and has presence."""
    if part.shape == "one" and part.has_presence and not message.HasField(part.name):
        return None
    return getattr(message, part.name)


def _moment(value: Any) -> Any:
    if not 0 <= value.nanos < _SECOND:
        raise Fault("out_of_range")
    return times.local_instant(Decimal(value.seconds * _SECOND + value.nanos), "ns").replace(tzinfo=UTC)


def _micros(value: Any) -> int:
    """Returns a duration in microseconds, cut towards zero."""
    if abs(value.seconds) > _MOST_SECONDS or abs(value.nanos) >= _SECOND or value.seconds * value.nanos < 0:
        raise Fault("out_of_range")
    nanos = value.seconds * _SECOND + value.nanos
    return int(abs(nanos) // 1000 * (1 if nanos >= 0 else -1))


# ---- schemas


class Messages:
    """The messages of one schema. descriptors: a serialized FileDescriptorSet, each file after those that it imports, the
    schema last.
    """

    def __init__(self, descriptors: bytes) -> None:
        self._files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        #: The names of enums by number, by their full name.
        self._enums: dict[str, Mapping[int, str]] = {}
        #: The full name of the enum of a field, by the full name of the field's message and the field's number.
        self._enum_of: dict[tuple[str, int], str] = {}
        self._entries: set[str] = set()
        self._messages: dict[tuple[int, ...], Message] = {}
        self._last = self._files.file[-1]
        for file in self._files.file:
            if file.syntax == "editions":
                raise NotRead("a schema of its records is one of Protobuf's editions")
            self._note_enums(file.package, file.enum_type)
            for message in file.message_type:
                self._rewrite(message, file.package)
        self._pool = descriptor_pool.DescriptorPool()
        for file in self._files.file:
            self._pool.Add(file)

    def at(self, path: tuple[int, ...]) -> Message | None:
        """Returns a message; None where there is none. path: the indexes of the messages that lead to it, in the file of the
        schema.

        Raises: NotRead.
        """
        if path not in self._messages:
            declared: Any = self._last
            names = [declared.package] if declared.package else []
            for place in path:
                inside = declared.message_type if declared is self._last else declared.nested_type
                if not 0 <= place < len(inside):
                    return None
                declared = inside[place]
                names.append(declared.name)
            descriptor = self._pool.FindMessageTypeByName(".".join(names))
            count = [0]
            root = Field("", "message", members=self._members(descriptor, (), count))
            self._messages[path] = Message(message_factory.GetMessageClass(descriptor), root)
        return self._messages[path]

    def _note_enums(self, space: str, enums: Sequence[Any]) -> None:
        for enum in enums:
            names: dict[int, str] = {}
            for value in enum.value:
                names.setdefault(value.number, value.name)
            self._enums[".".join(filter(None, (space, enum.name)))] = names

    def _rewrite(self, message: Any, space: str) -> None:
        """Notes what enums a message has, and makes the other descriptor of it."""
        name = ".".join(filter(None, (space, message.name)))
        self._note_enums(name, message.enum_type)
        if message.options.map_entry:
            self._entries.add(name)
            message.options.ClearField("map_entry")
        for part in message.field:
            if part.type == _PROTO.TYPE_ENUM:
                self._enum_of[name, part.number] = part.type_name.removeprefix(".")
                part.type = _PROTO.TYPE_INT32
                part.ClearField("type_name")
                part.ClearField("default_value")
            unknown = UnknownFieldSet(part.options)
            if any(unknown[n].field_number == _META for n in range(len(unknown))):
                raise NotRead("a schema of its records has types of Kafka Connect")
        for inner in message.nested_type:
            self._rewrite(inner, name)

    def _members(self, descriptor: Any, above: tuple[str, ...], count: list[int]) -> tuple[Field, ...]:
        name = descriptor.full_name
        if name in above:
            raise NotRead(f"a message of its schemas contains itself: {name}")
        count[0] += len(descriptor.fields)
        if count[0] > _MOST_FIELDS:
            raise NotRead(f"a message of its schemas has more than {_MOST_FIELDS} fields")
        return tuple(self._field(part, (*above, name), count) for part in descriptor.fields)

    def _field(self, part: Any, above: tuple[str, ...], count: list[int]) -> Field:
        inner = part.message_type
        shape = "list" if part.is_repeated else "one"
        made = Field(part.name, "plain", shape, has_presence=shape == "one" and part.has_presence)
        enum = self._enum_of.get((part.containing_type.full_name, part.number))
        if enum is not None:
            return replace(made, form="enum", kind=INT, names=self._enums[enum])
        if inner is None:
            return replace(made, kind=_SCALARS[part.type])
        if inner.full_name in _OF_CONNECT:
            raise NotRead(f"a schema of its records has the type {inner.full_name}")
        members = self._members(inner, above, count)
        if inner.full_name in self._entries:
            # An entry without a value has the default value, also where that is a message.
            entry = tuple(replace(member, has_presence=False) for member in members)
            return replace(made, form="message", shape="map", members=entry)
        form = _FORMS.get(inner.full_name, "wrapper" if inner.full_name in _WRAPPERS else "message")
        kind = members[0].kind if form == "wrapper" else made.kind
        return replace(made, form=form, kind=kind, members=members)


_FORMS = {
    f"{_GOOGLE}Timestamp": "timestamp",
    f"{_GOOGLE}Duration": "duration",
    f"{_GOOGLE}FieldMask": "paths",
}


# ---- records


def outcome_of(settings: Settings, table: Table, value: bytes | None, schemas: Mapping[int, Messages]) -> Outcome:
    """Returns what becomes of a record's value. schemas: by id."""
    try:
        return Walk(settings, table).run(read_value(value, schemas))
    except Unreadable as fault:
        return Outcome.dead(fault, "*")
    except UnicodeDecodeError:  # Strings of proto2 are decoded when they are used.
        return Outcome.dead(Unreadable("invalid_text", "malformed"), "*")


def read_value(value: bytes | None, schemas: Mapping[int, Messages]) -> ProtoNode:
    """Returns the message of a value in Confluent's wire format.

    Raises: Unreadable; NotRead for a message that is not read.
    """
    if value is None:
        raise Unreadable("tombstone")
    if len(value) <= HEADER or value[0] != 0:
        raise Unreadable("no_wire_format", "malformed")
    (number,) = struct.unpack(">I", value[1:HEADER])
    if number not in schemas:
        raise Unreadable("unknown_schema_id")
    path, start = _path_of(value)
    message = schemas[number].at(path)
    if message is None:
        raise Unreadable("malformed", "unknown_schema_id")
    try:
        content = message.type.FromString(value[start:])
    except DecodeError:
        raise Unreadable("malformed", "invalid_text", "too_deep") from None
    if not content.IsInitialized():
        raise Unreadable("malformed")
    return ProtoNode(message.root, content)


def _path_of(value: bytes) -> tuple[tuple[int, ...], int]:
    """Returns the indexes of the message, and where the message begins: their number, and each of them; a zero alone is the
    first message.
    """
    count, place = _index(value, HEADER)
    if count == 0:
        return (0,), place
    if not 0 < count <= len(value):
        raise Unreadable("malformed")
    path = []
    for _ in range(count):
        index, place = _index(value, place)
        path.append(index)
    return tuple(path), place


def _index(value: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if place >= len(value) or shift > 63:
            raise Unreadable("malformed")
        number |= (value[place] & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if value[place - 1] < 0x80:
            return (number >> 1) ^ -(number & 1), place
