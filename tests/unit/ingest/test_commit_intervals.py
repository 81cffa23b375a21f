"""The loop's pace: how long it sleeps between two looks at Kafka, and when a table's next batch is due."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.batches.services import Services
from frazil.ingest.loop.planner import LONGEST_POLL_S
from frazil.ingest.loop.service import Service
from frazil.ingest.plan import pace_s, slowed_s
from frazil.kafka.port import Partition
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.settings import CommitSpec, ValueSpec
from frazil_testing.twins import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepWorkers

INTERVAL_S = 30.0


class SlowSource(MemorySource):
    """Every answer about ends takes `answer_s`."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.answer_s = 0.0

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self.clock.sleep(self.answer_s)
        return super().ends(partitions)


class AskedPace:
    """Asks for what a test wants."""

    factor = 1.0

    def slowed_by(self, table: str) -> float:
        assert table == "n.a"
        return self.factor


class Scenario:
    """Two tables of one pipeline, the second begun ten seconds after the first; when each of their commits came."""

    def __init__(
        self, root: Path, slowed_by: Callable[[str], float] = lambda _: 1.0, a: Mapping[str, Any] | None = None
    ) -> None:
        self.clock = FakeClock()
        self.source = SlowSource(self.clock)
        tables = [
            TableSpec(
                name=f"n.{topic}",
                topics=(TopicSelector(literal=topic),),
                commit=CommitSpec(interval_s=INTERVAL_S),
                **((a or {}) if topic == "a" else {}),
            )
            for topic in ("a", "b")
        ]
        spec = PipelineSpec(
            pipeline="p", kafka={}, catalog=CatalogSpec(uri=""), tables=tuple(tables), path=root, state_dir=root
        )
        for topic in ("a", "b"):
            self.source.create(topic)
        catalog = MemoryCatalog(root, "p")
        workers = StepWorkers(self.clock)
        jobs = MemoryJobs(self.source)
        parts = Services(self.source, catalog, jobs, self.clock, workers, slowed_by=slowed_by)
        self.service = Service(spec, parts, "run", lambda _: None)
        self.service.connect()
        self.commits: dict[str, list[float]] = {"n.a": [], "n.b": []}

    def live(self, seconds: float, *topics: str) -> None:
        """Lets time pass while each of the topics gets a record with every turn."""
        until_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < until_s:
            for topic in topics:
                self.source.produce(topic, 0, b'{"x": 1}', key=b"1")
            before = {table.name: table.progress.commit_id for table in self.service.tables}
            self.service.turn()
            for table in self.service.tables:
                if table.progress.commit_id != before[table.name]:
                    self.commits[table.name].append(self.clock.monotonic_s())


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(times)]


def test_answers_that_are_slow_for_a_while_make_no_commit_late(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    scenario.live(10, "a")
    scenario.live(45, "a", "b")
    scenario.source.answer_s = 0.2
    scenario.live(20, "a", "b")
    scenario.source.answer_s = 0.0
    scenario.live(80, "a", "b")
    for times in scenario.commits.values():
        assert len(times) >= 4
        assert max(gaps(times)) <= INTERVAL_S + LONGEST_POLL_S


def test_tables_with_nothing_to_read_are_asked_for_no_more_than_it_costs(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    scenario.source.answer_s = 0.03
    scenario.live(60)
    began_s, asked = scenario.clock.monotonic_s(), 0
    while scenario.clock.monotonic_s() < began_s + 60:
        scenario.service.turn()
        asked += 1
    assert asked * scenario.source.answer_s <= 0.04 * 60


def test_an_upsert_table_commits_less_often_while_its_maintenance_asks_for_it_and_other_tables_do_not(
    tmp_path: Path,
) -> None:
    pace = AskedPace()
    scenario = Scenario(
        tmp_path, slowed_by=pace.slowed_by, a={"mode": "upsert", "key_columns": ("x",), "key": ValueSpec(format="json")}
    )
    scenario.live(60, "a", "b")
    pace.factor = 1.5
    scenario.live(30, "a", "b")
    before = {name: len(times) for name, times in scenario.commits.items()}
    scenario.live(140, "a", "b")
    slowed, usual = (gaps(scenario.commits[name][before[name] :]) for name in ("n.a", "n.b"))
    assert min(slowed) == pytest.approx(43, abs=LONGEST_POLL_S)
    assert max(usual) == pytest.approx(28, abs=LONGEST_POLL_S)
    pace.factor = 1.0
    scenario.live(60, "a", "b")
    before = {name: len(times) for name, times in scenario.commits.items()}
    scenario.live(70, "a")
    assert max(gaps(scenario.commits["n.a"][before["n.a"] :])) <= INTERVAL_S


@pytest.mark.parametrize(
    ("interval_s", "factor", "slowed"), [(1.0, 1.0, 1.0), (1.0, 8.0, 8.0), (1.0, 64.0, 60.0), (300.0, 4.0, 300.0)]
)
def test_a_slowed_interval_is_a_minute_at_most_unless_the_file_reports_more(
    interval_s: float, factor: float, slowed: float
) -> None:
    assert slowed_s(interval_s, factor) == slowed


@pytest.mark.parametrize(("interval_s", "pace"), [(0.3, 0.28), (30.0, 28.0), (300.0, 298.0)])
def test_a_batch_is_due_a_little_before_its_interval_has_passed(interval_s: float, pace: float) -> None:
    assert pace_s(interval_s) == pytest.approx(pace)
