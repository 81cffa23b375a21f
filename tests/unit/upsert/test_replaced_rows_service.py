"""Upsert tables of a database's tables: a whole service on the ports in memory, from Debezium's envelopes to rows by key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from frazil.catalog.scans import LiveFile
from frazil.decode.settings import PLACEHOLDER
from frazil.ingest.tables.state import RunState
from frazil.spec.settings import ColumnSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from frazil.upsert.lookup.live_rows import read_columns
from frazil.write.target import TableTarget
from frazil_testing.twins import MemoryJobs
from tests.needs import needs
from tests.unit.upsert.upsert_source import (
    HEARTBEAT,
    MARKS,
    Log,
    Row,
    SourceRecord,
    UpsertSource,
    changed,
    flat,
    gone,
    made,
    tombstone,
)


def test_the_key_columns_are_those_of_the_records_keys(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    scenario.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    scenario.say(changed({"id": 1, "v": "c"}), gone(2), tombstone(2))
    assert scenario.upsert_table() == [{"id": 1, "v": "c"}]


def test_keys_and_values_with_their_schemas(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    field = {"type": "int64", "optional": False, "field": "id"}
    schema = {"type": "struct", "fields": [field], "optional": False, "name": "k"}
    wrapped = [
        ({"schema": schema, "payload": key}, {"schema": None, "payload": value})
        for key, value in (made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}), gone(1))
    ]
    scenario.say(*wrapped, ({"schema": schema, "payload": {"id": 1}}, None))
    assert scenario.upsert_table() == [{"id": 2, "v": "b"}]
    scenario.say(({"schema": schema, "payload": {"id": 2}}, {"schema": None, "payload": None}))
    assert scenario.upsert_table() == []


def test_a_tombstone_alone_deletes_the_row_of_its_key(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    scenario.say(flat({"id": 1, "v": "a"}), flat({"id": 2, "v": "b"}), flat({"id": 3, "v": "c"}))
    table = scenario.say(tombstone(1), flat({"id": 2, "v": "d"}, "u"), tombstone(3), flat({"id": 3, "v": "e"}))
    assert scenario.upsert_table() == [{"id": 2, "v": "d"}, {"id": 3, "v": "e"}]
    assert table.bad_records.ignored_records == {}


def test_a_tombstone_after_its_delete_reports_nothing_new(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    scenario.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    table = scenario.say(gone(1), tombstone(1), gone(2))
    assert (scenario.upsert_table(), table.bad_records.ignored_records) == ([], {"tombstone": 1})
    table = scenario.say(tombstone(2), made({"id": 2, "v": "c"}), (None, None))
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([{"id": 2, "v": "c"}], [])
    assert table.bad_records.ignored_records == {"tombstone": 2}


@pytest.mark.parametrize("gap", [0, 1])
def test_a_tombstone_is_that_of_the_delete_that_the_batch_before_has_ended_with(tmp_path: Path, gap: int) -> None:
    """The delete may have come too late, and the row is newer than both."""
    scenario = UpsertSource(
        tmp_path, metadata={"source_order": "_source_order"}, order_by="_source_order", partitions=2
    )
    log = Log(scenario)
    log.write({"id": 1, "v": "a", "big": "A"})
    log.remove(1)
    log.send(0, {"id": 1}, None, ())
    log.write({"id": 1, "v": "b", "big": "B"})
    scenario.catch_up()
    log.lsn = 1
    log.remove(1)
    assert [last.offset for last in scenario.catch_up().progress.order.last_deletes] == [4]
    log.lsn = 9
    log.write({"id": 2, "v": "c", "big": "C"}, partition=1)
    assert [last.offset for last in scenario.catch_up().progress.order.last_deletes] == [4]
    scenario.source.produce("a", 0, None, 0, gap, key=json.dumps({"id": 1}).encode())
    assert scenario.catch_up().progress.order.last_deletes == ()
    assert [row["v"] for row in scenario.by_id()] == ["b", "c"]
    log.send(0, {"id": 1}, None, ())
    scenario.catch_up()
    assert [row["v"] for row in scenario.by_id()] == ["c"]


def test_the_json_text_null_is_a_tombstone_too(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    scenario.say(flat({"id": 1, "v": "a"}), flat({"id": 2, "v": "b"}))
    scenario.source.produce("a", 0, b"null", key=b'{"id": 1}')
    scenario.catch_up()
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([{"id": 2, "v": "b"}], [])


def test_a_tombstone_whose_key_lacks_a_key_column_is_skipped(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, key_columns=("v",))
    scenario.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    table = scenario.say(tombstone(1))
    assert (len(scenario.upsert_table()), scenario.dead_letters(), table.bad_records.ignored_records) == (
        2,
        [],
        {"tombstone": 1},
    )


def test_rows_are_kept_and_marked_as_deleted(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, **MARKS)
    scenario.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    scenario.say(gone(1), tombstone(1))
    assert scenario.upsert_table("id", "v", "_deleted") == [
        {"id": 2, "v": "b", "_deleted": False},
        {"id": 1, "v": "a", "_deleted": True},
    ]
    times = {row["id"]: row["_deleted_at"] for row in scenario.upsert_table()}
    assert (times[1] is None, times[2]) == (False, None)
    scenario.say(made({"id": 1, "v": "c"}))
    assert {"id": 1, "v": "c", "_deleted": False} in scenario.upsert_table("id", "v", "_deleted")


@pytest.mark.parametrize("batches", [1, 2])
def test_what_is_beside_a_key_in_a_struct_stays_when_its_row_is_marked(tmp_path: Path, batches: int) -> None:
    scenario = UpsertSource(tmp_path, key_columns=("o.id",), **MARKS)
    row = {"o": {"id": 1, "x": 2}, "v": "a"}
    first: SourceRecord = ({"o": {"id": 1}}, {"op": "c", "before": None, "after": row})
    gone_rows: list[SourceRecord] = [
        ({"o": {"id": n}}, {"op": "d", "before": {"o": {"id": n}, "v": None}, "after": None}) for n in (1, 7)
    ]
    reported = [[first, *gone_rows]] if batches == 1 else [[first], gone_rows]
    for told in reported:
        scenario.say(*told)
    assert scenario.upsert_table("o", "v", "_deleted") == [
        {"o": {"id": 1, "x": 2}, "v": "a", "_deleted": True},
        {"o": {"id": 7, "x": None}, "v": None, "_deleted": True},
    ]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_value_that_was_not_sent_is_of_the_row_that_is_before_the_change_in_the_order_of_a_column(
    tmp_path: Path, tasks: int
) -> None:
    def told(op: str, key: int, at: int, big: str) -> SourceRecord:
        return {"id": key}, {"op": op, "before": None, "after": {"id": key, "at": at, "big": big}}

    scenario = UpsertSource(tmp_path, tasks, key_columns=("id",), order_by="at")
    if tasks > 1:
        scenario.jobs = MemoryJobs(scenario.source, batch_size=1, tasks=tasks)
    scenario.say(*(told("c", key, 7, "of the row") for key in (1, 2, 3)), told("c", 4, 3, "of the row"))
    scenario.say(told("u", 1, 5, "late"), told("u", 3, 6, PLACEHOLDER), told("u", 4, 5, "newer"))
    scenario.say(
        *(told("u", key, 5, "late") for key in (1, 3)), told("u", 4, 9, "newer"),
        *(told("u", key, 10, PLACEHOLDER) for key in (1, 2, 3, 4)),
    )  # fmt: skip
    scenario.say(told("u", 4, 12, "newest"), told("u", 4, 11, "late"), partition=1)
    scenario.say(told("u", 4, 13, PLACEHOLDER), partition=1)
    assert [(row["at"], row["big"]) for row in scenario.by_id()] == [
        (10, "of the row"), (10, "of the row"), (10, "of the row"), (13, "newest"),
    ]  # fmt: skip


def test_the_ordering_values_of_the_rows_that_are_there_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, asked = UpsertSource(tmp_path, key_columns=("id",), order_by="at"), list[Any]()
    scenario.say(made({"id": 1, "at": 1, "big": "large"}))

    def noted(target: TableTarget, file: LiveFile, paths: Sequence[Any], rows: Any = None) -> list[pa.Array]:
        asked.extend(paths)
        return read_columns(target, file, paths, rows)

    monkeypatch.setattr("frazil.upsert.lookup.search.read_columns", noted)
    scenario.say(changed({"id": 1, "at": 2, "big": PLACEHOLDER}))
    assert (asked, scenario.upsert_table()) == ([("at",)], [{"id": 1, "at": 2, "big": "large"}])


@pytest.mark.parametrize("batches", [1, 2])
def test_values_that_were_not_sent_in_an_order_of_the_earliest_times(tmp_path: Path, batches: int) -> None:
    def told(at: str, big: str) -> SourceRecord:
        return {"id": 1}, {"op": "u", "before": None, "after": {"id": 1, "at": at, "big": big}}

    columns = (ColumnSpec(name="at", type=parse_type("timestamp")),)
    scenario = UpsertSource(tmp_path, key_columns=("id",), order_by="at", columns=columns)
    scenario.say(told("0001-01-01T00:00:00", "large"))
    changes = [told("0001-01-02T00:00:00", PLACEHOLDER), told("2020-01-01T00:00:00", PLACEHOLDER)]
    for reported in [changes] if batches == 1 else [[one] for one in changes]:
        scenario.say(*reported)
    newest = scenario.data_files("n.t")[-1].path
    assert pq.read_table(newest, columns=["id", "big"]).to_pylist() == [{"id": 1, "big": "large"}]
    assert len(scenario.catalog.ancestors("n.t")) == 1 + batches


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_value_that_was_not_sent_is_of_the_change_before_it_whichever_task_has_read_that(
    tmp_path: Path, tasks: int
) -> None:
    def told(at: int, big: str) -> SourceRecord:
        return {"id": 1}, {"op": "u", "before": None, "after": {"id": 1, "at": at, "big": big}}

    scenario = UpsertSource(tmp_path, partitions=3, key_columns=("id",), order_by="at")
    scenario.jobs = MemoryJobs(scenario.source, batch_size=1, tasks=tasks)
    for partition, changes in enumerate(
        [[told(5, "fifth"), told(19, PLACEHOLDER)], [told(15, "fifteenth")], [told(18, PLACEHOLDER), told(1, "first")]]
    ):
        for key, value in changes:
            scenario.put(json.dumps(key), value, partition)
    scenario.catch_up()
    assert scenario.upsert_table("at", "big") == [{"at": 19, "big": "fifteenth"}]


def test_a_truncate_of_a_table_that_marks_its_deletes(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, partitions=1, **MARKS)
    scenario.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}))
    scenario.say((None, {"op": "t", "before": None, "after": None}), made({"id": 3, "v": "c"}))
    assert scenario.upsert_table("id") == [{"id": 3}]


@pytest.mark.parametrize("reported", [HEARTBEAT, (None, {"nothing": 1}), (None, None), tombstone(1)])
def test_an_existing_table_whose_key_nobody_has_told_yet(tmp_path: Path, reported: SourceRecord) -> None:
    scenario = UpsertSource(tmp_path, partitions=1)
    scenario.exists(id="long", v="string")
    table = scenario.say(reported, HEARTBEAT)
    assert (table.status.run_state, scenario.upsert_table()) == (RunState.WAITING, [{"id": 1, "v": "old"}])
    scenario.say(made({"id": 2, "v": "b"}))
    assert len(scenario.upsert_table()) == 2
    scenario.say((None, {"op": "t", "before": None, "after": None}))
    assert scenario.upsert_table() == []


def test_an_existing_table_whose_key_nobody_has_told_yet_is_emptied(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, partitions=1)
    scenario.exists(id="long", v="string")
    table = scenario.say((None, {"op": "t", "before": None, "after": None}), (None, {"ts_ms": 1}))
    assert (table.status.run_state, scenario.upsert_table(), scenario.dead_letters()) == (RunState.WAITING, [], [])


@pytest.mark.parametrize("key", ["idd", "id.d", "o.idd"])
def test_a_key_column_that_nothing_brings_makes_dead_letters(tmp_path: Path, key: str) -> None:
    scenario = UpsertSource(tmp_path, partitions=1, key_columns=(key,))
    scenario.exists(id="long", v="string")
    table = scenario.say(made({"id": 1, "v": "a"}), gone(1), tombstone(1), HEARTBEAT)
    reason = f"the table has no key column {key}, and the record does not have it"
    assert (table.status.run_state, scenario.dead_letters()) == (RunState.WAITING, [("no_key", reason)] * 2)
    scenario.say((None, {"op": "t", "before": None, "after": None}))
    assert (len(scenario.dead_letters()), scenario.upsert_table()) == (2, [])


@pytest.mark.parametrize("batches", [1, 2])
def test_a_delete_that_is_marked_has_its_place_in_the_order_of_a_column(tmp_path: Path, batches: int) -> None:
    scenario = UpsertSource(tmp_path, key_columns=("id",), order_by="at", **MARKS)

    def taken(key: int, at: int | None) -> SourceRecord:
        return {"id": key}, {"op": "d", "before": {"id": key, "v": None, "at": at}, "after": None}

    scenario.say(*(made({"id": key, "v": "a", "at": 5}) for key in range(1, 6)))
    first = [taken(1, 5), taken(2, 9), taken(3, 4), taken(4, None), taken(5, 9)]
    second = [made({"id": 2, "v": "late", "at": 7}), made({"id": 5, "v": "again", "at": 9})]
    for told in [[*first, *second]] if batches == 1 else [first, second]:
        scenario.say(*told)
    assert [(row["id"], row["v"], row["at"], row["_deleted"]) for row in scenario.by_id()] == [
        (1, "a", 5, True),
        (2, "late" if batches == 1 else "a", 9, True),
        (3, "a", 5, False),
        (4, "a", 5, False),
        (5, "again", 9, False),
    ]  # fmt: skip
    assert [kind for kind, _ in scenario.dead_letters()] == ["no_order_value"]


def _with_required(scenario: UpsertSource) -> None:
    """The table is there already, and its column `v` is required."""
    fields = (NestedField(1, "id", LongType(), required=False), NestedField(2, "v", StringType(), required=True))
    scenario.catalog.create("n.t", Schema(*fields), {}, 3)


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("policy", ["evolve", "freeze"])
def test_a_value_that_no_row_has_is_missing_where_the_column_is_required(
    tmp_path: Path, policy: str, tasks: int
) -> None:
    scenario = UpsertSource(tmp_path, tasks, key_columns=("id",), schema_evolution=policy)
    _with_required(scenario)
    kept = [changed({"id": key, "v": PLACEHOLDER}) for key in range(8)]
    table = scenario.say(*(made({"id": key, "v": "a"}) for key in range(4)), *kept, made({"id": 9, "v": "b"}))
    rows: list[Row] = [{"id": key, "v": "a"} for key in range(4)]
    lacking: list[Row] = [{"id": key, "v": None} for key in range(4, 8)]
    assert table.status.run_state is RunState.WAITING
    assert scenario.by_id() == [*rows, *(lacking if policy == "evolve" else []), {"id": 9, "v": "b"}]
    assert [kind for kind, _ in scenario.dead_letters()] == ([] if policy == "evolve" else ["missing_value"] * 4)
    assert {str(path) for path in tmp_path.rglob("*.parquet")} == {
        file.path for name in ("n.t", "n.t__dead_letters") for file in scenario.data_files(name)
    }


def test_a_delete_of_no_row_is_marked_though_a_column_is_required(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, key_columns=("id",), **MARKS)
    _with_required(scenario)
    scenario.say(made({"id": 1, "v": "a"}), gone(2))
    assert [(row["id"], row["v"], row["_deleted"]) for row in scenario.by_id()] == [(1, "a", False), (2, None, True)]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_row_that_is_marked_as_deleted_keeps_the_values_that_did_not_fit(tmp_path: Path, tasks: int) -> None:
    columns = tuple(ColumnSpec(name=name, type=parse_type(kind)) for name, kind in (("id", "long"), ("v", "int")))
    scenario = UpsertSource(tmp_path, tasks, key_columns=("id",), rescue=True, columns=columns, **MARKS)
    scenario.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": 2}))
    again = [made({"id": 4, "v": "a"}), gone(4), made({"id": 4, "v": 4})]
    scenario.say(gone(1), gone(2), made({"id": 3, "v": "a"}), gone(3), *again)
    found = [(row["id"], '"a"' in (row["_rescued"] or ""), row["_deleted"]) for row in scenario.by_id()]
    assert found == [(1, True, True), (2, False, True), (3, True, True), (4, False, False)]


def test_an_upsert_table_in_the_order_of_a_column(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, key_columns=("id",), order_by="v")
    scenario.say(made({"id": 1, "v": "2"}), made({"id": 2, "v": "2"}))
    scenario.say(changed({"id": 1, "v": "1"}), changed({"id": 2, "v": "3"}), gone(2), tombstone(2))
    assert scenario.by_id() == [{"id": 1, "v": "2"}]
    log = Log(scenario)
    log.write({"id": 5, "v": "1", "big": "of 5"})
    scenario.catch_up()
    log.move(5, 6, "2")
    scenario.catch_up()
    assert scenario.by_id() == [{"id": 1, "v": "2", "big": None}, {"id": 6, "v": "2", "big": "of 5"}]
    assert scenario.dead_letters() == []


def _placed(key: int, v: str, lsn: int, total_order: int, op: str = "u") -> SourceRecord:
    """A change of a row at a place in the log, and in its transaction."""
    row = {"id": key, "v": v}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    source, transaction = {"connector": "oracle", "scn": str(lsn)}, {"id": "t", "total_order": total_order}
    return {"id": key}, {"op": op, **images, "source": source, "transaction": transaction}


def test_the_change_wins_that_the_source_made_last_in_whatever_order_changes_arrive(tmp_path: Path) -> None:
    asked = {"source_order": "_source_order", "total_order": "_total_order"}
    scenario = UpsertSource(tmp_path, metadata=asked, order_by="_source_order")
    scenario.say(_placed(1, "newest", 10, 2), _placed(2, "newest", 9, 7), partition=1)
    scenario.say(_placed(1, "old", 10, 1), _placed(1, "older", 9, 9), _placed(2, "old", 9, 6))
    scenario.say(_placed(3, "newest", 20, 1), _placed(3, "old", 3, 99, "c"), _placed(2, "gone", 8, 9, "d"))
    scenario.say(_placed(4, "old", 5, 2), _placed(4, "newest", 5, 10), partition=1)
    assert [(row["id"], row["v"], row["_total_order"]) for row in scenario.by_id()] == [
        (1, "newest", 2), (2, "newest", 7), (3, "newest", 1), (4, "newest", 10),
    ]  # fmt: skip
    scenario.say(_placed(4, "gone", 5, 11, "d"), ({"id": 9}, {"op": "c", "before": None, "after": {"id": 9, "v": "x"}}))
    assert [row["id"] for row in scenario.by_id()] == [1, 2, 3]
    assert scenario.dead_letters() == [
        ("no_order_value", "the column _source_order, which orders the changes, has no value")
    ]


@needs("jsonschema")
def test_envelopes_and_keys_behind_json_schemas_upsert_table_their_rows(tmp_path: Path) -> None:
    schemas = ValueSpec(format="json_schema")
    scenario = UpsertSource(tmp_path, value=schemas, key=schemas)
    members = {"id": {"type": "integer", "connect.type": "int32"}, "v": {"type": "string"}}
    image = {"oneOf": [{"type": "null"}, {"type": "object", "properties": members}]}
    envelope = {"type": "object", "properties": {"before": image, "after": image, "op": {"type": "string"}}}
    key = {"type": "object", "properties": {"id": members["id"]}}
    ids = [scenario.registry.register("json_schema", json.dumps(schema)) for schema in (key, envelope)]

    def say(*records: SourceRecord) -> None:
        for told in records:
            frames = (b"\0" + number.to_bytes(4, "big") for number in ids)
            raw = [
                None if one is None else frame + json.dumps(one).encode()
                for frame, one in zip(frames, told, strict=True)
            ]
            scenario.source.produce("a", 0, raw[1], key=raw[0])
        scenario.catch_up()

    say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}), made({"id": 3, "v": "c"}))
    say(changed({"id": 1, "v": "d"}), gone(2), tombstone(2), tombstone(3))
    assert scenario.upsert_table() == [{"id": 1, "v": "d"}]
    state = scenario.catalog.load("n.t")
    assert state is not None
    assert str(state.schema.find_type("id")) == "int"
