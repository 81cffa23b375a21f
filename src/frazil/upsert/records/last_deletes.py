"""Deletes that are the last of what was read of a partition: the tombstone of each comes right behind it, in what is read
next, and tells nothing new there either. A connector that repeats itself tells deletes that come too late, and a tombstone
that is taken for one without a delete takes the row that is there, whatever its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.types import LastDelete, Offsets, Progress, TaskReport

FOLLOWS_DELETE = "\x00told"
"""A column of records: which come right behind the delete of their key."""
_FURTHEST = 4
"""How far apart the two may be. Side by side it is 1. A producer's transaction that ends between them leaves a marker there,
which nobody reads: 2. Where the next one, with the tombstone, is aborted as its producer dies, and the tombstone is written
once more, the first one and another marker are between them too: 4. From further on it may be that of another delete: where
records are compacted there is no telling what was between.
"""
Records = Mapping[str, pa.Array]


class LastDeletes:
    """Of the partitions that a task reads. known: those that the batches before have ended with."""

    def __init__(self, known: Iterable[LastDelete]) -> None:
        self._known = {(one.topic, one.partition): one for one in known}
        self._read: dict[tuple[str, int], LastDelete] = {}

    def mark_following_deletes(self, topic: str, records: Records) -> Records:
        """The records with the column TOLD, where one of them comes right behind a delete that was the last one."""
        if not self._known or not len(records["partition"]):
            return records
        partitions = np.asarray(records["partition"])
        follows_delete = np.zeros(partitions.size, np.bool_)
        for row in begins_of_runs(partitions).tolist():
            last = self._known.get((topic, int(partitions[row])))
            follows_delete[row] = last is not None and _is_tombstone_of(last, records, row)
        return {**records, FOLLOWS_DELETE: pa.array(follows_delete)} if follows_delete.any() else records

    def take(self, topic: str, rows: Sequence[int], records: Records) -> None:
        """What has been read. rows: as Changes.last_deletes."""
        if not rows and not self._known:
            return
        partitions, deletes = np.asarray(records["partition"]), frozenset(rows)
        for row in ends_of_runs(partitions).tolist():
            place = (topic, int(partitions[row]))
            for known in (self._known, self._read):
                known.pop(place, None)
            if row in deletes:
                last = LastDelete(*place, records["offset"][row].as_py(), digest_of(records["key"][row].as_py()))
                self._known[place] = self._read[place] = last

    def found(self) -> tuple[LastDelete, ...]:
        """Those that the task itself has read."""
        return tuple(self._read.values())


def begins_of_runs(partitions: NDArray[np.int32]) -> NDArray[np.int64]:
    """The first record of each stretch of one partition."""
    return np.flatnonzero(np.r_[True, partitions[1:] != partitions[:-1]]) if partitions.size else np.zeros(0, np.int64)


def ends_of_runs(partitions: NDArray[np.int32]) -> NDArray[np.int64]:
    """The last record of each stretch of one partition."""
    return np.flatnonzero(np.r_[partitions[1:] != partitions[:-1], True]) if partitions.size else np.zeros(0, np.int64)


def still_last(before: Progress, report: TaskReport, offsets: Offsets) -> tuple[LastDelete, ...]:
    """The deletes that all that was read up to `offsets` ends with, in some partitions."""
    known = [one for one in before.last_deletes if one.partition not in report.latest_ms.get(one.topic, {})]
    known += sorted(report.last_deletes, key=lambda one: one.offset)
    found = {(one.topic, one.partition): one for one in known}
    ends = {place: offsets.get(place[0], {}).get(place[1], 0) for place in found}
    return tuple(one for place, one in sorted(found.items()) if 0 < ends[place] - one.offset <= _FURTHEST)


def is_right_behind(last: LastDelete, offset: int, key: str) -> bool:
    """Whether a tombstone in the partition of this delete, of a key with this hash, is that of the delete."""
    return 0 < offset - last.offset <= _FURTHEST and key == last.key


def digest_of(key: bytes) -> str:
    """A hash of a record's key."""
    return hashlib.blake2b(key, digest_size=8).hexdigest()


def _is_tombstone_of(last: LastDelete, records: Records, row: int) -> bool:
    key = records["key"][row].as_py()
    return key is not None and is_right_behind(last, records["offset"][row].as_py(), digest_of(key))
