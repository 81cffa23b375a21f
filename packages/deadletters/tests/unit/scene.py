"""A pipeline in memory whose bad records have become dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from structlog.testing import capture_logs

from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.settings import ColumnSpec, CommitSpec, DeadLettersSpec
from frazil.spec.syntax.types import parse_type
from frazil_deadletters.replay import Replayer
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.twins import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepWorkers

TABLE, DEAD_LETTERS = "lake.a", "lake.a__dead_letters"


class Scene:
    """Topic `a` feeds the table `lake.a`."""

    def __init__(self, root: Path, columns: dict[str, str], partitions: int = 2, **settings: Any) -> None:
        self.root = root
        self.source = MemorySource()
        self.source.create("a", partitions)
        self.catalog = MemoryCatalog(root, "p")
        self.registry = MemoryRegistry()
        self.clock = FakeClock()
        self.schemas = Schemas(self.registry, clock=self.clock)
        self.settings = settings
        self.declare(columns)

    def declare(self, columns: dict[str, str], **settings: Any) -> None:
        """What the pipeline file has from now on."""
        self.settings = {**self.settings, **settings}
        self.spec = TableSpec(
            name=TABLE,
            topics=(TopicSelector(literal="a"),),
            commit=CommitSpec(interval_s=0.1),
            columns=tuple(ColumnSpec(name=name, type=parse_type(kind)) for name, kind in columns.items()),
            **{"dead_letters": DeadLettersSpec(stop_above=1.0), **self.settings},
        )

    @property
    def pipeline(self) -> PipelineSpec:
        """The whole file."""
        return PipelineSpec(
            pipeline="p",
            kafka={},
            catalog=CatalogSpec(uri="memory"),
            tables=(self.spec,),
            path=self.root / "p.yaml",
            state_dir=self.root / "state",
        )

    def feed(self, *values: bytes | dict[str, Any] | None, partition: int = 0) -> Scene:
        """Produces values and lets the pipeline catch up."""
        for number, value in enumerate(values):
            raw = json.dumps(value).encode() if isinstance(value, dict) else value
            self.source.produce("a", partition, raw, 1000 * (number + 1))
        self.catch_up()
        return self

    def catch_up(self) -> list[Table]:
        """A run to the ends of the topics; its tables."""
        clock = FakeClock()
        parts = Services(
            source=self.source,
            catalog=self.catalog,
            jobs=MemoryJobs(self.source),
            clock=clock,
            schemas=self.schemas,
            workers=StepWorkers(clock),
        )
        service = Service(self.pipeline, parts, "run", lambda _: None)
        with capture_logs():
            service.run(until_caught_up=True)
        assert [table.status.run_state for table in service.tables] == [RunState.WAITING], service.tables[
            0
        ].status.reason
        return service.tables

    @property
    def table(self) -> Table:
        """The table as a command knows it."""
        return Table(self.spec)

    @property
    def replayer(self) -> Replayer:
        """With the real parts."""
        return Replayer(self.catalog, self.schemas)

    def rows(self) -> list[dict[str, Any]]:
        """The table."""
        return self._read(TABLE)

    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead-letter table."""
        return self._read(DEAD_LETTERS)

    def _read(self, table: str) -> list[dict[str, Any]]:
        return [row for file in self.catalog.data_files(table) for row in pq.ParquetFile(file.path).read().to_pylist()]
