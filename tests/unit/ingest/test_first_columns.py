"""A table without declared columns whose first records have no field: they are read past, and a run comes to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.ingest.batches.outcome import EMPTY_RETRY_S
from frazil.ingest.plan import FIRST_BATCH_RECORDS, TableClock, batch_limit, plan_batch
from frazil.ingest.tables.state import RunState
from frazil.spec.settings import EnvelopeSpec
from frazil.types import Batch, OffsetRange
from tests.unit.ingest.service_scene import Scene, only, turn_until

MIXED = 'string "s" meets values of another kind under the same name; declare the column'


def test_columns_are_found_behind_a_gap_that_is_longer_than_the_first_batch(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"x": 1}, gap=5 * FIRST_BATCH_RECORDS)
    table = only(scene.catch_up())
    assert (table.status.run_state, table.offsets.lag_records) == (RunState.WAITING, 0)
    assert scene.rows("n.a") == [{"x": 1}]


def test_columns_are_found_behind_a_gap_while_the_pipeline_continues(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {})
    scene.feed("a", {"x": 1}, gap=5 * FIRST_BATCH_RECORDS)
    service = scene.start()
    assert turn_until(service, lambda: service.tables[0].progress.snapshot_id is not None, 60)
    assert scene.rows("n.a") == [{"x": None}, {"x": 1}]


def test_a_run_to_the_ends_comes_back_when_no_record_has_brought_a_column_and_reports_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b", "c")
    scene.feed("a", b"not json")
    scene.feed("b", {}, {"x": None})
    scene.feed("c", {"x": 1})
    a, b, c = scene.catch_up(turns=60)
    assert (a.status.run_state, b.status.run_state, c.status.run_state) == (
        RunState.BACKING_OFF,
        RunState.BACKING_OFF,
        RunState.WAITING,
    )
    assert a.status.reason.startswith(
        "no record could become a row yet, so the table has no column; the first: not_an_object: "
    )
    assert a.status.where == "topic a, partition 0, offset 0"
    assert b.status.reason == "no record has a field yet, so the table has no column"
    assert scene.rows("n.c") == [{"x": 1}]
    scene.feed("a", {"x": 1})
    a, *_ = scene.catch_up(turns=60)
    assert (a.status.run_state, scene.rows("n.a"), scene.dead_letters("n.a")) == (
        RunState.WAITING,
        [{"x": 1}],
        [("a", 0, 0)],
    )


def test_a_table_whose_records_make_no_change_of_a_row_reports_what_they_are(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", envelope=EnvelopeSpec(kind="debezium"), mode="upsert")
    event = {"status": "BEGIN", "id": "571", "ts_ms": 1, "event_count": None, "data_collections": None}
    scene.feed("a", event, {"ts_ms": 1})
    table = only(scene.catch_up(turns=60))
    told = "the records so far change no row (heartbeat, transaction), so the table has no column yet"
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, told)


def test_offsets_without_any_record_keep_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, "a")
    topic = scene.source.by_name["a"]
    scene.feed("a", {"x": 1}, gap=99)
    # What an aborted transaction leaves: the topic ends behind offsets that no consumer gets.
    monkeypatch.setattr(topic, "end", lambda _: 100)
    topic.partitions[0].clear()
    table = only(scene.catch_up(turns=60))
    assert (table.status.run_state, table.offsets.lag_records) == (RunState.WAITING, 100)
    assert table.status.reason == "no record has a field yet, so the table has no column"


def test_a_table_without_a_column_is_not_tried_again_at_once_however_much_waits(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {})
    service = scene.start()
    assert turn_until(service, lambda: service.tables[0].status.reason)
    tried_at_s, batches = scene.clock.monotonic_s(), 0
    while scene.clock.monotonic_s() < tried_at_s + EMPTY_RETRY_S - 1:
        before = service.tables[0].schedule.last_batch_at_s
        service.turn()
        batches += service.tables[0].schedule.last_batch_at_s != before
    assert batches == 0


def test_a_search_for_columns_goes_twice_as_far_each_time_whatever_files_hold() -> None:
    clock = TableClock("t", 0, target_bytes=1000, record_bytes=100, is_first=True)
    limits = [batch_limit(TableClock("t", 0, 1, is_first=True, empty_batches=tries)) for tries in range(4)]
    assert limits == [FIRST_BATCH_RECORDS << tries for tries in range(4)]
    further = TableClock("t", 0, target_bytes=1000, record_bytes=100, is_first=True, empty_batches=9)
    assert plan_batch({"a": {0: 0}}, {("a", 0): 777_777}, further, 1.0) == Batch(
        "t", (OffsetRange("a", 0, 0, 777_777),)
    )
    assert plan_batch({"a": {0: 0}}, {("a", 0): 777_777}, clock, -1.0) is None, "it is due when it reports it"


def test_a_table_that_stops_at_a_contradiction_names_the_field_and_no_other(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", on_bad_record="stop")
    scene.source.by_name["a"].partitions.append([])
    scene.feed("a", {"x": 1, "y": 1})
    scene.feed("a", {"y": 1.5}, {"x": "s", "y": 1.5}, partition=1)
    table = only(scene.catch_up())
    assert (table.status.run_state, table.status.reason) == (RunState.STOPPED, f"field x: {MIXED}")
    assert table.status.where == "topic a, partition 1, offset 1"
