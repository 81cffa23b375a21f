"""One seeded history of dead letters: ingestion continues while dead letters are retried and dropped, with trouble
between any two steps, also of two retries at a time; then the truth.

The truth: at any moment no record is a row twice, a dead letter twice, or both; in the end each record is one of the
two, with its own value, or was dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from frazil.catalog.port import Catalog
from frazil.dead_letters.files import Selection
from frazil.errors import ConflictError, FencedError, UnavailableError
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.table import Table
from frazil.spec import PipelineSpec
from frazil.spec.models import TableSpec, TopicSelector
from frazil.spec.settings import ColumnSpec, CommitSpec, DeadLettersSpec
from frazil.spec.syntax.types import parse_type
from frazil_deadletters.replay import Replayer
from frazil_testing.twins import FakeClock, MemoryCatalog, MemorySource, StepWorkers
from tests.simulation.faults import CrashError, Fate, UnsureCatalog, UnsureJobs, UnsureSource
from tests.simulation.scene import pipeline_of

_TABLE, _DEAD_LETTERS = "lake.a", "lake.a__dead_letters"
_LARGE = 3_000_000_000
_BROKEN: tuple[bytes | None, ...] = (None, b"{", b"[]", b'{"id": "x"}')
Place = tuple[int, int]


class _Meddling(Fate):
    """Between any two steps of a retry others get their turn."""

    def __init__(self, seed: int, others: Callable[[], None]) -> None:
        super().__init__(seed)
        self.crash = float(self.rng.choice([0.01, 0.05, 0.1]))
        self._others = others

    def step(self, name: str) -> None:
        if self.maybe(0.25):
            self._others()
        super().step(name)


class Replay:
    """Topic `a` feeds a table whose column `n` was too narrow for a while."""

    def __init__(self, seed: int, root: Path) -> None:
        self.root = root
        self.fate = Fate(seed)
        self.replay_fate = _Meddling(seed + 1, self._others)
        self.source = MemorySource()
        self.source.create("a", 2)
        self.catalog = MemoryCatalog(root, "sim")
        self.clock = FakeClock()
        self.is_fixed = False
        self.service: Service | None = None
        self.started = self.depth = 0
        self.produced: dict[Place, bytes | None] = {}
        self.broken: set[Place] = set()
        self.dropped: set[Place] = set()

    def play(self, rounds: int) -> None:
        """Lets things happen, then all be finished in peace, and checks the truth."""
        for number in range(rounds):
            self.is_fixed = number > rounds // 3
            self._produce()
            self._others()
            if self.fate.maybe(0.6):
                self._work_on_dead_letters()
            self.check()
        self.fate.is_fault_free = self.replay_fate.is_fault_free = True
        self.service = None
        service = self._start()
        assert service is not None
        for _ in range(3000):
            if service.is_over(until_caught_up=True):
                break
            service.turn(until_caught_up=True)
        assert service.is_over(until_caught_up=True), [(t.status.run_state, t.status.reason) for t in service.tables]
        self._replayer(self.catalog).replay(self._table(), Selection())
        self._check_end()

    def _check_end(self) -> None:
        rows, dead_letters = self.check()
        assert set(rows) == self.produced.keys() - self.broken
        assert set(dead_letters) == self.broken - self.dropped

    def _replayer(self, catalog: Catalog) -> Replayer:
        return Replayer(catalog, None)

    def check(self) -> tuple[dict[Place, int], dict[Place, bytes | None]]:
        """Nothing twice, nothing in two places, each with its value; the rows and the dead letters."""
        rows: dict[Place, int] = {}
        dead_letters: dict[Place, bytes | None] = {}
        for row in self._read(_TABLE):
            place = (row["_partition"], row["_offset"])
            assert place not in rows, f"{place} is a row twice"
            rows[place] = row["id"]
            value = self.produced[place]
            assert value is not None
            record = json.loads(value)
            assert {name: row[name] for name in record} == record
        for dead_letter in self._read(_DEAD_LETTERS):
            place = (dead_letter["partition"], dead_letter["offset"])
            assert place not in dead_letters, f"{place} is a dead letter twice"
            dead_letters[place] = dead_letter["value"]
            assert dead_letter["value"] == self.produced[place]
        assert not rows.keys() & dead_letters.keys()
        return rows, dead_letters

    def _read(self, table: str) -> list[dict[str, Any]]:
        if self.catalog.load(table) is None:
            return []
        return [row for file in self.catalog.data_files(table) for row in pq.ParquetFile(file.path).read().to_pylist()]

    def _others(self) -> None:
        """What happens meanwhile: a turn of the running pipeline, or another retry."""
        self.depth += 1
        try:
            if self.depth == 2 and self.fate.maybe(0.15):
                self._work_on_dead_letters()
            if self.service is None:
                self._start()
            elif self.fate.maybe(0.02):
                self.service = None
            else:
                self._turn(self.service)
        finally:
            self.depth -= 1

    def _work_on_dead_letters(self) -> None:
        selection = self._selection()
        replayer = self._replayer(UnsureCatalog(self.catalog, self.replay_fate))
        self.depth += 1
        try:
            with suppress(CrashError, UnavailableError, ConflictError):
                if self.fate.maybe(0.1):
                    self._drop(replayer)
                else:
                    replayer.replay(self._table(), selection)
        finally:
            self.depth -= 1

    def _selection(self) -> Selection:
        """Which dead letters are meant."""
        return Selection(partition=self.fate.pick(0, 1)) if self.fate.maybe(0.5) else Selection()

    def _drop(self, replayer: Replayer) -> None:
        """Of one record that will never fit; whether it was dropped can be seen afterwards alone."""
        before = sorted(self.broken & self.check()[1].keys())
        if not before:
            return
        place = before[0]
        try:
            replayer.drop(self._table(), Selection(partition=place[0], offset=place[1]))
        finally:
            if place not in self.check()[1]:
                self.dropped.add(place)

    def _produce(self) -> None:
        for _ in range(self.fate.pick(0, 8)):
            number = len(self.produced)
            record: dict[str, object] = {"id": number, "n": _LARGE if self.fate.maybe(0.2) else 1}
            if self.fate.maybe(0.1):
                record[f"new{number // 40}"] = "text"
            is_broken = self.fate.maybe(0.1)
            value = _BROKEN[self.fate.pick(0, 3)] if is_broken else json.dumps(record).encode()
            partition = self.fate.pick(0, 1)
            offset = self.source.produce("a", partition, value, self.clock.now_ms())
            self.produced[partition, offset] = value
            if is_broken:
                self.broken.add((partition, offset))

    def _start(self) -> Service | None:
        self.started += 1
        parts = Services(
            source=UnsureSource(self.source, self.fate),
            catalog=UnsureCatalog(self.catalog, self.fate),
            jobs=UnsureJobs(self.source, self.fate),
            clock=self.clock,
            workers=StepWorkers(self.clock),
        )
        service = Service(self._spec(), parts, f"run-{self.started:04}", lambda _: None)
        with suppress(CrashError):
            service.connect()
            self.service = service
        return self.service

    def _turn(self, service: Service) -> None:
        try:
            service.turn()
        except CrashError:
            self.service = None
            return
        if service.fatal is not None:
            assert isinstance(service.fatal, FencedError)
            self.service = None

    def _table(self) -> Table:
        return Table(self._spec().tables[0])

    def _spec(self) -> PipelineSpec:
        kind = "long" if self.is_fixed else "int"
        table = TableSpec(
            name=_TABLE,
            topics=(TopicSelector(literal="a"),),
            metadata={"partition": "_partition", "offset": "_offset"},
            commit=CommitSpec(interval_s=0.1),
            columns=(ColumnSpec(name="id", type=parse_type("long")), ColumnSpec(name="n", type=parse_type(kind))),
            dead_letters=DeadLettersSpec(stop_above=1.0),
        )
        return pipeline_of(self.root, table)
