"""Records behind an open transaction: they are lag by the end of the log, and the transaction is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from frazil.ingest.loop.planner import LOG_ENDS_EVERY_S
from frazil.ingest.tables.state import RunState
from frazil.types import OffsetRange
from tests.unit.ingest.service_scene import Scene, only, turn_until


def held_scene(root: Path) -> Scene:
    """Two readable records, then ten of an open transaction and a thousand plain ones."""
    scene = Scene(root, "a")
    scene.feed("a", {"x": 1}, {"x": 2})
    scene.source.begin_transaction("a", 0)
    scene.feed("a", *({"x": number} for number in range(1010)))
    return scene


def test_a_run_that_catches_up_ends_where_the_transaction_begins_and_counts_what_waits(tmp_path: Path) -> None:
    table = only(held_scene(tmp_path).catch_up())
    assert (table.offsets.lag_records, table.status.run_state) == (1010, RunState.WAITING)
    assert table.offsets.open_transactions == (OffsetRange("a", 0, 2, 1012),)


def test_a_table_that_does_not_exist_yet_waits_for_the_transaction_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.source.begin_transaction("a", 0)
    scene.feed("a", {"x": 1}, {"x": 2})
    table = only(scene.catch_up())
    assert (table.state, table.offsets.lag_records) == (None, 2)
    assert table.offsets.open_transactions == (OffsetRange("a", 0, 0, 2),)


def test_the_records_are_read_once_the_transaction_ends(tmp_path: Path) -> None:
    scene = held_scene(tmp_path)
    service = scene.start()
    table = only(service.tables)
    assert turn_until(service, lambda: table.offsets.lag_records == 1010)
    scene.source.end_transaction("a", 0)
    assert turn_until(service, lambda: table.offsets.lag_records == 0)
    assert table.offsets.open_transactions == ()
    assert len(scene.rows("n.a")) == 1012


def test_records_that_arrive_behind_it_are_counted_though_no_end_moves(tmp_path: Path) -> None:
    scene = held_scene(tmp_path)
    service = scene.start()
    table = only(service.tables)
    assert turn_until(service, lambda: table.offsets.lag_records == 1010)
    scene.feed("a", {"x": 1})
    since_s = scene.clock.monotonic_s()
    assert turn_until(service, lambda: table.offsets.lag_records == 1011, turns=1000)
    assert scene.clock.monotonic_s() - since_s < 2 * LOG_ENDS_EVERY_S


def test_only_the_partition_with_the_transaction_waits_and_the_watermark_waits_for_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.source.create("a", 2)
    scene.feed("a", {"x": 1}, partition=0)
    scene.feed("a", {"x": 2}, partition=1)
    complete_to_ms = only(scene.catch_up()).progress.watermark.complete_to_ms
    scene.clock.sleep(60)
    scene.source.begin_transaction("a", 1)
    scene.feed("a", {"x": 3}, partition=0)
    scene.feed("a", {"x": 4}, partition=1)
    table = only(scene.catch_up())
    assert [row["x"] for row in scene.rows("n.a")] == [1, 2, 3]
    assert table.offsets.open_transactions == (OffsetRange("a", 1, 1, 2),)
    assert table.progress.watermark.complete_to_ms == complete_to_ms, "a record of partition 1 is older than 3"
    scene.source.end_transaction("a", 1)
    scene.clock.sleep(60)
    after = only(scene.catch_up()).progress.watermark.complete_to_ms
    assert after is not None
    assert complete_to_ms is not None
    assert after > complete_to_ms


def test_progress_of_a_tool_that_has_read_uncommitted_records_does_not_stop_the_table(tmp_path: Path) -> None:
    """As a consumer of Kafka Connect does unless it is configured otherwise."""
    scene = Scene(tmp_path, "a")
    scene.feed("a", *({"x": number} for number in range(5)))
    scene.catch_up()
    scene.source.by_name["a"].open[0] = 3
    table = only(scene.catch_up())
    assert table.status.run_state is RunState.WAITING, table.status
    scene.source.end_transaction("a", 0)
    scene.feed("a", {"x": 5})
    scene.catch_up()
    assert [row["x"] for row in scene.rows("n.a")] == [0, 1, 2, 3, 4, 5]


def test_an_upsert_table_counts_them_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", mode="upsert", key_columns=("x",), format_version=3)
    scene.feed("a", {"x": 1})
    scene.source.begin_transaction("a", 0)
    scene.feed("a", {"x": 2})
    table = only(scene.catch_up())
    assert (table.offsets.lag_records, table.offsets.open_transactions) == (1, (OffsetRange("a", 0, 1, 2),))


def test_a_paused_table_counts_them_too(tmp_path: Path) -> None:
    scene = held_scene(tmp_path)
    scene.catch_up()
    service = scene.start()
    table = only(service.tables)
    table.schedule = replace(table.schedule, is_paused=True)
    assert turn_until(service, lambda: table.offsets.lag_records == 1010)
    assert table.offsets.open_transactions == (OffsetRange("a", 0, 2, 1012),)


def test_the_lag_of_a_table_that_was_stopped_before_its_first_plan_is_unknown(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"x": 1})
    service = scene.start()
    table = only(service.tables)
    table.schedule = replace(table.schedule, is_paused=True)
    for _ in range(5):
        service.turn()
    assert table.offsets.lag_records is None
