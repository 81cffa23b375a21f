"""The rows of a table as PyIceberg reads them: Frazil's own readers take no part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import ResolveError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, UnsupportedPyArrowTypeException, _read_all_delete_files
from pyiceberg.manifest import FileFormat, ManifestContent
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, StaticTable

_TABLE = ("verify", "table")
_AT_ONCE = 1 << 16
_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    NotImplementedError,
    ResolveError,
    UnsupportedPyArrowTypeException,
    pa.ArrowException,
)
"""What PyIceberg raises for what it cannot read."""


class RowsNotReadable(Exception):
    """Why PyIceberg cannot read the rows."""


@dataclass(frozen=True)
class StoredFile:
    """A file with rows."""

    #: The name that `StoredRows.parts` gives it, of all columns.
    name: str
    #: The snapshot that has added it.
    added_by: int
    #: The number of its rows, as the metadata has it.
    rows: int
    #: Whether some of its rows are deleted.
    has_deletes: bool


@dataclass(frozen=True)
class StoredRows:
    """The rows of one snapshot."""

    #: Where the table's metadata file is.
    location: str
    io: FileIO = field(repr=False)
    snapshot_id: int
    #: The columns that are read, with Iceberg's field ids; those that the table does not have are null.
    schema: pa.Schema = field(repr=False)
    #: Why files cannot be read, by their paths, as far as `batches` has come.
    unreadable: dict[str, str] = field(default_factory=dict)

    def batches(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yields the rows. names: see `parts`. Raises: RowsNotReadable."""
        for _, batches in self.parts(names):
            yield from batches

    def parts(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        """Yields the rows of each file, with a name that the file and its deletes have. names: of the columns that are read;
        None: all of `schema`. Files that do not exist or are damaged, and those whose deletes are, are named in `unreadable`
        when their batches have been read: these are not all of their rows.

        Raises: RowsNotReadable.
        """
        fields = [column for column in self.schema if names is None or column.name in names]
        schema = pa.schema(fields)
        try:
            table = self._table()
            known = {column.name for column in table.schema().fields}
            selected = tuple(column.name for column in fields if column.name in known)
            scan = table.scan(snapshot_id=self.snapshot_id, selected_fields=selected or ("*",))
            rows = ArrowScan(table.metadata, self.io, scan.projection(), AlwaysTrue())
            for task in scan.plan_files():
                yield _name_of(task, schema.names), self._batches_of(rows, task, schema)
        except _ERRORS as error:
            raise RowsNotReadable(f"PyIceberg cannot read the rows: {error}") from None

    def files(self) -> Iterator[StoredFile]:
        """Yields the files. Raises: RowsNotReadable."""
        try:
            table, added_by = self._table(), dict[str, int]()
            snapshot = table.metadata.snapshot_by_id(self.snapshot_id)
            for manifest in snapshot.manifests(self.io) if snapshot is not None else ():
                if manifest.content == ManifestContent.DATA:
                    for entry in manifest.fetch_manifest_entry(self.io):
                        added_by[entry.data_file.file_path] = entry.snapshot_id or 0
            for task in table.scan(snapshot_id=self.snapshot_id).plan_files():
                path, count = task.file.file_path, task.file.record_count
                name = _name_of(task, self.schema.names)
                yield StoredFile(name, added_by.get(path, 0), count, bool(task.delete_files))
        except _ERRORS as error:
            raise RowsNotReadable(f"PyIceberg cannot read the metadata: {error}") from None

    def dropped_columns(self) -> list[str]:
        """Returns the columns of earlier schemas that the table does not have any more. Raises: RowsNotReadable."""
        try:
            table = self._table()
        except (OSError, ValueError) as error:
            raise RowsNotReadable(f"PyIceberg cannot read the metadata: {error}") from None
        kept = table.schema().field_ids
        dropped = {
            number: schema.find_column_name(number) or str(number)
            for schema in table.metadata.schemas
            for number in schema.field_ids
            if number not in kept
        }
        return list(dropped.values())

    def _table(self) -> StaticTable:
        metadata = FromInputFile.table_metadata(self.io.new_input(self.location))
        return StaticTable(_TABLE, metadata, self.location, self.io, NoopCatalog("verify"))

    def is_unreadable(self, name: str) -> bool:
        """Whether a file that was read could not be. name: as `parts` names it."""
        return json.loads(name)[0] in self.unreadable

    def _batches_of(self, rows: ArrowScan, task: FileScanTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            with self.io.new_input(task.file.file_path).open() as stream:
                if not task.delete_files and (parquet := _as_it_is(stream, task, schema)) is not None:
                    for batch in parquet.iter_batches(_AT_ONCE, columns=schema.names, use_threads=False):
                        yield batch.select(schema.names)
                    return
            # `to_record_batches` has all rows of a file in memory at once, before it returns the first ones.
            deletes = _read_all_delete_files(self.io, [task])
            for batch in rows._record_batches_from_scan_tasks_and_deletes([task], deletes):
                # Types may differ where values do not, such as text with shorter offsets.
                present = dict(zip(batch.schema.names, batch.columns, strict=True))
                columns = [
                    present[column.name].cast(column.type)
                    if column.name in present
                    else pa.nulls(batch.num_rows, column.type)
                    for column in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            self.unreadable[task.file.file_path] = str(error).partition("\n")[0]
        except _ERRORS as error:
            raise RowsNotReadable(f"PyIceberg cannot read the rows: {error}") from None


def _as_it_is(stream: Any, task: FileScanTask, schema: pa.Schema) -> pq.ParquetFile | None:
    """Returns a file that has these very columns, as Parquet's reader returns them; None for any other. It needs neither
    the memory nor a fourth of the time that PyIceberg takes, which reads many batches ahead.
    """
    if task.file.file_format != FileFormat.PARQUET:
        return None
    parquet = pq.ParquetFile(stream)
    stored = parquet.schema_arrow
    is_same = all(
        stored.get_field_index(column.name) >= 0
        and stored.field(column.name).equals(column, check_metadata=True)
        and column.metadata
        for column in schema
    )
    return parquet if is_same else None


def _name_of(task: FileScanTask, names: Sequence[str]) -> str:
    deletes = sorted((of.file_path, str(getattr(of, "content_offset", None))) for of in task.delete_files)
    return json.dumps([task.file.file_path, deletes, list(names)])
