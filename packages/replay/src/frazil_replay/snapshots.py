"""What single snapshots of a table have: the rows of one, and the changes between two.

Changes are found by comparing files, so they are those that a commit made, whatever wrote it and whatever kind its delete
files are of. Iceberg's own changelog scan refuses tables with delete files. Rows are read in an order that is the same
whenever they are read: file by file, as stored. A place in it is the number of the file and the position of the row in the
file; reading continues at any place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.data_files import Described
from frazil.catalog.iceberg.java import each, java_errors, unavailable
from frazil.catalog.scans import LiveFile
from frazil.clock import SystemClock
from frazil.errors import SpecError
from frazil.schema.arrow import Ints
from frazil.upsert.lookup.delete_files import live_rows
from frazil.upsert.lookup.live_rows import field_index, missing_column, opened, to_table_type
from frazil.write.target import TableTarget

ChangeType = Literal["INSERT", "DELETE"]
#: For so long a replay that was interrupted may be continued: Kafka keeps its progress as long by default.
_HELD_MS = 7 * 24 * 3600 * 1000
_ROWS = 16_384
_BYTES = 32 * 1024 * 1024
"""The maximum number of rows, and of bytes, that are read of a file at a time."""
Keep = Callable[[pa.RecordBatch], Ints]
"""Returns which rows of a batch are wanted, as ascending positions in it."""


@dataclass(frozen=True)
class FileRows:
    """Rows of one data file: those that `file` has."""

    file: LiveFile
    #: How the rows were changed; None for the rows of a snapshot.
    change_type: ChangeType | None = None
    #: The snapshot that has the rows, or that changed them.
    snapshot_id: int = 0
    #: The file in the snapshot, where deletes were added to it: rows that it still has do not count.
    remaining: LiveFile | None = None


class Snapshots:
    """The snapshots of one table, as it is when this is made."""

    def __init__(self, catalog: IcebergCatalog, table: str) -> None:
        self._table = table
        self._java = catalog.java_table(table)
        self._described = Described(catalog.gateway.jvm, self._java)
        self._scanned: dict[int, dict[str, LiveFile]] = {}

    def hold(self, name: str, snapshot_id: int) -> None:
        """Keeps a snapshot from expiry by a tag of this name, until `let_go` or for a week.

        Raises: SpecError as `rows`; UnavailableError where the catalog does not take the tag.
        """
        # Iceberg counts the age of a tag from its snapshot on.
        age_ms = max(0, SystemClock().now_ms() - self._find(snapshot_id).timestampMillis())
        try:
            if self._java.refs().get(name) is None:
                tag = self._java.manageSnapshots().createTag(name, snapshot_id)
                tag.setMaxRefAgeMs(name, age_ms + _HELD_MS).commit()
        except java_errors() as error:
            raise unavailable("the snapshot cannot be tagged", error, self._table) from None

    def let_go(self, name: str) -> None:
        """Removes the tag of `hold`. Raises: UnavailableError."""
        try:
            if self._java.refs().get(name) is not None:
                self._java.manageSnapshots().removeTag(name).commit()
        except java_errors() as error:
            raise unavailable("the tag of a snapshot cannot be removed", error, self._table) from None

    def rows(self, snapshot_id: int) -> Iterator[FileRows]:
        """Yields the data files of a snapshot in the order of their paths.

        Raises: SpecError where the table does not have the snapshot; UnavailableError where its metadata cannot be read.
        """
        self._find(snapshot_id)
        for file in self._files(snapshot_id).values():
            yield FileRows(file, None, snapshot_id)

    def changes(self, after: int, last: int) -> Iterator[FileRows]:
        """Yields what the snapshots after `after` up to `last` changed, in their order: of each the deleted rows, then the
        inserted ones, in the order of the files' paths. Snapshots that only rewrite files change no row.

        Raises: SpecError where `after` is not an ancestor of `last`; UnavailableError as `rows`.
        """
        snapshot, chain = self._find(last), []
        while snapshot is not None and snapshot.snapshotId() != after:
            chain.append(snapshot)
            snapshot = None if snapshot.parentId() is None else self._java.snapshot(snapshot.parentId())
        if snapshot is None:
            raise SpecError(
                f"snapshot {after} does not lead to snapshot {last}: another branch has it, or it was expired",
                remedy="name an older snapshot of the same history; `<table>.snapshots` shows them",
                where=self._table,
            )
        for changed in reversed(chain):
            yield from self.changes_of(changed.snapshotId())

    def changes_of(self, snapshot_id: int) -> Iterator[FileRows]:
        """Yields what one snapshot changed, as `changes` does.

        Raises: SpecError and UnavailableError as `rows`.
        """
        try:
            yield from self._changes_of(self._find(snapshot_id))
        except java_errors() as error:
            raise unavailable("the files of a snapshot cannot be listed", error, self._table) from None

    def _changes_of(self, snapshot: Any) -> Iterator[FileRows]:
        number, operation = snapshot.snapshotId(), str(snapshot.operation())
        if operation == "replace":
            return
        if operation == "append":
            added = map(self._described.bare_file, each(snapshot.addedDataFiles(self._java.io())))
            yield from (FileRows(file, "INSERT", number) for file in _sorted(added))
            return
        before = {} if snapshot.parentId() is None else self._files(snapshot.parentId())
        now = self._files(number)
        for path, file in before.items():
            remaining = now.get(path)
            if remaining is None or {*remaining.deletes} != {*file.deletes}:
                yield FileRows(file, "DELETE", number, remaining)
        yield from (FileRows(file, "INSERT", number) for path, file in now.items() if path not in before)

    def _files(self, snapshot_id: int) -> dict[str, LiveFile]:
        """Returns the data files of a snapshot by path; those of the last two are kept."""
        if snapshot_id not in self._scanned:
            try:
                scan = self._java.newScan().useSnapshot(snapshot_id).includeColumnStats()
                files = _sorted(self._described.live_files(scan))
            except java_errors() as error:
                raise unavailable("the files of a snapshot cannot be listed", error, self._table) from None
            while len(self._scanned) > 1:
                del self._scanned[next(iter(self._scanned))]
            self._scanned[snapshot_id] = {file.path: file for file in files}
        return self._scanned[snapshot_id]

    def _find(self, snapshot_id: int) -> Any:
        snapshot = self._java.snapshot(snapshot_id)
        if snapshot is None:
            raise SpecError(
                f"the table has no snapshot {snapshot_id}: it was expired, or is another table's",
                remedy="name one that the table has; `<table>.snapshots` shows them",
                where=self._table,
            )
        return snapshot


def _sorted(files: Iterable[LiveFile]) -> list[LiveFile]:
    return sorted(files, key=lambda file: file.path)


@dataclass(frozen=True, order=True)
class FilePosition:
    """The row to be read next."""

    #: The number of files before it.
    file: int = 0
    #: The position in the file.
    row: int = 0


@dataclass(frozen=True)
class Rows:
    """Some rows of one file, in the table's columns."""

    batch: pa.RecordBatch
    #: The position of each row in its file, int64, ascending.
    positions: Ints
    #: Where the rows come from.
    source: FileRows
    #: The number of the file.
    file: int


