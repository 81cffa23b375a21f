"""A catalog with the hands of its operator: what the port does not offer, done to memory and to real tables alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil import failpoints
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.java import array_of, each
from frazil.catalog.port import Catalog
from frazil.clock import new_id
from frazil.runtime.jvm import Jvm
from frazil.runtime.light_jvm import LightJvm
from frazil.types import Commit, Progress
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.twins import live_rows
from tests.fixtures.lineage import row_ids


class Lake(Protocol):
    """One warehouse. `catalog` opens another connection of a pipeline to it."""

    def catalog(self, pipeline: str = "p") -> Catalog:
        """A catalog as a fresh process sees it."""

    def append_foreign(self, table: str) -> None:
        """Commits a snapshot without progress."""

    def column(self, table: str, name: str) -> list[Any]:
        """A column of the live rows, sorted, as another reader sees it: Iceberg's own in Java, for real tables."""

    def row_ids(self, table: str, name: str) -> dict[Any, int | None]:
        """By a column's value the id of its row, read in the same way."""

    def roll_back(self, table: str, snapshot_id: int) -> None:
        """Makes an older snapshot the current one."""

    def expire_all_but_newest(self, table: str) -> None:
        """Forgets every snapshot but the current one."""

    def drop(self, table: str) -> None:
        """Removes a table, its files included."""

    def lose_next_response(self, point: str = "commit.landed") -> Any:
        """A context in which the next commit lands and its answer does not come back. point: where, in the real catalog."""

    def send_twice(self, between: Callable[[], None]) -> Any:
        """A context in which a commit lands, and after `between` is sent again."""


class _SentTwice:
    """An update whose commit lands, and is refused when it is sent again."""

    def __init__(self, update: Any, operations: Any, between: Callable[[], None]) -> None:
        self._update = update
        self._operations = operations
        self._between = between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._update, name)

    def commit(self) -> None:
        before = self._operations.current()
        self._update.commit()
        self._between()
        self._operations.commit(before, before)


class MemoryLake:
    """The twin."""

    def __init__(self, root: Path) -> None:
        self._first = MemoryCatalog(root, "p")

    def catalog(self, pipeline: str = "p") -> Catalog:
        return self._first.for_pipeline(pipeline)

    def append_foreign(self, table: str) -> None:
        self._first.append_foreign(table)

    def column(self, table: str, name: str) -> list[Any]:
        return sorted(row[name] for row in live_rows(self._first, table))

    def row_ids(self, table: str, name: str) -> dict[Any, int | None]:
        return row_ids(self._first, table, name)

    def roll_back(self, table: str, snapshot_id: int) -> None:
        self._first.roll_back(table, snapshot_id)

    def expire_all_but_newest(self, table: str) -> None:
        _, *older = self._first.ancestors(table)
        for snapshot in older:
            self._first.expire(table, snapshot.id)

    def drop(self, table: str) -> None:
        del self._first._tables[table]

    @contextmanager
    def lose_next_response(self, point: str = "commit.landed") -> Iterator[None]:  # noqa: ARG002  (all commits are alike)
        self._first.losses.append("answer")
        yield
        assert not self._first.losses

    @contextmanager
    def send_twice(self, between: Callable[[], None]) -> Iterator[None]:
        commit = MemoryCatalog.commit

        def twice(catalog: MemoryCatalog, mine: Commit) -> Progress:
            patch.undo()
            commit(catalog, mine)
            between()
            return commit(catalog, mine)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryCatalog, "commit", twice)
            yield


