"""Messages that no struct can hold, because they contain themselves or are JSON anyway: Protobuf's own JSON, one by one.
What the compiled writer (`json_scan`) must agree with, and what is asked for the messages that it declines.

Source: https://protobuf.dev/programming-guides/json, with the field names of the .proto file. Keys are in alphabetical
order, so that the same bytes always give the same text: Protobuf keeps maps in an order that it does not promise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError

from frazil.decode.columns import Fault

_NO_JSON = Fault("out_of_range", "a value has no JSON, as NaN has none, and Any of a type that the schema lacks")
NOT_TEXT = Fault("invalid_text", "a string is not UTF-8")
_MALFORMED = Fault("malformed", "a nested message is not well-formed Protobuf")
_INCOMPLETE = Fault("malformed", "a required field of a nested message is missing")
_TOO_DEEP = Fault("too_deep", "messages are nested more than 100 levels deep, or Any too often in Any")
JSON_TYPES = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}
_MAX_ANYS = 32  # The parser counts levels anew inside of each.


def to_json(message: Any) -> str | Fault:
    """The JSON of a message, or why there is none."""
    pool = message.DESCRIPTOR.file.pool
    try:
        if not message.IsInitialized():
            return _INCOMPLETE
        if message.DESCRIPTOR.full_name not in JSON_TYPES and not _is_text(message):
            return NOT_TEXT
        plain = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
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


def _is_text(message: Any, anys: int = 0) -> bool:
    """Whether all strings are: those of proto2 are not checked by the parser, which gives them as bytes then.

    anys: how many Any the message is in.
    """
    if message.DESCRIPTOR.full_name == "google.protobuf.Any" and not _is_text_any(message, anys):
        return False
    return all(_is_text_field(field, value, anys) for field, value in message.ListFields())


def _is_text_any(message: Any, anys: int) -> bool:
    if anys >= _MAX_ANYS:
        raise RecursionError
    try:
        kind = message.DESCRIPTOR.file.pool.FindMessageTypeByName(message.TypeName())
    except KeyError:
        return True  # It has no JSON.
    return _is_text(message_factory.GetMessageClass(kind).FromString(message.value), anys + 1)


def _is_text_field(field: Any, value: Any, anys: int) -> bool:
    parts = value if field.is_repeated else [value]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, field = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        if key.type == key.TYPE_STRING and not _are_text(value):
            return False
        parts = value.values()
    if field.message_type is not None:
        return all(_is_text(part, anys) for part in parts)
    return field.type != field.TYPE_STRING or _are_text(parts)


def _are_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
