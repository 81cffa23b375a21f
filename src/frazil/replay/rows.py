"""The rows of a table, or of changes, in an order that is the same whenever they are read: file by file, as stored.

A place in that order is the number of the file and the position of the row in it; reading continues at any place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.catalog.scans import LiveFile
from frazil.replay.snapshots import FileRows
from frazil.schema.arrow import Ints
from frazil.upsert.lookup.delete_files import live_rows
from frazil.upsert.lookup.imported_files import field_index, missing_column, to_table_type
from frazil.upsert.lookup.live_rows import opened
from frazil.write.target import TableTarget

_ROWS = 16_384
_BYTES = 32 * 1024 * 1024
"""The maximum number of rows, and of bytes, that are read of a file at a time."""

Keep = Callable[[pa.RecordBatch], Ints]
"""Returns which rows of a batch are wanted, as ascending positions in it."""


@dataclass(frozen=True, order=True)
class Place:
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


def read_rows(target: TableTarget, files: Iterable[FileRows], begin: Place, keep: Keep | None) -> Iterator[Rows]:
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
        for at, batch in _batches(parquet, int(wanted[0])):
            begin, end = np.searchsorted(wanted, [at, at + len(batch)])
            mine = wanted[begin:end]
            if mine.size:
                rows = batch if mine.size == len(batch) else batch.take(pa.array(mine - at))
                yield _in_table_columns(target, source.file, rows), mine


def _batches(parquet: pq.ParquetFile, first: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows of a file in batches, each with the position of its first row, from the row group of the row `first`
    on.
    """
    at = 0
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        if at + group.num_rows <= first:
            at += group.num_rows
            continue
        count = max(1, min(_ROWS, _BYTES * group.num_rows // max(1, group.total_byte_size)))
        for batch in parquet.iter_batches(count, row_groups=[number], use_threads=False):
            yield at, batch
            at += len(batch)


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
