"""The two parts of a primary-key update, in two partitions: how long one waits for the other, and what ends the wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.ingest import plan
from frazil.ingest.batches.change_findings import PENDING
from frazil.ingest.tables.state import RunState
from frazil.report import TaskReport
from frazil_testing.twins import FakeClock, MemoryJobs
from tests.fixtures.slices import sliced
from tests.unit.upsert.upsert_source import Log, UpsertSource, settle

NOW_MS = FakeClock().now_ms()


def with_one_part(tmp_path: Path, at_ms: int = NOW_MS) -> tuple[UpsertSource, Log]:
    """A row is in the table, and of its move to another key the delete has come."""
    scenario = UpsertSource(tmp_path)
    log = Log(scenario, at_ms)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    scenario.catch_up()
    log.move(1, 2, "b", (0, None))
    return scenario, log


def complete_insert(log: Log) -> dict[str, Any]:
    """The insert of the move, with all values of the row, which this is."""
    row = {"id": 2, "v": "b", "big": "sent"}
    value = {"op": "c", "before": None, "after": row, "source": {"connector": "postgresql", "lsn": log.lsn}}
    log.send(1, {"id": 2}, value, (("__debezium.oldkey", b'{"id": 1}'),))
    return row


@pytest.mark.parametrize("first", [(0, None), (None, 1)])
def test_one_half_of_a_key_change_waits_for_the_other_one(tmp_path: Path, first: tuple[int | None, int | None]) -> None:
    """Whichever comes first; what is not behind it continues."""
    scenario = UpsertSource(tmp_path)
    log = Log(scenario, NOW_MS)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    scenario.catch_up()
    log.keep(1, "b")
    log.write({"id": 5, "v": "a", "big": "of 5"}, 1)
    log.move(1, 2, "c", first)
    behind = 1 if first[0] is None else 0
    log.write({"id": 6, "v": "a", "big": "of 6"}, behind)
    log.write({"id": 7, "v": "a", "big": "of 7"}, 1 - behind)
    lsn = log.lsn
    for _ in range(2):
        table = scenario.catch_up()
        assert (table.status.run_state, table.status.reason) == (RunState.WAITING, PENDING)
        assert [(row["id"], row["v"], row["big"]) for row in scenario.by_id()] == [
            (1, "b", "of 1"), (5, "a", "of 5"), (7, "a", "of 7"),
        ]  # fmt: skip
    log.lsn = lsn - 3
    log.move(1, 2, "c", (0, None) if first[0] is None else (None, 1))
    assert scenario.catch_up().status.reason == ""
    assert [(row["id"], row["v"], row["big"]) for row in scenario.by_id()] == [
        (2, "c", "of 1"), (5, "a", "of 5"), (6, "a", "of 6"), (7, "a", "of 7"),
    ]  # fmt: skip
    assert scenario.dead_letters() == []


@pytest.mark.parametrize("is_delete", [True, False])
def test_a_half_whose_other_one_never_comes_is_not_waited_for_long(tmp_path: Path, is_delete: bool) -> None:
    scenario, clock = UpsertSource(tmp_path), FakeClock(NOW_MS)
    log = Log(scenario, NOW_MS)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    scenario.catch_up()
    log.move(1, 2, "b", (0, None) if is_delete else (None, 1))
    service = scenario.process(clock)
    while clock.monotonic_s() < 50:
        service.turn()
    (table,) = service.tables
    assert (table.status.reason, [row["id"] for row in scenario.by_id()]) == (PENDING, [1])
    while clock.monotonic_s() < 70:
        service.turn()
    assert (table.status.reason, [row["id"] for row in scenario.by_id()]) == ("", [] if is_delete else [1])
    assert [kind for kind, _ in scenario.dead_letters()] == ([] if is_delete else ["incomplete_primary_key_update"])


def test_a_change_of_the_key_that_is_told_again_waits_for_what_has_become_of_the_row(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    log = Log(scenario, NOW_MS)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    log.move(1, 2, "b", (0, 1))
    log.remove(2, 1)
    scenario.catch_up()
    log.lsn = 1
    log.move(1, 2, "b", (0, 1))
    assert (scenario.catch_up().status.reason, scenario.by_id()) == (PENDING, [])
    log.remove(2, 1)
    assert (scenario.catch_up().status.reason, scenario.by_id(), scenario.dead_letters()) == ("", [], [])


def test_a_half_is_not_given_up_where_a_run_ends_before_the_other_one(tmp_path: Path) -> None:
    """A run that is to end reads what was there when it began, and records continue coming."""
    scenario, log = with_one_part(tmp_path)
    service = scenario.process(FakeClock(NOW_MS))
    for _ in range(100):
        service.turn(until_caught_up=True)
        if service.is_over(until_caught_up=True):
            break
        log.write({"id": 3, "v": "a", "big": "of 3"})
    assert (service.is_over(until_caught_up=True), [row["id"] for row in scenario.by_id()]) == (True, [1])
    log.lsn = 1
    log.move(1, 2, "b", (None, 1))
    assert scenario.catch_up().status.reason == ""
    assert [(row["id"], row["big"]) for row in scenario.by_id()] == [(2, "of 1"), (3, "of 3")]
    assert scenario.dead_letters() == []


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_half_is_not_given_up_because_its_batch_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_repeated: bool
) -> None:
    """The other one has come meanwhile."""
    scenario, clock, run = UpsertSource(tmp_path), FakeClock(NOW_MS), MemoryJobs.run
    log = Log(scenario, NOW_MS)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    if is_repeated:
        log.move(1, 2, "b")
        log.remove(2)
    scenario.catch_up()
    jobs: list[int] = []

    def slow(*args: Any, **settings: Any) -> list[TaskReport]:
        jobs.append(1)
        found = run(*args, **settings)
        if len(jobs) == 2:
            clock.sleep(70)
            log.at_ms = clock.now_ms()
            if is_repeated:
                log.remove(2)
            else:
                log.lsn -= 1
                log.move(1, 2, "b", (None, 1))
        return found

    monkeypatch.setattr(MemoryJobs, "run", slow)
    service = scenario.process(clock)
    log.at_ms, log.lsn = clock.now_ms(), 1
    log.move(1, 2, "b", (0, 0) if is_repeated else (0, None))
    for _ in range(2):
        settle(service, clock)
    assert (len(jobs) > 2, scenario.dead_letters()) == (True, [])
    assert [(row["id"], row["big"]) for row in scenario.by_id()] == ([] if is_repeated else [(2, "of 1")])


def test_a_half_is_not_given_up_where_the_times_of_records_are_ahead_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, clock = UpsertSource(tmp_path), FakeClock(NOW_MS)
    log = Log(scenario, NOW_MS + 600_000)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    scenario.catch_up()
    before, behind = [(3, 0), (4, 0), (5, 1), (6, 1), (7, 1), (8, 1)], [(9, 0), (10, 0), (11, 1), (12, 1)]
    for key, partition in before:
        log.write({"id": key, "v": "a", "big": "new"}, partition)
    log.move(1, 2, "b", (0, 1))
    for key, partition in behind:
        log.write({"id": key, "v": "a", "big": "new"}, partition)
    monkeypatch.setattr(plan, "MAX_BATCH_RECORDS", 8)
    settle(scenario.process(clock), clock)
    assert [(row["id"], row["big"]) for row in scenario.by_id()] == [
        (2, "of 1"),
        *((key, "new") for key in range(3, 13)),
    ]
    assert scenario.dead_letters() == []


def test_a_run_that_is_to_end_waits_out_a_half_whose_timestamp_is_old(tmp_path: Path) -> None:
    scenario, log = with_one_part(tmp_path, NOW_MS - 61_000)
    log.at_ms = NOW_MS
    log.write({"id": 3, "v": "a", "big": "of 3"})
    table = scenario.catch_up()
    assert (table.status.reason, [row["id"] for row in scenario.by_id()]) == ("", [3])


def test_a_change_of_the_key_of_which_all_was_sent_is_shown_as_one(tmp_path: Path) -> None:
    scenario, log = with_one_part(tmp_path)
    assert (scenario.catch_up().status.reason, [row["id"] for row in scenario.by_id()]) == (PENDING, [1])
    row = complete_insert(log)
    assert (scenario.catch_up().status.reason, scenario.by_id()) == ("", [row])


def test_the_delete_of_an_insert_that_is_in_the_table_waits_for_nothing(tmp_path: Path) -> None:
    scenario, clock = UpsertSource(tmp_path), FakeClock(NOW_MS)
    log = Log(scenario, NOW_MS)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    service = scenario.process(clock)
    settle(service, clock)
    log.lsn += 1
    complete_insert(log)
    settle(service, clock)
    assert [found["id"] for found in scenario.by_id()] == [1, 2]
    log.lsn -= 1
    log.move(1, 2, "b", (0, None))
    log.write({"id": 3, "v": "a", "big": "of 3"})
    settle(service, clock)
    assert (service.tables[0].status.reason, [found["id"] for found in scenario.by_id()]) == ("", [2, 3])


@pytest.mark.parametrize("at_ms", sliced([0, NOW_MS + 86_400_000, NOW_MS - 86_400_000], 2))
@pytest.mark.parametrize("later_ms", [0, 3_600_000, -3_600_000])
@pytest.mark.parametrize("first", ["delete", "insert"])
def test_the_halves_of_a_replayed_topic_find_each_other_whatever_their_timestamps(
    tmp_path: Path, at_ms: int, later_ms: int, first: str
) -> None:
    """An upserted topic has the timestamps of its source, or those of the copy."""
    scenario, clock = UpsertSource(tmp_path), FakeClock(NOW_MS)
    log = Log(scenario, at_ms)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    service = scenario.process(clock)
    settle(service, clock)
    key_update_parts: list[tuple[int | None, int | None]] = [(0, None), (None, 1)]
    for one in key_update_parts if first == "delete" else key_update_parts[::-1]:
        log.move(1, 2, "b", one)
        log.lsn -= 1
        log.at_ms += later_ms
        settle(service, clock)
        settle(service, clock)
    assert [(row["id"], row["v"], row["big"]) for row in scenario.by_id()] == [(2, "b", "of 1")]
    assert scenario.dead_letters() == []


def test_a_half_whose_other_one_never_comes_does_not_stop_its_partition_while_others_continue(tmp_path: Path) -> None:
    scenario, log = with_one_part(tmp_path)
    log.write({"id": 9, "v": "a", "big": "of 9"})
    clock = FakeClock(NOW_MS)
    service = scenario.process(clock)
    for key in range(20, 45):
        log.write({"id": key, "v": "a", "big": "new"}, 1)
        settle(service, clock)
    assert [row["id"] for row in scenario.by_id()] == [9, *range(20, 45)]


def test_a_half_whose_other_one_is_many_batches_behind_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, clock, run = UpsertSource(tmp_path), FakeClock(NOW_MS), MemoryJobs.run
    log = Log(scenario)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    scenario.catch_up()
    for key in range(20, 60):
        log.write({"id": key, "v": "a", "big": "new"}, 1)
    log.move(1, 2, "b", (0, 1))
    monkeypatch.setattr(plan, "MAX_BATCH_RECORDS", 8)

    def slow(*args: Any, **settings: Any) -> list[TaskReport]:
        clock.sleep(15)
        return run(*args, **settings)

    monkeypatch.setattr(MemoryJobs, "run", slow)
    service = scenario.process(clock)
    for _ in range(100):
        service.turn()
    assert [(row["id"], row["big"]) for row in scenario.by_id()] == [
        (2, "of 1"),
        *((key, "new") for key in range(20, 60)),
    ]
    assert scenario.dead_letters() == []
