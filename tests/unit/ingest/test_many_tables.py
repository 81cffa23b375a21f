"""Two hundred trickling tables in one service: commits come on time when jobs and commits take as long as they do on two
cores. Time passes in steps; nothing is read and nothing is written. Half of them, twice as often, have as many jobs and
commits in half the time.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType
from structlog.testing import capture_logs

from frazil.errors import UnavailableError
from frazil.ingest.batches.services import Services
from frazil.ingest.batches.workers import COMMIT_THREADS, Done
from frazil.ingest.loop.planner import Planner
from frazil.ingest.loop.service import Service
from frazil.ingest.plan import MAX_TABLES_PER_JOB
from frazil.ingest.tables.table import Planned, Table
from frazil.ingest.tasks.isolate import CrashingRecords
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.port import Partition
from frazil.report import Counts, TaskReport
from frazil.spec import CatalogSpec, ColumnSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.settings import CommitSpec
from frazil.types import Batch
from frazil_testing.twins import FakeClock, MemoryCatalog
from tests.unit.ingest.test_commit_intervals import SlowSource

TABLES = 200
INTERVAL_S = 30.0
HALF, HALF_S = TABLES // 2, INTERVAL_S / 2
TOPICS = [f"t{number:03d}" for number in range(TABLES)]
JOB_S, TABLE_S, COMMIT_S, ASK_S = 0.2, 0.02, 0.16, 0.008
LATE_S, SLOW_S = 1.0, 2.0


class TimedWorkers:
    """Workers whose work takes time on a FakeClock: jobs by their tables, commits all the same. stall_s: of the next job;
    slow_s: how much longer every fifth job takes.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._free_at = {
            "small": [0.0],
            "catch-up": [0.0],
            "topics": [0.0],
            "load": [0.0],
            "commit": [0.0] * COMMIT_THREADS,
        }
        self._ends: list[tuple[float, int, str, Any, Callable[[], Any]]] = []
        self._numbers = itertools.count()
        self._jobs = itertools.count()
        self.stall_s = self.slow_s = 0.0

    def is_free(self, worker: str) -> bool:
        return all(busy != worker for _, _, busy, _, _ in self._ends)

    @property
    def is_idle(self) -> bool:
        return not self._ends

    def submit(self, worker: str, then: Any, work: Callable[[], Any]) -> None:
        kind = worker.partition(":")[0]
        took_s = {"commit": COMMIT_S, "topics": ASK_S, "load": ASK_S}.get(kind, 0.0)
        if not took_s:
            took_s, self.stall_s = JOB_S + TABLE_S * len(then.args[0]) + self.stall_s, 0.0
            took_s += self.slow_s if next(self._jobs) % 5 == 0 else 0.0
        begun_s = max(self._clock.monotonic_s(), heapq.heappop(self._free_at[kind]))
        heapq.heappush(self._free_at[kind], begun_s + took_s)
        heapq.heappush(self._ends, (begun_s + took_s, next(self._numbers), worker, then, work))

    def wait(self, timeout_s: float) -> list[Done]:
        now_s = self._clock.monotonic_s()
        until_s = min([now_s + timeout_s, *(end for end, *_ in self._ends[:1])])
        self._clock.sleep(max(0.0, until_s - now_s))
        finished = []
        while self._ends and self._ends[0][0] <= self._clock.monotonic_s():
            _, _, _, then, work = heapq.heappop(self._ends)
            future: Future[Any] = Future()
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001  (as an executor does)
                future.set_exception(error)
            finished.append(Done(then, future))
        return finished

    def wake(self) -> None:
        pass

    def close(self, wait: bool = True) -> None:  # noqa: ARG002
        self._ends.clear()


class NoJobs:
    """Every task has read its records, and made no file of them. A job with a `broken` table fails as a whole."""

    parallelism = 1

    def __init__(self, *broken: str) -> None:
        self._broken = broken

    def isolate(self, batch: Batch, job: Job) -> CrashingRecords:
        raise NotImplementedError

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:  # noqa: ARG002
        for batch in batches:
            if batch.table in self._broken:
                raise UnavailableError("a task failed", where=batch.table)
        return [
            TaskReport(
                batch.table, counts=Counts(batch.span, 200 * batch.span, ignored_records={"message": batch.span})
            )
            for batch in batches
        ]


class ManyTables:
    """The service, and when each table has committed."""

    def __init__(self, root: Path, count: int = TABLES, interval_s: float = INTERVAL_S, broken: str = "") -> None:
        self.clock = FakeClock()
        self.topics = TOPICS[:count]
        self.source = SlowSource(self.clock)
        self.source.answer_s = ASK_S
        self.workers = TimedWorkers(self.clock)
        for topic in self.topics:
            self.source.create(topic)
        tables = tuple(
            TableSpec(
                name=f"n.{topic}",
                topics=(TopicSelector(literal=topic),),
                columns=(ColumnSpec(name="x", type=LongType()),),
                commit=CommitSpec(interval_s=interval_s),
            )
            for topic in self.topics
        )
        spec = PipelineSpec(
            pipeline="p", kafka={}, catalog=CatalogSpec(uri=""), tables=tables, path=root, state_dir=root
        )
        parts = Services(self.source, MemoryCatalog(root, "p"), NoJobs(broken), self.clock, self.workers)
        self.service = Service(spec, parts, "run", lambda _: None)
        self.service.connect()
        self._fed_s = float("-inf")
        self._known: dict[str, str] = {}
        self.commits: dict[str, list[float]] = {f"n.{topic}": [] for topic in self.topics}

    def live(self, seconds: float, topics: Sequence[str] | None = None) -> None:
        """Lets time pass while each topic, or each of these, gets a record a second."""
        until_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < until_s:
            if self.clock.monotonic_s() >= self._fed_s + 1:
                self._fed_s = self.clock.monotonic_s()
                for topic in self.topics if topics is None else topics:
                    self.source.produce(topic, 0, b"{}")
            self.service.turn()
            for table in self.service.tables:
                if table.progress.commit_id != self._known.get(table.name, ""):
                    self._known[table.name] = table.progress.commit_id
                    self.commits[table.name].append(self.clock.monotonic_s())

    def gaps(self, since_s: float) -> list[float]:
        """Between the commits of each table that came after `since_s`."""
        return [
            later - before
            for times in self.commits.values()
            for before, later in itertools.pairwise(time for time in times if time >= since_s)
        ]