class IcebergLake:
    """Iceberg's JDBC catalog on SQLite, in the JVM that the tests share."""

    def __init__(self, jvm: Jvm | LightJvm, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._jvm = jvm
        self._properties = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{root / 'catalog.db'}",
            "warehouse": str(root),
            "jdbc.schema-version": "V1",
        }

    def catalog(self, pipeline: str = "p") -> Catalog:
        return IcebergCatalog(self._jvm.gateway, pipeline, self._properties, self._jvm.hadoop)

    def append_foreign(self, table: str) -> None:
        self._table(table).newAppend().commit()

    def column(self, table: str, name: str) -> list[Any]:
        return sorted(value for value, _ in self._read(table, name, name))

    def row_ids(self, table: str, name: str) -> dict[Any, int | None]:
        return dict(self._read(table, name, "_row_id"))

    def _read(self, table: str, *names: str) -> Iterator[list[Any]]:
        iceberg, java = self._jvm.gateway.jvm.org.apache.iceberg, self._table(table)
        schema = iceberg.MetadataColumns.schemaWithRowLineage(java.schema())
        reader = iceberg.data.IcebergGenerics.read(java).project(schema).build()
        rows = reader.iterator()
        while rows.hasNext():
            row = rows.next()
            yield [row.getField(name) for name in names]
        reader.close()

    def roll_back(self, table: str, snapshot_id: int) -> None:
        self._table(table).manageSnapshots().rollbackTo(snapshot_id).commit()

    def expire_all_but_newest(self, table: str) -> None:
        java = self._table(table)
        newest = java.currentSnapshot().timestampMillis()
        java.expireSnapshots().expireOlderThan(newest + 1).retainLast(1).commit()

    def drop(self, table: str) -> None:
        catalog: Any = self.catalog()
        assert catalog._catalog.dropTable(catalog._identifier(table), True)

    def add_column(self, table: str, name: str, kind: str) -> None:
        """Adds a column of any type that Iceberg's Java knows."""
        catalog: Any = self.catalog()
        java_type = catalog.gateway.jvm.org.apache.iceberg.types.Types.fromTypeName(kind)
        self._table(table).updateSchema().addColumn(name, java_type).commit()

    def drop_column(self, table: str, name: str) -> None:
        """Takes a column away, of which the files keep what is in them."""
        self._table(table).updateSchema().deleteColumn(name).commit()

    def delete_equal(self, table: str, number: int) -> None:
        """Deletes the row with this number in the first column by an equality delete, in the partition of its file."""
        java, gateway = self._table(table), self._jvm.gateway
        iceberg, field = gateway.jvm.org.apache.iceberg, java.schema().columns().get(0)
        path = f"{java.location()}/data/{new_id()}.parquet"
        column = pa.field(str(field.name()), pa.int64(), metadata={"PARQUET:field_id": str(field.fieldId())})
        pq.write_table(pa.table([pa.array([number], pa.int64())], schema=pa.schema([column])), path)
        ids = array_of(gateway, gateway.jvm.int, field.fieldId())
        tasks = java.newScan().filter(iceberg.expressions.Expressions.equal(field.name(), number)).planFiles()
        file = iceberg.FileMetadata.deleteFileBuilder(java.spec()).ofEqualityDeletes(ids).withPath(path)
        file = file.withFormat("parquet").withFileSizeInBytes(Path(path).stat().st_size).withRecordCount(1)
        java.newRowDelta().addDeletes(file.withPartition(next(each(tasks)).file().partition()).build()).commit()

    @contextmanager
    def lose_next_response(self, point: str = "commit.landed") -> Iterator[None]:  # all commits are alike
        failpoints.arm({failpoints.VARIABLE: f"{point}=reset"})
        try:
            yield
        finally:
            failpoints.arm({})

    @contextmanager
    def send_twice(self, between: Callable[[], None]) -> Iterator[None]:
        made = IcebergCatalog._update_for

        def make(catalog: IcebergCatalog, java: Any, commit: Commit) -> _SentTwice:
            patch.undo()
            return _SentTwice(made(catalog, java, commit), java.operations(), between)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IcebergCatalog, "_update_for", make)
            yield

    def _table(self, table: str) -> Any:
        catalog: Any = self.catalog()
        return catalog._catalog.loadTable(catalog._identifier(table))
