"""Values of cases as the bytes that producers write: JSON, Avro, Protobuf, JSON with a registered schema, text, bytes."""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from fastavro import parse_schema, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from frazil.errors import SpecError
from frazil.registry.port import SchemaKind, UnusableSchema
from frazil.spec.settings import ValueSpec
from frazil.spec.syntax.document import Items, Node, Scalar, Section
from frazil.spec.syntax.keys import is_true
from frazil_protobuf.protoc import compile_proto
from frazil_testing.memory_registry import MemoryRegistry

_KINDS: Mapping[str, SchemaKind] = {"avro": "avro", "protobuf": "protobuf", "json_schema": "json_schema"}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"([-+]?)\.(inf|nan)", re.IGNORECASE)
_FRACTION = re.compile(r"[.,]([0-9]+)")
_NANO_DIGITS, _NANOS = 9, 1_000_000_000
_BYTES = ("hex", "base64", "file")


class WrongValue(Exception):
    """A value that cannot be written as its schema has it; the text has the reason."""


@dataclass(frozen=True)
class SchemaFile:
    """A schema of a file beside the cases."""

    path: Path
    text: str


class Encoder:
    """Writes values, and registers their schemas in the registry of the cases."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry

    def register(self, value: ValueSpec, schema: SchemaFile, subject: str) -> int:
        """Returns the id of a schema in the registry; 0 of a format without schemas."""
        kind = _KINDS.get(value.format)
        return 0 if kind is None else self._registry.register(kind, schema.text, subject=subject)

    def encode(self, node: Node, value: ValueSpec, schema: SchemaFile | None, subject: str) -> bytes | None:
        """Returns the bytes of a value, or of a key; None for null. subject: under which its schema is registered.

        Raises: WrongValue.
        """
        if is_null(node):
            return None
        kind = _KINDS.get(value.format)
        if kind is None:
            is_text = isinstance(node, Scalar) and value.format in ("text", "raw")
            return (node.text if is_text else json_text(node)).encode()  # type: ignore[union-attr]
        if schema is None:
            raise WrongValue(f"{value.format} needs a schema: name its file, such as `schemas: {{value: order.avsc}}`")
        if value.framing == "header" or (kind == "protobuf" and value.framing != "confluent"):
            raise WrongValue(f"cases cannot write {value.format} with `framing: {value.framing}`; write its `bytes`")
        number = self.register(value, schema, subject)
        head = struct.pack(">xq" if value.framing == "apicurio" else ">xi", number)
        if kind == "protobuf":
            return head + _protobuf(node, schema.text, value.message or "", is_named=value.source == "registry")
        body = json_text(node).encode() if kind == "json_schema" else _avro(node, schema.text)
        return body if value.source == "latest" and kind == "avro" else head + body


def is_null(node: Node) -> bool:
    """Whether a value is null."""
    return isinstance(node, Scalar) and node.kind == "nothing"


def read_schema(path: Path, where: str) -> SchemaFile:
    """Returns the schema of a file.

    Raises: SpecError where it cannot be read.
    """
    try:
        return SchemaFile(path, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SpecError(
            f"the schema `{path}` cannot be read: {reason}", remedy="correct the path, or write the file", where=where
        ) from None


def bytes_of(node: Node, folder: Path) -> bytes:
    """Returns bytes that are written as `{hex: …}`, `{base64: …}` or `{file: PATH}`.

    Raises: WrongValue.
    """
    if isinstance(node, Section) and len(node) == 1 and (form := next(iter(node))) in _BYTES:
        text = node[form]
        if isinstance(text, Scalar):
            try:
                if form == "file":
                    return (folder / text.text).read_bytes()
                return bytes.fromhex(text.text) if form == "hex" else base64.b64decode(text.text, validate=True)
            except (ValueError, binascii.Error, OSError) as error:
                raise WrongValue(f"the bytes cannot be read: {error}") from None
    raise WrongValue("bytes are written as `{hex: …}`, `{base64: …}` or `{file: PATH}`")


# ---- JSON


def json_text(node: Node) -> str:
    """Returns a value as JSON; a number as it is written."""
    if isinstance(node, Section):
        return "{" + ",".join(f"{_quoted(key)}:{json_text(value)}" for key, value in node.items()) + "}"
    if isinstance(node, Items):
        return "[" + ",".join(map(json_text, node)) + "]"
    if node.kind == "nothing":
        return "null"
    if node.kind == "boolean":
        return str(is_true(node)).lower()
    is_number = node.kind in ("integer", "number") and _NUMBER.fullmatch(node.text)
    return node.text if is_number else _quoted(number_text(node))


def number_text(node: Scalar) -> str:
    """Returns the text of a scalar; `NaN` or `Infinity`, as other languages write it, for the `.nan` and `.inf` of YAML."""
    match = _NOT_FINITE.fullmatch(node.text) if node.kind == "number" else None
    if match is None:
        return node.text
    return "NaN" if match[2].lower() == "nan" else f"{match[1].removeprefix('+')}Infinity"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def plain(node: Node) -> Any:
    """Returns a value as Python's own."""
    return json.loads(json_text(node))


