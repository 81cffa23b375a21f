"""Rows that Debezium has unwrapped: the fields beside them show the change, whatever else the row has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope
from frazil.spec.settings import MetadataField
from frazil.stages.changes import DELETE, UPSERT
from tests.unit.cdc.envelope_messages import LOG, UPSERT_ENVELOPE, avro, bad_records, read_changes
from tests.unit.cdc.envelope_reference import target_for


def test_rows_that_debezium_unwrapped_are_read_by_what_it_left_beside_them() -> None:
    values = [
        b'{"id":1,"v":"a","__deleted":"false","__op":"r","__lsn":5}',
        b'{"id":1,"v":null,"__deleted":"true"}',
        b'{"id":2,"v":"b","__deleted":false}',
        b'{"id":2,"v":null,"__deleted":true}',
        None,
    ]
    changes = read_changes(UPSERT_ENVELOPE, *values, metadata=("op",))
    assert changes.ops.tolist() == [UPSERT, DELETE, UPSERT, DELETE]
    assert changes.own["op"].to_pylist() == ["r", "d", "u", "d"]
    assert changes.decoded.requested_fields == {(): {"__lsn": LongType()}}
    assert changes.ignored_records == {"tombstone": 1}


_TIMED = {"id": 1, "v": "a", "__op": "u", "__source_ts_ms": 5, "__source_ts_us": 5001, "__ts_ms": 7}
_AVRO_TIMED = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "v", "type": "string"},
        {"name": "__op", "type": "string"},
        *({"name": name, "type": ["null", "long"]} for name in ("__source_ts_ms", "__source_ts_us", "__ts_ms")),
    ],
}


@pytest.mark.parametrize("form", ["json", "json with its schema", "avro"])
def test_times_that_the_transform_leaves_beside_a_row_are_those_of_the_change_in_every_format(form: str) -> None:
    rows = [_TIMED, {**_TIMED, "__source_ts_us": None, "__ts_ms": None}]
    metadata: tuple[MetadataField, ...] = ("source_ts", "connector_ts")
    if form == "avro":
        reading, records = avro(*rows, schema=_AVRO_TIMED)
        target = replace(target_for(LOG, {"id": "long"}, metadata=metadata), reading=replace(reading, envelope=LOG))
        changes = read_envelope(target, records)
    else:
        kinds = {name: "string" if isinstance(value, str) else "int64" for name, value in _TIMED.items()}
        fields = [{"field": name, "type": kind, "optional": True} for name, kind in kinds.items()]
        wrapped = [{"schema": {"type": "struct", "fields": fields}, "payload": row} for row in rows]
        values = [json.dumps(one).encode() for one in (rows if form == "json" else wrapped)]
        changes = read_changes(LOG, *values, columns={"id": "long"}, metadata=metadata)
    assert changes.own["source_ts"].cast(pa.int64()).to_pylist() == [5001, 5000]
    assert changes.own["connector_ts"].cast(pa.int64()).to_pylist() == [7000, None]


def test_a_field_of_a_row_that_is_called_as_a_time_and_is_no_number_reports_nothing_of_the_change() -> None:
    changes = read_changes(LOG, b'{"id":1,"v":"a","__op":"u","__source_ts_ms":"soon"}', metadata=("source_ts",))
    assert (changes.own["source_ts"].to_pylist(), bad_records(changes)) == ([None], [])


@pytest.mark.parametrize("beside", ['"__deleted":"yes"', '"__deleted":"TRUE","__op":"u"', '"__deleted":""'])
def test_what_is_neither_true_nor_false_of_a_deletion_is_an_unknown_operation(beside: str) -> None:
    changes = read_changes(UPSERT_ENVELOPE, b'{"id":1,"v":"a","__op":"u"}', f'{{"id":1,"v":"b",{beside}}}'.encode())
    assert [(row, kind) for row, kind, *_ in bad_records(changes)] == [(1, "unknown_operation")]


_OF_ROWS: list[dict[str, Any]] = [
    {"payload": None},
    {"payload": "x"},
    {"payload": {"op": "d", "before": {"id": 9}}},
    {"schema": {"type": "struct"}, "payload": {"id": 9}},
    {"op": "t"},
    {"op": "m"},
    {"op": 7, "before": 5, "after": {"id": 9}},
    {"ts_ms": "x", "source": {"ts_ms": "y", "connector": 5}, "transaction": {"id": 5}},
    {"status": "BEGIN", "event_count": 1},
]


@pytest.mark.parametrize("envelope", [UPSERT_ENVELOPE, LOG], ids=["upsert_table", "log"])
@pytest.mark.parametrize("row", _OF_ROWS, ids=",".join)
def test_an_unwrapped_row_may_have_fields_with_the_names_of_an_envelopes(
    envelope: Envelope, row: dict[str, Any]
) -> None:
    plain = b'{"id":1,"v":"a","__op":"u"}'
    value = json.dumps({"id": 2, "v": "b", **row, "__op": "u"}).encode()
    metadata: tuple[MetadataField, ...] = ("op", "source_ts", "connector_ts", "transaction_id")
    changes = read_changes(envelope, plain, value, plain, metadata=metadata)
    assert (changes.ops.tolist(), changes.columns[0].to_pylist()) == ([UPSERT] * 3, [1, 2, 1])
    assert (changes.own["op"].to_pylist(), changes.own["connector_ts"].null_count) == (["u"] * 3, 3)
    assert set(changes.decoded.requested_fields.get((), {})) == {
        name for name, member in row.items() if member is not None
    }
    assert (bad_records(changes), changes.ignored_records) == ([], {})


@pytest.mark.parametrize("envelope", [Envelope("debezium"), LOG, UPSERT_ENVELOPE], ids=["rows", "log", "upsert_table"])
def test_an_unwrapped_row_with_its_schema_may_have_them_too(envelope: Envelope) -> None:
    names = {"id": "int64", "op": "string", "after": "string", "v": "string", "__op": "string"}
    fields = [{"field": name, "type": kind} for name, kind in names.items()]
    payload = {"id": 1, "op": "t", "after": "x", "v": "a", "__op": "c"}
    value = {"schema": {"type": "struct", "fields": fields}, "payload": payload}
    columns = {"id": "long", "op": "string", "after": "string", "v": "string"}
    changes = read_changes(envelope, json.dumps(value).encode(), columns=columns)
    assert [column.to_pylist() for column in changes.columns] == [[1], ["t"], ["x"], ["a"]]
    assert (changes.ops.tolist(), bad_records(changes)) == ([UPSERT], [])
