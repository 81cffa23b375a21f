"""Rows that were deleted while they were rewritten: found again in the new files by their keys.

Of a table whose records replace rows each key has one live row. Where it has more, or none, nothing can be told, and the
rewrite is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from frazil.catalog.scans import LiveFile
from frazil.errors import UnavailableError
from frazil.types import DeleteFile
from frazil.upsert.deduplicate import key_codes
from frazil.upsert.delete_files import bits_of, read_deletes, rows_of, write_deletes
from frazil.upsert.live_rows import key_columns
from frazil.upsert.lookup import find_rows
from frazil.write.target import TableTarget


def transfer_deletes(
    target: TableTarget,
    format_version: int,
    before: Sequence[LiveFile],
    now: Sequence[LiveFile],
    new: Sequence[LiveFile],
) -> list[DeleteFile] | None:
    """See Transfer. Raises UnavailableError where the store does not give or take a file."""
    try:
        keys = _keys_gone(target, before, now)
        if keys is None:
            return []
        assert target.changes is not None
        count = len(keys[0])
        if any(key.null_count for key in keys) or np.unique(key_codes(keys)).size != count:
            return None
        found = find_rows(target, new, keys, target.changes.paths)
        if sum(hits.rows.size for hits in found.hits) != count:
            return None
        gone = {hits.file: bits_of(hits.rows) for hits in found.hits}
        return write_deletes(target, gone, format_version)
    except OSError as error:
        raise UnavailableError(f"the store does not read or write a file: {error}", where=target.name) from None


def _keys_gone(target: TableTarget, before: Sequence[LiveFile], now: Sequence[LiveFile]) -> tuple[pa.Array, ...] | None:
    """The key columns of rows that files have lost; None where it is no row."""
    assert target.changes is not None
    then = {file.path: file.deletes for file in before}
    parts = []
    for file in now:
        gone = read_deletes(target, file.path, file.deletes) - read_deletes(target, file.path, then[file.path])
        if gone:
            rows = pa.array(rows_of(gone))
            parts.append([key.take(rows) for key in key_columns(target, file, target.changes.paths)])
    return tuple(pa.concat_arrays(column) for column in zip(*parts, strict=True)) if parts else None