def read_rows(target: TableTarget, files: Iterable[FileRows], begin: FilePosition, keep: Keep | None) -> Iterator[Rows]:
    """Yields the rows from `begin` on, none of which `keep` leaves out; None: all are wanted.

    Raises: OSError where the store fails; UnavailableError where a delete file cannot be read.
    """
    for number, source in enumerate(files):
        if number < begin.file:
            continue
        first = begin.row if number == begin.file else 0
        for batch, positions in _of_file(target, source, first):
            kept = np.arange(len(batch)) if keep is None else keep(batch)
            if kept.size:
                rows = batch if kept.size == len(batch) else batch.take(pa.array(kept))
                yield Rows(rows, positions[kept], source, number)


def _of_file(target: TableTarget, source: FileRows, first: int) -> Iterator[tuple[pa.RecordBatch, Ints]]:
    wanted = live_rows(target, source.file)
    if source.remaining is not None:
        wanted = np.setdiff1d(wanted, live_rows(target, source.remaining), assume_unique=True)
    wanted = wanted[wanted >= first]
    if not wanted.size:
        return
    with opened(target, source.file, pre_buffer=True) as parquet:
        for first_row, batch in _batches(parquet, int(wanted[0])):
            begin, end = np.searchsorted(wanted, [first_row, first_row + len(batch)])
            mine = wanted[begin:end]
            if mine.size:
                rows = batch if mine.size == len(batch) else batch.take(pa.array(mine - first_row))
                yield _in_table_columns(target, source.file, rows), mine


def _batches(parquet: pq.ParquetFile, first: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows of a file in batches, each with the position of its first row, from the row group of the row `first`
    on.
    """
    first_row = 0
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        if first_row + group.num_rows <= first:
            first_row += group.num_rows
            continue
        count = max(1, min(_ROWS, _BYTES * group.num_rows // max(1, group.total_byte_size)))
        for batch in parquet.iter_batches(count, row_groups=[number], use_threads=False):
            yield first_row, batch
            first_row += len(batch)


def _in_table_columns(target: TableTarget, file: LiveFile, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows in the table's columns: the file may have been written for older ones."""
    stored, columns = list(batch.schema), []
    for field, wanted in zip(target.schema.fields, target.arrow_schema, strict=True):
        place = field_index(target, stored, field.name, field.field_id)
        if place is None:
            columns.append(missing_column(target, file, (field.name,), len(batch), wanted.type))
        else:
            columns.append(to_table_type(target, batch.column(place), field.field_type))
    return pa.RecordBatch.from_arrays(columns, schema=target.arrow_schema)