# ---- Avro


def _avro(node: Node, text: str) -> bytes:
    schema, names = parsed_avro(text)
    body = io.BytesIO()
    value = _AvroValues(names).value(node, schema, "")
    try:
        schemaless_writer(body, schema, value)
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise WrongValue(f"Avro does not take the value: {error}") from None
    return body.getvalue()


@cache
def parsed_avro(text: str) -> tuple[Any, Mapping[str, Any]]:
    """Returns the schema of a text, and the types that it names.

    Raises: WrongValue.
    """
    names: dict[str, Any] = {}
    try:
        return parse_schema(json.loads(text), names), names
    except (ValueError, TypeError, SchemaParseException, UnknownType) as error:
        raise WrongValue(f"the Avro schema cannot be used: {error}") from None


class _AvroValues:
    """Values of YAML as the values that an Avro schema has."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def value(self, node: Node, schema: Any, path: str) -> Any:
        """Returns a value. path: of the field, for messages."""
        if isinstance(schema, list):
            return self._union(node, schema, path)
        if isinstance(schema, str):
            schema = self._names.get(schema, {"type": schema})
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.value(node, kind, path)
        if kind in ("record", "error"):
            return self._record(_expect(node, Section, path, "a mapping"), schema, path)
        if kind == "array":
            items = _expect(node, Items, path, "a list")
            return [self.value(item, schema["items"], f"{path}[{number}]") for number, item in enumerate(items)]
        if kind == "map":
            entries = _expect(node, Section, path, "a mapping")
            return {key: self.value(held, schema["values"], f"{path}.{key}") for key, held in entries.items()}
        return _avro_scalar(_expect(node, Scalar, path, f"a value of the type {kind}"), schema, path)

    def _record(self, node: Section, schema: Any, path: str) -> dict[str, Any]:
        fields = {field["name"]: field for field in schema["fields"]}
        strange = [key for key in node if key not in fields]
        if strange:
            raise WrongValue(f"the schema has no field `{_joined(path, strange[0])}`")
        values = {}
        for name, field in fields.items():
            if name in node:
                values[name] = self.value(node[name], field["type"], _joined(path, name))
            elif "default" not in field:
                if not _takes_null(field["type"]):
                    raise WrongValue(f"the field `{_joined(path, name)}` is missing, and the schema requires it")
                values[name] = None
        return values

    def _union(self, node: Node, branches: list[Any], path: str) -> Any:
        if is_null(node) and "null" in branches:
            return None
        reasons = []
        for branch in branches:
            if branch == "null":
                continue
            try:
                return self.value(node, branch, path)
            except WrongValue as error:
                reasons.append(str(error))
        raise WrongValue(reasons[0] if reasons else f"`{path}` can only be null")


def _takes_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _expect(node: Node, kind: type[Any], path: str, words: str) -> Any:
    if not isinstance(node, kind):
        raise WrongValue(f"`{path or 'the value'}` is not {words}")
    return node


_Convert = Callable[[Scalar], Any]


def _avro_scalar(node: Scalar, schema: Any, path: str) -> Any:
    kind, logical = schema["type"], schema.get("logicalType", "")
    convert = _LOGICAL.get(logical) if node.kind not in ("integer",) or logical == "decimal" else None
    convert = convert or _PRIMITIVE.get(kind)
    try:
        if kind == "enum":
            if node.text not in schema["symbols"]:
                raise WrongValue(f"`{path}` is not one of {', '.join(schema['symbols'])}")
            return node.text
        value = convert(node) if convert is not None else node.text.encode("latin-1")
        return value.bytes if isinstance(value, UUID) and kind == "fixed" else value
    except (ValueError, InvalidOperation) as error:
        raise WrongValue(f"`{path}` is not of the type {logical or kind}: {error}") from None


def _boolean(node: Scalar) -> bool:
    if node.kind != "boolean":
        raise ValueError("write true or false")
    return is_true(node)


def _text(node: Scalar) -> str:
    if node.kind not in ("text", "time"):
        raise ValueError("put it in quotes")
    return node.text


def moment_of(text: str) -> datetime:
    """Returns the moment that a text of ISO 8601 means, in UTC unless it has an offset. Raises: ValueError."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def nanos_of(text: str) -> int:
    """Returns the nanoseconds since 1970 that a text of ISO 8601 means, in UTC unless it has an offset.

    Raises: ValueError.
    """
    match = _FRACTION.search(text)
    fraction = match[1] if match is not None else ""
    if len(fraction) > _NANO_DIGITS:
        raise ValueError("a second has at most nine digits")
    second = moment_of(_FRACTION.sub("", text))
    return int(second.timestamp()) * _NANOS + int(fraction.ljust(_NANO_DIGITS, "0"))


