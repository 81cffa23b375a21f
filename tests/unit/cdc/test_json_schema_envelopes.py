"""Envelopes and rows behind the wire format of JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import PLACEHOLDER, Envelope, Reading, WriterSchema
from frazil.stages.changes import DELETE, UPSERT
from tests.unit.cdc.envelope_messages import LOG, UPSERT_ENVELOPE, bad_records, debezium
from tests.unit.cdc.envelope_reference import records_of, target_for

_JSON_ROW: dict[str, Any] = {
    "type": "object",
    "title": "fz.public.t.Value",
    "properties": {
        "id": {"type": "integer", "connect.type": "int32"},
        "v": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "n": {"oneOf": [{"type": "null"}, {"type": "number", "connect.type": "float32"}]},
    },
}
JSON_ENVELOPE = {
    "type": "object",
    "title": "fz.public.t.Envelope",
    "properties": {
        "before": {"oneOf": [{"type": "null"}, _JSON_ROW]},
        "after": {"oneOf": [{"type": "null"}, _JSON_ROW]},
        "source": {"type": "object", "properties": {"lsn": {"type": "integer"}}},
        "op": {"type": "string"},
    },
}


def _framed(schema: Mapping[str, Any], *values: bytes | None) -> tuple[Reading, dict[str, pa.Array]]:
    text = WriterSchema("json_schema", json.dumps(schema))
    found = [None if value is None else b"\0\0\0\0\1" + value for value in values]
    return Reading(format="json_schema", schemas=(("1", text),), on_bad="dead_letter"), records_of(found)


def test_an_envelope_behind_the_frame_of_a_json_schema_is_read_as_json_is() -> None:
    row = {"id": 1, "v": "a", "n": 1.5}
    values = [
        debezium("c", after=row, source={"lsn": 9}),
        debezium("u", {**row, "id": 2}, {**row, "v": PLACEHOLDER}),
        debezium("d", {"id": 1}),
        None,
        debezium("x", after=row),
        b"{",
    ]
    reading, records = _framed(JSON_ENVELOPE, *values)
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {}, reading=reading), records)
    requested_fields = changes.decoded.requested_fields[()]
    assert {name: str(kind) for name, kind in requested_fields.items()} == {"id": "int", "v": "string", "n": "float"}
    changes = read_envelope(target_for(UPSERT_ENVELOPE, requested_fields, ("position",), reading=reading), records)
    assert changes.ops.tolist() == [UPSERT, DELETE, UPSERT, DELETE]
    assert changes.columns[0].to_pylist() == [1, 2, 1, 1]
    assert changes.unavailable[1].tolist() == [False, False, True, False]
    assert changes.own["position"].to_pylist()[0] == f"{9:020}"
    assert bad_records(changes) == [(4, "unknown_operation", ""), (5, "malformed", "")]
    assert (changes.ignored_records, changes.decoded.requested_fields) == ({"tombstone": 1}, {})


def test_a_json_schema_tells_the_columns_that_a_table_of_rows_may_not_get() -> None:
    reading, records = _framed(JSON_ENVELOPE, debezium("c", after={"id": 1, "v": "a"}))
    frozen = replace(reading, unknown_fields="refuse")
    changes = read_envelope(target_for(Envelope("debezium"), {"id": "int"}, reading=frozen), records)
    assert sorted(changes.decoded.refusals) == [
        "schema 1: column n: float is not added: `schema_evolution` is `freeze`",
        "schema 1: column v: string is not added: `schema_evolution` is `freeze`",
    ]
    assert bad_records(changes) == [(0, "unknown_field", "after.v")]


@pytest.mark.parametrize(
    ("envelope", "value"),
    [
        (UPSERT_ENVELOPE, b'{"id":1,"v":"a","__op":"c"}'),
        (Envelope("operation", "ops", ("I",), is_upsert=True, keys=(("id",),)), b'{"id":1,"v":"a","ops":"I"}'),
    ],
)
def test_a_row_behind_the_frame_of_a_json_schema_with_its_operation_beside_it(envelope: Envelope, value: bytes) -> None:
    more = {"__op": {"type": "string"}} if envelope.kind == "debezium" else {"ops": {"type": "string"}}
    reading, records = _framed({**_JSON_ROW, "properties": {**_JSON_ROW["properties"], **more}}, value)
    changes = read_envelope(target_for(envelope, {"id": "int"}, reading=reading), records)
    assert {name: str(kind) for name, kind in changes.decoded.requested_fields[()].items()} == {
        "v": "string",
        "n": "float",
    }
    assert (changes.ops.tolist(), changes.columns[0].to_pylist()) == ([UPSERT], [1])


def test_a_json_schema_of_something_else_adds_no_column() -> None:
    schema = {"type": "object", "properties": {"status": {"type": "string"}, "id": {"type": "string"}}}
    reading, records = _framed(schema, b'{"status":"BEGIN","id":"1","event_count":null}')
    changes = read_envelope(target_for(LOG, {}, reading=reading), records)
    assert (changes.ignored_records, changes.decoded.requested_fields) == ({"transaction": 1}, {})


def test_a_delete_of_mongodb_behind_a_frame_is_known_by_its_key() -> None:
    schema = {"type": "object", "properties": {"op": {"type": "string"}, "after": {"type": "string"}}}
    reading, records = _framed(schema, debezium("d", source={"connector": "mongodb"}))
    records["key"] = pa.array([b'{"id":"7"}'], pa.binary())
    upsert_table = Envelope("debezium", is_upsert=True, keys=(("_id",),))
    changes = read_envelope(target_for(upsert_table, {"_id": "long"}, reading=reading), records)
    assert (changes.ops.tolist(), changes.columns[0].to_pylist()) == ([DELETE], [7])
