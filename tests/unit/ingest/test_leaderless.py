"""Partitions that have no leader just now, and partitions and topics that come later: where they begin, and who waits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import UnavailableError
from frazil.ingest.loop.refresh import TOPICS_EVERY_S
from frazil.ingest.tables.state import RunState
from frazil.kafka.port import Partition
from frazil.spec.models import Start
from tests.unit.ingest.service_scene import Scene, only, turn_until

LATER_MS = 2_000_000_000_000


def two_partitions(root: Path, **settings: Any) -> Scene:
    """Topic `a`, each of its partitions with one old record; the second has no leader."""
    scene = Scene(root, "a", **settings)
    scene.source.create("a", 2)
    scene.feed("a", {"x": 1})
    scene.feed("a", {"x": 2}, partition=1)
    scene.source.silent.add(("a", 1))
    return scene


def values(scene: Scene) -> list[int]:
    return sorted(row["x"] for row in scene.rows("n.a"))


def test_a_run_to_the_ends_waits_for_a_partition_without_a_leader(tmp_path: Path) -> None:
    scene = two_partitions(tmp_path)
    service = scene.start()
    assert not turn_until(service, lambda: service.is_over(until_caught_up=True), 50, until_caught_up=True)
    table = only(service.tables)
    assert (table.status.run_state, table.status.reason) == (
        RunState.BACKING_OFF,
        "partition 1 of topic a has no leader, or one that does not answer",
    )
    scene.source.silent.clear()
    assert turn_until(service, lambda: service.is_over(until_caught_up=True), 50, until_caught_up=True)
    assert (table.status.run_state, values(scene)) == (RunState.WAITING, [1, 2])


def test_a_broker_that_goes_after_it_gave_up_a_partition_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = two_partitions(tmp_path)
    service = scene.start()
    table = only(service.tables)
    assert turn_until(service, lambda: "no leader" in table.status.reason, 50)

    def ends(_: Iterable[Partition]) -> dict[Partition, int]:
        raise UnavailableError("Kafka is not reachable")

    with monkeypatch.context() as patch:
        patch.setattr(scene.source, "ends", ends)
        assert turn_until(service, lambda: table.status.reason == "Kafka is not reachable", 20)
    scene.source.silent.clear()
    assert turn_until(service, lambda: table.status.run_state is RunState.WAITING, 50)
    assert (table.status.reason, values(scene)) == ("", [1, 2])


def test_a_run_to_the_ends_reads_no_further_than_the_first_end_that_it_gets(tmp_path: Path) -> None:
    scene = two_partitions(tmp_path)
    scene.source.silent.clear()
    scene.catch_up()
    scene.source.silent.add(("a", 1))
    scene.feed("a", {"x": 3})
    scene.feed("a", {"x": 4}, partition=1)
    service = scene.start()
    turn_until(service, lambda: values(scene) == [1, 2, 3], 50, until_caught_up=True)
    scene.feed("a", {"x": 5})
    scene.source.silent.clear()
    assert turn_until(service, lambda: service.is_over(until_caught_up=True), 50, until_caught_up=True)
    assert values(scene) == [1, 2, 3, 4]


@pytest.mark.parametrize("start", [Start(kind="latest"), Start(kind="timestamp", timestamp_ms=LATER_MS)])
def test_what_start_reports_holds_for_a_partition_without_a_leader_too(tmp_path: Path, start: Start) -> None:
    scene = two_partitions(tmp_path, start=start)
    service = scene.start()
    turn_until(service, lambda: False, 20)
    scene.source.produce("a", 0, b'{"x": 3}', LATER_MS)
    turn_until(service, lambda: False, 20)
    assert scene.catalog.load("n.a") is None, "a commit would forget what `start` reports"
    scene.source.silent.clear()
    turn_until(service, lambda: False, 20)
    scene.source.produce("a", 1, b'{"x": 4}', LATER_MS)
    assert turn_until(service, lambda: scene.catalog.load("n.a") is not None and values(scene) == [3, 4], 60)


def test_a_partition_without_a_leader_keeps_nothing_of_the_others_waiting_once_it_has_begun(tmp_path: Path) -> None:
    scene = two_partitions(tmp_path)
    scene.source.silent.clear()
    scene.catch_up()
    scene.source.silent.add(("a", 1))
    scene.feed("a", {"x": 3})
    service = scene.start()
    assert turn_until(service, lambda: values(scene) == [1, 2, 3], 60)
    table = only(service.tables)
    assert turn_until(service, lambda: table.status.run_state is RunState.BACKING_OFF, 60)
    assert table.status.reason == "partition 1 of topic a has no leader, or one that does not answer"
    scene.source.silent.clear()
    assert turn_until(service, lambda: table.status.run_state is RunState.WAITING, 60)


def test_latest_means_all_of_a_topic_that_is_made_after_the_start(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b", start=Start(kind="latest"))
    del scene.source.by_name["b"]
    scene.feed("a", {"x": 1})
    service = scene.start()
    turn_until(service, lambda: False, 5)
    scene.source.create("b")
    scene.feed("b", {"x": 2}, {"x": 3})
    scene.clock.sleep(TOPICS_EVERY_S)
    assert turn_until(service, lambda: scene.catalog.load("n.b") is not None and len(scene.rows("n.b")) == 2, 60)
    assert scene.catalog.load("n.a") is None


def test_a_timestamp_holds_for_a_topic_that_the_table_waited_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", start=Start(kind="timestamp", timestamp_ms=LATER_MS))
    del scene.source.by_name["a"]
    service = scene.start()
    scene.source.create("a")
    scene.feed("a", {"x": 1})
    scene.source.produce("a", 0, b'{"x": 2}', LATER_MS)
    scene.clock.sleep(TOPICS_EVERY_S)
    assert turn_until(service, lambda: scene.catalog.load("n.a") is not None and values(scene) == [2], 60)


def test_a_partition_that_joined_and_was_trimmed_while_nothing_ran_stops_the_table(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"x": 1})
    scene.catch_up()
    scene.source.by_name["a"].partitions.append([])
    scene.feed("a", {"x": 2}, {"x": 3}, partition=1)
    scene.source.trim("a", 1, 1)
    table = only(scene.catch_up())
    assert (table.status.run_state, table.status.where) == (RunState.STOPPED, "topic a, partition 1, offset 0")
    assert table.status.reason == "records 0 to 0 were deleted from Kafka before they were read (retention)"
    scene.settings["on_data_loss"] = "skip"
    table = only(scene.catch_up())
    assert (table.status.run_state, values(scene)) == (RunState.WAITING, [1, 3])
    assert scene.progress().batch.skipped == {"a": {1: (0, 1)}}
