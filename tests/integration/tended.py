"""A table of a local lake that maintenance and changes work on, with what a plain list or dictionary has of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.layout import Layout
from frazil.clock import SystemClock, new_id
from frazil.decode.settings import Reading
from frazil.ingest.tasks.task_job import Job
from frazil.maintenance.plan import ORPHANS_NOTE
from frazil.schema.evolve import new_schema, with_identifiers
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.spec.settings import METADATA_COLUMNS, MetadataField
from frazil.spec.syntax.types import parse_type
from frazil.types import Commit, DataFile, OrderProgress, Progress, Resolved, Writer
from frazil.upsert.commit import commit_changes
from frazil.upsert.emptied import Emptying
from frazil.write.plain_target import plain_target
from frazil.write.target import ChangeReading, TableTarget, metadata_columns
from frazil.write.write import FileWriter
from tests.fixtures.readers import assert_equal_everywhere, read_with_duckdb
from tests.integration.lakes import PROPERTIES, Lake
from tests.unit.ingest.targets import records_of, run

Row = dict[str, Any]
BY_ID = ChangeReading(Reading("json"), ("id",))
_COLUMNS = {"id": "long", "region": "string", "name": "string", "at": "timestamptz", "v": "long"}
_METADATA: tuple[MetadataField, ...] = ("partition", "offset", "timestamp")
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def layout_of(partition_by: str, sort_by: str = "") -> Layout:
    """From terms with semicolons between them."""
    terms, sorts = (tuple(filter(None, map(str.strip, text.split(";")))) for text in (partition_by, sort_by))
    return Layout(tuple(map(parse_term, terms)), tuple(map(parse_sort, sorts)))


class Tended:
    """A table, what was told to it, and what it holds."""

    def __init__(self, lake: Lake, layout: Layout, version: int = 2) -> None:
        self.lake = lake
        self.version = version
        self.name = f"t.tended_{new_id()[:8]}"
        self.told = 0
        self._rng = np.random.default_rng(version)
        fields = {name: parse_type(word) for name, word in _COLUMNS.items()}
        fields |= metadata_columns({field: METADATA_COLUMNS[field] for field in _METADATA})
        schema = with_identifiers(new_schema(fields.items()), ["id"])
        lake.catalog.create(self.name, schema, PROPERTIES, version, layout)
        # Orphans are another test's.
        lake.table_maintenance.note(self.name, ORPHANS_NOTE, str(SystemClock().now_ms()))

    def row(self, number: int) -> Row:
        """Nulls in every column that tables are partitioned by."""
        self.told += 1
        at = START + timedelta(hours=7 * number) if number % 11 else None
        region = ["north", "south", None][number % 3]
        name = f"é{number % 5}-{number}" if number % 7 else None
        return {"id": number, "region": region, "name": name, "at": at, "v": self.told}

    def target(self, catalog: IcebergCatalog) -> TableTarget:
        """As a task has it."""
        state = catalog.load(self.name)
        assert state is not None
        metadata = tuple((field, METADATA_COLUMNS[field]) for field in _METADATA)
        return replace(plain_target(state), metadata=metadata)

    def append(self, rows: Sequence[Row]) -> None:
        """One batch of rows that only come."""
        target = self.target(self.lake.catalog)
        writer = FileWriter(target)
        places = [
            {**row, "_kafka_partition": 1, "_offset": row["v"], "_timestamp": START + timedelta(hours=row["v"])}
            for row in rows
        ]
        writer.write(pa.Table.from_pylist(places, target.arrow_schema))
        self._commit(self.lake.catalog, writer.finish())

    def _commit(self, catalog: IcebergCatalog, files: Sequence[DataFile]) -> None:
        catalog.commit(self._next(catalog, files))

    def _next(self, catalog: IcebergCatalog, files: Sequence[DataFile]) -> Commit:
        state = catalog.load(self.name)
        assert state is not None
        progress = Progress({"topic": {0: self.told}}, {"topic": "id"}, "c", new_id(), Writer(1, "run"))
        return Commit(self.name, tuple(files), progress, state.progress)

    @property
    def metadata(self) -> Path:
        """The newest metadata file."""
        return Path(str(self.lake.java(self.name).operations().current().metadataFileLocation()).removeprefix("file:"))

    def read(self) -> list[Row]:
        """All rows in DuckDB, by id and v; PyIceberg and Polars read the same."""
        metadata = self.lake.metadata(self.name)
        assert metadata.head is not None
        assert_equal_everywhere(self.metadata, [metadata.head])
        found = read_with_duckdb(self.metadata, metadata.head).select(list(_COLUMNS)).to_pylist()
        return in_order([{**row, "at": row["at"] and row["at"].astimezone(UTC)} for row in found])

    def files(self) -> Counter[str]:
        """How many there are in each partition."""
        return Counter(file.partition for file in self.lake.metadata(self.name).files)

    def orders(self) -> list[int]:
        """The sort order that each file names as its own."""
        tasks = self.lake.java(self.name).newScan().planFiles().iterator()
        return [int(tasks.next().file().sortOrderId()) for _ in self.lake.metadata(self.name).files]

    def totals(self, *names: str) -> list[int]:
        """Of the newest snapshot's summary: what delete files there are even if no reader needs them."""
        summary = self.lake.java(self.name).currentSnapshot().summary()
        return [int(summary.get(name) or 0) for name in names]

    def arrange(self, layout: Layout) -> None:
        """Another layout for what comes."""
        self.lake.catalog.arrange(self.name, layout)

    # ---- an upsert table

    def upsert(
        self,
        upsert_table: dict[int, Row],
        count: int,
        meanwhile: Callable[[], object] = lambda: None,
        deletes: float = 0.15,
    ) -> Resolved:
        """A batch of changes, told to the dictionary too; meanwhile: called when the batch is read and not committed.
        deletes: their share, 0 to 1.
        """
        changes: list[tuple[int, Row | None]] = []
        for number in self._rng.integers(0, 60, count).tolist():
            row: Row | None = self.row(number)
            if self._rng.random() < deletes:
                row = None
                upsert_table.pop(number, None)
            else:
                assert row is not None
                upsert_table[number] = row
            changes.append((number, row))
        return self.change(changes, meanwhile=meanwhile)

    def change(
        self,
        changes: Sequence[tuple[int, Row | None]],
        reading: ChangeReading = BY_ID,
        emptied: str = "",
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Resolved:
        """A batch of these changes: the row of each key, None for a delete. emptied: the place of a truncate among them."""
        catalog = self.lake.catalog
        target = replace(self.target(catalog), changes=reading)
        values = (None if row is None else json.dumps(row, default=datetime.isoformat).encode() for _, row in changes)
        records = [
            {"offset": self.told + n, "key": str(key).encode(), "value": value}
            for n, ((key, _), value) in enumerate(zip(changes, values, strict=True))
        ]
        (report,) = run(Job({"topic": target}), records_of(records)).values()
        state = catalog.load(self.name)
        assert state is not None
        assert not report.bad_records.count
        commit = self._next(catalog, report.written.data)
        meanwhile()
        progress = replace(commit.progress, order=OrderProgress(emptied=emptied))
        report = replace(report, changes=replace(report.changes, notes=Emptying(emptied).notes()))
        return commit_changes(catalog, target, state, report, replace(commit, progress=progress))[1]


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["id"], row["v"]))
