"""The benchmark's records in the formats of a schema registry, in Confluent's wire format.

As in JSON, only a record's id is written for each record; what follows it comes encoded from the pool.
"""

from __future__ import annotations

import dataclasses
import io
import json
import struct
from collections.abc import Callable

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bench.records import AGENT, SCHEMA, DamagedPool, Pool
from bench.registry import Kind
from frazil_protobuf.protoc import compile_proto

Value = Callable[[int], bytes]
ADDED = "added"
_ADDED_FIELD = {"name": ADDED, "type": ["null", "long"], "default": None}
_PROTO_TYPES = {"long": "int64", "string": "string", "double": "double", "boolean": "bool"}
_JSON_TYPES = {"long": "integer", "string": "string", "double": "number", "boolean": "boolean"}
_ID_TAG = b"\x08"  # Field 1, a varint.
_FIRST_MESSAGE = b"\x00"
_AGENT = AGENT.encode()


@dataclasses.dataclass(frozen=True)
class Format:
    """One format. kind: its name in the registry. values: the values of the pool's records, of the schema with an id."""

    kind: Kind
    schema: str
    values: Callable[[Pool, int], Value]


def frame(schema_id: int) -> bytes:
    """What stands before a value's body: a zero byte, and the schema's id in four."""
    return b"\x00" + struct.pack(">i", schema_id)


def varint(number: int) -> bytes:
    """A number from 0 on in groups of seven bits, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> bytes:
    """A number of at most 64 bits as Avro writes it: small ones short, whatever their sign."""
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def avro_schema(with_added: bool = False) -> str:
    """The writer's schema; later producers have one field more."""
    fields: list[dict[str, object]] = [{"name": name, "type": kind} for name, kind in SCHEMA.items()]
    return json.dumps({"type": "record", "name": "Event", "fields": fields + [_ADDED_FIELD] * with_added})


def proto_schema() -> str:
    """The message, in a .proto file."""
    fields = (f"{_PROTO_TYPES[kind]} {name} = {place};" for place, (name, kind) in enumerate(SCHEMA.items(), 1))
    return f'syntax = "proto3"; message Event {{ {" ".join(fields)} }}'


def json_schema() -> str:
    """The JSON Schema of the plain benchmark's records."""
    properties = {name: {"type": _JSON_TYPES[kind]} for name, kind in SCHEMA.items()}
    return json.dumps({"type": "object", "title": "Event", "properties": properties})


def _avro_values(pool: Pool, schema_id: int) -> Value:
    schema, tails = fastavro.parse_schema(json.loads(avro_schema())), []
    for tail in pool.tails:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, {"id": 0, **json.loads(b"{" + tail)})
        tails.append(body.getvalue()[1:])
    head = frame(schema_id)
    return lambda number: head + zigzag(number) + tails[number % len(tails)]


def _protobuf_values(pool: Pool, schema_id: int) -> Value:
    descriptors = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compile_proto(proto_schema())).file:
        descriptors.Add(file)
    message = message_factory.GetMessageClass(descriptors.FindMessageTypeByName("Event"))
    tails = [message(**json.loads(b"{" + tail)).SerializeToString() for tail in pool.tails]
    head = frame(schema_id) + _FIRST_MESSAGE + _ID_TAG
    return lambda number: head + varint(number) + tails[number % len(tails)]


def _json_values(pool: Pool, schema_id: int) -> Value:
    head = frame(schema_id)
    return lambda number: head + pool.value(number)


FORMATS = {
    "avro": Format("AVRO", avro_schema(), _avro_values),
    "protobuf": Format("PROTOBUF", proto_schema(), _protobuf_values),
    "json_schema": Format("JSON", json_schema(), _json_values),
}


def damaged_avro(pool: DamagedPool, schema_id: int) -> Value:
    """The records of a pool in Avro; its bad ones are cut short, have another first byte, or one byte too many, in turn."""
    whole = FORMATS["avro"].values(pool.pool, schema_id)

    def value(number: int) -> bytes:
        good = whole(number)
        if not pool.is_bad(number):
            return good
        return (good[:-20], b"\x07" + good[1:], good + b"\x00")[number // 100 % 3]

    return value


@dataclasses.dataclass(frozen=True)
class TimedAvro:
    """Avro records with the moment they were produced at; from the number `changes_at` on they have the added field."""

    old_id: int
    new_id: int
    changes_at: int

    def __call__(self, number: int, now_us: int) -> bytes:
        is_new = number >= self.changes_at
        texts = (b"/p/%d/view" % (number % 5000), b"view", b"%b%d" % (_AGENT, number % 100))
        page, action, agent = (zigzag(len(text)) + text for text in texts)
        parts = (
            frame(self.new_id if is_new else self.old_id),
            zigzag(number),
            zigzag(abs(number) * 7919 % 1_000_000),
            page,
            action,
            struct.pack("<d", number % 100 + 0.25),
            b"\x01",
            zigzag(now_us),
            agent,
            zigzag(1) + zigzag(number) if is_new else b"",
        )
        return b"".join(parts)
