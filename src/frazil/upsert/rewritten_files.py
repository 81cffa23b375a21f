"""The data files that a batch's tasks have written, as they are committed. Most files are committed unchanged.

A row that a later change or a newer row in the table makes obsolete is deleted in the commit that adds its file. In a
table with row lineage, a file whose rows replace others is rewritten with the ids of the replaced rows. Buffered rows,
which lacked values, are written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from frazil.catalog.scans import LiveFile
from frazil.schema.arrow import Bools, Ints, as_written, one_array
from frazil.types import DataFile
from frazil.upsert.change_rows import KEY_PLACE
from frazil.upsert.changes import UPSERT
from frazil.upsert.lookup.delete_files import bits_of
from frazil.upsert.lookup.live_rows import ColumnCache, in_threads, opened, reserved_column
from frazil.upsert.lookup.search import Found, find_rows
from frazil.upsert.merged_changes import MergedChanges
from frazil.upsert.old_values.complete import complete_buffered
from frazil.write.target import NO_ID, ROW_ID_FIELD, TableTarget, lineage_schema, with_row_ids
from frazil.write.write import FileWriter


@dataclass(frozen=True)
class _RewrittenFile:
    """A file to be rewritten with row ids."""

    #: The file that a task wrote.
    file: LiveFile
    #: Which rows are kept, bool `(n_rows,)`.
    stays: Bools
    #: The row id of each row; NO_ID for a new row.
    ids: Ints


@dataclass
class OwnFiles:
    """What is done with the batch's own files."""

    #: Files that are committed unchanged, each with the positions of its obsolete rows.
    superseded: list[tuple[LiveFile, BitMap64]] = field(default_factory=list)
    #: Files that are replaced by rewritten ones.
    rewritten: list[_RewrittenFile] = field(default_factory=list)
    #: The row id per change; None where no row keeps an id.
    ids: Ints | None = None

    @property
    def unused(self) -> list[str]:
        """Paths of the files that are not committed."""
        return [one.file.path for one in self.rewritten]


def classify_own_files(batch: MergedChanges, late: Bools, ids: Ints | None) -> OwnFiles:
    """Returns what is done with each of the batch's files. late: the keys whose change is late. ids: the row id per
    change.

    Raises: OSError where the store fails.
    """
    buffered = _buffered(batch)
    lost = _lost(batch, late) & ~buffered
    if ids is None or not (ids != NO_ID).any():
        ids = np.full(len(batch.ranked), NO_ID)
        own = OwnFiles()
    else:
        own = OwnFiles(ids=ids)
    # Of a key with a row in a file and a buffered row, only the first is looked up: the keys of a file must be
    # distinct.
    for file, rows, places in _find_own_rows(batch, (lost | (ids != NO_ID)) & ~buffered):
        gone = rows[lost[places]]
        if (ids[places] == NO_ID).all():
            own.superseded.append((file, bits_of(gone)))
            continue
        rewritten = _RewrittenFile(file, np.ones(file.record_count, np.bool_), np.full(file.record_count, NO_ID))
        rewritten.stays[gone], rewritten.ids[rows] = False, ids[places]
        own.rewritten.append(rewritten)
    return own


def _lost(batch: MergedChanges, late: Bools) -> Bools:
    """Returns which changes have an obsolete row: a later change of another task decides, or the table has a newer row."""
    lost = batch.ranked.ops == UPSERT
    lost[batch.latest.last[~late]] = False
    return np.asarray(lost, np.bool_)


def _buffered(batch: MergedChanges) -> Bools:
    """Returns which changes have a buffered row, which is in no file yet."""
    is_buffered = np.zeros(len(batch.ranked), np.bool_)
    for buffered, begin in zip(batch.buffered, batch.begins, strict=False):
        if buffered is not None:
            is_buffered[np.asarray(buffered[KEY_PLACE]) + begin] = True
    return is_buffered


def _find_own_rows(batch: MergedChanges, is_wanted: Bools) -> Iterator[tuple[LiveFile, Ints, Ints]]:
    """Yields each file with rows of these changes, the positions of the rows, and the places of their changes."""
    assert batch.target.changes is not None
    for number, files in enumerate(batch.files):
        places = np.flatnonzero(is_wanted & (batch.owner == number))
        if places.size and files:
            keys = batch.ranked.take(places).keys
            for one in find_rows(batch.target, files, keys, batch.target.changes.paths).hits:
                yield one.file, one.rows, places[one.keys]


