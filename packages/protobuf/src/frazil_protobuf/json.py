"""The JSON text of messages without columns, as they contain themselves or are JSON anyway.

Protobuf's own library writes it (google.protobuf.json_format), message by message.

Source: https://protobuf.dev/programming-guides/json, with the field names of the .proto file. Keys are in alphabetical
order, so that equal bytes give equal text: Protobuf keeps maps in an order that it does not promise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.message import DecodeError

from frazil.decode.columns import Fault
from frazil.error_classes import ErrorClass

JSON_TYPES = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}
MAX_JSON_VALUES = 2_000_000
"""Values in one message that becomes JSON, elements of lists and maps counted: of two bytes each, of hundreds in memory."""

_NO_JSON = Fault(
    ErrorClass.OUT_OF_RANGE, "a value has no JSON, as NaN has none, and Any of a type that the schema lacks"
)
NOT_TEXT = Fault(ErrorClass.INVALID_TEXT, "a string is not UTF-8")
_MALFORMED = Fault(ErrorClass.MALFORMED, "a nested message is not well-formed Protobuf")
_INCOMPLETE = Fault(ErrorClass.MALFORMED, "a required field of a nested message is missing")
_TOO_DEEP = Fault(ErrorClass.TOO_DEEP, "messages are nested more than 100 levels deep, or Any too often in Any")
_TOO_LARGE = Fault(
    ErrorClass.TOO_LARGE, f"the JSON of a message would have more than {MAX_JSON_VALUES:,} values: split it"
)
_ANY = "google.protobuf.Any"
_MAX_ANYS = 32  # The parser counts levels from zero inside each.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


class _Refused(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def to_json(message: Any, size: int) -> str | Fault:
    """The JSON of a message, or why it has none. size: bytes that the message was read from."""
    pool = message.DESCRIPTOR.file.pool
    try:
        if not message.IsInitialized():
            return _INCOMPLETE
        if size > MAX_JSON_VALUES or _may_hold_bytes(message.DESCRIPTOR):
            _Inspection().inspect(message)
        plain = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        return _encode(plain)
    except _Refused as refused:
        return refused.fault
    except DecodeError as error:  # Of an Any.
        return fault_of(error)
    except RecursionError:
        return _TOO_DEEP
    except (ValueError, TypeError, json_format.Error):
        return _NO_JSON


def fault_of(error: DecodeError) -> Fault:
    """Why Protobuf's own parser refuses a message."""
    words = str(error).lower()
    return _TOO_DEEP if "depth" in words else NOT_TEXT if "utf-8" in words else _MALFORMED


@lru_cache(maxsize=256)
def _may_hold_bytes(descriptor: Any) -> bool:
    """Whether a string in such a message may be bytes that are not UTF-8: the parser checks those of proto3, and an Any
    holds any message.
    """
    names, waiting = {descriptor.full_name}, [descriptor]
    while waiting:
        each = waiting.pop()
        file = descriptor_pb2.FileDescriptorProto()
        each.file.CopyToProto(file)
        if file.syntax != "proto3" or each.full_name == _ANY:
            return True
        inside = [field.message_type for field in each.fields if field.message_type is not None]
        waiting += [message for message in inside if message.full_name not in names]
        names.update(message.full_name for message in inside)
    return False


class _Inspection:
    """Looks for what json_format would take for JSON, or take all memory for: strings that are bytes, too many values."""

    def __init__(self) -> None:
        self._count = 0

    def inspect(self, message: Any, anys: int = 0) -> None:
        """Raises _Refused. anys: how many Any the message is in."""
        if message.DESCRIPTOR.full_name == _ANY:
            self._inspect_any(message, anys)
        for field, value in message.ListFields():
            self._inspect_field(field, value, anys)

    def _inspect_any(self, message: Any, anys: int) -> None:
        if anys >= _MAX_ANYS:
            raise RecursionError
        try:
            kind = message.DESCRIPTOR.file.pool.FindMessageTypeByName(message.TypeName())
        except KeyError:
            return  # It has no JSON.
        self.inspect(message_factory.GetMessageClass(kind).FromString(message.value), anys + 1)

    def _inspect_field(self, field: Any, value: Any, anys: int) -> None:
        parts = value if field.is_repeated else [value]
        self._count += len(parts)
        if self._count > MAX_JSON_VALUES:
            raise _Refused(_TOO_LARGE)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, field = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            if key.type == key.TYPE_STRING:
                _check_texts(value)
            parts = value.values()
        if field.message_type is not None:
            for part in parts:
                self.inspect(part, anys)
        elif field.type == field.TYPE_STRING:
            _check_texts(parts)


def _check_texts(values: Iterable[Any]) -> None:
    if not all(isinstance(value, str) for value in values):
        raise _Refused(NOT_TEXT)
