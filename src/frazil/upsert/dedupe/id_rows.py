"""The rows of one append table in one task, with the hash of what identifies each.

The files of a task have one row of each hash at most, so that the driver finds the row of a hash in them. Further rows are
sent to the driver, which writes those that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from frazil.report import Touched
from frazil.schema.arrow import Ints, Records, one_array
from frazil.types import DataFile
from frazil.upsert.dedupe.decide import UNKNOWN_TIME
from frazil.upsert.dedupe.seen import SeenIds, hash_ids
from frazil.upsert.deduplicate import dump_table, load_table
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.read_changes import key_of
from frazil.write.target import Dedupe, TableTarget

HASH, TIME, SOURCE, PARTITION, OFFSET, PLACE, ROWS = "hash", "time", "source", "partition", "offset", "place", "rows"
"""Columns of the reported ids: the hash of the id; the row's timestamp in microseconds; the number of the topic, partition
and offset of its record; its index among the rows that are sent to the driver, -1 for a row in a file; how many rows its
record has.
"""
_IN_FILE = -1


class IdRows:
    """Divides rows into those to be written and those to be sent to the driver."""

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        assert target.dedupe is not None
        self._target, self._dedupe = target, target.dedupe
        self._topics = topics
        self._seen = SeenIds()
        self._ids: list[pa.Table] = []
        self._repeated: list[pa.Table] = []
        self._repeated_count = 0

    def take(self, topic: str, rows: pa.Table, records: Records) -> pa.Table:
        """Notes rows of one topic; returns those to be written. rows: in the schema of the files. records: partition and
        offset of each row's record.
        """
        if not rows.num_rows or not are_known(self._target, self._dedupe):
            return rows
        keys = [key_of(rows, path) for path in self._dedupe.paths]
        has_id = np.logical_and.reduce([np.asarray(key.is_valid()) for key in keys])
        places = np.flatnonzero(has_id)
        if not places.size:
            return rows
        at = pa.array(places)
        hashes = hash_ids(keys if has_id.all() else [key.take(at) for key in keys])
        is_repeated = self._seen.add(hashes)
        numbers = np.full(places.size, _IN_FILE, np.int64)
        numbers[is_repeated] = self._repeated_count + np.arange(np.count_nonzero(is_repeated))
        self._ids.append(
            pa.table(
                {
                    HASH: pa.array(hashes),
                    TIME: _times(self._dedupe, rows).take(at),
                    SOURCE: pa.array(np.full(places.size, self._topics.index(topic), np.int32)),
                    PARTITION: records["partition"].cast(pa.int32()).take(at),
                    OFFSET: records["offset"].take(at),
                    PLACE: pa.array(numbers.astype(np.int32)),
                    ROWS: pa.array(_rows_of_records(records).astype(np.int32)).take(at),
                }
            )
        )
        if not is_repeated.any():
            return rows
        repeated = np.zeros(rows.num_rows, np.bool_)
        repeated[places[is_repeated]] = True
        self._repeated.append(rows.filter(pa.array(repeated)))
        self._repeated_count += int(np.count_nonzero(repeated))
        return rows.filter(pa.array(~repeated))

    def finish(self, files: Sequence[DataFile]) -> tuple[Touched, ...]:
        """Returns the ids for the report. files: those that have the rows."""
        if not self._ids:
            return ()
        ids = _with_differences(pa.concat_tables(self._ids))
        self._ids = []
        repeated = dump_table(pa.concat_tables(self._repeated)) if self._repeated else ""
        return (Touched(dump_table(ids), repeated, tuple(file.path for file in files), len(ids)),)


def load_ids(text: str) -> pa.Table:
    """Returns the ids that a task has reported, with times and offsets as they are."""
    ids = load_table(text)
    for name in (TIME, OFFSET):
        values = np.cumsum(np.asarray(one_array(ids[name])))
        ids = ids.set_column(ids.schema.get_field_index(name), name, pa.array(values))
    return ids


def _with_differences(ids: pa.Table) -> pa.Table:
    """Returns the ids with the differences between consecutive times and offsets, mostly small: most of the text are the
    hashes then. Differences wrap around, and so do their sums.
    """
    for name in (TIME, OFFSET):
        values = np.diff(np.asarray(one_array(ids[name])), prepend=0)
        ids = ids.set_column(ids.schema.get_field_index(name), name, pa.array(values))
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