def test_after_the_first_round_every_commit_is_on_time_though_jobs_take_longer_now_and_then(tmp_path: Path) -> None:
    tables_service = ManyTables(tmp_path)
    tables_service.live(30)
    tables_service.workers.slow_s = SLOW_S
    began_s = tables_service.clock.monotonic_s()
    tables_service.live(65)
    gaps = tables_service.gaps(began_s)
    assert len(gaps) >= TABLES
    assert max(gaps) <= INTERVAL_S + LATE_S
    assert min(gaps) >= INTERVAL_S - 5 * LATE_S


def test_tables_that_are_due_at_once_are_planned_with_each_job_and_not_after_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = Counter[str]()
    plan = Planner.plan

    def plan_counted(planner: Planner, table: Table, now_s: float) -> Planned | None:
        planned[table.name] += table.progress.snapshot_id is None
        return plan(planner, table, now_s)

    monkeypatch.setattr(Planner, "plan", plan_counted)
    tables_service = ManyTables(tmp_path, interval_s=1000.0)
    while not all(tables_service.commits.values()):
        tables_service.live(0.1)
    jobs = -(-TABLES // MAX_TABLES_PER_JOB)
    assert max(planned.values()) <= jobs + 1


def test_the_first_offsets_of_all_new_tables_are_asked_for_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    beginnings = SlowSource.beginnings

    def beginnings_counted(source: SlowSource, partitions: Iterable[Partition]) -> dict[Partition, int]:
        found = beginnings(source, partitions)
        asked.append(len(found))
        return found

    monkeypatch.setattr(SlowSource, "beginnings", beginnings_counted)
    ManyTables(tmp_path).live(5)
    assert asked == [TABLES]


def test_a_job_that_stalls_makes_one_round_late_and_no_other(tmp_path: Path) -> None:
    tables_service = ManyTables(tmp_path, HALF, HALF_S)
    tables_service.live(15)
    tables_service.workers.stall_s = 8.0
    tables_service.live(20)
    began_s = tables_service.clock.monotonic_s()
    tables_service.live(33)
    gaps = tables_service.gaps(began_s)
    assert len(gaps) >= HALF
    assert max(gaps) <= HALF_S + LATE_S


def test_a_table_whose_reads_fail_backs_off_alone(tmp_path: Path) -> None:
    tables_service = ManyTables(tmp_path, count=64, interval_s=1.0, broken="n.t007")
    with capture_logs() as logged:
        tables_service.live(90)
    backed_off = Counter(event["table"] for event in logged if event["event"] == "table_backing_off")
    assert tables_service.commits.pop("n.t007") == []
    assert backed_off.pop("n.t007") >= 4
    assert not backed_off
    assert {event["log_level"] for event in logged if event["event"] == "shared_job_failed"} == {"info"}
    gaps = tables_service.gaps(0.0)
    assert min(len(times) for times in tables_service.commits.values()) >= 10
    assert max(gaps) <= 15


def test_the_ends_of_idle_topics_are_asked_for_rarely_beside_a_few_active_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand topics each request takes 12 ms of a core."""
    tables_service = ManyTables(tmp_path, interval_s=1.0)
    active = tables_service.topics[:5]
    tables_service.live(10)
    tables_service.live(30, active)
    asked: list[int] = []
    ends = SlowSource.ends

    def ends_counted(source: SlowSource, partitions: Iterable[Partition]) -> dict[Partition, int]:
        found = ends(source, partitions)
        asked.append(len(found))
        return found

    monkeypatch.setattr(SlowSource, "ends", ends_counted)
    tables_service.live(20, active)
    whole = asked.count(TABLES)
    assert 20 <= whole <= 45, "each half second"
    assert asked.count(len(active)) == len(asked) - whole > whole


def test_the_first_record_of_an_idle_topic_is_seen_within_half_a_second(tmp_path: Path) -> None:
    tables_service = ManyTables(tmp_path, interval_s=1.0)
    tables_service.live(10)
    tables_service.live(30, tables_service.topics[:5])
    fed_s = tables_service.clock.monotonic_s()
    tables_service.source.produce(tables_service.topics[-1], 0, b"{}")
    tables_service.live(5, tables_service.topics[:5])
    committed_s = min(at_s for at_s in tables_service.commits[f"n.{tables_service.topics[-1]}"] if at_s > fed_s)
    assert committed_s - fed_s < 0.5 + JOB_S + 6 * TABLE_S + COMMIT_S + 0.3
