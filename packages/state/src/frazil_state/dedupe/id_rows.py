"""The rows of one append table in one task, with the hash of what identifies each.

The files of a task have one row of each hash at most, so that the driver finds the row of a hash in them. Further rows are
sent to the driver, which writes those that are kept.

Of many rows the hashes are not reported: the driver makes them of the files, whose rows are in the order of the records,
for a seventh of what passing them through Spark takes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.report import Touched
from frazil.schema.arrow import Bools, Ints, Records
from frazil.types import DataFile
from frazil.upsert.deduplicate import dump_table, load_table
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.read_changes import key_of
from frazil.write.target import Dedupe, TableTarget
from frazil_state.dedupe.decide import UNKNOWN_TIME
from frazil_state.dedupe.seen import Hashes, SeenIds, hash_ids

_FEW = 50_000
"""Of so many rows at most the hashes are reported: reading files takes a request to the store."""
_HASH, _SENT, _EARLIEST, _LATEST, _COUNT = "hash", "sent", "earliest", "latest", "count"


class Runs(NamedTuple):
    """The records of rows: runs of rows whose records follow each other in one partition, and have one row each. Every row
    of a record with several is a run of its own. Arrays have the shape `(n_runs,)`.
    """

    #: The first row of each.
    start: Ints
    #: The number of the topic.
    source: Ints
    partition: Ints
    #: The offset of the first row's record.
    offset: Ints
    #: How many rows each of the records has.
    rows: Ints

    @classmethod
    def of(cls, source: int, partitions: Ints, offsets: Ints, rows: Ints) -> Runs:
        """Returns the runs of rows in the order of their records. Arrays have the shape `(n_rows,)`."""
        is_first = np.ones(offsets.size, np.bool_)
        follows = (np.diff(offsets) == 1) & (np.diff(partitions) == 0)
        is_first[1:] = ~(follows & (rows[1:] == 1) & (rows[:-1] == 1))
        starts = np.flatnonzero(is_first)
        return cls(starts, np.full(starts.size, source), partitions[starts], offsets[starts], rows[starts])

    @classmethod
    def joined(cls, parts: Sequence[Runs], begins: Sequence[int]) -> Runs:
        """Returns the runs of rows that are behind each other. begins: the first row of each part."""
        moved = [part._replace(start=part.start + begin) for part, begin in zip(parts, begins, strict=True)]
        return cls(*(np.concatenate([np.zeros(0, np.int64), *arrays]) for arrays in zip(*moved, strict=True)))

    def of_rows(self, rows: Ints) -> Runs:
        """Returns a run for each of some rows."""
        runs = np.searchsorted(self.start, rows, "right") - 1
        _, source, partition, offset, count = (values[runs] for values in self)
        return Runs(rows, source, partition, offset + rows - self.start[runs], count)


@dataclass(frozen=True)
class Ids:
    """What a task reports of its rows with an id."""

    count: int
    #: The hash of each, uint64 `(n_rows,)`; None where they are those of the files' rows, in the same order.
    hashes: Hashes | None
    #: The rows that are in no file, ascending.
    sent: Ints
    runs: Runs
    #: The bounds of the timestamps in microseconds; UNKNOWN_TIME where a row has none.
    earliest: int
    latest: int


class IdRows:
    """Divides rows into those to be written and those to be sent to the driver."""

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        assert target.dedupe is not None
        self._dedupe = target.dedupe
        self._are_known = are_known(target, target.dedupe)
        self._is_arranged = bool(target.partitioning.fields or target.sorting.fields)
        self._topics = topics
        self._seen = SeenIds()
        self._count = 0
        self._hashes: list[Hashes] = []
        self._sent: list[Ints] = []
        self._runs: list[Runs] = []
        self._begins: list[int] = []
        self._times: list[int] = []
        self._repeated: list[pa.Table] = []

    def take(self, topic: str, rows: pa.Table, records: Records) -> pa.Table:
        """Notes rows of one topic; returns those to be written. rows: in the schema of the files. records: partition and
        offset of each row's record.
        """
        if not rows.num_rows or not self._are_known:
            return rows
        keys = [key_of(rows, path) for path in self._dedupe.paths]
        has_id = np.logical_and.reduce([np.asarray(key.is_valid()) for key in keys])
        if not has_id.any():
            return rows
        counts = _rows_of_records(records)
        places = [np.asarray(records["partition"], np.int64), np.asarray(records["offset"], np.int64), counts]
        if not has_id.all():
            at = pa.array(np.flatnonzero(has_id))
            keys, places = [key.take(at) for key in keys], [values[has_id] for values in places]
        hashes = hash_ids(keys)
        is_repeated = self._seen.add(hashes)
        self._runs.append(Runs.of(self._topics.index(topic), *places))
        self._begins.append(self._count)
        if not self._is_read:
            self._hashes.append(hashes)
        self._times += _bounds_of_times(self._dedupe, rows)
        repeats = np.flatnonzero(is_repeated)
        self._sent.append(repeats + self._count)
        self._count += hashes.size
        if self._is_read:
            self._hashes.clear()
        if not repeats.size:
            return rows
        repeated = np.zeros(rows.num_rows, np.bool_)
        repeated[has_id] = is_repeated
        self._repeated.append(rows.filter(pa.array(repeated)))
        return rows.filter(pa.array(~repeated))

    @property
    def _is_read(self) -> bool:
        """Whether the driver makes the hashes of the files."""
        return self._count > _FEW and not self._is_arranged

    def finish(self, files: Sequence[DataFile]) -> tuple[Touched, ...]:
        """Returns the ids for the report. files: those that have the rows."""
        self._seen.end()
        if not self._count:
            return ()
        arrays: dict[str, NDArray[Any]] = {
            **Runs.joined(self._runs, self._begins)._asdict(),
            _SENT: np.concatenate(self._sent),
            _HASH: np.concatenate([np.zeros(0, np.uint64), *self._hashes]),
        }
        self._hashes.clear()
        lists = {name: pa.ListArray.from_arrays([0, values.size], pa.array(values)) for name, values in arrays.items()}
        known = UNKNOWN_TIME not in self._times
        bounds = (min(self._times, default=0), max(self._times, default=0)) if known else (UNKNOWN_TIME, UNKNOWN_TIME)
        facts = {_COUNT: [self._count], _EARLIEST: [int(bounds[0])], _LATEST: [int(bounds[1])]}
        ids = pa.table({**lists, **facts})
        repeated = dump_table(pa.concat_tables(self._repeated)) if self._repeated else ""
        return (Touched(dump_table(ids), repeated, tuple(file.path for file in files), self._count),)


def load_ids(text: str) -> Ids:
    """Returns the ids that a task has reported."""
    table = load_table(text)
    count, earliest, latest = (table[name][0].as_py() for name in (_COUNT, _EARLIEST, _LATEST))
    arrays = {name: np.asarray(table[name].chunk(0).values) for name in (*Runs._fields, _SENT, _HASH)}
    hashes = arrays[_HASH] if arrays[_HASH].size == count else None
    return Ids(count, hashes, arrays[_SENT], Runs(*(arrays[name] for name in Runs._fields)), earliest, latest)


def _rows_of_records(records: Records) -> Ints:
    """Returns per row how many rows its record has, int64 `(n_rows,)`: neighbours with one place."""
    partitions, offsets = np.asarray(records["partition"]), np.asarray(records["offset"])
    is_new: Bools = np.ones(offsets.size, np.bool_)
    is_new[1:] = (offsets[1:] != offsets[:-1]) | (partitions[1:] != partitions[:-1])
    if is_new.all():
        return np.ones(offsets.size, np.int64)
    sizes = np.diff(np.r_[np.flatnonzero(is_new), offsets.size])
    return np.repeat(sizes, sizes)


def are_known(target: TableTarget, dedupe: Dedupe, empty: Collection[str] = ()) -> bool:
    """Returns whether the table has all columns that identify an event. empty: columns that records have without a value."""
    columns = zip(dedupe.by, dedupe.paths, strict=True)
    return all(name in empty or has_column(target, path) for name, path in columns)


def _bounds_of_times(dedupe: Dedupe, rows: pa.Table) -> list[int]:
    """Returns the least and the greatest timestamp of rows in microseconds; UNKNOWN_TIME where a row has none."""
    if not dedupe.time:
        return []
    column = rows[dedupe.time]
    if column.null_count:
        return [int(UNKNOWN_TIME)]
    bounds = pc.min_max(column.cast(pa.int64())).as_py()
    return [bounds["min"], bounds["max"]]