_PRIMITIVE: Mapping[str, _Convert] = {
    "boolean": _boolean,
    "int": lambda node: int(node.text),
    "long": lambda node: int(node.text),
    "float": lambda node: float(number_text(node)),
    "double": lambda node: float(number_text(node)),
    "string": _text,
    "bytes": lambda node: _text(node).encode("latin-1"),
    "fixed": lambda node: _text(node).encode("latin-1"),
}
_LOGICAL: Mapping[str, _Convert] = {
    "decimal": lambda node: Decimal(node.text),
    "date": lambda node: date.fromisoformat(node.text),
    "time-millis": lambda node: time.fromisoformat(node.text),
    "time-micros": lambda node: time.fromisoformat(node.text),
    "timestamp-millis": lambda node: moment_of(node.text),
    "timestamp-micros": lambda node: moment_of(node.text),
    "timestamp-nanos": lambda node: nanos_of(node.text),
    "local-timestamp-millis": lambda node: datetime.fromisoformat(node.text),
    "local-timestamp-micros": lambda node: datetime.fromisoformat(node.text),
    "local-timestamp-nanos": lambda node: nanos_of(node.text),
    "uuid": lambda node: UUID(node.text),
}


# ---- Protobuf


def _protobuf(node: Node, text: str, name: str, is_named: bool) -> bytes:
    """Returns a message. name: its full name; empty for the first of the schema. is_named: whether the path to it is
    written before it.
    """
    message_class, path = _message_class(text, name)
    message = message_class()
    try:
        json_format.ParseDict(plain(node), message)
    except json_format.ParseError as error:
        raise WrongValue(f"Protobuf does not take the value: {' '.join(str(error).split())}") from None
    if not is_named:
        return bytes(message.SerializeToString())
    if path == (0,):
        return b"\0" + bytes(message.SerializeToString())
    return b"".join(map(_varint, (len(path), *path))) + bytes(message.SerializeToString())


@cache
def _message_class(text: str, name: str) -> tuple[Any, tuple[int, ...]]:
    """Returns the class of a message, and the path to it: its place in the file, and that in each message around it."""
    try:
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(compile_proto(text))
    except UnusableSchema as error:
        raise WrongValue(f"the Protobuf schema cannot be used: {error}") from None
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors.file:
        pool.Add(file)
    own = descriptors.file[-1]
    paths = dict(_messages(own.message_type, own.package, ()))
    if name and name not in paths:
        raise WrongValue(f"the schema has no message `{name}`; write one of: {', '.join(paths)}")
    name = name or next(iter(paths), "")
    if not name:
        raise WrongValue("the schema has no message")
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name)), paths[name]


def _messages(messages: Any, scope: str, path: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for number, message in enumerate(messages):
        name = f"{scope}.{message.name}" if scope else message.name
        yield name, (*path, number)
        yield from _messages(message.nested_type, name, (*path, number))


def _varint(number: int) -> bytes:
    """Returns a number in the zigzag form of Confluent's path of indexes."""
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))
