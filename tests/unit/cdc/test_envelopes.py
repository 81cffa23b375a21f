"""Changes of real and of made messages, one by one; docs/reference/envelopes.md has the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import PLACEHOLDER, Envelope, Reading
from frazil.schema.projection import Shaping
from frazil.spec.settings import MetadataField
from frazil.stages.changes import DELETE, TRUNCATE, UPSERT
from frazil.upsert.key_updates.old_rows import updated_keys
from tests.needs import needs
from tests.unit.cdc.envelope_messages import LOG, UPSERT_ENVELOPE, avro, bad_records, debezium, read_changes
from tests.unit.cdc.envelope_reference import records_of, target_for

SAMPLES = Path(__file__).parents[2] / "fixtures" / "debezium_messages.jsonl"
OF_LOG: tuple[MetadataField, ...] = (
    "op", "image", "source_ts", "transaction_id", "total_order", "position", "unavailable",
)  # fmt: skip


def _samples(topic: str) -> dict[str, pa.Array]:
    found = [one for one in map(json.loads, SAMPLES.read_text().splitlines()) if one["topic"] == topic]
    values = [None if one["value"] is None else one["value"].encode() for one in found]
    return records_of(values, [{name: word.encode() for name, word in one["headers"]} for one in found])


def test_a_real_table_of_postgresql_is_upserted_with_its_key_changes_and_what_was_not_sent() -> None:
    records = _samples("fz.public.orders")
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "long", "qty": "long", "big": "string"}), records)
    assert changes.ops.tolist() == [UPSERT, UPSERT, UPSERT, DELETE, DELETE, TRUNCATE, UPSERT]
    assert changes.records.tolist() == [0, 1, 2, 3, 5, 7, 8]
    assert changes.columns[0].to_pylist() == [1, 2, 2, 2, 1, None, 3]
    assert {n: flags.nonzero()[0].tolist() for n, flags in changes.unavailable.items()} == {2: [2, 6]}
    assert [one.to_pylist() for one in updated_keys(changes).old_keys] == [[None] * 6 + [2]]
    assert changes.ignored_records == {"tombstone": 2}


def test_a_row_that_moved_to_a_new_key_without_a_large_value_is_a_bad_record_while_its_old_key_is_not_known() -> None:
    records = _samples("fz.public.orders")
    del records["headers"]
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "long", "qty": "long", "big": "string"}), records)
    assert bad_records(changes) == [(8, "unavailable_value", "big")]
    assert changes.records.tolist() == [0, 1, 2, 3, 5, 7]


def test_a_real_changelog_names_transactions_places_and_images() -> None:
    records = _samples("fz.public.customers")
    columns = {"id": "long", "name": "string", "created": "string"}
    changes = read_envelope(target_for(LOG, columns, OF_LOG), records)
    assert changes.own["op"].to_pylist() == ["r", "c", "u", "c", "u", "u", "d", "c"]
    images = ["after"] * 4 + ["before", "after", "before", "after"]
    assert changes.own["image"].to_pylist() == images
    assert changes.own["transaction_id"].to_pylist()[:2] == [None, "749:26683416"]
    assert changes.own["total_order"].to_pylist() == [None, 1, 2, 1, 1, 1, 1, 1]
    assert changes.own["position"].to_pylist()[0] == "00000000000026390248"
    assert changes.decoded.requested_fields == {(): {"note": StringType(), "email": StringType()}}


@pytest.mark.parametrize(
    ("topic", "kind", "count"), [("fz.transaction", "transaction", 22), ("fz.message", "message", 1)]
)
def test_records_that_are_no_changes_of_rows_are_counted(topic: str, kind: str, count: int) -> None:
    changes = read_envelope(target_for(LOG), _samples(topic))
    assert (changes.ignored_records, changes.records.size, changes.decoded.mismatches) == ({kind: count}, 0, [])


_SCHEMA_CHANGE = {"source": {"table": "t"}, "databaseName": "d", "ddl": "ALTER TABLE t", "tableChanges": []}


def test_heartbeats_and_schema_changes_are_counted() -> None:
    changes = read_changes(LOG, b'{"ts_ms":1}', json.dumps(_SCHEMA_CHANGE).encode())
    assert changes.ignored_records == {"heartbeat": 1, "schema_change": 1}


@pytest.mark.parametrize(
    "value",
    [
        {"ts_ms": 1, "id": 1},
        {"ts_ms": None},
        {"id": 1, "status": "paid", "event_count": 2},
        {"id": 1, "status": "BEGIN", "event_count": 2, "v": "x"},
        {"status": "BEGIN", "event_count": 2},
        {"id": 1, "databaseName": "d", "ddl": "x"},
        {**_SCHEMA_CHANGE, "id": 1},
    ],
    ids=json.dumps,
)
def test_a_row_that_is_in_no_envelope_is_no_heartbeat_or_the_like(value: dict[str, Any]) -> None:
    wrapped = {"schema": None, "payload": value}
    changes = read_changes(LOG, *(json.dumps(one).encode() for one in (value, wrapped)))
    assert (bad_records(changes), changes.ignored_records) == ([(n, "not_an_envelope", "") for n in (0, 1)], {})


@pytest.mark.parametrize(
    ("value", "kind", "path"),
    [
        (b"[1]", "not_an_object", ""),
        (b"{", "malformed", ""),
        (b'{"id":1}', "not_an_envelope", ""),
        (debezium("x", after={"id": 1}), "unknown_operation", ""),
        (debezium(None, after={"id": 1}), "unknown_operation", ""),
        (debezium(7, after={"id": 1}), "type_mismatch", "op"),
        (debezium("c"), "missing_image", ""),
        (debezium("u", {"id": 1}), "missing_image", ""),
        (debezium("d", None, {"id": 1}), "missing_image", ""),
        (debezium("c", after=[1]), "not_an_envelope", ""),
        (debezium("c", after=7), "not_an_envelope", ""),
        (debezium("c", after="no json"), "not_an_object", "after"),
        (debezium("c", after={"v": "x"}), "missing_key", "id"),
        (debezium("d", {"id": None}), "missing_key", "id"),
        (debezium("c", after={"id": "x"}), "type_mismatch", "after.id"),
        (b'{"op":"c","op":"d","after":{"id":1}}', "duplicate_key", ""),
        (b'{"op":"c","after":{"id":1,"id":2}}', "duplicate_key", "after"),
        (b'{"schema":{"type":"string"},"payload":{"op":"c","after":{"id":1}}}', "unusable_schema", "schema"),
        (b'{"schema":{"type":"struct","fields":[{"field":"op"}]},"payload":{"op":"c"}}', "unusable_schema", "schema"),
        (b'{"schema":null,"payload":{"id":1}}', "not_an_envelope", ""),
        (b'{"__op":"c","v":"x"}', "missing_key", "id"),
    ],
)
def test_an_envelope_that_lies_is_one_bad_record_and_changes_no_other(value: bytes, kind: str, path: str) -> None:
    good = debezium("c", after={"id": 1, "v": "a"})
    changes = read_changes(UPSERT_ENVELOPE, good, value, good)
    assert bad_records(changes) == [(1, kind, path)]
    assert changes.decoded.refused.tolist() == [False, True, False]
    assert (changes.records.tolist(), changes.columns[1].to_pylist()) == ([0, 2], ["a", "a"])


def test_the_reason_names_the_operation() -> None:
    changes = read_changes(UPSERT_ENVELOPE, debezium("x", after={"id": 1}), debezium("y", after={"id": 1}))
    reason = "the envelope has no such operation"
    assert [one.reason for one in changes.decoded.mismatches] == [f'{reason}: "x"', f'{reason}: "y"']


def test_a_record_whose_key_changes_takes_the_old_row_away_and_keeps_what_was_not_sent() -> None:
    moved = debezium("u", {"id": 1, "v": "big"}, {"id": 2, "v": PLACEHOLDER})
    same = debezium("u", {"id": 2, "v": "x"}, {"id": 2, "v": "y"})
    changes = read_changes(UPSERT_ENVELOPE, moved, same, debezium("u", {"id": None}, {"id": 3, "v": "z"}))
    assert changes.ops.tolist() == [DELETE, UPSERT, UPSERT, UPSERT]
    assert changes.records.tolist() == [0, 0, 1, 2]
    assert changes.columns[0].to_pylist() == [1, 2, 2, 3]
    assert [one.to_pylist() for one in updated_keys(changes).old_keys] == [[None, 1, None, None]]
    assert changes.unavailable[1].tolist() == [False, True, False, False]


def test_a_row_that_is_marked_when_it_is_deleted_keeps_all_but_its_key() -> None:
    marking = Envelope("debezium", is_upsert=True, keys=(("id",),), marks_deletes=True)
    source = {"ts_ms": 5, "connector": "postgresql"}
    values = (debezium("c", after={"id": 1, "v": "a"}), debezium("d", {"id": 1, "v": None}, source=source))
    changes = read_changes(marking, *values, metadata=("deleted", "deleted_at"))
    assert changes.ops.tolist() == [UPSERT, UPSERT]
    assert changes.unavailable[1].tolist() == [False, True]
    assert changes.own["deleted"].to_pylist() == [False, True]
    assert [one and one.microsecond for one in changes.own["deleted_at"].to_pylist()] == [None, 5000]


def test_an_image_before_a_change_reports_whether_the_source_may_have_left_values_out() -> None:
    sources = [{"connector": "postgresql"}, {"connector": "mysql"}]
    values = [debezium("d", {"id": 1, "v": None}, source=source) for source in sources]
    values += [debezium("d", {"id": 1, "v": "x"}, source=sources[0]), debezium("d"), debezium("t")]
    changes = read_changes(LOG, *values, metadata=("op", "image"))
    assert changes.own["image"].to_pylist() == ["identity", "before", "before", None, None]
    assert changes.own["op"].to_pylist() == ["d", "d", "d", "d", "t"]


def test_documents_of_mongodb_are_texts_of_json_in_their_envelope() -> None:
    document = json.dumps({"id": 1, "v": 'a "quoted" \u00e4', "more": {"a": 1}})
    broken = debezium("c", after='{"id": 2')
    changes = read_changes(LOG, debezium("c", after=document), broken, debezium("u", document, document))
    assert changes.columns[1].to_pylist() == ['a "quoted" ä'] * 3
    assert set(changes.decoded.requested_fields[()]) == {"more"}
    assert bad_records(changes) == [(1, "malformed", "after")]


def test_a_delete_of_mongodb_is_known_by_the_id_in_the_records_key() -> None:
    source = {"connector": "mongodb"}
    values = [debezium("c", after='{"_id":7,"v":"a"}', source=source), *[debezium("d", source=source)] * 4]
    values.append(debezium("d", source={"connector": "mysql"}))
    keys = [b'{"id":"7"}', b'{"id":"7"}', b'{"schema":null,"payload":{"id":"8"}}', b"no key", None, b'{"id":"9"}']
    upsert_table = Envelope("debezium", is_upsert=True, keys=(("_id",),))
    target = target_for(upsert_table, {"_id": "long", "v": "string"})
    changes = read_envelope(target, {**records_of(values), "key": pa.array(keys, pa.binary())})
    assert (changes.ops.tolist(), changes.columns[0].to_pylist()) == ([UPSERT, DELETE, DELETE], [7, 7, 8])
    assert bad_records(changes) == [(n, "missing_image", "") for n in (3, 4, 5)]
    assert "key" in target.metadata_fields


def test_what_the_table_takes_and_how_it_names_it_counts_for_the_row_in_the_envelope() -> None:
    shaping = Shaping(
        depth=1, include=(("id",), ("inner",)), exclude=(("inner", "secret"),), fields=(("key", ("id",)),)
    )
    columns = {"key": "long", "inner_a": "long"}
    row = {"id": 1, "inner": {"a": 2, "secret": 3, "b": "x"}, "noise": 4}
    target = target_for(Envelope("debezium", is_upsert=True, keys=(("key",),)), columns, shaping=shaping)
    changes = read_envelope(target, records_of([debezium("c", after=row), debezium("d", {"id": 1})]))
    assert changes.decoded.requested_fields == {("inner",): {"a": LongType()}}
    plain = Shaping(include=(("id",), ("inner",)), exclude=(("inner", "secret"),))
    columns = {"id": "long", "inner": "struct<a: long>"}
    changes = read_envelope(
        target_for(UPSERT_ENVELOPE, columns, shaping=plain),
        records_of([debezium("u", {"id": 2}, row), debezium("d", {"id": 1})]),
    )
    assert changes.columns[0].to_pylist() == [2, 1, 1]
    assert changes.columns[1].to_pylist()[1] == {"a": 2}
    assert changes.decoded.requested_fields == {("inner",): {"b": StringType()}}


def test_a_field_that_a_frozen_table_lacks_is_refused_by_its_place_in_the_envelope() -> None:
    reading = Reading(unknown_fields="refuse", on_bad="dead_letter")
    changes = read_changes(LOG, debezium("c", after={"id": 1, "new": 2}), reading=reading)
    assert bad_records(changes) == [(0, "unknown_field", "after.new")]


def test_values_that_do_not_fit_are_stored_where_the_table_rescues() -> None:
    reading = Reading(is_rescuing=True, on_bad="dead_letter")
    changes = read_changes(LOG, debezium("c", after={"id": "x", "v": "a"}), reading=reading)
    assert changes.rescued is not None
    (rescued,) = changes.rescued.to_pylist()
    assert list(json.loads(rescued)) == ["after.id"]


@pytest.mark.parametrize(
    ("envelope", "values"),
    [
        (LOG, [debezium("u", {"id": 1}, {"id": 1, "v": "a"}), debezium("c", after={"id": 2}), b"{"]),
        (UPSERT_ENVELOPE, [debezium("c", after={"id": 1, "v": "a"}), debezium("c", after={"id": 2}), b"{"]),
    ],
)
def test_headers_that_do_not_fit_are_stored_too(envelope: Envelope, values: list[bytes]) -> None:
    reading = Reading(is_rescuing=True, on_bad="dead_letter")
    shaping = Shaping(headers=(("number", "n"),))
    target = target_for(envelope, {"id": "long", "v": "string", "number": "int"}, reading=reading, shaping=shaping)
    changes = read_envelope(target, records_of(values, [{"n": b"many"}, {"n": b"7"}, {"n": b"8"}]))
    assert bad_records(changes) == [(2, "malformed", "")]
    [number] = [n for n, field in enumerate(target.fields) if field.name == "number"]
    first = [None] * (len(changes.records) - 1)
    assert changes.columns[number].to_pylist() == [*first, 7]
    assert changes.rescued is not None
    rescued = [one and json.loads(one) for one in changes.rescued.to_pylist()]
    assert [one and {path: reported["value"] for path, reported in one.items()} for one in rescued] == [
        *({"_headers.n": "many"} for _ in first), None,
    ]  # fmt: skip


def test_a_tombstone_is_skipped_and_a_value_that_is_too_large_is_a_bad_record() -> None:
    reading, records = avro({"op": "c", "before": None, "after": {"id": 1, "v": "a", "tags": None}})
    records = records_of([None, records["value"][0].as_py()])
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "long", "v": "string"}, reading=reading), records)
    assert (changes.ignored_records, changes.records.tolist()) == ({"tombstone": 1}, [1])
    small = Reading(max_record_bytes=60, on_bad="dead_letter")
    changes = read_changes(UPSERT_ENVELOPE, None, debezium("c", after={"id": 1, "v": "x" * 99}), reading=small)
    assert (changes.ignored_records, bad_records(changes)) == ({"tombstone": 1}, [(1, "too_large", "")])


@needs("cdc")
def test_maxwell_tells_of_more_than_rows() -> None:
    envelope = Envelope("maxwell", is_log=True)
    values = [
        b'{"database":"d","table":"t","type":"update","ts":2,"xid":5,"data":{"id":1,"v":null},"old":{"v":"x"}}',
        b'{"database":"d","table":"t","type":"table-alter","ts":2,"sql":"alter"}',
        b'{"database":"d","table":"t","type":"bootstrap-start","ts":2,"data":{}}',
        b'{"database":"d","table":"t","type":"odd","ts":2,"data":{"id":1}}',
        b'{"database":"d","table":"t","type":"insert","ts":2}',
    ]
    changes = read_changes(envelope, *values, metadata=("op", "image", "source_ts", "transaction_id"))
    assert changes.columns[1].to_pylist() == ["x", None]
    assert changes.own["image"].to_pylist() == ["before", "after"]
    assert changes.own["transaction_id"].to_pylist() == ["5", "5"]
    assert changes.ignored_records == {"schema_change": 1, "heartbeat": 1}
    assert bad_records(changes) == [(3, "unknown_operation", ""), (4, "not_an_envelope", "")]


def test_keys_with_escapes_are_the_same_keys() -> None:
    changes = read_changes(
        LOG, b'{"\\u006fp":"c","aft\\u0065r":{"i\\u0064":1,"v":"a"}}', debezium("c", after={"id": 2, "v": "b"})
    )
    assert changes.columns[0].to_pylist() == [1, 2]
    assert changes.decoded.requested_fields == {}


def test_the_operation_may_be_a_number() -> None:
    numbered = Envelope("operation", "ops", ("1", "I"), ("2",), ("-3",), is_upsert=True, keys=(("id",),))
    told: list[Any] = [1, "I", 2, "2", -3, 4, 1.5, True, [1], 2**70, None]
    values = [json.dumps({"id": n, "v": "a", "ops": op}).encode() for n, op in enumerate(told)]
    changes = read_changes(numbered, *values)
    assert (changes.ops.tolist(), changes.records.tolist()) == ([UPSERT] * 4 + [DELETE], list(range(5)))
    assert bad_records(changes) == [
        (5, "unknown_operation", ""),
        *((row, "type_mismatch", "ops") for row in (6, 7, 8)),
        (9, "out_of_range", "ops"),
        (10, "unknown_operation", ""),
    ]
