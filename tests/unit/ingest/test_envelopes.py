"""Changes of real and of made messages, one by one; docs/reference/envelopes.md has the rules."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.types import ListType, LongType, StringType

from frazil.ingest.decode.envelope import read_envelope
from frazil.ingest.decode.placeholders import json_forms, unsent_of
from frazil.ingest.envelope import PLACEHOLDER, Envelope
from frazil.ingest.naming import Shaping
from frazil.ingest.target import Reading, WriterSchema
from frazil.ingest.upserts.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.spec.models import MetadataField
from tests.unit.ingest.envelope_reference import records_of, target_for

SAMPLES = Path(__file__).parents[2] / "fixtures" / "debezium_messages.jsonl"
MIRROR = Envelope("debezium", is_upsert=True, keys=(("id",),))
LOG = Envelope("debezium", is_log=True)
OF_LOG: tuple[MetadataField, ...] = (
    "op", "image", "source_ts", "transaction_id", "total_order", "position", "unavailable",
)  # fmt: skip


def _samples(topic: str) -> dict[str, pa.Array]:
    found = [one for one in map(json.loads, SAMPLES.read_text().splitlines()) if one["topic"] == topic]
    values = [None if one["value"] is None else one["value"].encode() for one in found]
    return records_of(values, [{name: word.encode() for name, word in one["headers"]} for one in found])


def _debezium(op: Any, before: Any = None, after: Any = None, **more: Any) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, **more}, separators=(",", ":")).encode()


def _read(envelope: Envelope, *values: bytes | None, columns: Mapping[str, str] | None = None, **other: Any) -> Changes:
    return read_envelope(target_for(envelope, columns or {"id": "long", "v": "string"}, **other), records_of(values))


def _bad(changes: Changes) -> list[tuple[int, str, str]]:
    return [(one.row, one.kind, one.path) for one in changes.decoded.misfits]


def test_a_real_table_of_postgresql_is_mirrored_with_its_key_changes_and_what_was_not_sent() -> None:
    records = _samples("fz.public.orders")
    changes = read_envelope(target_for(MIRROR, {"id": "long", "qty": "long", "big": "string"}), records)
    assert changes.ops.tolist() == [UPSERT, UPSERT, UPSERT, DELETE, DELETE, TRUNCATE, UPSERT]
    assert changes.records.tolist() == [0, 1, 2, 3, 5, 7, 8]
    assert changes.columns[0].to_pylist() == [1, 2, 2, 2, 1, None, 3]
    assert {n: flags.nonzero()[0].tolist() for n, flags in changes.unavailable.items()} == {2: [2, 6]}
    assert [one.to_pylist() for one in changes.old_keys or []] == [[None] * 6 + [2]]
    assert changes.passed_over == {"tombstone": 2}


def test_a_row_that_moved_to_a_new_key_without_a_large_value_is_a_bad_record_while_its_old_key_is_not_known() -> None:
    records = _samples("fz.public.orders")
    del records["headers"]
    changes = read_envelope(target_for(MIRROR, {"id": "long", "qty": "long", "big": "string"}), records)
    assert _bad(changes) == [(8, "unsent_value", "big")]
    assert changes.records.tolist() == [0, 1, 2, 3, 5, 7]


def test_a_real_change_log_names_transactions_places_and_images() -> None:
    records = _samples("fz.public.customers")
    columns = {"id": "long", "name": "string", "created": "string"}
    changes = read_envelope(target_for(LOG, columns, OF_LOG), records)
    assert changes.own["op"].to_pylist() == ["r", "c", "u", "c", "u", "u", "d", "c"]
    images = ["after"] * 4 + ["before", "after", "before", "after"]
    assert changes.own["image"].to_pylist() == images
    assert changes.own["transaction_id"].to_pylist()[:2] == [None, "749:26683416"]
    assert changes.own["total_order"].to_pylist() == [None, 1, 2, 1, 1, 1, 1, 1]
    assert changes.own["position"].to_pylist()[0] == "00000000000026390248"
    assert changes.decoded.wanted == {(): {"note": StringType(), "email": StringType()}}


@pytest.mark.parametrize(
    ("topic", "kind", "count"), [("fz.transaction", "transaction", 22), ("fz.message", "message", 1)]
)
def test_records_that_are_no_changes_of_rows_are_counted(topic: str, kind: str, count: int) -> None:
    changes = read_envelope(target_for(LOG), _samples(topic))
    assert (changes.passed_over, changes.records.size, changes.decoded.misfits) == ({kind: count}, 0, [])


_SCHEMA_CHANGE = {"source": {"table": "t"}, "databaseName": "d", "ddl": "ALTER TABLE t", "tableChanges": []}


def test_heartbeats_and_schema_changes_are_counted() -> None:
    changes = _read(LOG, b'{"ts_ms":1}', json.dumps(_SCHEMA_CHANGE).encode())
    assert changes.passed_over == {"heartbeat": 1, "schema_change": 1}


@pytest.mark.parametrize(
    ("value", "kind", "path"),
    [
        (b"[1]", "not_an_object", ""),
        (b"{", "malformed", ""),
        (b'{"id":1}', "not_an_envelope", ""),
        (_debezium("x", after={"id": 1}), "unknown_operation", ""),
        (_debezium(None, after={"id": 1}), "unknown_operation", ""),
        (_debezium(7, after={"id": 1}), "does_not_fit", "op"),
        (_debezium("c"), "missing_image", ""),
        (_debezium("u", {"id": 1}), "missing_image", ""),
        (_debezium("d", None, {"id": 1}), "missing_image", ""),
        (_debezium("c", after=[1]), "not_an_envelope", ""),
        (_debezium("c", after=7), "not_an_envelope", ""),
        (_debezium("c", after="no json"), "not_an_object", "after"),
        (_debezium("c", after={"v": "x"}), "missing_key", "id"),
        (_debezium("d", {"id": None}), "missing_key", "id"),
        (_debezium("c", after={"id": "x"}), "does_not_fit", "after.id"),
        (b'{"op":"c","op":"d","after":{"id":1}}', "duplicate_key", ""),
        (b'{"op":"c","after":{"id":1,"id":2}}', "duplicate_key", "after"),
        (b'{"schema":{"type":"string"},"payload":{"op":"c","after":{"id":1}}}', "bad_schema", "schema"),
        (b'{"schema":{"type":"struct","fields":[{"field":"op"}]},"payload":{"op":"c"}}', "bad_schema", "schema"),
        (b'{"schema":null,"payload":{"id":1}}', "not_an_envelope", ""),
        (b'{"__op":"c","v":"x"}', "missing_key", "id"),
    ],
)
def test_an_envelope_that_lies_is_one_bad_record_and_changes_no_other(value: bytes, kind: str, path: str) -> None:
    good = _debezium("c", after={"id": 1, "v": "a"})
    changes = _read(MIRROR, good, value, good)
    assert _bad(changes) == [(1, kind, path)]
    assert changes.decoded.refused.tolist() == [False, True, False]
    assert (changes.records.tolist(), changes.columns[1].to_pylist()) == ([0, 2], ["a", "a"])


def test_the_reason_names_the_operation() -> None:
    changes = _read(MIRROR, _debezium("x", after={"id": 1}), _debezium("y", after={"id": 1}))
    reason = "the operation is none that the envelope has"
    assert [one.reason for one in changes.decoded.misfits] == [f'{reason}: "x"', f'{reason}: "y"']


def test_a_record_whose_key_changes_takes_the_old_row_away_and_keeps_what_was_not_sent() -> None:
    moved = _debezium("u", {"id": 1, "v": "big"}, {"id": 2, "v": PLACEHOLDER})
    same = _debezium("u", {"id": 2, "v": "x"}, {"id": 2, "v": "y"})
    changes = _read(MIRROR, moved, same, _debezium("u", {"id": None}, {"id": 3, "v": "z"}))
    assert changes.ops.tolist() == [DELETE, UPSERT, UPSERT, UPSERT]
    assert changes.records.tolist() == [0, 0, 1, 2]
    assert changes.columns[0].to_pylist() == [1, 2, 2, 3]
    assert [one.to_pylist() for one in changes.old_keys or []] == [[None, 1, None, None]]
    assert changes.unavailable[1].tolist() == [False, True, False, False]


def test_a_row_that_is_marked_when_it_is_deleted_keeps_all_but_its_key() -> None:
    marking = Envelope("debezium", is_upsert=True, keys=(("id",),), marks_deletes=True)
    source = {"ts_ms": 5, "connector": "postgresql"}
    values = (_debezium("c", after={"id": 1, "v": "a"}), _debezium("d", {"id": 1, "v": None}, source=source))
    changes = _read(marking, *values, metadata=("deleted", "deleted_at"))
    assert changes.ops.tolist() == [UPSERT, UPSERT]
    assert changes.unavailable[1].tolist() == [False, True]
    assert changes.own["deleted"].to_pylist() == [False, True]
    assert [one and one.microsecond for one in changes.own["deleted_at"].to_pylist()] == [None, 5000]


def test_an_image_before_a_change_says_whether_the_source_may_have_left_values_out() -> None:
    sources = [{"connector": "postgresql"}, {"connector": "mysql"}]
    values = [_debezium("d", {"id": 1, "v": None}, source=source) for source in sources]
    values += [_debezium("d", {"id": 1, "v": "x"}, source=sources[0]), _debezium("d"), _debezium("t")]
    changes = _read(LOG, *values, metadata=("op", "image"))
    assert changes.own["image"].to_pylist() == ["identity", "before", "before", None, None]
    assert changes.own["op"].to_pylist() == ["d", "d", "d", "d", "t"]


def test_documents_of_mongodb_are_texts_of_json_in_their_envelope() -> None:
    document = json.dumps({"id": 1, "v": 'a "quoted" \u00e4', "more": {"a": 1}})
    broken = _debezium("c", after='{"id": 2')
    changes = _read(LOG, _debezium("c", after=document), broken, _debezium("u", document, document))
    assert changes.columns[1].to_pylist() == ['a "quoted" ä'] * 3
    assert set(changes.decoded.wanted[()]) == {"more"}
    assert _bad(changes) == [(1, "malformed", "after")]


def test_a_delete_of_mongodb_is_known_by_the_id_in_the_records_key() -> None:
    source = {"connector": "mongodb"}
    values = [_debezium("c", after='{"_id":7,"v":"a"}', source=source), *[_debezium("d", source=source)] * 4]
    values.append(_debezium("d", source={"connector": "mysql"}))
    keys = [b'{"id":"7"}', b'{"id":"7"}', b'{"schema":{},"payload":{"id":"8"}}', b"no key", None, b'{"id":"9"}']
    mirror = Envelope("debezium", is_upsert=True, keys=(("_id",),))
    target = target_for(mirror, {"_id": "long", "v": "string"})
    changes = read_envelope(target, {**records_of(values), "key": pa.array(keys, pa.binary())})
    assert (changes.ops.tolist(), changes.columns[0].to_pylist()) == ([UPSERT, DELETE, DELETE], [7, 7, 8])
    assert _bad(changes) == [(n, "missing_image", "") for n in (3, 4, 5)]
    assert "key" in target.metadata_fields


def test_rows_that_debezium_unwrapped_are_read_by_what_it_left_beside_them() -> None:
    values = [
        b'{"id":1,"v":"a","__deleted":"false","__op":"r","__lsn":5}',
        b'{"id":1,"v":null,"__deleted":"true"}',
        b'{"id":2,"v":"b","__deleted":false}',
        b'{"id":2,"v":null,"__deleted":true}',
        None,
    ]
    changes = _read(MIRROR, *values, metadata=("op",))
    assert changes.ops.tolist() == [UPSERT, DELETE, UPSERT, DELETE]
    assert changes.own["op"].to_pylist() == ["r", "d", "u", "d"]
    assert changes.decoded.wanted == {(): {"__lsn": LongType()}}
    assert changes.passed_over == {"tombstone": 1}


def test_what_the_table_takes_and_how_it_names_it_counts_for_the_row_in_the_envelope() -> None:
    shaping = Shaping(
        depth=1, include=(("id",), ("inner",)), exclude=(("inner", "secret"),), fields=(("key", ("id",)),)
    )
    columns = {"key": "long", "inner_a": "long"}
    row = {"id": 1, "inner": {"a": 2, "secret": 3, "b": "x"}, "noise": 4}
    target = target_for(Envelope("debezium", is_upsert=True, keys=(("key",),)), columns, shaping=shaping)
    changes = read_envelope(target, records_of([_debezium("c", after=row), _debezium("d", {"id": 1})]))
    assert changes.decoded.wanted == {("inner",): {"a": LongType()}}
    plain = Shaping(include=(("id",), ("inner",)), exclude=(("inner", "secret"),))
    columns = {"id": "long", "inner": "struct<a: long>"}
    changes = read_envelope(
        target_for(MIRROR, columns, shaping=plain),
        records_of([_debezium("u", {"id": 2}, row), _debezium("d", {"id": 1})]),
    )
    assert changes.columns[0].to_pylist() == [2, 1, 1]
    assert changes.columns[1].to_pylist()[1] == {"a": 2}
    assert changes.decoded.wanted == {("inner",): {"b": StringType()}}


def test_a_field_that_a_frozen_table_lacks_is_refused_by_its_place_in_the_envelope() -> None:
    reading = Reading(undeclared="refuse", on_bad="dead_letter")
    changes = _read(LOG, _debezium("c", after={"id": 1, "new": 2}), reading=reading)
    assert _bad(changes) == [(0, "undeclared", "after.new")]


def test_values_that_do_not_fit_are_put_aside_where_the_table_rescues() -> None:
    reading = Reading(is_rescuing=True, on_bad="dead_letter")
    changes = _read(LOG, _debezium("c", after={"id": "x", "v": "a"}), reading=reading)
    assert changes.decoded.rescued is not None
    (rescued,) = changes.decoded.rescued.to_pylist()
    assert list(json.loads(rescued)) == ["after.id"]


@pytest.mark.parametrize("form", json_forms(PLACEHOLDER), ids=lambda form: form[:30].decode())
def test_a_value_that_was_not_sent_is_known_in_every_form_that_json_has_for_it(form: bytes) -> None:
    values = [b'{"op":"u","after":{"id":1,"v":%s}}' % form, _debezium("u", after={"id": 1, "v": "sent"})]
    changes = _read(MIRROR, *values)
    assert changes.unavailable[1].tolist() == [True, False]
    assert changes.columns[1].to_pylist() == [None, "sent"]


def test_the_text_that_stands_for_what_was_not_sent_is_the_connectors_to_choose() -> None:
    own = Envelope("debezium", is_upsert=True, keys=(("id",),), placeholder="?")
    values = [_debezium("u", after={"id": 1, "v": "?"}), _debezium("u", after={"id": 2, "v": PLACEHOLDER})]
    changes = _read(own, *values)
    assert (changes.unavailable[1].tolist(), changes.columns[1].to_pylist()) == ([True, False], [None, PLACEHOLDER])


_RAW = PLACEHOLDER.encode()


@pytest.mark.parametrize(
    "array",
    [
        pa.array([PLACEHOLDER, "x", None]),
        pa.array([_RAW, b"x", None]),
        pa.array([[PLACEHOLDER], ["x"], None]),
        pa.array([[_RAW], [b"x"], None]),
        pa.array([list(_RAW), list(_RAW)[:-1], None], pa.list_(pa.int32())),
        pa.array([list(_RAW), [None] * len(_RAW), None], pa.list_(pa.int64())),
        pa.array([[(PLACEHOLDER, PLACEHOLDER)], [("x", "y")], None], pa.map_(pa.string(), pa.string())),
        pa.array([{"wkb": bytes.fromhex("0101000020e6100000000000fc83d797c1000000fc83d797c1")}, {"wkb": b"x"}, None]),
    ],
    ids=lambda array: str(array.type),
)
def test_a_value_that_was_not_sent_is_known_in_columns_of_every_type(array: pa.Array) -> None:
    found = unsent_of(array, PLACEHOLDER)
    assert found is not None
    assert found.tolist() == [True, False, False]
    assert unsent_of(array[1:], PLACEHOLDER) is None


def test_numbers_have_no_value_that_stands_for_one_that_was_not_sent() -> None:
    assert unsent_of(pa.array([1]), PLACEHOLDER) is None
    assert unsent_of(pa.array([[1.5]]), PLACEHOLDER) is None


_AVRO: dict[str, Any] = {
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


def _avro(*messages: Mapping[str, Any], schema: Mapping[str, Any] = _AVRO) -> tuple[Reading, dict[str, pa.Array]]:
    parsed, values = fastavro.parse_schema(json.loads(json.dumps(schema))), []
    for message in messages:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, {"source": {"connector": "c", "lsn": 9}, **message})
        values.append(b"\0\0\0\0\1" + body.getvalue())
    text = WriterSchema("avro", json.dumps(schema))
    return Reading(format="avro", schemas=(("1", text),), on_bad="dead_letter"), records_of(values)


def test_avro_is_read_as_json_is() -> None:
    rows = [{"id": 1, "v": "a", "tags": ["x"]}, {"id": 1, "v": PLACEHOLDER, "tags": [PLACEHOLDER]}]
    reading, records = _avro(
        {"op": "c", "before": None, "after": rows[0]},
        {"op": "u", "before": None, "after": rows[1]},
        {"op": "u", "before": rows[0], "after": {**rows[0], "id": 2}},
        {"op": "d", "before": {"id": 2, "v": None, "tags": None}, "after": None},
        {"op": "c", "before": None, "after": None},
        {"op": "?", "before": None, "after": rows[0]},
        {"op": "m", "before": None, "after": None},
    )
    target = target_for(MIRROR, {"id": "long", "v": "string"}, ("position",), reading=reading)
    changes = read_envelope(target, records)
    assert changes.ops.tolist() == [UPSERT, UPSERT, DELETE, UPSERT, DELETE]
    assert changes.columns[0].to_pylist() == [1, 1, 1, 2, 2]
    assert changes.unavailable[1].tolist() == [False, True, False, False, False]
    assert changes.own["position"].to_pylist() == ["00000000000000000009"] * 5
    assert _bad(changes) == [(4, "missing_image", ""), (5, "unknown_operation", "")]
    assert changes.passed_over == {"message": 1}
    assert changes.decoded.wanted == {(): {"tags": ListType(0, StringType(), element_required=False)}}


def test_a_tombstone_is_passed_over_and_a_value_that_is_too_large_is_a_bad_record() -> None:
    reading, records = _avro({"op": "c", "before": None, "after": {"id": 1, "v": "a", "tags": None}})
    records = records_of([None, records["value"][0].as_py()])
    changes = read_envelope(target_for(MIRROR, {"id": "long", "v": "string"}, reading=reading), records)
    assert (changes.passed_over, changes.records.tolist()) == ({"tombstone": 1}, [1])
    small = Reading(max_record_bytes=60, on_bad="dead_letter")
    changes = _read(MIRROR, None, _debezium("c", after={"id": 1, "v": "x" * 99}), reading=small)
    assert (changes.passed_over, _bad(changes)) == ({"tombstone": 1}, [(1, "too_large", "")])


def test_an_avro_schema_that_is_no_envelope_makes_bad_records() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    reading, records = _avro({"id": 1}, {"id": 2}, schema=schema)
    changes = read_envelope(target_for(MIRROR, {"id": "long"}, reading=reading), records)
    assert _bad(changes) == [(0, "not_an_envelope", ""), (1, "not_an_envelope", "")]


@pytest.mark.parametrize(
    ("envelope", "names"),
    [
        (Envelope("operation", "ops", ("I",), ("U",), ("D",), is_upsert=True, keys=(("id",),)), ("ops", "I", "U", "D")),
        (MIRROR, ("__op", "c", "u", "d")),
    ],
)
def test_a_field_of_an_avro_row_names_the_operation(envelope: Envelope, names: tuple[str, ...]) -> None:
    field, *words = names
    fields = [{"name": "id", "type": "long"}, {"name": field, "type": ["null", "string"]}]
    rows = [{"id": n, field: word} for n, word in enumerate([*words, "?", None])]
    reading, records = _avro(*rows, schema={"type": "record", "name": "R", "fields": fields})
    changes = read_envelope(target_for(envelope, {"id": "long"}, reading=reading), records)
    assert (changes.ops.tolist(), changes.records.tolist()) == ([UPSERT, UPSERT, DELETE], [0, 1, 2])
    assert _bad(changes) == [(3, "unknown_operation", ""), (4, "unknown_operation", "")]
    assert changes.decoded.wanted == {}


def test_maxwell_tells_of_more_than_rows() -> None:
    envelope = Envelope("maxwell", is_log=True)
    values = [
        b'{"database":"d","table":"t","type":"update","ts":2,"xid":5,"data":{"id":1,"v":null},"old":{"v":"x"}}',
        b'{"database":"d","table":"t","type":"table-alter","ts":2,"sql":"alter"}',
        b'{"database":"d","table":"t","type":"bootstrap-start","ts":2,"data":{}}',
        b'{"database":"d","table":"t","type":"odd","ts":2,"data":{"id":1}}',
        b'{"database":"d","table":"t","type":"insert","ts":2}',
    ]
    changes = _read(envelope, *values, metadata=("op", "image", "source_ts", "transaction_id"))
    assert changes.columns[1].to_pylist() == ["x", None]
    assert changes.own["image"].to_pylist() == ["before", "after"]
    assert changes.own["transaction_id"].to_pylist() == ["5", "5"]
    assert changes.passed_over == {"schema_change": 1, "heartbeat": 1}
    assert _bad(changes) == [(3, "unknown_operation", ""), (4, "not_an_envelope", "")]


def test_keys_with_escapes_are_the_same_keys() -> None:
    changes = _read(
        LOG, b'{"\\u006fp":"c","aft\\u0065r":{"i\\u0064":1,"v":"a"}}', _debezium("c", after={"id": 2, "v": "b"})
    )
    assert changes.columns[0].to_pylist() == [1, 2]
    assert changes.decoded.wanted == {}


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ({"connector": "postgresql", "lsn": 26720560}, "00000000000026720560"),
        (
            {"connector": "mysql", "file": "binlog.000003", "pos": 154, "row": 2},
            "binlog.000003/00000000000000000154/00000000000000000002",
        ),
        (
            {"connector": "sqlserver", "commit_lsn": "00:1:2", "change_lsn": "00:1:1", "event_serial_no": 1},
            "00:1:2/00:1:1/00000000000000000001",
        ),
        ({"connector": "oracle", "scn": "4571"}, "00000000000000004571"),
        ({"connector": "mongodb", "ord": 1}, None),
    ],
)
def test_the_place_in_the_log_of_every_source_sorts_as_text(source: dict[str, Any], position: str | None) -> None:
    value = _debezium("c", after={"id": 1}, source=source)
    mirror = Envelope("debezium", is_upsert=True, keys=(("id",),))
    changes = _read(mirror, value, metadata=("position",))
    assert changes.own["position"].to_pylist() == [position]
