"""A service that hangs, or cannot serve one thing, and the tables that do not need it: real threads, memory twins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.catalog.port import TableState
from frazil.clock import SystemClock
from frazil.decode.settings import WriterSchema
from frazil.errors import UnavailableError
from frazil.ingest.batches.services import Services
from frazil.ingest.batches.workers import ThreadWorkers
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.port import TopicDescription
from frazil.registry.port import RegisteredSchema
from frazil.report import TaskReport
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.settings import CommitSpec
from frazil.types import Batch, Commit, Progress
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.twins import MemoryCatalog, MemoryJobs, MemorySource
from tests.needs import has_package, needs
from tests.unit.ingest.tables.test_schemas import avro
from tests.unit.rows.test_writer_schemas import framed

if has_package("protobuf"):
    from frazil_protobuf.protoc import compile_proto

V1 = avro(id="int")
PROTO = 'syntax = "proto3"; message M { int32 id = 1; }'
RECORDS = 15
TABLES_IN_NEED = 6
"""More than there are threads for commits: one of them left would be enough to continue."""
FLOOR_S = 5.0
"""What very busy cores may take for one batch of a healthy table. A wait for a service takes 10 s and more."""
PATIENCE_S = 60.0


class HangingRegistry(MemoryRegistry):
    """Answers nothing while it hangs; `broken` ids are never served."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)
        self.broken: set[int] = set()

    def by_id(self, schema_id: int, subject: str = "") -> RegisteredSchema | None:
        if not self.gate.is_set():
            self.waiting.release()
            self.gate.wait(PATIENCE_S)
        if schema_id in self.broken:
            raise UnavailableError(f"the schema registry does not return schema {schema_id}: 500 it fell over")
        return super().by_id(schema_id, subject)


class Gate:
    """What hangs for the tables in need while it is shut."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.waiting = threading.Semaphore(0)

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self, *tables: str) -> None:
        if not self._open.is_set() and any(table.startswith("n.t") for table in tables):
            self.waiting.release()
            self._open.wait(PATIENCE_S)


class HangingCatalog(MemoryCatalog):
    """The tables in need are in another store. `loads` and `commits` may hang for them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "p")
        self.loads, self.commits = Gate(), Gate()

    def load(self, table: str) -> TableState | None:
        self.loads.pass_through(table)
        state = super().load(table)
        return replace(state, io_properties={"file.endpoint": "other"}) if state and table != "n.json" else state

    def commit(self, commit: Commit) -> Progress:
        self.commits.pass_through(commit.table)
        return super().commit(commit)


class HangingJobs(MemoryJobs):
    """Jobs that write for the tables in need may hang."""

    def __init__(self, source: MemorySource) -> None:
        super().__init__(source)
        self.writes = Gate()

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        self.writes.pass_through(*(batch.table for batch in batches))
        return super().run(batches, job, pool=pool)


class HangingSource(MemorySource):
    """Which topics there are may be a question without an answer, whoever asks."""

    def __init__(self) -> None:
        super().__init__()
        self.listing = Gate()

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        if threading.current_thread().name.startswith("topics"):
            self.listing.pass_through("n.t0")
        return super().topics(wanted)


class ManyTables:
    """A table of plain JSON beside tables that need what hangs, in a running service."""

    def __init__(self, root: Path, kind: str = "avro") -> None:
        self.source, self.catalog, self.registry = HangingSource(), HangingCatalog(root), HangingRegistry()
        self.clock = SystemClock()
        names = [f"n.t{number}" for number in range(TABLES_IN_NEED)]
        for topic in ("json", *names):
            self.source.create(topic)
        tables = [self._table("n.json", "json", "json"), *(self._table(name, name, kind) for name in names)]
        spec = PipelineSpec(
            pipeline="p",
            kafka={},
            catalog=CatalogSpec(uri=""),
            tables=tuple(tables),
            path=root / "f",
            state_dir=root,
        )
        schemas, self.jobs = Schemas(self.registry), HangingJobs(self.source)
        parts = Services(self.source, self.catalog, self.jobs, self.clock, ThreadWorkers(), schemas)
        self.service = Service(spec, parts, "run", lambda _: None)
        self._thread = threading.Thread(target=self.service.run, daemon=True)

    @staticmethod
    def _table(name: str, topic: str, form: str) -> TableSpec:
        given: dict[str, Any] = {"name": name, "topics": (TopicSelector(literal=topic),), "value": {"format": form}}
        return TableSpec.model_validate({**given, "commit": CommitSpec(interval_s=0.05)})

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.registry.gate.set()
        for gate in self.gates.values():
            gate.open()
        self.service.stop()
        self._thread.join(PATIENCE_S)

    @property
    def gates(self) -> dict[str, Gate]:
        return {
            "catalog": self.catalog.loads,
            "commits": self.catalog.commits,
            "store": self.jobs.writes,
            "broker": self.source.listing,
        }

    def committed(self, table: str) -> int:
        state = MemoryCatalog.load(self.catalog, table)
        return 0 if state is None else sum(sum(ends.values()) for ends in state.progress.offsets.values())

    def wait(self, is_done: Callable[[], bool]) -> float:
        """How long it took."""
        began_s = self.clock.monotonic_s()
        while not is_done():
            assert self.clock.monotonic_s() - began_s < PATIENCE_S
            self.clock.sleep(0.005)
        return self.clock.monotonic_s() - began_s

    def freshness(self) -> list[float]:
        """For record after record of the plain table how long it takes until it is committed, shortest first."""
        took = []
        for _ in range(RECORDS):
            self.source.produce("json", 0, b'{"id": 1}')
            end = self.source.ends([("json", 0)])["json", 0]
            took.append(self.wait(lambda end=end: self.committed("n.json") == end))  # type: ignore[misc]
        return sorted(took)


