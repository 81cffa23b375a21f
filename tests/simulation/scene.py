"""A seeded history: producers, services that come and go, trouble between any two steps. What is produced, what else happens
to the tables and what must be true is each history's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import pyarrow.parquet as pq

from frazil.errors import FencedError
from frazil.ingest.parts import Parts
from frazil.ingest.service import Service
from frazil.kafka.memory import MemoryOutbox
from frazil.spec import PipelineSpec
from frazil.spec.models import CatalogSpec, TableSpec
from frazil.testing import FakeClock, MemoryCatalog, MemorySource, StepLanes
from tests.simulation.faults import CrashError, Fate, UnsureCatalog, UnsureJobs, UnsureOutbox, UnsureSource

Place = tuple[str, int, int]


def pipeline_of(root: Path, *tables: TableSpec) -> PipelineSpec:
    """A pipeline that is no file."""
    return PipelineSpec(
        pipeline="sim",
        kafka={},
        catalog=CatalogSpec(uri="memory"),
        tables=tables,
        path=root / "pipeline.yaml",
        state_dir=root / "state",
    )


class Scene(ABC):
    """One pipeline on the ports in memory. bad: the records that cannot become rows, with their values. topics_grow: they
    get more partitions now and then, which moves the keys of rows to others. divides_ranges: as UnsureJobs.
    """

    spec: PipelineSpec
    topics_grow = True
    divides_ranges = False

    def __init__(self, fate: Fate, root: Path) -> None:
        self.fate = fate
        self.root = root
        self.source = MemorySource()
        self.catalog = MemoryCatalog(root, "sim")
        self.clock = FakeClock()
        self.outbox = MemoryOutbox()
        self.services: list[Service] = []
        self.started = 0
        self.bad: dict[Place, bytes | None] = {}
        self._turning: Service | None = None
        self._is_overtaken = False

    def play(self, rounds: int) -> None:
        """Lets things happen, then lets all of them be finished in peace, and checks the truth."""
        for _ in range(rounds):
            self._something()
            self._turn()
        self.fate.is_calm = True
        self.services.clear()
        last = self._start()
        for _ in range(3000):
            if last.is_over(until_caught_up=True):
                break
            last.turn(until_caught_up=True)
        else:
            raise AssertionError(f"not caught up: {[(t.name, t.run_state, t.reason) for t in last.tables]}")
        assert last.fatal is None
        self._check_end(last)

    @abstractmethod
    def _produce(self) -> None:
        """Some records."""

    @abstractmethod
    def _touch_tables(self) -> None:
        """What others do to the tables."""

    def _wanted(self) -> PipelineSpec:
        """The pipeline as its owner has it when a service starts."""
        return self.spec

    @abstractmethod
    def _check_end(self, service: Service) -> None:
        """The truth, after a service has caught up."""

    def _something(self) -> None:
        if self.fate.maybe(0.6):
            self._produce()
        if self.topics_grow and self.fate.maybe(0.03):
            names = sorted(self.source.by_name)
            topic = self.source.by_name[names[self.fate.pick(0, len(names) - 1)]]
            topic.partitions.append([])
        if self.fate.maybe(0.25) and len(self.services) < 2:
            self._start()
        if self.fate.maybe(0.03) and self.services:
            self.services.pop(self.fate.pick(0, len(self.services) - 1))
        self._touch_tables()

    def _start(self) -> Service:
        self.started += 1
        clock, fate = self.clock, self.fate
        source = UnsureSource(self.source, fate)
        parts = Parts(
            source=source,
            catalog=UnsureCatalog(self.catalog, fate, self._go_on),
            jobs=UnsureJobs(self.source, fate, divides_ranges=self.divides_ranges),
            clock=clock,
            lanes=StepLanes(clock),
            outbox=UnsureOutbox(self.outbox, fate),
            reader=source,
        )
        service = Service(self._wanted(), parts, f"run-{self.started:04}", lambda _: None)
        try:
            service.connect()
        except CrashError:
            return service
        self.services.append(service)
        return service

    def _turn(self) -> None:
        if self.services:
            self._turn_of(self.services[self.fate.pick(0, len(self.services) - 1)])

    def _go_on(self) -> None:
        """Other runs go on while one does not know whether its commit has landed."""
        others = [service for service in self.services if service is not self._turning]
        if self._is_overtaken:
            return
        self._is_overtaken = True
        try:
            for service in others:
                for _ in range(self.fate.pick(1, 8)):
                    if service in self.services:
                        self._turn_of(service)
        finally:
            self._is_overtaken = False

    def _turn_of(self, service: Service) -> None:
        before, self._turning = self._turning, service
        try:
            service.turn()
        except CrashError:
            self.services.remove(service)
            return
        finally:
            self._turning = before
        if service.fatal is not None:
            if not isinstance(service.fatal, FencedError):
                raise service.fatal
            assert len(self.services) > 1 or self.started > 1, "nobody else was there to take over"
            self.services.remove(service)

    def check_letters(self, table: str) -> list[Place]:
        """The bad records in the table's dead-letter table: each of them bad, and there once."""
        name = f"{table}__dead_letters"
        if self.catalog.load(name) is None:
            return []
        found: list[Place] = []
        for snapshot in self.catalog.ancestors(name):
            for file in snapshot.files:
                rows = pq.read_table(file.path).to_pylist()
                assert len(rows) == file.record_count
                for row in rows:
                    place = (row["topic"], row["partition"], row["offset"])
                    assert place in self.bad, f"{place} is not bad: {row}"
                    assert row["value"] == self.bad[place]
                    found.append(place)
        twice = sorted({place for place in found if found.count(place) > 1})[:5]
        assert not twice, f"{table} has dead letters twice: {twice}"
        return found
