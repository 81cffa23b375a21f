"""The rows of one append table in one task, with the hash of what identifies each.

The files of a task have one row of each hash at most, so that the driver finds the row of a hash in them. Further rows are
sent to the driver, which writes those that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.report import Touched
from frazil.schema.arrow import Ints, Records, one_array
from frazil.types import DataFile
from frazil.upsert.deduplicate import dump_table, load_table
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.read_changes import key_of
from frazil.write.target import Dedupe, TableTarget
from frazil_state.dedupe.decide import UNKNOWN_TIME
from frazil_state.dedupe.seen import SeenIds, hash_ids

HASH, TIME, SOURCE, PARTITION, OFFSET, PLACE, ROWS = "hash", "time", "source", "partition", "offset", "place", "rows"
"""Columns of the reported ids: the hash of the id; the row's timestamp in microseconds; the number of the topic, partition
and offset of its record; its index among the rows that are sent to the driver, -1 for a row in a file; how many rows its
record has.
"""
_IN_FILE = -1
_REPEATED = "repeated"
_TYPES: Mapping[str, type[np.generic]] = {
    HASH: np.uint64,
    TIME: np.int64,
    SOURCE: np.int32,
    PARTITION: np.int32,
    OFFSET: np.int64,
    ROWS: np.int32,
}
Ids = Mapping[str, NDArray[Any]]
"""The reported ids: arrays of shape `(n_rows,)`, by the names above."""


class IdRows:
    """Divides rows into those to be written and those to be sent to the driver."""

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        assert target.dedupe is not None
        self._target, self._dedupe = target, target.dedupe
        self._topics = topics
        self._seen = SeenIds()
        self._ids: dict[str, list[NDArray[Any]]] = {name: [] for name in (*_TYPES, _REPEATED)}
        self._repeated: list[pa.Table] = []

    def take(self, topic: str, rows: pa.Table, records: Records) -> pa.Table:
        """Notes rows of one topic; returns those to be written. rows: in the schema of the files. records: partition and
        offset of each row's record.
        """
        if not rows.num_rows or not are_known(self._target, self._dedupe):
            return rows
        keys = [key_of(rows, path) for path in self._dedupe.paths]
        has_id = np.logical_and.reduce([np.asarray(key.is_valid()) for key in keys])
        if not has_id.any():
            return rows
        if not has_id.all():
            at = pa.array(np.flatnonzero(has_id))
            keys = [key.take(at) for key in keys]
        hashes = hash_ids(keys)
        is_repeated = self._seen.add(hashes)
        noted: Ids = {
            HASH: hashes,
            TIME: np.asarray(_times(self._dedupe, rows)),
            SOURCE: np.broadcast_to(np.int32(self._topics.index(topic)), has_id.size),
            PARTITION: np.asarray(records["partition"]),
            OFFSET: np.asarray(records["offset"]),
            ROWS: _rows_of_records(records),
            _REPEATED: is_repeated,
        }
        for name, values in noted.items():
            self._ids[name].append(values if values.size == hashes.size else values[has_id])
        if not is_repeated.any():
            return rows
        repeated = np.zeros(rows.num_rows, np.bool_)
        repeated[has_id] = is_repeated
        self._repeated.append(rows.filter(pa.array(repeated)))
        return rows.filter(pa.array(~repeated))

    def finish(self, files: Sequence[DataFile]) -> tuple[Touched, ...]:
        """Returns the ids for the report. files: those that have the rows."""
        self._seen.end()
        if not self._ids[HASH]:
            return ()
        columns, same = dict[str, pa.Array](), dict[str, str]()
        for name, pieces in self._ids.items():
            values = np.concatenate(pieces).astype(_TYPES.get(name, np.bool_), copy=False)
            pieces.clear()
            # What all rows have is reported once. Differences between neighbours are small: most of the text are the hashes.
            if name != HASH and (values == values[0]).all():
                same[name] = str(int(values[0]))
            else:
                columns[name] = pa.array(np.diff(values, prepend=0) if name in (TIME, OFFSET) else values)
        ids = pa.table(columns).replace_schema_metadata(same)
        repeated = dump_table(pa.concat_tables(self._repeated)) if self._repeated else ""
        return (Touched(dump_table(ids), repeated, tuple(file.path for file in files), len(ids)),)


def load_ids(text: str) -> Ids:
    """Returns the ids that a task has reported."""
    table = load_table(text)
    same = {name.decode(): int(value) for name, value in (table.schema.metadata or {}).items()}
    ids = dict[str, NDArray[Any]]()
    for name, kind in {**_TYPES, _REPEATED: np.bool_}.items():
        if name in same:
            ids[name] = np.broadcast_to(kind(same[name]), len(table))
            continue
        values = np.asarray(one_array(table[name]))
        # Differences wrap around, and so do their sums.
        ids[name] = np.cumsum(values) if name in (TIME, OFFSET) else values
    is_repeated = ids.pop(_REPEATED)
    ids[PLACE] = np.full(is_repeated.size, _IN_FILE, np.int32)
    ids[PLACE][is_repeated] = np.arange(np.count_nonzero(is_repeated))
    return ids


def _rows_of_records(records: Records) -> Ints:
    """Returns per row how many rows its record has, int64 `(n_rows,)`: neighbours with one place."""
    partitions, offsets = np.asarray(records["partition"]), np.asarray(records["offset"])
    is_new = np.ones(offsets.size, np.bool_)
    is_new[1:] = (offsets[1:] != offsets[:-1]) | (partitions[1:] != partitions[:-1])
    sizes = np.diff(np.r_[np.flatnonzero(is_new), offsets.size])
    return np.repeat(sizes, sizes)


def are_known(target: TableTarget, dedupe: Dedupe) -> bool:
    """Returns whether the table has all columns that identify an event."""
    return all(has_column(target, path) for path in dedupe.paths)


def _times(dedupe: Dedupe, rows: pa.Table) -> pa.Array:
    """Returns the timestamps of rows in microseconds; UNKNOWN_TIME without one."""
    if not dedupe.time:
        return pa.array(np.zeros(rows.num_rows, np.int64))
    return one_array(rows[dedupe.time]).cast(pa.int64()).fill_null(int(UNKNOWN_TIME))
