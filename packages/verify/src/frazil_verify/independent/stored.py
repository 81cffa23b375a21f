"""The rows of a table as PyIceberg reads them: Frazil's own readers take no part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable

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

    def batches(self, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yields the rows. names: of the columns that are read; None: all of `schema`.

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
            for batch in scan.to_arrow_batch_reader():
                yield _in_schema(batch, schema)
        except (OSError, ValueError, pa.ArrowException, NotImplementedError) as error:
            raise RowsNotReadable(f"PyIceberg cannot read the rows: {error}") from None


def _in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch in other types of the same values, such as text with shorter offsets."""
    present = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = [
        present[column.name].cast(column.type) if column.name in present else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
