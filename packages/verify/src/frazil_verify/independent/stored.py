"""The rows of a table as PyIceberg reads them: Frazil's own readers take no part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, StaticTable

_TABLE = ("verify", "table")


class RowsNotReadable(Exception):
    """Why PyIceberg cannot read the rows."""


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
        """Yields the rows, file by file. names: of the columns that are read; None: all of `schema`. Files that do not exist
        or are damaged, and those whose deletes are, have no rows here, and are named in `unreadable`.

        Raises: RowsNotReadable.
        """
        fields = [column for column in self.schema if names is None or column.name in names]
        schema = pa.schema(fields)
        try:
            metadata = FromInputFile.table_metadata(self.io.new_input(self.location))
            table = StaticTable(_TABLE, metadata, self.location, self.io, NoopCatalog("verify"))
            known = {column.name for column in table.schema().fields}
            selected = tuple(column.name for column in fields if column.name in known)
            scan = table.scan(snapshot_id=self.snapshot_id, selected_fields=selected or ("*",))
            rows = ArrowScan(metadata, self.io, scan.projection(), AlwaysTrue())
            for task in scan.plan_files():
                yield from self._batches_of(rows, task, schema)
        except (OSError, ValueError, pa.ArrowException, NotImplementedError) as error:
            raise RowsNotReadable(f"PyIceberg cannot read the rows: {error}") from None

    def _batches_of(self, rows: ArrowScan, task: FileScanTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            batches = list(rows.to_record_batches([task]))
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            self.unreadable[task.file.file_path] = str(error).partition("\n")[0]
            return
        for batch in batches:
            yield _in_schema(batch, schema)


def _in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch in other types of the same values, such as text with shorter offsets."""
    present = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = [
        present[column.name].cast(column.type) if column.name in present else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
