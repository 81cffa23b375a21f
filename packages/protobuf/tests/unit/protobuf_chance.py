"""Messages made at random from a seed, and ways to write them that Protobuf's own writer never takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor_pb2, json_format

from tests.fixtures.chance import Chance

_Proto = descriptor_pb2.FieldDescriptorProto
_TEXTS = ("", "a", "é", "日本語", "😀 x", "plain text that is longer than sixteen bytes", "\x00", "123456789012345é")
_DOUBLES = (0.0, -0.0, 1.5, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"), 0.1)
_FLOATS = (0.0, -0.0, 1.5, -3e38, float("inf"), float("nan"), 0.5)
_JSON: tuple[dict[str, Any], ...] = (
    {},
    {"a": 1.5, "b": [True, None, "x"], "c": {"d": {}}},
    {"é": "日"},
    {"": [1, [2, [3]]]},
)
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


def fill(message: Any, chance: Chance, share: float = 0.5, depth: int = 0) -> None:
    """Sets about that share of a message's fields; required ones always."""
    for field in message.DESCRIPTOR.fields:
        if not (field.is_required or chance.happens(share)):
            continue
        if field.message_type is None:
            _fill_scalar(message, field, chance)
        elif depth <= 2 and not (depth and field.name == "packed_any"):  # Any inside of what becomes JSON has none.
            _fill_messages(message, field, chance, share, depth)


def _fill_scalar(message: Any, field: Any, chance: Chance) -> None:
    if field.is_repeated:
        getattr(message, field.name).extend(_scalar(field, chance) for _ in range(chance.one_of((0, 1, 2, 5))))
    else:
        setattr(message, field.name, _scalar(field, chance))


def _fill_messages(message: Any, field: Any, chance: Chance, share: float, depth: int) -> None:
    inner = getattr(message, field.name)
    if field.message_type.GetOptions().map_entry:
        _fill_map(inner, field, chance, share, depth)
    elif field.is_repeated:
        for _ in range(chance.one_of((0, 1, 2, 5))):
            _fill_inner(inner.add(), chance, share, depth)
    else:
        inner.SetInParent()
        _fill_inner(inner, chance, share, depth)


def _fill_map(entries: Any, field: Any, chance: Chance, share: float, depth: int) -> None:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    for _ in range(chance.one_of((0, 1, 3, 20))):
        if value.message_type is not None:
            _fill_inner(entries[_scalar(key, chance)], chance, share, depth)
        else:
            entries[_scalar(key, chance)] = _scalar(value, chance)


def _fill_inner(message: Any, chance: Chance, share: float, depth: int) -> None:
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        message.seconds = chance.whole(_FIRST_SECOND, _LAST_SECOND)
        message.nanos = chance.whole(0, 999_999_999)
    elif name == "google.protobuf.Duration":
        sign = chance.one_of((1, -1))
        message.seconds = sign * chance.whole(0, 315_576_000_000)
        message.nanos = sign * chance.whole(0, 999_999_999)
    elif name == "google.protobuf.Struct":
        json_format.ParseDict(chance.one_of(_JSON), message)
    elif name == "google.protobuf.Value":
        json_format.ParseDict(chance.one_of((*_JSON, None, 1.5, "x", True, [1])), message)
    elif name == "google.protobuf.ListValue":
        json_format.ParseDict(chance.one_of(([], [1, "x", {"a": []}])), message)
    elif name == "google.protobuf.FieldMask":
        message.paths.extend(["a", "b.c"])
    else:
        fill(message, chance, share * 0.7, depth + 1)


_BOUNDS = {
    _Proto.TYPE_INT32: (-(2**31), 2**31 - 1), _Proto.TYPE_SINT32: (-(2**31), 2**31 - 1),
    _Proto.TYPE_SFIXED32: (-(2**31), 2**31 - 1), _Proto.TYPE_INT64: (-(2**63), 2**63 - 1),
    _Proto.TYPE_SINT64: (-(2**63), 2**63 - 1), _Proto.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    _Proto.TYPE_UINT32: (0, 2**32 - 1), _Proto.TYPE_FIXED32: (0, 2**32 - 1),
    _Proto.TYPE_UINT64: (0, 2**64 - 1), _Proto.TYPE_FIXED64: (0, 2**64 - 1), _Proto.TYPE_BOOL: (0, 1),
}  # fmt: skip
_CHOICES = {
    _Proto.TYPE_FLOAT: _FLOATS,
    _Proto.TYPE_DOUBLE: _DOUBLES,
    _Proto.TYPE_STRING: _TEXTS,
    _Proto.TYPE_BYTES: tuple(text.encode() + b"\xff" for text in _TEXTS),
}


def _scalar(field: Any, chance: Chance) -> Any:
    if field.enum_type is not None:
        return chance.one_of([*(each.number for each in field.enum_type.values), *_more_numbers(field.enum_type)])
    if field.type in _BOUNDS:
        number = chance.whole(*_BOUNDS[field.type])
        return bool(number) if field.type == field.TYPE_BOOL else number
    return chance.one_of(_CHOICES[field.type])


def _more_numbers(enum: Any) -> list[int]:
    """Numbers without a name."""
    return [] if enum.is_closed else [99, -7, 2**31 - 1]


def write_oddly(message: Any, again: Any, chance: Chance) -> bytes:
    """Bytes of a message that no plain writer writes: fields in any order, some of `again` among them, so that fields
    come twice and members of a oneof take each other's place; unknown fields; varints longer than needed.
    """
    parts = [*split_fields(message.SerializePartialToString()), *split_fields(again.SerializePartialToString())]
    parts = [part for part in parts if chance.happens(0.8)]
    order: list[int] = chance.rng.permutation(len(parts)).tolist()
    odd: tuple[Callable[[], bytes], ...] = (
        lambda: b"",
        lambda: b"",
        lambda: b"\xf8\xff\xff\xff\x07\x05",  # number 268,435,455, a varint
        lambda: b"\xa3\x06\x08\x01\xa3\x06\xa4\x06\xa4\x06",  # groups 100 in each other, with a field 1
        lambda: b"\xa5\x06abcd\xa1\x06abcdefgh\xa2\x06\x03xyz",
    )
    return b"".join(chance.one_of(odd)() + parts[n] for n in order)


def split_fields(raw: bytes) -> list[bytes]:
    """The fields of a well-formed message, each with its tag."""
    parts = []
    at = 0
    while at < len(raw):
        end = _field_end(raw, at)
        parts.append(raw[at:end])
        at = end
    return parts


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
        if raw[at - 1] < 0x80:
            return value, at


def _field_end(raw: bytes, at: int) -> int:
    tag, at = _varint(raw, at)
    wire = tag & 7
    if wire == 3:
        while _varint(raw, at)[0] != tag + 1:
            at = _field_end(raw, at)
        return _varint(raw, at)[1]
    if wire == 2:
        length, at = _varint(raw, at)
        return at + length
    return _varint(raw, at)[1] if wire == 0 else at + (8 if wire == 1 else 4)


def spoil(raw: bytes, chance: Chance) -> bytes:
    """The bytes with a few dead letters, which are most often in texts, replaced by a byte that no text has."""
    torn = bytearray(raw)
    dead_letters = [at for at, byte in enumerate(torn) if byte < 0x80 and chr(byte).isalpha()]
    for _ in range(chance.below(4) if dead_letters else 0):
        torn[chance.one_of(dead_letters)] = 0xFF
    return bytes(torn)
