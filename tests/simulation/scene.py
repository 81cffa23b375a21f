"""A seeded history: producers, services that come and go, trouble between any two steps. What is produced, what else happens
to the tables and what must be true is each history's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from frazil.errors import FencedError
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.leadership import Leadership
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import Queries
from frazil.spec import PipelineSpec
from frazil.spec.connections import CatalogSpec
from frazil.spec.models import TableSpec
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.types import Progress
from frazil_testing.memory_kafka import MemoryOutbox
from frazil_testing.twins import FakeClock, MemoryCatalog, MemorySource, StepWorkers
from tests.simulation.faults import CrashError, Fate, UnsureCatalog, UnsureJobs, UnsureOutbox, UnsureSource
from tests.simulation.tables import REPORTED

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


def arranged(spec: PipelineSpec, partition_by: str | None, sort_by: str | None = None) -> PipelineSpec:
    """The pipeline with all tables partitioned and sorted by these terms, one behind the other with a semicolon; None: the
    file does not say.
    """
    layout = {
        "partition_by": None if partition_by is None else tuple(map(parse_term, filter(None, partition_by.split(";")))),
        "sort_by": None if sort_by is None else tuple(map(parse_sort, filter(None, sort_by.split(";")))),
    }
    tables = tuple(table.model_copy(update=layout) for table in spec.tables)
    return spec.model_copy(update={"tables": tables})


class Scene(ABC):
    """One pipeline on the ports in memory. bad: the records that cannot become rows, with their values. topics_grow: they
    get more partitions now and then, which moves the keys of rows to others. divided: as of UnsureJobs. ends: how often
    a service does.
    """

    spec: PipelineSpec
    topics_grow = True
    divided = 0.5
    ends = 0.03
    queries: Queries | None = None

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
        self._floors: dict[str, int | None] = {}
        self._turning: Service | None = None
        self._is_overtaken = False

    def play(self, rounds: int) -> None:
        """Lets things happen, then lets all of them be finished in peace, and checks the truth."""
        for _ in range(rounds):
            self._something()
            self._turn()
        self.fate.is_fault_free = True
        self.services.clear()
        last = self._start()
        for _ in range(3000):
            if last.is_over(until_caught_up=True):
                break
            last.turn(until_caught_up=True)
        else:
            raise AssertionError(
                f"not caught up: {[(t.name, t.status.run_state, t.status.reason) for t in last.tables]}"
            )
        assert last.fatal is None
        self._check_end(last)

    @abstractmethod
    def _produce(self) -> None:
        """Some records."""

    @abstractmethod
    def _touch_tables(self) -> None:
        """What others do to the tables."""

    def _after_crash(self) -> None:  # noqa: B027  (most histories continue)
        """What others do right then."""

    def _wanted(self) -> PipelineSpec:
        """The pipeline as its owner has it when a service starts."""
        return self.spec

    def _leadership(self, name: str) -> Leadership | None:  # noqa: ARG002
        """How the service of this name knows which tables are its own."""
        return None

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
        if self.fate.maybe(self.ends) and self.services:
            self.services.pop(self.fate.pick(0, len(self.services) - 1))
        self._touch_tables()

    def _roll_back(self, table: str) -> None:
        """To any snapshot before, or to none; to none from before records were lost, as nobody could say where it begins,
        and to none that maintenance has left for readers alone, behind which there is no progress any more.
        """
        if self.catalog.load(table) is None:
            return
        known = self.catalog.ancestors(table)
        is_whole = not known or known[-1].parent is None
        told = [n for n, snapshot in enumerate(known) if REPORTED in snapshot.summary]
        known = known if is_whole else known[: max(told, default=-1) + 1]
        line: list[int | None] = [None, *(snapshot.id for snapshot in known)]
        floor = self._floors.get(table)
        if floor is not None:
            line = [number for number in line if number is not None and number >= floor]
        self.catalog.roll_back(table, line[self.fate.pick(0, len(line) - 1)])

    def _drop(self, table: str) -> None:
        """Away with it: its records are read again."""
        if self.catalog.load(table) is not None and table not in self._floors:
            self.catalog.drop(table)

    def _lose_records(self) -> None:
        """Retention takes the oldest records of a partition, once the tables have begun with all topics."""
        for table in self.spec.tables:
            state = self.catalog.load(table.name)
            topics = {selector.literal for selector in table.source.topics}
            if state is None or state.progress.offsets.keys() != topics:
                return
            self._floors.setdefault(table.name, state.progress.snapshot_id)
        names = sorted(self.source.by_name)
        name = names[self.fate.pick(0, len(names) - 1)]
        topic = self.source.by_name[name]
        partition = self.fate.pick(0, len(topic.partitions) - 1)
        self.source.trim(name, partition, self.fate.pick(topic.first.get(partition, 0), topic.end(partition)))

    def _is_left(self, place: Place) -> bool:
        """Whether the topic still has the record."""
        topic, partition, offset = place
        return offset >= self.source.by_name[topic].first.get(partition, 0)

    def _lost(self, places: Iterable[Place], progress: Progress) -> set[Place]:
        """Those that a commit reports it has skipped; the topics must have lost them."""
        lost: set[Place] = set()
        for topic, partitions in progress.batch.skipped.items():
            for partition, (start, end) in partitions.items():
                lost |= {place for place in places if place[:2] == (topic, partition) and start <= place[2] < end}
        still = sorted(place for place in lost if self._is_left(place))[:5]
        assert not still, f"{still} were skipped, and are there"
        return lost

    def _start(self) -> Service:
        self.started += 1
        clock, fate = self.clock, self.fate
        source = UnsureSource(self.source, fate)
        parts = Services(
            source=source,
            catalog=UnsureCatalog(self.catalog, fate, self._continue),
            jobs=UnsureJobs(self.source, fate, divided=self.divided),
            clock=clock,
            workers=StepWorkers(clock),
            outbox=UnsureOutbox(self.outbox, fate),
            queries=self.queries,
            reader=source,
        )
        name = f"run-{self.started:04}"
        service = Service(self._wanted(), parts, name, lambda _: None, self._leadership(name))
        try:
            service.connect()
        except CrashError:
            return service
        self.services.append(service)
        return service

    def _turn(self) -> None:
        if self.services:
            self._turn_of(self.services[self.fate.pick(0, len(self.services) - 1)])

    def _continue(self) -> None:
        """Other runs continue while one does not know whether its commit has landed."""
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
            self._after_crash()
            return
        finally:
            self._turning = before
        if service.fatal is not None:
            if not isinstance(service.fatal, FencedError):
                raise service.fatal
            assert len(self.services) > 1 or self.started > 1, "nobody else was there to take over"
            self.services.remove(service)

    def check_dead_letters(self, table: str) -> list[Place]:
        """The bad records in the table's dead-letter table: each of them bad, and there once."""
        name = f"{table}__dead_letters"
        if self.catalog.load(name) is None:
            return []
        found: list[Place] = []
        for file in self.catalog.data_files(name):
            rows = pq.ParquetFile(file.path).read().to_pylist()
            assert len(rows) == file.record_count
            for row in rows:
                place = (row["topic"], row["partition"], row["offset"])
                assert place in self.bad, f"{place} is not bad: {row}"
                assert row["value"] == self.bad[place]
                found.append(place)
        twice = sorted({place for place in found if found.count(place) > 1})[:5]
        assert not twice, f"{table} has dead letters twice: {twice}"
        return found
