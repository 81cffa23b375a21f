"""Services of one pipeline on the ports in memory: they come and go, and their work is done when a test wants it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from frazil.ingest.batches.services import Services
from frazil.ingest.batches.workers import Done, Workers
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.cuts import Cuts
from frazil.ingest.tables.table import Table
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.settings import CommitSpec
from frazil.types import Progress
from frazil_testing.memory_kafka import MemoryOutbox
from frazil_testing.twins import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepWorkers, live_rows
from tests.unit.ingest.leaders import Script, Scripted


class HandWorkers:
    """Workers whose work is done when a test reports it, but for questions to the catalog and to Kafka: these are
    answered at once.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._waiting: list[tuple[str, Any, Callable[[], Any]]] = []
        self._done: list[tuple[str, Done]] = []

    @property
    def waiting(self) -> list[tuple[str, tuple[str, ...]]]:
        """What is to be done: kind of work and tables."""
        return [(worker.partition(":")[0], tables_of(then)) for worker, then, _ in self._waiting]

    def do(self, worker: str, *tables: str) -> None:
        """Does the work of these tables in a worker."""
        self._do(*self._waiting.pop(self.waiting.index((worker, tables))))

    def _do(self, worker: str, then: Any, work: Callable[[], Any]) -> None:
        future: Future[Any] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001  (as an executor does)
            future.set_exception(error)
        self._done.append((worker, Done(then, future)))

    def is_free(self, worker: str) -> bool:
        return all(busy != worker for busy, *_ in [*self._waiting, *self._done])

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._done

    def submit(self, worker: str, then: Any, work: Callable[[], Any]) -> None:
        if worker.startswith(("load", "topics", "clients")):
            self._do(worker, then, work)
        else:
            self._waiting.append((worker, then, work))

    def wait(self, timeout_s: float) -> list[Done]:
        if not self._done:
            self._clock.sleep(timeout_s)
        finished = [done for _, done in self._done]
        self._done.clear()
        return finished

    def wake(self) -> None:
        pass

    def close(self, wait: bool = True) -> None:  # noqa: ARG002
        self._waiting.clear()


def tables_of(then: Any) -> tuple[str, ...]:
    """The tables of the batch or batches that a piece of work is for: what takes its result begins with them."""
    (about, *_) = then.args
    return tuple(planned.table.name for planned in (about if isinstance(about, list) else [about]))


class Scene:
    """Topics of one partition, each with a table `n.<topic>` of these settings."""

    def __init__(self, root: Path, *topics: str, **settings: Any) -> None:
        self.root = root
        self.clock = FakeClock()
        self.clock.sleep(1)
        self.source = MemorySource()
        self.catalog = MemoryCatalog(root, "p")
        self.outbox = MemoryOutbox()
        self.jobs = MemoryJobs(self.source)
        self.topics = topics
        self.settings = settings
        self.started = 0
        #: The cuts of tables that are published together.
        self.cuts = Cuts(self.clock)
        #: How many times a commit was rehearsed.
        self.rehearsed = 0
        #: How many times memory was released.
        self.released = 0
        for topic in topics:
            self.source.create(topic)

    def spec(self, *topics: str) -> PipelineSpec:
        """The pipeline file with the tables of these topics."""
        tables = tuple(
            TableSpec.model_validate(
                {
                    "name": f"n.{topic}",
                    "topics": (TopicSelector(literal=topic),),
                    "commit": CommitSpec(interval_s=1.0),
                    **self.settings,
                }
            )
            for topic in topics
        )
        return PipelineSpec(
            pipeline="p",
            kafka={},
            catalog=CatalogSpec(uri=""),
            tables=tables,
            path=self.root / "f",
            state_dir=self.root,
        )

    def start(self, *topics: str, workers: Workers | None = None, script: Script | None = None) -> Service:
        """A process that has connected; it works for all topics unless some are named."""
        service = self.unconnected(*topics, workers=workers, script=script)
        service.connect()
        return service

    def unconnected(self, *topics: str, workers: Workers | None = None, script: Script | None = None) -> Service:
        """The same before it has asked for anything."""
        self.started += 1
        parts = Services(
            source=self.source,
            catalog=self.catalog,
            jobs=self.jobs,
            clock=self.clock,
            workers=workers or StepWorkers(self.clock),
            outbox=self.outbox,
            cuts=self.cuts,
            rehearse=self._rehearse,
            release_memory=self._release_memory,
        )
        name = f"run-{self.started:04}"
        leadership = Scripted(script, name) if script is not None else None
        return Service(self.spec(*(topics or self.topics)), parts, name, lambda _: None, leadership)

    def _rehearse(self) -> None:
        self.rehearsed += 1

    def _release_memory(self) -> None:
        self.released += 1

    def catch_up(self, *topics: str, turns: int = 300) -> list[Table]:
        """A process that reads to the ends of the topics; its tables."""
        service = self.start(*topics)
        assert turn_until(service, lambda: service.is_over(until_caught_up=True), turns, until_caught_up=True), [
            (table.name, table.status.run_state, table.status.reason) for table in service.tables
        ]
        return service.tables

    def feed(self, topic: str, *values: Any, partition: int = 0, gap: int = 0) -> None:
        """Produces records: bytes as they are, anything else as JSON."""
        for value in values:
            raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            self.source.produce(topic, partition, raw, self.clock.now_ms(), gap)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, oldest first."""
        return live_rows(self.catalog, table)

    def progress(self, table: str = "n.a") -> Progress:
        """The progress of a table, as the catalog has it."""
        state = self.catalog.load(table)
        assert state is not None
        return state.progress

    def dead_letters(self, table: str) -> list[tuple[str, int, int]]:
        """The places of the records in the table's dead-letter table."""
        rows = live_rows(self.catalog, f"{table}__dead_letters")
        return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def turn_until(service: Service, question: Callable[[], Any], turns: int = 300, until_caught_up: bool = False) -> bool:
    """Whether it comes true within so many turns."""
    for _ in range(turns):
        if question():
            return True
        service.turn(until_caught_up)
    return bool(question())


def only(tables: Sequence[Table]) -> Table:
    """The one table."""
    (table,) = tables
    return table
