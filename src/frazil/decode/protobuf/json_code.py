"""The tables that the compiled writer of JSON (`json_scan`) looks into: the messages that one message can hold.

The fields of a message are neighbours in the order of their names, in which they are written; `numbers` has them in the
order of their numbers, in which they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, wrappers_pb2
from numpy.typing import NDArray

from frazil.decode.protobuf.wire import WIRE_BYTES, WIRE_FIXED32, WIRE_FIXED64, WIRE_VARINT

# How messages are written. OTHER: not here.
RECORD, STRUCT, VALUE, LIST_VALUE, WRAPPER, TIMESTAMP, DURATION, OTHER = range(8)

# How values are read and written; of each wire type the neighbours. Those from TEXT on have a length.
INT, LONG, UNSIGNED, UNSIGNED_LONG, ZIGZAG, ZIGZAG_LONG, BOOLEAN, ENUM, NULL_ENUM = range(9)
FIXED, SIGNED_FIXED, FLOAT = range(9, 12)
LONG_FIXED, SIGNED_LONG_FIXED, DOUBLE = range(12, 15)
TEXT, BYTES, MESSAGE, UNREAD = range(15, 19)

ONE, LIST, MAP = range(3)

# Columns of the table of messages: how it is written, its first field, how many, with its oneofs, whether one is required,
# whether others can have been added to it.
KIND, FIRST, COUNT, SLOTS, HAS_REQUIRED, IS_EXTENDABLE = range(6)

# Columns of the table of fields: how its values are read (those of a map, too), their wire type, how many there can be,
# the message that they are or the first word of an enum, words, whether it has only these; how a map's keys are read; the
# bytes of its name; whether it is absent when it is 0, must be there, its oneof among the message's slots (-1: none).
TYPE, WIRE, SHAPE, CHILD, WORDS, IS_CLOSED, KEY, NAME_AT, NAME_LENGTH, IS_IMPLICIT, IS_REQUIRED, ONEOF = range(12)

_Proto = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    _Proto.TYPE_INT32: INT, _Proto.TYPE_INT64: LONG, _Proto.TYPE_UINT32: UNSIGNED, _Proto.TYPE_UINT64: UNSIGNED_LONG,
    _Proto.TYPE_SINT32: ZIGZAG, _Proto.TYPE_SINT64: ZIGZAG_LONG, _Proto.TYPE_BOOL: BOOLEAN, _Proto.TYPE_ENUM: ENUM,
    _Proto.TYPE_FIXED32: FIXED, _Proto.TYPE_SFIXED32: SIGNED_FIXED, _Proto.TYPE_FLOAT: FLOAT,
    _Proto.TYPE_FIXED64: LONG_FIXED, _Proto.TYPE_SFIXED64: SIGNED_LONG_FIXED, _Proto.TYPE_DOUBLE: DOUBLE,
    _Proto.TYPE_STRING: TEXT, _Proto.TYPE_BYTES: BYTES, _Proto.TYPE_MESSAGE: MESSAGE,
}  # fmt: skip
_KINDS = {
    "google.protobuf.Struct": STRUCT, "google.protobuf.Value": VALUE, "google.protobuf.ListValue": LIST_VALUE,
    "google.protobuf.Timestamp": TIMESTAMP, "google.protobuf.Duration": DURATION,
    "google.protobuf.Any": OTHER, "google.protobuf.FieldMask": OTHER,
    **{message.full_name: WRAPPER for message in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()},
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class JsonCode:
    """The tables of one message, which is the first. numbers: of each field its number and its place in `fields`. words:
    of each number of an enum that number, and the first byte of its name in `literals` and their count.
    """

    messages: NDArray[np.int64]
    fields: NDArray[np.int64]
    numbers: NDArray[np.int64]
    words: NDArray[np.int64]
    literals: NDArray[np.uint8]


@lru_cache(maxsize=256)
def plan_json(descriptor: Any) -> JsonCode:
    """The tables for a message."""
    planner = _Planner(descriptor)
    return JsonCode(
        np.array(planner.messages, np.int64),
        np.array(planner.fields, np.int64).reshape(-1, 12),
        np.array(planner.numbers, np.int64).reshape(-1, 2),
        np.array(planner.words, np.int64).reshape(-1, 3),
        np.frombuffer(bytes(planner.literals) or b" ", np.uint8),
    )


class _Planner:
    def __init__(self, root: Any) -> None:
        self.messages: list[list[int]] = []
        self.fields: list[list[int]] = []
        self.numbers: list[tuple[int, int]] = []
        self.words: list[tuple[int, int, int]] = []
        self.literals = bytearray()
        self._found: dict[str, Any] = {root.full_name: root}
        while len(self.messages) < len(self._found):
            self._message(list(self._found.values())[len(self.messages)])

    def _message(self, descriptor: Any) -> None:
        kind, first = _KINDS.get(descriptor.full_name, RECORD), len(self.fields)
        members = sorted(descriptor.fields, key=lambda each: each.name) if kind in (RECORD, WRAPPER) else []
        oneofs = {oneof.full_name: len(members) + n for n, oneof in enumerate(descriptor.oneofs)}
        flags = int(any(each.is_required for each in members)), int(descriptor.is_extendable)
        self.messages.append([kind, first, len(members), len(members) + len(oneofs), *flags])
        self.fields += [self._field(each, oneofs) for each in members]
        self.numbers += sorted((each.number, first + n) for n, each in enumerate(members))

    def _field(self, field: Any, oneofs: dict[str, int]) -> list[int]:
        message = field.message_type
        is_map = message is not None and message.GetOptions().map_entry
        value = message.fields_by_name["value"] if is_map else field
        child, words, is_closed = self._inside(value)
        shape = MAP if is_map else LIST if field.is_repeated else ONE
        return [
            self._type(value), WIRE_BYTES if is_map else _wire(self._type(value)), shape, child, words, int(is_closed),
            self._type(message.fields_by_name["key"]) if is_map else 0,
            *self._literal(f'"{field.name}":'), int(shape == ONE and not field.has_presence), int(field.is_required),
            oneofs[field.containing_oneof.full_name] if field.containing_oneof is not None else -1,
        ]  # fmt: skip

    def _type(self, field: Any) -> int:
        if field.enum_type is not None and field.enum_type.full_name == "google.protobuf.NullValue":
            return NULL_ENUM
        return _SCALARS.get(field.type, UNREAD)

    def _inside(self, field: Any) -> tuple[int, int, bool]:
        """Message or first word, how many words, whether there can be no others."""
        if field.message_type is not None:
            self._found.setdefault(field.message_type.full_name, field.message_type)
            return list(self._found).index(field.message_type.full_name), 0, False
        if field.enum_type is None:
            return 0, 0, False
        first = len(self.words)
        words = field.enum_type.values_by_number
        self.words += [(number, *self._literal(f'"{words[number].name}"')) for number in sorted(set(words))]
        return first, len(self.words) - first, field.enum_type.is_closed

    def _literal(self, text: str) -> tuple[int, int]:
        raw = text.encode()
        self.literals += raw
        return len(self.literals) - len(raw), len(raw)


def _wire(kind: int) -> int:
    if kind >= TEXT:
        return WIRE_BYTES
    return WIRE_VARINT if kind < FIXED else WIRE_FIXED32 if kind < LONG_FIXED else WIRE_FIXED64
