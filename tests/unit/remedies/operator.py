"""Somebody who runs a pipeline on the ports in memory, reads what it reports and does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.spec import PipelineSpec, load_spec
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.twins import StepWorkers
from tests.unit.ingest.service_scene import Scene

HEAD = "pipeline: {}\nkafka: {{bootstrap.servers: 'b:1'}}\ncommit: {{interval: 1s}}\n"


class Operator(Scene):
    """Works with the topic `a`, and with the table `n.a` unless it is told another file."""

    def __init__(self, root: Path, *records: Any, topics: tuple[str, ...] = ("a",)) -> None:
        root.mkdir(exist_ok=True)
        super().__init__(root, *topics)
        self.registry = MemoryRegistry()
        self.service: Service | None = None
        if records:
            self.feed("a", *records)

    def run(self, settings: str = "", table: str = "n.a", turns: int = 60) -> Table:
        """A new process with these settings of the table, after some turns."""
        more = f", {settings}" if settings else ""
        return self.run_file(f"tables: {{{table}: {{topic: a{more}}}}}\n", turns=turns)[table]

    def run_file(self, text: str, pipeline: str = "p", turns: int = 60) -> dict[str, Table]:
        """A new process with this file, after some turns; its tables by name."""
        service = self.service = self.serve(text, pipeline)
        service.connect()
        for _ in range(turns):
            service.turn(until_caught_up=True)
        return {table.name: table for table in service.tables}

    def serve(self, text: str, pipeline: str = "p") -> Service:
        """A new process that has not connected yet."""
        spec = self.file(text, pipeline)
        schemas = Schemas(self.registry, clock=self.clock) if spec.registry else None
        self.started += 1
        catalog = self.catalog if pipeline == "p" else self.catalog.for_pipeline(pipeline)
        parts = Services(self.source, catalog, self.jobs, self.clock, StepWorkers(self.clock), schemas, self.outbox)
        return Service(spec, parts, f"run-{self.started:04}", lambda _: None)

    def file(self, text: str, pipeline: str = "p") -> PipelineSpec:
        """The pipeline file."""
        path = self.root / "frazil.yaml"
        path.write_text(HEAD.format(pipeline) + text)
        return load_spec(path)

    def values(self, table: str = "n.a") -> list[dict[str, Any]]:
        """The rows of a table; none of one that is not there."""
        return self.rows(table) if self.catalog.load(table) is not None else []
