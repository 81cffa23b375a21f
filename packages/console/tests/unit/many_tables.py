"""A pipeline of many tables as its loop would have published them: some stopped, some late, some with dead letters. No loop
turns; a test or a benchmark changes the tables and publishes them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pyiceberg.schema import Schema

from frazil.api.redaction import Redaction
from frazil.catalog.port import TableSize, TableState
from frazil.catalog.progress import key, to_summary
from frazil.catalog.table_metadata import MetadataSizes, Snapshot, StoredData, TableMetadata, TableShape
from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.loop.requests import UnknownTable
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import TopicDescription, TopicReaders
from frazil.ops.pipeline_status import Observations
from frazil.ops.publishing import PublishReport
from frazil.ops.running import OwnServices, Parts, RunningPipeline
from frazil.ops.state_file import StateFile
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.connections import HttpSpec
from frazil.spec.syntax.forms import Address
from frazil.types import CommittedBatch, Progress, Watermark, Writer
from frazil_console.history import FINE, Sample, open_history
from frazil_console.pages import Console
from frazil_http.app import make_app
from frazil_http.operations import Operations
from frazil_http.pages import Pages
from frazil_http.security import Guard
from frazil_http.server import open_server
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.memory_kafka import MemorySource

_NAMES = (
    "shop.orders", "shop.payments", "crm.accounts", "crm.contacts", "web.clicks", "web.sessions", "erp.invoices",
    "erp.stock", "iot.readings", "iot.alarms",
)  # fmt: skip
_STOPPED = SpecError(
    "the column total has the type double, and records have text in it",
    remedy="declare the column as string, or correct the producer and resume the table",
    where="orders-0 offset 812",
)
_AWAY = UnavailableError("the catalog does not answer: connection refused", where="http://catalog:8181")
MIB = 1 << 20


class ManyTables:
    """The pipeline; `tables` in the order of their names."""

    def __init__(self, root: Path, count: int) -> None:
        self.clock = SystemClock()
        self.redaction = Redaction()
        #: By table with a branch, what readers see of it.
        self.publishing: dict[str, PublishReport] = {}
        self.tables = sorted((self._table(number) for number in range(count)), key=lambda table: table.name)
        specs = tuple(table.spec for table in self.tables)
        spec = PipelineSpec(
            pipeline="shop", kafka={}, catalog=CatalogSpec(uri=""), tables=specs, path=root / "f.yaml", state_dir=root
        )
        self.state_file = StateFile(root, "shop", self.clock, self.redaction.text)
        self.pipeline = RunningPipeline(spec, self.state_file, self.clock, self.redaction.document)
        self.history = open_history(self.pipeline)
        by_name = {table.name: table for table in self.tables}
        service = SimpleNamespace(tables=self.tables, requests=SimpleNamespace(find=lambda name: _find(by_name, name)))
        source, maintenance = MemorySource(), SimpleNamespace(metadata=lambda name, **_: self.metadata(name))
        own = OwnServices(
            MemoryCatalog(root, "shop"), cast(Any, maintenance), TopicReaders(source, source), lambda _ranges: []
        )
        self.pipeline.parts = Parts(cast(Any, service), lambda: own)
        self.publish()

    def publish(self) -> None:
        """Does what the loop does twice a second."""
        self.state_file.write(self.tables, observed=Observations(publishing=self.publishing))

    def commit(self, tables: Iterable[Table], records: int) -> None:
        """Lets each of these tables commit so many records."""
        now_ms = self.clock.now_ms()
        for table in tables:
            offsets = {t: {p: end + records for p, end in ps.items()} for t, ps in table.progress.offsets.items()}
            progress = Progress(offsets, watermark=Watermark(complete_to_ms=now_ms), committed_at_ms=now_ms)
            table.state = _state(table.name, progress)
            table.sizes.freshness_ms = 900 + now_ms % 700

    def remember_an_hour(self) -> None:
        """Gives every table an hour of history, with a peak in some."""
        history, now_s = self.history, self.clock.now_ms() // 1000
        for number, table in enumerate(self.tables):
            for at_s in range(now_s - now_s % 10 - 3_600, now_s, FINE.step_s):
                wave = 1 + (at_s // 10 * (number + 3)) % 17 / 10
                peak = 40 * (number % 50 == 5 and 900 < now_s - at_s < 1_300)
                rate = (at_s // 10 * 7) % 90 if number % 10 == 0 else 0
                values = rate + 10 * peak, wave + peak if number % 3 == 0 else 1.4, rate
                history._fine.put(at_s, table.name, values, is_kept=True)
        history.sample()

    def _table(self, number: int) -> Table:
        place, index = number % len(_NAMES), number // len(_NAMES)
        name = f"{_NAMES[place]}_{index:03}"
        topic, now_ms = name.partition(".")[2], self.clock.now_ms()
        table = Table(TableSpec.model_validate({"name": name, "topics": (TopicSelector(literal=topic),), "line": 12}))
        offsets = {topic: {partition: 1_000 * number + partition for partition in range(3)}}
        progress = Progress(
            offsets,
            writer=Writer(3, "6f1c"),
            watermark=Watermark(complete_to_ms=now_ms - 60_000 * index),
            committed_at_ms=now_ms - 60_000 * index,
        )
        table.state = _state(name, progress)
        table.offsets.topics = {topic: TopicDescription(topic, "id", 3)}
        table.sizes.freshness_ms = 1_400
        table.catalog.size = TableSize(120_000 + number, 40 + number % 9, 300 * MIB + number, 60)
        _trouble(table, number)
        return table

    def metadata(self, name: str) -> TableMetadata:
        """A table's metadata: four commits, the third of maintenance, the fourth with another schema."""
        topic, now_ms = name.partition(".")[2], self.clock.now_ms()
        snapshots = []
        for number in range(1, 5):
            offsets = {topic: {p: 100 * number + p for p in range(3)}}
            schemas = ("7", "9") if number == 4 else ("7",)
            summary = to_summary(
                "shop",
                Progress(offsets, commit_id=f"c{number}", batch=CommittedBatch(schemas=schemas), writer=Writer(3)),
            )
            summary |= {"operation": "append", "added-records": f"{300 * number}", "added-data-files": "1"}
            if number == 3:
                summary = {"operation": "replace", "deleted-data-files": "12", key("shop", "maintenance-id"): "m"}
            snapshots.append(
                Snapshot(
                    number,
                    number - 1 or None,
                    now_ms - 60_000 * (5 - number),
                    summary["operation"],
                    is_maintenance=number == 3,
                    summary=summary,
                    schema_id=int(number == 4),
                )
            )
        files = tuple(StoredData(size * MIB // 2, 1_000) for size in (1, 1, 3, 9, 40, 70, 90, 260, 260, 300))
        own = {"id": 1, "name": "id", "required": True, "type": "long"}
        total = {"id": 2, "name": "total", "required": False, "type": "decimal(12, 2)", "doc": "with <taxes>"}
        customer = {"type": "struct", "fields": [{"id": 4, "name": "name", "required": False, "type": "string"}]}
        more = {"id": 3, "name": "customer", "required": False, "type": customer}
        schemas_json = ({"schema-id": 0, "fields": [own, total]}, {"schema-id": 1, "fields": [own, total, more]})
        return TableMetadata(
            name,
            "u",
            f"/t/{name}",
            2,
            MetadataSizes(48_000),
            {},
            {one.id: one for one in snapshots},
            4,
            files=files,
            shape=TableShape(schemas_json),
        )

    def open_pages(self, pipeline: RunningPipeline, operations: Operations, http: HttpSpec) -> list[Pages]:
        """The console, with the hour of history."""
        return [Console(pipeline, operations, http, self.history)]

    def samples(self) -> Mapping[str, Sample]:
        """What the history takes."""
        return self.history._measure()


@contextmanager
def served(many: ManyTables) -> Iterator[Address]:
    """Serves the tables, each with an hour of history; yields where."""
    many.remember_an_hour()
    with socket.create_server(("127.0.0.1", 0)) as one:
        address = Address("127.0.0.1", one.getsockname()[1])
    server = open_server(HttpSpec(listen=address), f"{__name__}:_make_app", many)
    assert server is not None
    server.start()
    server.begin()
    try:
        yield address
    finally:
        server.stop()


def _make_app(many: ManyTables, http: HttpSpec) -> Guard:
    return make_app(many.pipeline, http, many.open_pages)


def _state(name: str, progress: Progress) -> TableState:
    return TableState(name, "u", Schema(), f"/t/{name}", {}, 2, progress)


def _trouble(table: Table, number: int) -> None:
    match number % 500:
        case 7:
            table.status.set(RunState.STOPPED, _STOPPED)
            table.offsets.lag_records = 18_204
        case 18:
            table.status.set(RunState.BACKING_OFF, _AWAY)
            table.offsets.lag_records = 911
        case 29 | 31:
            table.offsets.lag_records = 5_000 + number
    if number % 90 == 4:
        table.catalog.dead_letter_count = number


def _find(by_name: dict[str, Table], name: str) -> Table:
    if name not in by_name:
        raise UnknownTable(f"the pipeline has no table `{name}`")
    return by_name[name]
