"""A pipeline file on the twins in memory: records in, and what the written files have of them, read with pyarrow alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    StructType,
)

from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.spec import load_spec
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.twins import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepWorkers
from tests.simulation.judge.model.types import ListOf, MapOf, Plain, StructOf, Type

TOPIC, TABLE = "t", "n.t"
DEAD_LETTERS = f"{TABLE}__dead_letters"
Place = tuple[int, int]
"""Partition and offset."""
Row = dict[str, Any]
"""The columns that have a value."""


@dataclass(frozen=True)
class Sent:
    """A record as it is in the topic."""

    partition: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 1_790_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Seen:
    """What a table has become. stopped: why it was, empty for one that was not."""

    columns: Mapping[str, Type]
    #: The comments of columns.
    comments: Mapping[str, str]
    rows: list[Row]
    dead: list[Row]
    stopped: str
    #: Fields that were left out, as the status lists them.
    dropped: frozenset[str]
    #: Partition to the next offset.
    read: Mapping[int, int]
    #: What the last commit's balance adds up to.
    balance: list[Mapping[str, Any]] = field(default_factory=list)


class Loop:
    """One table of one topic; every run is a process of its own."""

    def __init__(self, root: Path, settings: Mapping[str, Any], partitions: int = 1) -> None:
        """settings: of the table, as in the pipeline file."""
        root.mkdir(parents=True, exist_ok=True)
        self.source, self.catalog, self.registry = MemorySource(), MemoryCatalog(root, "p"), MemoryRegistry()
        self.topic = self.source.create(TOPIC, partitions)
        file = {
            "pipeline": "p",
            "kafka": {"bootstrap.servers": "localhost:9092"},
            "registry": {"url": "http://localhost:8081"},
            "tables": {TABLE: {"topic": TOPIC, **settings}},
        }
        path = root / "pipeline.yaml"
        path.write_text(json.dumps(file, ensure_ascii=False))  # YAML has no surrogate pairs.
        self.spec = load_spec(path, {})
        self._runs = 0
        self._dropped: set[str] = set()

    def register(self, kind: str, text: str) -> int:
        """Registers a schema; returns its id."""
        return self.registry.register(kind, text)  # type: ignore[arg-type]

    def produce(self, records: Iterable[Sent]) -> list[Place]:
        """Appends records; returns their places."""
        return [
            (
                one.partition,
                self.source.produce(
                    TOPIC, one.partition, one.value, one.timestamp_ms, key=one.key, headers=one.headers
                ),
            )
            for one in records
        ]

    def run(self, chunk: int, tasks: int = 1) -> Seen:
        """Reads to the end in chunks of so many records."""
        self._runs += 1
        clock = FakeClock()
        jobs = MemoryJobs(self.source, chunk, tasks)
        parts = Services(
            self.source, self.catalog, jobs, clock, StepWorkers(clock), Schemas(self.registry), reader=self.source
        )
        service = Service(self.spec, parts, f"run-{self._runs}", lambda _: None)
        service.connect()
        for _ in range(3000):
            if service.is_over(until_caught_up=True):
                break
            service.turn(until_caught_up=True)
        else:
            raise AssertionError(f"not caught up: {service.tables[0].status.reason}")
        if service.fatal is not None:
            raise service.fatal
        (table,) = service.tables
        return self._seen(table)

    def _seen(self, table: Table) -> Seen:
        state = self.catalog.load(TABLE)
        reason = table.status.reason or ""
        self._dropped |= table.schema.dropped
        if state is None:
            return Seen({}, {}, [], [], reason or "no table", frozenset(), {})
        files = self.catalog.scan(TABLE).files
        deleted = _deleted(path for file in files for path in {delete.path for delete in file.deletes})
        rows = [row for file in files for row in rows_of(file.path, deleted.get(file.path, frozenset()))]
        dead = []
        if self.catalog.load(DEAD_LETTERS) is not None:
            dead = [row for file in self.catalog.data_files(DEAD_LETTERS) for row in rows_of(file.path)]
        return Seen(
            {column.name: type_of(column.field_type) for column in state.schema.fields},
            {column.name: column.doc or "" for column in state.schema.fields},
            rows,
            dead,
            reason,
            frozenset(self._dropped),
            state.progress.offsets.get(TOPIC, {}),
            [
                json.loads(one.summary["frazil.p.balance"])
                for one in self.catalog.ancestors(TABLE)
                if "frazil.p.balance" in one.summary
            ],
        )


def rows_of(path: str, deleted: frozenset[int] = frozenset()) -> Iterator[Row]:
    """Yields the rows of a Parquet file, each with the columns that have a value."""
    found = pq.ParquetFile(path).read()
    rows: list[Row] = [{} for _ in range(found.num_rows)]
    for name, column in zip(found.column_names, found.columns, strict=True):
        there = (
            pa.array(range(found.num_rows)).filter(column.is_valid()) if column.null_count else range(found.num_rows)
        )
        numbers = there.to_pylist() if isinstance(there, pa.Array) else there
        values = column.drop_null().to_pylist() if column.null_count else column.to_pylist()
        for number, value in zip(numbers, values, strict=True):
            rows[number][name] = value
    yield from (row for number, row in enumerate(rows) if number not in deleted)


def _deleted(paths: Iterable[str]) -> dict[str, frozenset[int]]:
    """Returns the places of deleted rows by data file, from position delete files."""
    found: dict[str, set[int]] = {}
    for path in set(paths):
        for row in pq.ParquetFile(path).read().to_pylist():
            found.setdefault(row["file_path"], set()).add(row["pos"])
    return {path: frozenset(places) for path, places in found.items()}


def type_of(kind: IcebergType) -> Type:
    """Returns a column's type in the model's words."""
    match kind:
        case StructType():
            return StructOf(tuple((member.name, type_of(member.field_type)) for member in kind.fields))
        case ListType():
            return ListOf(type_of(kind.element_type))
        case MapType():
            return MapOf(type_of(kind.key_type), type_of(kind.value_type))
        case DecimalType():
            return Plain("decimal", (kind.precision, kind.scale))
        case FixedType():
            return Plain("fixed", (len(kind),))
    return Plain(str(kind))