def write_rows(
    batch: MergedChanges, found: Found, late: Bools, files: Sequence[LiveFile], own: OwnFiles
) -> tuple[list[DataFile], int]:
    """Writes the buffered rows and the rewritten files; returns the data files and the number of values that no row
    had.

    Raises: as `complete_buffered`.
    """
    writer = FileWriter(batch.target, lineage_schema(batch.target) if own.ids is not None else None)
    missing_required = 0
    try:
        for rows, places, lacking in complete_buffered(batch, found, late, files):
            writer.write(rows if own.ids is None else with_row_ids(batch.target, rows, own.ids[places]))
            missing_required += lacking
        for rewritten in own.rewritten:
            for rows in _read_rewritten(batch.target, rewritten):
                writer.write(rows)
        return writer.finish(), missing_required
    except BaseException:
        writer.abandon()
        raise


def _read_rewritten(target: TableTarget, rewritten: _RewrittenFile) -> Iterator[pa.Table]:
    begin = 0
    with opened(target, rewritten.file) as parquet:
        for number in range(parquet.num_row_groups):
            read = parquet.read_row_group(number).combine_chunks()
            part = slice(begin, begin := begin + read.num_rows)
            columns = [as_written(one_array(read[field.name]), field.type) for field in target.arrow_schema]
            rows = pa.Table.from_arrays(columns, schema=target.arrow_schema)
            rows = with_row_ids(target, rows, rewritten.ids[part])
            yield rows if rewritten.stays[part].all() else rows.filter(pa.array(rewritten.stays[part]))


_CACHE_BYTES = 256 * 1024 * 1024
_ids = ColumnCache(_CACHE_BYTES)
_NONE_YET = np.iinfo(np.int64).max


def kept_ids(batch: MergedChanges, found: Found, late: Bools) -> Ints:
    """Returns per change the row id of the live row that it replaces, int64 `(n_changes,)`; NO_ID without one. Where a
    key has several live rows, the smallest id is kept. late: the keys whose change is late.

    Raises: OSError where the store fails.
    """
    last = batch.latest.last
    is_row = (batch.ranked.ops[last] == UPSERT) & ~late
    hits = [replacing for one in found.hits if (replacing := one.only(is_row[one.keys])).rows.size]
    ids = np.full(len(batch.ranked), _NONE_YET)
    for one, values in zip(hits, in_threads(lambda hit: row_ids(batch.target, hit.file, hit.rows), hits), strict=True):
        has_id = values != NO_ID
        np.minimum.at(ids, last[one.keys[has_id]], values[has_id])
    return np.where(ids == _NONE_YET, NO_ID, ids)


def row_ids(target: TableTarget, file: LiveFile, rows: Ints) -> Ints:
    """Returns the ids of the rows at these positions of a file, int64 `(n_rows,)`; NO_ID for a row without an id.

    Raises: OSError where the store fails.
    """
    first = file.first_row_id
    inherited = np.full(rows.size, NO_ID) if first is None else first + rows
    buffered = _ids.get((file.path,))
    if buffered is None:
        buffered = _packed(reserved_column(target, file, ROW_ID_FIELD))
        _ids.put((file.path,), buffered)
    least, *column = buffered
    if not column:
        return inherited
    own = column[0].take(pa.array(rows))
    ids = np.asarray(own.cast(pa.int64()).fill_null(0)) + np.asarray(least)[0]
    return np.where(np.asarray(own.is_valid()), ids, inherited)


def _packed(column: pa.Array | None) -> tuple[pa.Array, ...]:
    """Returns the smallest id of a file and the offsets of the other ids from it, in 32 bits where they fit, to halve
    the memory of the cache.
    """
    if column is None:
        return (pa.array([0]),)
    bounds = pc.min_max(column)
    least, most = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
    above = pc.subtract(column, least)
    return pa.array([least]), above.cast(pa.uint32()) if most - least < 2**32 else above
