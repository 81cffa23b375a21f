"""Row ids of replaced rows, which the replacing rows keep. Source: Iceberg specification, "Row Lineage"."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.scans import LiveFile
from frazil.upsert.changes import UPSERT
from frazil.upsert.deduplicate import Ints
from frazil.upsert.lookup.column_cache import ColumnCache
from frazil.upsert.lookup.live_rows import in_threads, reserved_column
from frazil.upsert.lookup.search import Found, Hits
from frazil.upsert.merged_changes import MergedChanges
from frazil.upsert.old_values.primary_key_updates import Bools
from frazil.write.lineage import NO_ID, ROW_ID_FIELD
from frazil.write.target import TableTarget

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
    hits = [replacing for one in found.hits if (replacing := _only(one, is_row)).rows.size]
    ids = np.full(len(batch.ranked), _NONE_YET)
    for one, values in zip(hits, in_threads(lambda hit: row_ids(batch.target, hit.file, hit.rows), hits), strict=True):
        has_id = values != NO_ID
        np.minimum.at(ids, last[one.keys[has_id]], values[has_id])
    return np.where(ids == _NONE_YET, NO_ID, ids)


def _only(hits: Hits, is_key: Bools) -> Hits:
    mine = is_key[hits.keys]
    return Hits(hits.file, hits.rows[mine], hits.keys[mine], hits.deleted)


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