@pytest.fixture
def make_tables_service(tmp_path: Path) -> Iterator[Callable[[str], ManyTables]]:
    made: list[ManyTables] = []

    def make(kind: str) -> ManyTables:
        made.append(ManyTables(tmp_path, kind))
        return made[-1]

    yield make
    for tables_service in made:
        tables_service.end()


@pytest.mark.parametrize("hung", ["registry", pytest.param("protoc", marks=needs("protobuf"))])
def test_a_table_that_does_not_need_what_hangs_stays_as_fresh_as_before(
    make_tables_service: Callable[[str], ManyTables], monkeypatch: pytest.MonkeyPatch, hung: str
) -> None:
    tables_service = make_tables_service("avro" if hung == "registry" else "protobuf")

    def compile_late(text: str, references: tuple[tuple[str, str], ...] = ()) -> bytes:
        tables_service.registry.waiting.release()
        tables_service.registry.gate.wait(PATIENCE_S)
        return compile_proto(text, references)

    if hung == "protoc":
        monkeypatch.setattr("frazil_protobuf.messages.compile_proto", compile_late)
    tables_service.start()
    undisturbed = tables_service.freshness()
    one = tables_service.registry.register(
        "avro" if hung == "registry" else "protobuf", V1 if hung == "registry" else PROTO
    )
    tables_service.registry.gate.clear()
    for number in range(TABLES_IN_NEED):
        value = framed(one, WriterSchema("avro", V1), {"id": 1})[0] if hung == "registry" else _proto(one)
        tables_service.source.produce(f"n.t{number}", 0, value)
    assert tables_service.registry.waiting.acquire(timeout=PATIENCE_S), "the service that hangs was asked"
    disturbed = tables_service.freshness()
    assert disturbed[-1] <= max(2 * undisturbed[-1], FLOOR_S)
    tables_service.registry.gate.set()
    tables_service.wait(
        lambda: all(tables_service.catalog.load(f"n.t{number}") is not None for number in range(TABLES_IN_NEED))
    )


@pytest.mark.parametrize("hung", ["catalog", "commits", "store", "broker"])
def test_a_table_in_another_store_or_led_by_another_broker_stays_as_fresh_as_before(
    make_tables_service: Callable[[str], ManyTables], monkeypatch: pytest.MonkeyPatch, hung: str
) -> None:
    """More tables are in need than there are places: each of them hangs."""
    monkeypatch.setattr("frazil.ingest.loop.load.RELOAD_IDLE_EVERY_S", 1.0)
    monkeypatch.setattr("frazil.ingest.loop.refresh.TOPICS_EVERY_S", 0.5)
    tables_service, others = make_tables_service("json"), [f"n.t{number}" for number in range(TABLES_IN_NEED)]
    tables_service.start()
    for topic in others:
        tables_service.source.produce(topic, 0, b'{"id": 1}')
    tables_service.wait(lambda: all(tables_service.committed(topic) == 1 for topic in others))
    undisturbed = tables_service.freshness()
    gate = tables_service.gates[hung]
    gate.shut()
    if hung == "broker":
        tables_service.source.silent |= {(topic, 0) for topic in others}
    for topic in others if hung != "catalog" else ():
        tables_service.source.produce(topic, 0, b'{"id": 2}')
    assert gate.waiting.acquire(timeout=PATIENCE_S), "the service that hangs was asked"
    disturbed = tables_service.freshness()
    assert disturbed[-1] <= max(2 * undisturbed[-1], FLOOR_S)
    tables_service.source.silent.clear()
    gate.open()
    end = 1 if hung == "catalog" else 2
    tables_service.wait(lambda: all(tables_service.committed(topic) == end for topic in others))


def _proto(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"\0" + b"\x08\x01"


def test_one_schema_that_the_registry_cannot_serve_holds_up_the_tables_alone_that_need_it(
    make_tables_service: Callable[[str], ManyTables],
) -> None:
    tables_service = make_tables_service("avro")
    bad, good = tables_service.registry.register("avro", avro(x="int")), tables_service.registry.register("avro", V1)
    tables_service.registry.broken = {bad}
    tables_service.start()
    tables_service.source.produce("n.t0", 0, framed(bad, WriterSchema("avro", avro(x="int")), {"x": 1})[0])
    tables_service.wait(
        lambda: "500 it fell over" in {t.name: t.status.reason for t in tables_service.service.tables}["n.t0"]
    )
    for number in range(1, TABLES_IN_NEED):
        tables_service.source.produce(f"n.t{number}", 0, framed(good, WriterSchema("avro", V1), {"id": 1})[0])
    others = [f"n.t{number}" for number in range(1, TABLES_IN_NEED)]
    tables_service.wait(lambda: all(tables_service.catalog.load(name) is not None for name in others))
    reasons = {table.name: table.status.reason for table in tables_service.service.tables}
    assert "500 it fell over" in reasons.pop("n.t0")
    assert set(reasons.values()) == {""}
    assert tables_service.catalog.load("n.t0") is None
    tables_service.registry.broken = set()
    tables_service.wait(lambda: tables_service.catalog.load("n.t0") is not None)
