"""Primary-key updates whose other part is in a partition that has no leader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.ingest import plan
from frazil.report import TaskReport
from frazil_testing.twins import FakeClock, MemoryJobs
from tests.unit.upsert.upsert_source import Log, UpsertSource, settle

NOW_MS = FakeClock().now_ms()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """One half in the table's reach, with more behind it than a batch may cover; the other one's partition is silent."""
    log = Log(UpsertSource(tmp_path), NOW_MS)
    log.write({"id": 1, "v": "a", "big": "of 1"})
    log.scenario.catch_up()
    log.move(1, 2, "b", (0, 1))
    for key in range(3, 9):
        log.write({"id": key, "v": "a", "big": "new"})
    log.scenario.source.silent.add(("a", 1))
    monkeypatch.setattr(plan, "MAX_BATCH_RECORDS", 4)
    return log


def test_a_half_is_not_given_up_while_the_other_ones_partition_has_no_leader(log: Log) -> None:
    """However much is behind it: a batch that covers less than there is has all of this partition that it may."""
    scenario, clock = log.scenario, FakeClock(NOW_MS)
    service = scenario.process(clock)
    settle(service, clock)
    assert [row["id"] for row in scenario.by_id()] == [1]
    scenario.source.silent.clear()
    settle(service, clock)
    assert [(row["id"], row["big"]) for row in scenario.by_id()] == [
        (2, "of 1"),
        *((key, "new") for key in range(3, 9)),
    ]
    assert scenario.dead_letters() == []


def test_a_full_batch_that_waits_for_a_leader_is_not_read_again_for_every_new_record(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, clock, run, jobs = log.scenario, FakeClock(NOW_MS), MemoryJobs.run, list[float]()

    def counted(*args: Any, **settings: Any) -> list[TaskReport]:
        jobs.append(clock.monotonic_s())
        return run(*args, **settings)

    monkeypatch.setattr(MemoryJobs, "run", counted)
    service = scenario.process(clock)
    for number in range(200):
        service.turn()
        clock.sleep(0.1)
        log.write({"id": 100 + number, "v": "a", "big": "new"})
    assert 0 < len(jobs) < 10
    scenario.source.silent.clear()
    monkeypatch.setattr(plan, "MAX_BATCH_RECORDS", 1000)
    settle(service, clock)
    assert len(scenario.by_id()) == 207
    assert scenario.dead_letters() == []
