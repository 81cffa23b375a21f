"""Protobuf descriptors as a tree of columns: the Iceberg type of every field (docs/reference/protobuf.md).

A message that is used in two places is two parts of the tree, because it is two sets of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError
from pyiceberg import types as t

from frazil.decode.columns import EmptyStruct, TextBytes
from frazil.decode.messages import OWN_FORMS, Forms
from frazil.registry.port import UnusableSchema
from frazil.schema.parts import Path
from frazil_protobuf.json import JSON_TYPES
from frazil_protobuf.layout import (
    BYTES,
    FIXED32,
    FIXED64,
    GROUP,
    LEAF,
    LEAF_GROUP,
    MESSAGE,
    TEXT,
    VARINT,
)

MAX_FIELDS = 2000
MAX_LEVELS = 64

_Proto = descriptor_pb2.FieldDescriptorProto
_SCALARS: dict[int, tuple[str, int, t.IcebergType]] = {
    _Proto.TYPE_INT32: ("int", VARINT, t.IntegerType()),
    _Proto.TYPE_SINT32: ("zigzag_int", VARINT, t.IntegerType()),
    _Proto.TYPE_SFIXED32: ("int", FIXED32, t.IntegerType()),
    _Proto.TYPE_UINT32: ("unsigned_int", VARINT, t.LongType()),
    _Proto.TYPE_FIXED32: ("unsigned_int", FIXED32, t.LongType()),
    _Proto.TYPE_INT64: ("long", VARINT, t.LongType()),
    _Proto.TYPE_SINT64: ("zigzag_long", VARINT, t.LongType()),
    _Proto.TYPE_SFIXED64: ("long", FIXED64, t.LongType()),
    _Proto.TYPE_UINT64: ("unsigned_long", VARINT, t.DecimalType(20, 0)),
    _Proto.TYPE_FIXED64: ("unsigned_long", FIXED64, t.DecimalType(20, 0)),
    _Proto.TYPE_FLOAT: ("float", FIXED32, t.FloatType()),
    _Proto.TYPE_DOUBLE: ("double", FIXED64, t.DoubleType()),
    _Proto.TYPE_BOOL: ("boolean", VARINT, t.BooleanType()),
    _Proto.TYPE_STRING: ("string", TEXT, t.StringType()),
    _Proto.TYPE_BYTES: ("binary", BYTES, t.BinaryType()),
}
# Its bytes are checked when the entire record is read.
_UNCHECKED: tuple[str, int, t.IcebergType] = ("unchecked_string", BYTES, t.StringType())
_OTHER_FORMS: dict[tuple[int, str], tuple[str, int, t.IcebergType]] = {
    (_Proto.TYPE_ENUM, "number"): ("int", VARINT, t.IntegerType()),
    (_Proto.TYPE_BOOL, "number"): ("int", VARINT, t.IntegerType()),
    (_Proto.TYPE_BYTES, "text"): ("binary", BYTES, TextBytes()),
    (_Proto.TYPE_STRING, "bytes"): ("binary", BYTES, t.BinaryType()),
}
"""Types that a field may change between, as their values are alike on the wire (protobuf.dev/programming-guides/proto3,
"Updating A Message Type").
"""
_PACKABLE = (VARINT, FIXED32, FIXED64)
_WELL_KNOWN: dict[str, Any] = {
    message.full_name: message
    for module in (any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    for message in module.DESCRIPTOR.message_types_by_name.values()
}
_WRAPPERS = {message.full_name for message in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()}


@dataclass(frozen=True)
class Value:
    """The type of one value of a field."""

    #: How cells become a column (see `columns`).
    kind: str
    #: How it is read from the wire.
    op: int
    #: The Iceberg type.
    type: t.IcebergType
    #: The fields of a message.
    members: tuple[Member, ...] = ()
    #: The names of an enum's numbers.
    names: Mapping[int, str] = field(default_factory=dict)
    #: The descriptor of a message that becomes JSON.
    descriptor: Any = None


@dataclass(frozen=True)
class Member:
    """One field of a message."""

    name: str
    #: The field number.
    number: int
    value: Value
    #: `one`, `list` or `map` (then the value is the entry, with its key and value).
    shape: str = "one"
    #: Whether an absent field differs from one with the default value.
    has_presence: bool = False
    #: Whether the field is `required` (proto2).
    is_required: bool = False
    #: The name of its oneof; None without one.
    oneof: str | None = None

    @property
    def is_packable(self) -> bool:
        """Whether several values can be written as one sequence of bytes."""
        return self.shape == "list" and self.value.op in _PACKABLE

    @property
    def type(self) -> t.IcebergType:
        """The type of its column."""
        if self.shape == "list":
            return t.ListType(0, self.value.type, element_required=False)
        if self.shape == "map":
            key, value = self.value.members
            return t.MapType(0, key.value.type, 0, value.value.type, value_required=False)
        return self.value.type


def load_message(descriptors: bytes, message: tuple[int, ...] | str) -> Any:
    """Returns the descriptor of one message, from a pool of its own.

    descriptors: a serialized FileDescriptorSet, each file after those that it imports. message: its full name, or the
    path of indexes to it in the last file, as the Confluent wire format has it: (1, 0) is the first message declared in
    the second.

    Raises: UnusableSchema when there is no such message or the descriptors are invalid.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        name = _name_at(files, message) if isinstance(message, tuple) else message
        pool = _pool(files)
        descriptor = pool.FindMessageTypeByName(name)
    except (DecodeError, TypeError) as error:
        raise UnusableSchema(f"these are not Protobuf descriptors: {error}") from None
    except KeyError:
        raise UnusableSchema(f"the schema has no message {name!r}") from None
    # A message read as a time or as JSON must be the one that Protobuf defines by that name.
    for well_known, ours in _WELL_KNOWN.items():
        try:
            theirs = pool.FindMessageTypeByName(well_known)
        except KeyError:
            continue
        if _signature(theirs) != _signature(ours):
            raise UnusableSchema(f"the schema has a message {well_known} that is not Protobuf's own")
    return descriptor


