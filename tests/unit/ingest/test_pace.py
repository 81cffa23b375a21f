"""The loop's pace: how long it sleeps between two looks at Kafka, and when a table's next batch is due."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from frazil.ingest.parts import Parts
from frazil.ingest.plan import pace_s
from frazil.ingest.service import LONGEST_POLL_S, Service
from frazil.kafka.port import Partition
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.models import CommitSpec
from frazil.testing import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepLanes

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


class World:
    """Two tables of one pipeline, the second begun ten seconds after the first; when each of their commits came."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.source = SlowSource(self.clock)
        tables = [
            TableSpec(
                name=f"n.{topic}", topics=(TopicSelector(literal=topic),), commit=CommitSpec(interval_s=INTERVAL_S)
            )
            for topic in ("a", "b")
        ]
        spec = PipelineSpec(
            pipeline="p", kafka={}, catalog=CatalogSpec(uri=""), tables=tuple(tables), path=root, state_dir=root
        )
        for topic in ("a", "b"):
            self.source.create(topic)
        catalog = MemoryCatalog(root, "p")
        parts = Parts(self.source, catalog, MemoryJobs(self.source), self.clock, StepLanes(self.clock))
        self.service = Service(spec, parts, "run", lambda _: None)
        self.service.connect()
        self.commits: dict[str, list[float]] = {"n.a": [], "n.b": []}

    def live(self, seconds: float, *topics: str) -> None:
        """Lets time pass while each of the topics gets a record with every turn."""
        until_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < until_s:
            for topic in topics:
                self.source.produce(topic, 0, b'{"x": 1}')
            before = {table.name: table.progress.commit_id for table in self.service.tables}
            self.service.turn()
            for table in self.service.tables:
                if table.progress.commit_id != before[table.name]:
                    self.commits[table.name].append(self.clock.monotonic_s())


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(times)]


def test_answers_that_are_slow_for_a_while_make_no_commit_late(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.live(10, "a")
    world.live(45, "a", "b")
    world.source.answer_s = 0.2
    world.live(20, "a", "b")
    world.source.answer_s = 0.0
    world.live(80, "a", "b")
    for times in world.commits.values():
        assert len(times) >= 4
        assert max(gaps(times)) <= INTERVAL_S + LONGEST_POLL_S


def test_tables_with_nothing_to_read_are_asked_for_no_more_than_it_costs(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.source.answer_s = 0.03
    world.live(60)
    began_s, asked = world.clock.monotonic_s(), 0
    while world.clock.monotonic_s() < began_s + 60:
        world.service.turn()
        asked += 1
    assert asked * world.source.answer_s <= 0.04 * 60


@pytest.mark.parametrize(("interval_s", "pace"), [(0.3, 0.29), (30.0, 29.0), (300.0, 299.0)])
def test_a_batch_is_due_a_little_before_its_interval_has_passed(interval_s: float, pace: float) -> None:
    assert pace_s(interval_s) == pytest.approx(pace)
