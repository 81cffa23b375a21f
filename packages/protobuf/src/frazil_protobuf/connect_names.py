"""Logical types of Kafka Connect in Protobuf schemas, as Confluent's ProtobufConverter writes them.

The converter has messages for Connect's decimals, dates and times, and stores a decimal's parameters in the field
option `confluent.field_meta`. Names of other types, such as Debezium's, are there only where an author added them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from frazil.decode.connect.schema import logical_type_of
from frazil.decode.connect.values import (
    CONFLUENT_DECIMAL,
    GOOGLE_DATE,
    GOOGLE_TIME,
    GOOGLE_TIMESTAMP,
    VARIABLE_SCALE,
    LogicalType,
    confluent_decimal,
)
from frazil.schema.selection import Path
from frazil_protobuf.json import JSON_TYPES
from frazil_protobuf.schema import MAX_LEVELS, load_message

_META_NUMBER, _PARAMS_NUMBER = 1088, 2
_SCALED = {"scale", "value"}
_Proto = descriptor_pb2.FieldDescriptorProto
_LONGS = (_Proto.TYPE_INT64, _Proto.TYPE_SINT64, _Proto.TYPE_SFIXED64)


@functools.lru_cache(maxsize=256)
def logical_types_of_protobuf(descriptors: bytes, message: str) -> Mapping[Path, LogicalType]:
    """Returns the logical types of Kafka Connect by path of the value, in the records of one message; the descriptors
    are valid.
    """
    logical_types: dict[Path, LogicalType] = {}
    _walk(load_message(descriptors, message), (), (), logical_types)
    return logical_types


def _walk(descriptor: Any, path: Path, above: tuple[str, ...], logical_types: dict[Path, LogicalType]) -> None:
    inside = (*above, descriptor.full_name)
    if len(inside) > MAX_LEVELS:
        return
    for each in descriptor.fields:
        own, params = (*path, each.name), _params(each)
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            value = each.message_type.fields_by_name["value"]
            _note(value, (*own, "value"), _params(value), inside, logical_types)
        else:
            _note(each, (*own, "element") if each.is_repeated else own, params, inside, logical_types)


def _note(
    each: Any, path: Path, params: Mapping[str, str], inside: tuple[str, ...], logical_types: dict[Path, LogicalType]
) -> None:
    message = each.message_type
    is_long = each.type in _LONGS
    logical_type = logical_type_of(params.get("connect.name"), params, is_long)
    if logical_type is None and message is not None:
        logical_type = _meaning_of_message(message, params)
    if logical_type is not None:
        logical_types[path] = logical_type
    elif message is not None and message.full_name not in JSON_TYPES and message.full_name not in inside:
        _walk(message, path, inside, logical_types)


def _meaning_of_message(message: Any, params: Mapping[str, str]) -> LogicalType | None:
    if message.full_name == CONFLUENT_DECIMAL:
        return confluent_decimal(params.get("precision"), params.get("scale"))
    if message.full_name in (GOOGLE_DATE, GOOGLE_TIME, GOOGLE_TIMESTAMP):
        return LogicalType(message.full_name)
    is_scaled = message.name == "VariableScaleDecimal" and {each.name for each in message.fields} == _SCALED
    return VARIABLE_SCALE if is_scaled else None


def _params(each: Any) -> Mapping[str, str]:
    """Returns the parameters in a field's `confluent.field_meta`; the descriptors do not know this option."""
    raw = each.GetOptions().SerializeToString()
    if not raw:
        return {}
    try:
        return dict(_options().FromString(raw).meta.params)
    except DecodeError:
        return {}


@functools.lru_cache(maxsize=1)
def _options() -> Any:
    """Returns a message class for field options with only the parameters of `confluent.field_meta`."""
    file = descriptor_pb2.FileDescriptorProto(name="options.proto", package="frazil", syntax="proto3")
    options, meta = file.message_type.add(name="Options"), file.message_type.add(name="Meta")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=_Proto.TYPE_STRING, label=_Proto.LABEL_OPTIONAL)
    message = {"type": _Proto.TYPE_MESSAGE, "label": _Proto.LABEL_OPTIONAL}
    options.field.add(name="meta", number=_META_NUMBER, type_name=".frazil.Meta", **message)
    message["label"] = _Proto.LABEL_REPEATED
    meta.field.add(name="params", number=_PARAMS_NUMBER, type_name=".frazil.Meta.ParamsEntry", **message)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("frazil.Options"))
