"""Rows that were deleted while their files were compacted: found again in the new files by key.

In an upsert table each key has one live row. Where a key has none or several, deletes cannot be transferred, and the
compaction is discarded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from frazil.catalog.scans import LiveFile
from frazil.errors import UnavailableError
from frazil.types import DeleteFile
from frazil.upsert.deduplicate import key_codes
from frazil.upsert.lookup.delete_files import bits_of, read_deletes, rows_of, write_deletes
from frazil.upsert.lookup.live_rows import key_columns
from frazil.upsert.lookup.search import find_rows
from frazil.write.target import TableTarget


def transfer_deletes(
    target: TableTarget,
    format_version: int,
    before: Sequence[LiveFile],
    now: Sequence[LiveFile],
    new: Sequence[LiveFile],
) -> list[DeleteFile] | None:
    """Returns delete files for the new files, for rows that were deleted from the old files meanwhile; None where these
    rows cannot be identified. See Transfer.

    Raises: UnavailableError where the store does not read or write a file.
    """
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
    """Returns the key columns of rows that the files have lost since `before`; None where no row was deleted."""
    assert target.changes is not None
    then = {file.path: file.deletes for file in before}
    parts = []
    for file in now:
        gone = read_deletes(target, file.path, file.deletes) - read_deletes(target, file.path, then[file.path])
        if gone:
            rows = pa.array(rows_of(gone))
            parts.append([key.take(rows) for key in key_columns(target, file, target.changes.paths)])
    return tuple(pa.concat_arrays(column) for column in zip(*parts, strict=True)) if parts else None