def load_rewriter(descriptors: bytes, name: str) -> Any:
    """Returns the descriptor of the same message for rewriting records: with integers for enums and lists of entries
    for maps, of which Protobuf's parser would move some to the end of a message (numbers without a name, entries with
    an unknown field).
    """
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    for file in files.file:
        waiting = list(file.message_type)
        while waiting:
            message = waiting.pop()
            waiting += message.nested_type
            for each in message.field:
                if each.type == _Proto.TYPE_ENUM:
                    each.type = _Proto.TYPE_INT32
                    each.ClearField("type_name")
                    each.ClearField("default_value")
            if file.syntax == "editions":
                # Entries of maps, and messages in them, are length-prefixed also in a file where messages are delimited
                # by default.
                entries = {part.name for part in message.nested_type if part.options.map_entry}
                for part in message.field:
                    if message.options.map_entry or part.type_name.rpartition(".")[2] in entries:
                        part.options.features.message_encoding = descriptor_pb2.FeatureSet.LENGTH_PREFIXED
            message.options.ClearField("map_entry")
    return _pool(files).FindMessageTypeByName(name)


def _pool(files: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


def read_members(descriptor: Any, forms: Forms = OWN_FORMS) -> tuple[Member, ...]:
    """Returns the fields of a record, in the order in which they are declared.

    forms: of values that are read in another form than their schema's own.

    Raises: UnusableSchema for more than MAX_FIELDS fields or MAX_LEVELS levels.
    """
    return _Tree(dict(forms)).members(descriptor, (), ())


def struct_of(members: tuple[Member, ...]) -> t.StructType:
    """Returns the Iceberg struct of the fields; field ids are placeholders."""
    return t.StructType(*(t.NestedField(0, member.name, member.type, required=False) for member in members))


def _name_at(files: Any, path: tuple[int, ...]) -> str:
    if not files.file:
        raise UnusableSchema("the descriptors have no file")
    file = files.file[-1]
    parts = [file.package] if file.package else []
    types = list(file.message_type)
    for index in path:
        if not 0 <= index < len(types):
            raise UnusableSchema(f"the schema has no message with the index path {list(path)}")
        parts.append(types[index].name)
        message = types[index]
        groups = {each.type_name.rpartition(".")[2] for each in message.field if each.type == _Proto.TYPE_GROUP}
        types = [each for each in message.nested_type if not each.options.map_entry and each.name not in groups]
    if not path:
        raise UnusableSchema("an index path has at least one index")
    return ".".join(parts)


def _signature(descriptor: Any) -> list[tuple[str, int, int, bool]]:
    return sorted((each.name, each.number, each.type, each.is_repeated) for each in descriptor.fields)


class _Tree:
    def __init__(self, forms: Mapping[Path, str]) -> None:
        self.forms = forms
        self.count = 0
        self._checking_files: dict[str, bool] = {}

    def members(self, descriptor: Any, above: tuple[str, ...], path: Path) -> tuple[Member, ...]:
        """Returns the fields of a message. above: full names of the messages around it; path: in the record."""
        inside = (*above, descriptor.full_name)
        if len(inside) > MAX_LEVELS:
            raise UnusableSchema(f"the message {inside[0]} is nested more than {MAX_LEVELS} levels deep")
        self.count += len(descriptor.fields)
        if self.count > MAX_FIELDS:
            raise UnusableSchema(f"the message {inside[0]} has more than {MAX_FIELDS} fields, those inside it counted")
        proto = descriptor_pb2.DescriptorProto()
        descriptor.CopyToProto(proto)
        declared = {each.name: each for each in proto.field}
        oneofs = {  # `optional` in proto3 is written as a oneof too, and is none.
            each.name: proto.oneof_decl[each.oneof_index].name
            for each in proto.field
            if each.HasField("oneof_index") and not each.proto3_optional
        }
        return tuple(
            self._member(each, declared[each.name], inside, (*path, each.name), oneofs.get(each.name))
            for each in descriptor.fields
        )

    def _member(self, declared: Any, proto: Any, inside: tuple[str, ...], path: Path, oneof: str | None) -> Member:
        """Returns one field. proto: the same field as the file has it."""
        is_map = declared.message_type is not None and declared.message_type.GetOptions().map_entry
        is_list = declared.is_repeated and not is_map
        value = self._value(declared, proto, inside, (*path, "element") if is_list else path)
        return Member(
            name=declared.name,
            number=declared.number,
            value=value,
            shape="map" if is_map else "list" if is_list else "one",
            has_presence=declared.has_presence,
            is_required=declared.is_required,
            oneof=oneof,
        )

    def _value(self, declared: Any, proto: Any, inside: tuple[str, ...], path: Path) -> Value:
        form = self.forms.get(path, "")
        if (declared.type, form) in _OTHER_FORMS:
            return Value(*_OTHER_FORMS[declared.type, form])
        if declared.type in _SCALARS:
            is_unchecked = declared.type == _Proto.TYPE_STRING and not self._is_checked(declared, proto)
            return Value(*(_UNCHECKED if is_unchecked else _SCALARS[declared.type]))
        if declared.enum_type is not None:
            names: dict[int, str] = {}
            for each in declared.enum_type.values:
                names.setdefault(each.number, each.name)
            return Value("enum", VARINT, t.StringType(), names=names)
        message = declared.message_type
        is_group = declared.type == _Proto.TYPE_GROUP
        if message.full_name in JSON_TYPES or message.full_name in inside:
            return Value("json", LEAF_GROUP if is_group else LEAF, t.StringType(), descriptor=message)
        if form == "struct" and not message.fields:
            return Value("struct", GROUP if is_group else MESSAGE, EmptyStruct())
        return _message(message, self.members(message, inside, path), GROUP if is_group else MESSAGE)

    def _is_checked(self, declared: Any, proto: Any) -> bool:
        """Whether Protobuf's parser refuses bytes in a string that are not UTF-8.

        Source: https://protobuf.dev/editions/features, utf8_validation; proto2 does not, proto3 does.
        """
        if proto.options.features.utf8_validation:
            return _is_verified(proto.options.features)
        name = declared.file.name
        if name not in self._checking_files:
            file = descriptor_pb2.FileDescriptorProto()
            declared.file.CopyToProto(file)
            is_checked = bool(file.options.features.utf8_validation)
            is_newer = file.syntax not in ("", "proto2")
            self._checking_files[name] = _is_verified(file.options.features) if is_checked else is_newer
        return self._checking_files[name]


def _is_verified(features: Any) -> bool:
    return bool(features.utf8_validation == descriptor_pb2.FeatureSet.VERIFY)


def _message(declared: Any, members: tuple[Member, ...], op: int) -> Value:
    name = declared.full_name
    if name == "google.protobuf.Timestamp":
        return Value("timestamp", op, t.TimestamptzType(), members)
    if name == "google.protobuf.Duration":
        return Value("duration", op, t.LongType(), members)
    if name in _WRAPPERS:
        return Value("wrapper", op, members[0].value.type, members)
    if name == "google.protobuf.FieldMask":
        return Value("wrapper", op, members[0].type, members)
    if not members:
        return Value("empty", op, t.BooleanType())
    return Value("struct", op, struct_of(members), members)
