"""A service that hangs, or cannot serve one thing, and the tables that do not need it: real threads, memory twins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.ingest.lanes import ThreadLanes
from frazil.ingest.parts import Parts
from frazil.ingest.schemas import Schemas
from frazil.ingest.service import Service
from frazil.ingest.target import WriterSchema
from frazil.registry.memory import MemoryRegistry
from frazil.registry.port import RegisteredSchema
from frazil.registry.protobuf import compile_proto
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.models import CommitSpec
from frazil.testing import MemoryCatalog, MemoryJobs, MemorySource
from tests.unit.ingest.test_framed import framed
from tests.unit.ingest.test_schemas import avro

V1 = avro(id="int")
PROTO = 'syntax = "proto3"; message M { int32 id = 1; }'
RECORDS = 15
TABLES_IN_NEED = 6
"""More than there are threads for commits: one of them left would be enough to go on."""
FLOOR_S = 2.0
"""What two busy cores may take for one batch of a healthy table. A wait for a service takes 10 s and more."""
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
            raise UnavailableError(f"the schema registry does not give schema {schema_id}: 500 it fell over")
        return super().by_id(schema_id, subject)


class Crowd:
    """A table of plain JSON beside tables that need the registry, in a running service."""

    def __init__(self, root: Path, kind: str = "avro") -> None:
        self.source, self.catalog, self.registry = MemorySource(), MemoryCatalog(root, "p"), HangingRegistry()
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
        schemas, jobs = Schemas(self.registry), MemoryJobs(self.source)
        parts = Parts(self.source, self.catalog, jobs, self.clock, ThreadLanes(), schemas)
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
        self.service.stop()
        self._thread.join(PATIENCE_S)

    def committed(self, table: str) -> int:
        state = self.catalog.load(table)
        return 0 if state is None else sum(state.progress.offsets.get(table.removeprefix("n."), {}).values())

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
def crowds(tmp_path: Path) -> Iterator[Callable[[str], Crowd]]:
    made: list[Crowd] = []

    def make(kind: str) -> Crowd:
        made.append(Crowd(tmp_path, kind))
        return made[-1]

    yield make
    for crowd in made:
        crowd.end()


@pytest.mark.parametrize("hung", ["registry", "protoc"])
def test_a_table_that_does_not_need_what_hangs_stays_as_fresh_as_before(
    crowds: Callable[[str], Crowd], monkeypatch: pytest.MonkeyPatch, hung: str
) -> None:
    crowd = crowds("avro" if hung == "registry" else "protobuf")

    def compile_late(text: str, references: tuple[tuple[str, str], ...] = ()) -> bytes:
        crowd.registry.waiting.release()
        crowd.registry.gate.wait(PATIENCE_S)
        return compile_proto(text, references)

    if hung == "protoc":
        monkeypatch.setattr("frazil.ingest.schemas.compile_proto", compile_late)
    crowd.start()
    undisturbed = crowd.freshness()
    one = crowd.registry.register("avro" if hung == "registry" else "protobuf", V1 if hung == "registry" else PROTO)
    crowd.registry.gate.clear()
    for number in range(TABLES_IN_NEED):
        value = framed(one, WriterSchema("avro", V1), {"id": 1})[0] if hung == "registry" else _proto(one)
        crowd.source.produce(f"n.t{number}", 0, value)
    assert crowd.registry.waiting.acquire(timeout=PATIENCE_S), "the service that hangs was asked"
    disturbed = crowd.freshness()
    assert disturbed[-1] <= max(2 * undisturbed[-1], FLOOR_S)
    crowd.registry.gate.set()
    crowd.wait(lambda: all(crowd.catalog.load(f"n.t{number}") is not None for number in range(TABLES_IN_NEED)))


def _proto(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"\0" + b"\x08\x01"


def test_one_schema_that_the_registry_cannot_serve_holds_up_the_tables_alone_that_need_it(
    crowds: Callable[[str], Crowd],
) -> None:
    crowd = crowds("avro")
    bad, good = crowd.registry.register("avro", avro(x="int")), crowd.registry.register("avro", V1)
    crowd.registry.broken = {bad}
    crowd.start()
    crowd.source.produce("n.t0", 0, framed(bad, WriterSchema("avro", avro(x="int")), {"x": 1})[0])
    crowd.wait(lambda: "500 it fell over" in {t.name: t.reason for t in crowd.service.tables}["n.t0"])
    for number in range(1, TABLES_IN_NEED):
        crowd.source.produce(f"n.t{number}", 0, framed(good, WriterSchema("avro", V1), {"id": 1})[0])
    others = [f"n.t{number}" for number in range(1, TABLES_IN_NEED)]
    crowd.wait(lambda: all(crowd.catalog.load(name) is not None for name in others))
    reasons = {table.name: table.reason for table in crowd.service.tables}
    assert "500 it fell over" in reasons.pop("n.t0")
    assert set(reasons.values()) == {""}
    assert crowd.catalog.load("n.t0") is None
    crowd.registry.broken = set()
    crowd.wait(lambda: crowd.catalog.load("n.t0") is not None)
