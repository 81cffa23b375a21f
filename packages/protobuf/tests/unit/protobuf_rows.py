"""What a row should be, made from Protobuf's own parser, value by value and apart from the reader.

In three things the parser is asked in another way than its users would, because there it hides what was written:
closed enums are integers (it hides numbers without a name), maps are lists of entries (it hides entries with a field of
their own that nobody knows, which other parsers of Protobuf do not), and strings of proto2 may be bytes (no text).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from frazil_protobuf.schema import load_message
from packages.protobuf.tests.unit.protobuf_schemas import (
    CHECKS,
    DELIMITED,
    EDITION,
    LEGACY,
    SHOP,
    WORDS,
    all_messages,
    descriptors_of,
    open_enums,
)

_SCHEMAS = {"old": LEGACY, "new": EDITION, "shop": SHOP, "lines": DELIMITED, "words": WORDS, "checks": CHECKS}


def plain(value: Any) -> Any:
    """A value such that equal ones have equal `repr`: the entries of a map in one order, moments as text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted(((key, plain(part)) for key, part in value), key=repr)
    return [plain(part) for part in value] if isinstance(value, list) else value


_ENUMS = {
    "old.Level": {7: "HIGH", -2: "LOW", 3: "MIDDLE"},
    "old.Grade": {0: "GOOD", 1: "BAD"},
    "new.Closed": {1: "ONE", 2: "TWO"},
}
_CLOSED = {
    ("old.Node", "level"): "old.Level", ("old.Node", "levels"): "old.Level", ("old.Node", "rank"): "old.Level",
    ("old.Node.ByNameEntry", "value"): "old.Grade", ("new.Top", "closed"): "new.Closed",
}  # fmt: skip


class NoRowError(Exception):
    """The message is well-formed Protobuf, and has a value that no column holds."""


@lru_cache
def _list_class_of(text: str, name: str) -> Any:
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors_of(text))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        open_enums(file)
        if file.package != "google.protobuf":
            for message in all_messages(file.message_type):
                for field in message.field:
                    entries = [inner.name for inner in message.nested_type if inner.options.map_entry]
                    if file.syntax == "editions" and (
                        message.options.map_entry or field.type_name.rpartition(".")[2] in entries
                    ):
                        field.options.features.message_encoding = descriptor_pb2.FeatureSet.LENGTH_PREFIXED
            for message in all_messages(file.message_type):
                message.options.ClearField("map_entry")
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def row_of(text: str, name: str, raw: bytes) -> dict[str, Any]:
    """The row that the bytes of a message are, by docs/reference/protobuf.md. Raises DecodeError when they are none."""
    return _stored(_list_class_of(text, name).FromString(raw))


def _stored(message: Any, above: tuple[str, ...] = ()) -> dict[str, Any]:
    inside = (*above, message.DESCRIPTOR.full_name)
    return {field.name: _stored_field(message, field, inside) for field in message.DESCRIPTOR.fields}


def _stored_field(message: Any, field: Any, inside: tuple[str, ...]) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated and field.message_type is not None and field.message_type.name.endswith("Entry"):
        key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        last = {repr(each.key): each for each in value}.values()
        return [(_stored_value(key, each.key, inside), _stored_value(item, each.value, inside)) for each in last]
    if field.is_repeated:
        return [_stored_value(field, each, inside) for each in value]
    if field.has_presence and not message.HasField(field.name):
        if field.is_required:
            raise NoRowError(field.name)
        return None
    return _stored_value(field, value, inside)


def _stored_value(field: Any, value: Any, inside: tuple[str, ...]) -> Any:
    if field.message_type is not None:
        return _stored_message(field.message_type.full_name, value, inside)
    if field.enum_type is not None:
        names = [each.name for each in field.enum_type.values if each.number == value]
        return names[0] if names else str(value)
    closed = _CLOSED.get((field.containing_type.full_name, field.name))
    if closed:
        return _ENUMS[closed].get(value, str(value))
    if field.type == field.TYPE_STRING and isinstance(value, bytes):
        raise NoRowError("no text")
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return Decimal(value)
    return value


def _stored_message(name: str, value: Any, inside: tuple[str, ...]) -> Any:
    if name in inside or name in ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"):
        return _json(value)
    if name == "google.protobuf.Timestamp":
        if not (-62_135_596_800 <= value.seconds <= 253_402_300_799 and 0 <= value.nanos <= 999_999_999):
            raise NoRowError(name)
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if name == "google.protobuf.Duration":
        return _micros(value)
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return Decimal(value.value) if name.endswith("UInt64Value") else value.value
    if name == "google.protobuf.FieldMask":
        return list(value.paths)
    return _stored(value, inside) if value.DESCRIPTOR.fields else True


def _micros(value: Any) -> int:
    nanos: int = value.seconds * 10**9 + value.nanos
    if abs(value.seconds) > 315_576_000_000 or abs(value.nanos) > 999_999_999 or value.seconds * value.nanos < 0:
        raise NoRowError("duration")
    return -(-nanos // 1000) if nanos < 0 else nanos // 1000


def _json(value: Any) -> str:
    schema = _SCHEMAS.get(value.DESCRIPTOR.file.package)
    if schema:  # In JSON enums have names and maps are maps.
        make = message_factory.GetMessageClass(load_message(descriptors_of(schema), value.DESCRIPTOR.full_name))
        value = make.FromString(value.SerializePartialToString())
    if not value.IsInitialized():
        raise NoRowError("required")
    _refuse_bytes_for_text(value)
    try:
        told = json_format.MessageToDict(value, preserving_proto_field_name=True)
    except (ValueError, TypeError, json_format.Error) as error:
        raise NoRowError(str(error)) from None
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _refuse_bytes_for_text(message: Any) -> None:
    """What Protobuf gives as bytes in place of a string was none."""
    for field, value in message.ListFields():
        kind, parts = field.type, [value]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            kind, parts = field.message_type.fields_by_name["value"].type, list(value.values())
            if any(isinstance(key, bytes) for key in value):
                raise NoRowError("no text")
        elif field.is_repeated:
            parts = list(value)
        for part in parts:
            if isinstance(part, bytes) and kind != field.TYPE_BYTES:
                raise NoRowError("no text")
            if kind in (field.TYPE_MESSAGE, field.TYPE_GROUP):
                _refuse_bytes_for_text(part)
