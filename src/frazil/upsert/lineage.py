"""Ids of rows that changes replace, so that the rows that come in their place keep them."""

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
    """Per change the id of the live row in whose place it writes one; NO_ID where there is none. Of the rows of one key the
    least id stays. late: the keys whose change comes too late. OSError as the store.
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
    """The ids of the rows at these places; NO_ID where no commit has given them any yet. OSError as the store."""
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
    """The least id of a file, and what the others are above it, in half the room where that will do."""
    if column is None:
        return (pa.array([0]),)
    bounds = pc.min_max(column)
    least, most = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
    above = pc.subtract(column, least)
    return pa.array([least]), above.cast(pa.uint32()) if most - least < 2**32 else above
