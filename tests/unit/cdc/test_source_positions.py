"""The place of a change in its source's log, in its transaction and among all changes: as text that sorts."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest

from frazil.cdc.changes import read_envelope
from frazil.cdc.positions import format_position
from frazil.decode.settings import Envelope, Reading
from tests.unit.cdc.envelope_messages import AVRO, LOG, UPSERT_ENVELOPE, avro, bad_records, debezium, read_changes
from tests.unit.cdc.envelope_reference import records_of, target_for


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ({"connector": "postgresql", "lsn": 26720560}, "00000000000026720560"),
        ({"connector": "postgresql", "lsn": 26720560, "sequence": '["9","8"]'}, "00000000000026720560"),
        ({"connector": "postgresql", "lsn": None, "sequence": '["30223221","30223224"]'}, "00000000000030223224"),
        ({"connector": "postgresql", "lsn": None, "sequence": '[null,"7"]'}, "00000000000000000007"),
        ({"connector": "postgresql", "lsn": None, "sequence": "[null,null]"}, None),
        (
            {"connector": "mysql", "file": "binlog.000003", "pos": 154, "row": 2},
            "binlog.000003/00000000000000000154/00000000000000000002",
        ),
        (
            {"connector": "sqlserver", "commit_lsn": "00:1:2", "change_lsn": "00:1:1", "event_serial_no": 1},
            "00:1:2/00:1:1/00000000000000000001",
        ),
        (
            {"connector": "sqlserver", "commit_lsn": "00:1:2", "change_lsn": None, "event_serial_no": None},
            "00:1:2/00000000000000000000/00000000000000000000",
        ),
        ({"connector": "sqlserver", "commit_lsn": None, "change_lsn": None, "event_serial_no": None}, None),
        ({"connector": "oracle", "scn": "4571"}, "00000000000000004571"),
        ({"connector": "mongodb", "ord": 1}, None),
    ],
)
def test_the_place_in_the_log_of_every_source_sorts_as_text(source: dict[str, Any], position: str | None) -> None:
    value = debezium("c", after={"id": 1}, source=source)
    upsert_table = Envelope("debezium", is_upsert=True, keys=(("id",),))
    changes = read_changes(upsert_table, value, metadata=("position",))
    assert changes.own["position"].to_pylist() == [position]


_SERVER: list[dict[str, Any]] = [
    {"connector": "sqlserver", "commit_lsn": "00:1:2", "change_lsn": None, "event_serial_no": None},
    {"connector": "sqlserver", "commit_lsn": "00:1:2", "change_lsn": "00:1:1", "event_serial_no": 1},
    {"connector": "sqlserver", "commit_lsn": "00:1:2", "change_lsn": "00:1:1", "event_serial_no": 2},
]
_SERVER_PLACES = [
    "00:1:2/00000000000000000000/00000000000000000000",
    "00:1:2/00:1:1/00000000000000000001",
    "00:1:2/00:1:1/00000000000000000002",
]


@pytest.mark.parametrize("is_avro", [False, True])
@pytest.mark.parametrize("cut", [1, 3])
def test_rows_of_a_snapshot_have_a_place_before_the_changes_there(is_avro: bool, cut: int) -> None:
    """Whatever records are read together."""
    found: list[str | None] = []
    for start in range(0, 3, cut):
        sources = _SERVER[start : start + cut]
        if is_avro:
            kinds: dict[str, Any] = {"connector": "string", "commit_lsn": ["null", "string"]}
            kinds |= {"change_lsn": ["null", "string"], "event_serial_no": ["null", "long"]}
            schema = json.loads(json.dumps(AVRO))
            schema["fields"][2]["type"]["fields"] = [{"name": name, "type": kind} for name, kind in kinds.items()]
            row = {"id": 1, "v": "a", "tags": None}
            messages = [{"op": "c", "before": None, "after": row, "source": source} for source in sources]
            reading, records = avro(*messages, schema=schema)
        else:
            reading = Reading(on_bad="dead_letter")
            records = records_of([debezium("c", after={"id": 1}, source=source) for source in sources])
        changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "long"}, ("position",), reading=reading), records)
        found += changes.own["position"].to_pylist()
    assert found == sorted(_SERVER_PLACES) == _SERVER_PLACES


_ZERO, _ONE, _TWO = (f"{n:020}" for n in range(3))


@pytest.mark.parametrize(
    ("source", "transaction", "order"),
    [
        ({"connector": "postgresql", "lsn": 26720560}, None, f"{26720560:020}/{_ZERO}/{_ZERO}"),
        ({"connector": "postgresql", "lsn": 26720560}, {"total_order": 2}, f"{26720560:020}/{_TWO}/{_ZERO}"),
        (
            {"connector": "mysql", "file": "binlog.999999", "pos": 1, "row": 2},
            {"total_order": 1},
            f"binlog.{999999:020}/{_ONE}/{_ONE}/{_TWO}",
        ),
        ({"file": "no-number", "pos": 1, "row": None}, None, f"no-number/{_ONE}/{_ZERO}/{_ZERO}"),
        (
            {"commit_lsn": "00:1:2", "change_lsn": "00:1:1", "event_serial_no": 1},
            None,
            f"00:1:2/00:1:1/{_ONE}/{_ZERO}/{_ZERO}",
        ),
        ({"commit_lsn": "00:1:2", "change_lsn": None, "event_serial_no": None}, None, f"00:1:2///{_ZERO}/{_ZERO}"),
        ({"connector": "oracle", "scn": "4571"}, {"total_order": 1}, f"{4571:020}/{_ONE}/{_ZERO}"),
        ({"connector": "mongodb", "ord": 1}, {"total_order": 1}, None),
    ],
)  # fmt: skip
def test_the_place_of_a_change_among_all_reports_the_same_whatever_is_read_beside_it(
    source: dict[str, Any], transaction: dict[str, Any] | None, order: str | None
) -> None:
    value = debezium("c", after={"id": 1}, source=source, transaction=transaction)
    other = debezium("c", after={"id": 1}, source={"lsn": 1, "row": 1}, transaction={"total_order": 9})
    for values in ([value], [value, other]):
        changes = read_changes(UPSERT_ENVELOPE, *values, metadata=("source_order",))
        assert changes.own["source_order"].to_pylist()[0] == order


@pytest.mark.parametrize(
    ("source", "other"),
    [
        ({"connector": "postgresql", "lsn": 7}, {"connector": "postgresql", "lsn": "8"}),
        ({"connector": "oracle", "scn": "7"}, {"connector": "oracle", "scn": 8}),
        ({"connector": "mysql", "file": "b.000001", "pos": 7, "row": 0}, {"file": "b.000001", "pos": "8", "row": "0"}),
        ({"connector": "sqlserver", "commit_lsn": "00:1:2"}, {"connector": "other", "commit_lsn": 8}),
    ],
)
def test_a_position_that_is_text_in_one_record_and_a_number_in_another_is_one_place_in_both(
    source: dict[str, Any], other: dict[str, Any]
) -> None:
    """An upgraded connector, or one of another maker, writes the same topic: neither harms the records of the other."""
    values = [debezium("c", after={"id": 1}, source=source), debezium("c", after={"id": 2}, source=other)]
    names = ("position", "source_order")
    alone = [read_changes(UPSERT_ENVELOPE, value, metadata=names).own for value in values]
    for order in (values, values[::-1]):
        changes = read_changes(UPSERT_ENVELOPE, *order, metadata=names)
        assert bad_records(changes) == []
        for name in names:
            places = [one[name].to_pylist()[0] for one in (alone if order is values else alone[::-1])]
            assert None not in places
            assert changes.own[name].to_pylist() == places


def test_a_transaction_id_is_text_whether_it_is_written_as_text_or_as_a_number() -> None:
    values = [debezium("c", after={"id": 1}, transaction={"id": id_}) for id_ in ("a", 7, None, "8")]
    changes = read_changes(LOG, *values, metadata=("transaction_id",))
    assert bad_records(changes) == []
    assert changes.own["transaction_id"].to_pylist() == ["a", "7", None, "8"]


@pytest.mark.parametrize(
    ("message", "path"), [({"source": {"ts_ms": "soon"}}, "source.ts_ms"), ({"ts_ms": "soon"}, "ts_ms")]
)
def test_a_time_that_is_no_number_is_named_by_its_place_in_the_message(message: dict[str, Any], path: str) -> None:
    values = [debezium("c", after={"id": 1}, **message), debezium("c", after={"id": 2}, source={"ts_ms": 5})]
    changes = read_changes(LOG, *values, metadata=("source_ts", "connector_ts"))
    assert bad_records(changes) == [(0, "type_mismatch", path)]


@pytest.mark.parametrize("value", [1.5, "7", 18446744073709551616, "soon", {}])
def test_no_setting_of_columns_is_proposed_for_a_member_of_the_envelope(value: object) -> None:
    """A column declared for it would have a field of the row, and the record would stay a dead letter."""
    changes = read_changes(LOG, debezium("c", after={"id": 1}, source={"ts_ms": value}), metadata=("source_ts",))
    (mismatch,) = changes.decoded.mismatches
    assert mismatch.path == "source.ts_ms"
    assert re.search("column|numbers:|cast", mismatch.reason) is None
    row = read_changes(LOG, debezium("c", after={"id": 1.5})).decoded.mismatches[0]
    assert (row.path, "columns: {NAME: {type: double, field: id}}" in row.reason) == ("after.id", True)


def test_the_place_of_a_change_among_those_of_its_table_in_the_transaction() -> None:
    transaction = {"id": "7", "total_order": 3, "data_collection_order": 2}
    changes = read_changes(
        LOG, debezium("c", after={"id": 1}, transaction=transaction), metadata=("collection_order", "total_order")
    )
    assert (changes.own["collection_order"].to_pylist(), changes.own["total_order"].to_pylist()) == ([2], [3])


def test_avro_tells_the_place_among_all_as_json_does() -> None:
    members = {"id": "string", "total_order": "long", "data_collection_order": "long"}
    fields = [{"name": name, "type": kind} for name, kind in members.items()]
    block = {"type": "record", "name": "Block", "fields": fields}
    schema = {**AVRO, "fields": [*AVRO["fields"], {"name": "transaction", "type": ["null", block]}]}
    message = {"op": "c", "before": None, "after": {"id": 1, "v": "a", "tags": None}}
    told = {"id": "t", "total_order": 2, "data_collection_order": 1}
    reading, records = avro({**message, "transaction": told}, {**message, "transaction": None}, schema=schema)
    target = target_for(LOG, {"id": "long"}, ("source_order", "collection_order"), reading=reading)
    changes = read_envelope(target, records)
    assert changes.own["source_order"].to_pylist() == [f"{9:020}/{n:020}/{0:020}" for n in (2, 0)]
    assert changes.own["collection_order"].to_pylist() == [1, None]


def test_a_sequence_that_is_no_text_tells_no_place() -> None:
    """As others than Debezium's connectors may have it in Avro."""
    places = format_position({"lsn": pa.array([5, None], pa.int64()), "sequence": pa.array([7, 8])})
    assert places is not None
    assert places.to_pylist() == [f"{5:020}", None]
