"""Tables of one topic in a running service: read together while their progress is equal, each with a progress of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import UnavailableError
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.ingest.tasks.task_job import Job
from frazil.report import TaskReport
from frazil.spec import PipelineSpec, TableSpec, TopicSelector
from frazil.spec.settings import CommitSpec, EnvelopeSpec
from frazil.types import Batch, OffsetRange
from frazil_testing.twins import FakeClock, MemoryJobs, MemorySource
from tests.unit.ingest.service_scene import HandWorkers, Scene, turn_until

UPSERT_ENVELOPE, LOG = "n.upsert_table", "n.log"


class NotedJobs(MemoryJobs):
    """Jobs that take a tenth of a second, remember what they have read, and fail while `broken` is among their tables."""

    def __init__(self, source: MemorySource, clock: FakeClock) -> None:
        super().__init__(source)
        self._clock = clock
        self.noted: list[dict[str, tuple[OffsetRange, ...]]] = []
        self.broken = ""

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        self._clock.sleep(0.1)
        self.noted.append({batch.table: batch.ranges for batch in batches})
        if self.broken in self.noted[-1]:
            raise UnavailableError("a task failed", where=self.broken)
        return super().run(batches, job, pool=pool)


class Pair(Scene):
    """An upsert table and a changelog of one topic."""

    def __init__(self, root: Path, **of_log: Any) -> None:
        super().__init__(root, "t")
        self.noted_jobs = self.jobs = NotedJobs(self.source, self.clock)
        self.of_log = of_log

    def spec(self, *topics: str) -> PipelineSpec:
        def table(name: str, **settings: Any) -> TableSpec:
            given = {
                "name": name,
                "topics": (TopicSelector(literal="t"),),
                "envelope": EnvelopeSpec(kind="debezium"),
                "commit": CommitSpec(interval_s=1.0),
            }
            return TableSpec.model_validate({**given, **settings})

        upsert_table = table(UPSERT_ENVELOPE, mode="upsert", key_columns=("id",))
        log = table(LOG, changelog=True, metadata={"op": "_op", "image": "_image", "offset": "_offset"}, **self.of_log)
        return super().spec(*topics).model_copy(update={"tables": (upsert_table, log)})

    def change(self, *keys: int, version: int = 0) -> None:
        self.feed("t", *({"op": "c", "before": None, "after": {"id": key, "v": version}} for key in keys))

    def is_right(self) -> bool:
        """Whether both tables are what the topic tells."""
        if self.catalog.load(LOG) is None or self.catalog.load(UPSERT_ENVELOPE) is None:
            return False
        told = [(record.offset, json.loads(record.value or b"")) for record in self.source.by_name["t"].partitions[0]]
        good = [(offset, change["after"]) for offset, change in told if change["op"] == "c"]
        log = sorted((row["_offset"], row["id"], row["v"]) for row in self.rows(LOG))
        upsert_table = {row["id"]: row["v"] for row in self.rows(UPSERT_ENVELOPE)}
        return log == [(offset, row["id"], row["v"]) for offset, row in good] and upsert_table == {
            row["id"]: row["v"] for _, row in good
        }


def live(scene: Scene, service: Service, seconds: float) -> None:
    until_s = scene.clock.monotonic_s() + seconds
    assert turn_until(service, lambda: scene.clock.monotonic_s() >= until_s)


def ranges_of(noted: list[dict[str, tuple[OffsetRange, ...]]]) -> list[dict[str, tuple[int, int]]]:
    return [{table: (r.start, r.end) for table, (r,) in one.items()} for one in noted]


def test_an_upsert_table_and_its_changelog_are_read_together_from_the_first_record_on(tmp_path: Path) -> None:
    scene = Pair(tmp_path)
    scene.change(1, 2, 3)
    service = scene.start()
    assert turn_until(service, scene.is_right)
    assert {frozenset(one) for one in scene.noted_jobs.noted} == {frozenset({LOG, UPSERT_ENVELOPE})}
    scene.noted_jobs.noted.clear()
    scene.change(2, 4, version=1)
    assert turn_until(service, scene.is_right)
    assert ranges_of(scene.noted_jobs.noted) == [{LOG: (3, 5), UPSERT_ENVELOPE: (3, 5)}]


def test_each_commits_by_itself_and_the_quick_one_does_not_wait_for_the_slow_one(tmp_path: Path) -> None:
    scene = Pair(tmp_path)
    scene.change(1, 2)
    scene.catch_up()
    scene.noted_jobs.noted.clear()
    workers = HandWorkers(scene.clock)
    service = scene.start(workers=workers)
    scene.change(3)
    assert turn_until(service, lambda: workers.waiting == [("small", (LOG, UPSERT_ENVELOPE))])
    workers.do("small", LOG, UPSERT_ENVELOPE)
    service.turn()
    workers.do("commit", LOG)
    scene.change(4)
    assert turn_until(
        service, lambda: ("small", (LOG,)) in workers.waiting
    )  # The upsert table's commit is still under way.
    workers.do("small", LOG)
    service.turn()
    workers.do("commit", LOG)
    workers.do("commit", UPSERT_ENVELOPE)
    assert ranges_of(scene.noted_jobs.noted) == [{LOG: (2, 3), UPSERT_ENVELOPE: (2, 3)}, {LOG: (3, 4)}]
    for key in range(5, 25):
        scene.change(key)
        turn_until(service, lambda: bool(workers.waiting))
        while workers.waiting:
            for worker, tables in workers.waiting:
                workers.do(worker, *tables)
            service.turn()
    assert set(scene.noted_jobs.noted[-1]) == {LOG, UPSERT_ENVELOPE}  # They have come together again.
    assert scene.is_right()


def test_a_table_that_fails_is_read_by_itself_until_it_has_succeeded(tmp_path: Path) -> None:
    scene = Pair(tmp_path)
    scene.change(1)
    service = scene.start()
    assert turn_until(service, scene.is_right)
    scene.noted_jobs.noted.clear()
    scene.noted_jobs.broken = UPSERT_ENVELOPE
    scene.change(2)
    assert turn_until(service, lambda: len(scene.rows(LOG)) == 2)
    assert [set(one) for one in scene.noted_jobs.noted if LOG in one] == [{LOG, UPSERT_ENVELOPE}, {LOG}]
    scene.noted_jobs.broken = ""
    assert turn_until(service, lambda: len(scene.rows(UPSERT_ENVELOPE)) == 2)
    scene.noted_jobs.noted.clear()
    for version in range(16):  # Records keep coming, as they do where there is something to save.
        scene.change(3, version=version)
        live(scene, service, 0.25)
    assert turn_until(service, scene.is_right)
    assert set(scene.noted_jobs.noted[-1]) == {LOG, UPSERT_ENVELOPE}


def test_a_table_that_stops_leaves_the_other_to_read_alone(tmp_path: Path) -> None:
    scene = Pair(tmp_path, on_bad_record="stop")
    scene.change(1)
    service = scene.start()
    assert turn_until(service, scene.is_right)
    scene.feed("t", {"op": "x", "before": None, "after": {"id": 9}})
    scene.change(2)
    assert turn_until(service, lambda: len(scene.rows(UPSERT_ENVELOPE)) == 2)
    states = {table.name: table.status.run_state for table in service.tables}
    assert states[LOG] is RunState.STOPPED
    scene.noted_jobs.noted.clear()
    scene.change(3)
    assert turn_until(service, lambda: len(scene.rows(UPSERT_ENVELOPE)) == 3)
    assert [set(one) for one in scene.noted_jobs.noted] == [{UPSERT_ENVELOPE}]
    assert scene.dead_letters(UPSERT_ENVELOPE) == [("t", 0, 1)]


@pytest.mark.parametrize("quick", [UPSERT_ENVELOPE, LOG])
def test_a_process_that_dies_between_the_two_commits_leaves_each_table_its_own_progress(
    tmp_path: Path, quick: str
) -> None:
    scene = Pair(tmp_path)
    scene.change(1, 2)
    scene.catch_up()
    workers = HandWorkers(scene.clock)
    service = scene.start(workers=workers)
    scene.change(2, 3, version=1)
    assert turn_until(service, lambda: workers.waiting == [("small", (LOG, UPSERT_ENVELOPE))])
    workers.do("small", LOG, UPSERT_ENVELOPE)
    service.turn()
    workers.do("commit", quick)
    scene.change(3, 4, version=2)
    scene.noted_jobs.noted.clear()
    scene.catch_up()
    assert ranges_of(scene.noted_jobs.noted) == [{one: (4 if one == quick else 2, 6) for one in (LOG, UPSERT_ENVELOPE)}]
    assert scene.is_right()
