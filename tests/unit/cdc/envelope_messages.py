"""Envelopes written by hand, as JSON and as Avro, and the changes that are read from them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope, Reading, WriterSchema
from frazil.stages.changes import Changes
from tests.unit.cdc.envelope_reference import records_of, target_for

UPSERT_ENVELOPE = Envelope("debezium", is_upsert=True, keys=(("id",),))
LOG = Envelope("debezium", is_log=True)
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "namespace": "t",
    "fields": [
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [
                        {"name": "id", "type": "long"},
                        {"name": "v", "type": ["null", "string"]},
                        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
                    ],
                },
            ],
        },
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "connector", "type": "string"}, {"name": "lsn", "type": ["null", "long"]}],
            },
        },
        {"name": "op", "type": "string"},
    ],
}


def debezium(op: Any, before: Any = None, after: Any = None, **more: Any) -> bytes:
    """A record's value in Debezium's envelope."""
    return json.dumps({"before": before, "after": after, "op": op, **more}, separators=(",", ":")).encode()


def read_changes(
    envelope: Envelope, *values: bytes | None, columns: Mapping[str, str] | None = None, **other: Any
) -> Changes:
    """What the records of a topic are to a table with such an envelope."""
    return read_envelope(target_for(envelope, columns or {"id": "long", "v": "string"}, **other), records_of(values))


def bad_records(changes: Changes) -> list[tuple[int, str, str]]:
    """Row, class of error and path of each bad record."""
    return [(one.row, one.kind, one.path) for one in changes.decoded.mismatches]


def avro(*messages: Mapping[str, Any], schema: Mapping[str, Any] = AVRO) -> tuple[Reading, dict[str, pa.Array]]:
    """How Avro messages of one schema are read, and their records. Each has a source, unless it brings its own."""
    parsed, values = fastavro.parse_schema(json.loads(json.dumps(schema))), []
    for message in messages:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, {"source": {"connector": "c", "lsn": 9}, **message})
        values.append(b"\0\0\0\0\1" + body.getvalue())
    text = WriterSchema("avro", json.dumps(schema))
    return Reading(format="avro", schemas=(("1", text),), on_bad="dead_letter"), records_of(values)
