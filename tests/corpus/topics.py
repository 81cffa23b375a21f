"""The topics of the corpus: their records with the schemas that these name, and how each format writes a value."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastavro import parse_schema, schemaless_writer

from frazil.types import as_json
from tests.corpus.shapes import (
    Struct,
    avro_schema,
    avro_value,
    connect_schema,
    connect_value,
    json_schema,
    json_value,
)
from tests.simulation.judge.chance import Chance

TOPIC = "t"
FIRST_MS = 1_790_000_000_000
STEP_MS = 977


@dataclass(frozen=True)
class Record:
    """A record of a topic."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    #: -1 for none.
    timestamp_ms: int = FIRST_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = TOPIC


@dataclass(frozen=True)
class RegisteredText:
    """A schema of the registry. subject: whose newest version it is; empty for none."""

    kind: str
    text: str
    subject: str = ""


@dataclass
class Schemas:
    """The schemas of a topic, numbered as a registry numbers them that gets them in this order."""

    texts: list[RegisteredText] = field(default_factory=list)

    def register(self, kind: str, text: str, subject: str = "") -> int:
        """Returns the id of a schema."""
        known = [(one.kind, one.text) for one in self.texts]
        if (kind, text) not in known:
            self.texts.append(RegisteredText(kind, text, subject))
            known.append((kind, text))
        return known.index((kind, text)) + 1


@dataclass(frozen=True)
class Stream:
    """What feeds a table: records, and the settings of the table that say what they are."""

    records: tuple[Record, ...]
    settings: Mapping[str, Any]
    schemas: tuple[RegisteredText, ...] = ()
    partitions: int = 1
    #: Fields that the format writes as text though other formats have a type for them.
    texts: frozenset[str] = frozenset()


Encode = Callable[[int, Mapping[str, Any]], bytes]
"""Makes a record's value of the number of its schema's version and its fields."""


@dataclass(frozen=True)
class Encoding:
    """A way to write values. settings: the table's `value` or `key`."""

    settings: Mapping[str, Any]
    encode: Encode


def plain_json(versions: Sequence[Struct]) -> Encoding:
    """Returns JSON without a schema."""
    return Encoding({"format": "json"}, lambda version, value: dumped(json_value(versions[version], value)))


def connect_json(versions: Sequence[Struct]) -> Encoding:
    """Returns JSON with the schema of Kafka Connect's converter in each record."""
    schemas = [connect_schema(version) for version in versions]

    def encode(version: int, value: Mapping[str, Any]) -> bytes:
        return dumped({"schema": schemas[version], "payload": connect_value(versions[version], value)})

    return Encoding({"format": "json"}, encode)


def registered_json(versions: Sequence[Struct], schemas: Schemas) -> Encoding:
    """Returns JSON with a JSON Schema in the registry."""
    ids = [schemas.register("json_schema", json.dumps(json_schema(version))) for version in versions]
    return Encoding(
        {"format": "json_schema"},
        lambda version, value: framed(ids[version]) + dumped(json_value(versions[version], value)),
    )


def avro(versions: Sequence[Struct], schemas: Schemas, framing: str = "confluent", subject: str = "") -> Encoding:
    """Returns Avro. framing: confluent, apicurio, or empty for records without an id, of the newest schema of a subject."""
    texts = [avro_schema(version, set()) for version in versions]
    ids = [schemas.register("avro", json.dumps(text), subject) for text in texts]
    parsed = [parse_schema(text) for text in texts]

    def encode(version: int, value: Mapping[str, Any]) -> bytes:
        version = version if framing else len(versions) - 1
        body = io.BytesIO()
        schemaless_writer(body, parsed[version], avro_value(versions[version], value))
        return (framed(ids[version], framing) if framing else b"") + body.getvalue()

    if not framing:
        return Encoding({"format": "avro", "schema": "latest"}, encode)
    return Encoding({"format": "avro", **({} if framing == "confluent" else {"framing": framing})}, encode)


def framed(number: int, framing: str = "confluent") -> bytes:
    """Returns the bytes that name a schema."""
    return struct.pack(">xq" if framing == "apicurio" else ">xi", number)


def dumped(value: Any) -> bytes:
    """Returns JSON, its names in their order."""
    return json.dumps(value, ensure_ascii=False).encode()


def spoiled(chance: Chance, raw: bytes) -> bytes | None:
    """Returns a record that is damaged: cut, with more behind it, of an unknown schema, or something else."""
    cut = raw[: chance.upto(len(raw))]
    return chance.one((cut, cut, raw + b"\1", b"\0\0\0\0\x63" + raw[5:], b"", b"{}", b"[1]", b"null", b"\xff", None))


def key_text(**fields: Any) -> bytes:
    """Returns the key of a record with these fields, as JSON."""
    return as_json(fields).encode()
