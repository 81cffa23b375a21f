"""The letters of a dead-letter table as they lie in its files: read a piece at a time, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.catalog.port import StoredFile
from frazil.dead_letters.record import FAR_TIME, SOURCE_COLUMNS
from frazil.ingest.discovery import TableStopped
from frazil.rows.record_timestamps import undivided_times
from frazil.schema.arrow import as_written
from frazil.write.target import TableTarget
from frazil.write.write import file_io

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


@dataclass(frozen=True)
class Selection:
    """Which letters are meant: those that have all that is given."""

    error_class: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """Per row whether it is meant."""
        chosen = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
        for name, wanted in vars(self).items():
            if wanted is not None:
                chosen = pc.and_(chosen, pc.fill_null(pc.equal(rows[name], pa.scalar(wanted, rows[name].type)), False))
        return chosen


@dataclass(frozen=True)
class Retried:
    """What became of letters that were retried: how many are in the table now, and how many have stayed."""

    fitted: int = 0
    stayed: int = 0


def pieces(dead_letters: TableTarget, file: StoredFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The letters of one file, a row group at a time, in the dead-letter table's own columns or in `columns` of them.

    Raises TableStopped for a file of which another engine has deleted rows without rewriting it.
    """
    if file.has_deletes:
        raise TableStopped(
            "another engine deleted rows of the dead-letter table with delete files",
            "rewrite the data files of the dead-letter table there, so that no delete file remains, or use `frazil"
            " dead-letters drop` from now on",
            dead_letters.name,
        )
    wanted = dead_letters.arrow_schema
    if columns is not None:
        wanted = pa.schema([wanted.field(name) for name in columns])
    with file_io(dead_letters).new_input(file.path).open() as stream:
        parquet = pq.ParquetFile(stream)
        there = set(parquet.schema_arrow.names)
        for number in range(parquet.num_row_groups):
            rows = parquet.read_row_group(number, columns=[name for name in wanted.names if name in there])
            yield _in_columns(rows, wanted)


def places_of(rows: pa.Table | pa.RecordBatch) -> list[Place]:
    """Where the letters' records lie."""
    columns = (rows.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    return list(zip(*columns, strict=True))


def records_of(dead_letters: pa.RecordBatch) -> dict[str, pa.Array]:
    """The records as the source would ship them."""
    records = {name: dead_letters.column(name) for name in SOURCE_COLUMNS}
    if FAR_TIME in dead_letters.schema.names:
        records["timestamp"] = undivided_times(records["timestamp"], dead_letters.column(FAR_TIME))
    return {**records, "headers": as_written(records["headers"], _HEADERS)}


def _in_columns(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """A column that the file is too old to have is null."""
    found = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.Table.from_arrays(found, schema=wanted)
