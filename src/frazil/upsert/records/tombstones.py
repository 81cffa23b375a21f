"""Tombstones in CDC topics of an upsert table: each deletes the row that its record's key identifies.

Most tombstones follow a delete and change nothing. Some deletes leave only a tombstone: an unwrap transform (Debezium
`ExtractNewRecordState`) can drop the delete, and a compacted topic keeps only the last record of a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import BooleanType, IntegerType, LongType, StringType

from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.report import TaskReport
from frazil.schema.arrow import Bools, Ints, Records, arrow_type, as_written
from frazil.stages.changes import DELETE, Changes
from frazil.types import LastDelete, Offsets, Progress
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.record_keys import Keys, put_keys, read_keys, read_row_keys
from frazil.write.target import TableTarget

_PLAIN = (BooleanType, IntegerType, LongType, StringType)


def take_tombstones(target: TableTarget, records: Records, changes: Changes) -> Changes:
    """Returns the changes with a delete for each tombstone whose key has a value for every key column. Other tombstones
    are ignored, because a table may have key columns that its records' keys lack.
    """
    if changes.tombstones is None or not changes.tombstones.any():
        return changes
    read = read_keys if _is_plain(target) else read_row_keys
    keys = read(target, records, changes.tombstones & np.asarray(records["key"].is_valid()), MAX_MISMATCHES)
    missing = replace(changes.decoded, missing=changes.decoded.missing | keys.decoded.missing)
    rows = np.flatnonzero(_named(changes.tombstones, keys))
    if not rows.size:
        return replace(changes, decoded=missing)
    return replace(_merged(target, changes, keys, rows.astype(np.int32)), decoded=missing)


def _is_plain(target: TableTarget) -> bool:
    """Returns whether all key columns have types whose values a key contains unchanged. A time, for example, may be a
    number.
    """
    reading = target.changes
    assert reading is not None
    kinds = [
        target.schema.find_field(name).field_type
        for path, name in zip(reading.paths, reading.key_columns, strict=True)
        if has_column(target, path)
    ]
    return all(isinstance(kind, _PLAIN) for kind in kinds)


def _named(tombstones: Bools, keys: Keys) -> Bools:
    """Returns which tombstones identify a row, bool `(n_records,)`."""
    if not keys.columns:
        return tombstones & np.False_
    named = tombstones & ~keys.decoded.refused
    for column in keys.columns.values():
        named &= np.asarray(column.is_valid())
    return named


def _merged(target: TableTarget, changes: Changes, keys: Keys, rows: NDArray[np.int32]) -> Changes:
    """Returns the changes together with deletes of the records `rows`, in the order of the records."""
    records = np.concatenate([changes.records, rows])
    order = np.argsort(records, kind="stable")
    places, records = np.r_[np.arange(changes.ops.size), np.full(rows.size, -1)][order], records[order]
    is_new = places < 0
    taken = changes.take(places, np.r_[changes.ops, np.full(rows.size, DELETE, np.int8)][order], records)
    of_change = pa.array(records)
    mine = replace(keys, columns={path: column.take(of_change) for path, column in keys.columns.items()})
    return replace(
        taken,
        columns=[
            put_keys(field, as_written(column, arrow_type(field.field_type)), mine, is_new)
            for field, column in zip(target.fields, taken.columns, strict=True)
        ],
        ignored={**changes.ignored, "tombstone": _without(changes.ignored["tombstone"], rows)},
    )


def _without(mask: Bools, rows: NDArray[np.int32]) -> Bools:
    kept = mask.copy()
    kept[rows] = False
    return kept


FOLLOWS_DELETE = "\x00told"
"""Column of records: whether the record comes directly behind the delete of its key."""
_FURTHEST = 4
"""The greatest distance in offsets between a delete and its tombstone. Adjacent records have the distance 1. A
producer's transaction that ends between them leaves a control record: 2. Where the next transaction, with the
tombstone, is aborted as its producer dies, and the tombstone is written again, the first copy and another control
record lie between them: 4. A greater distance may belong to another delete: in a compacted topic nobody knows which
records were between.
"""


class LastDeletes:
    """The last deletes of the partitions that a task reads. known: the deletes that earlier batches ended with. secret: as
    for `digest_of`.
    """

    def __init__(self, known: Iterable[LastDelete], secret: bytes = b"") -> None:
        self._secret = secret
        self._known = {(delete.topic, delete.partition): delete for delete in known}
        self._read: dict[tuple[str, int], LastDelete] = {}

    def mark_following_deletes(self, topic: str, records: Records) -> Records:
        """Returns the records with the column FOLLOWS_DELETE, where a record comes directly behind a delete that was
        the last record read.
        """
        if not self._known or not len(records["partition"]):
            return records
        partitions = np.asarray(records["partition"])
        follows_delete = np.zeros(partitions.size, np.bool_)
        for row in begins_of_runs(partitions).tolist():
            last = self._known.get((topic, int(partitions[row])))
            follows_delete[row] = last is not None and self._is_tombstone_of(last, records, row)
        return {**records, FOLLOWS_DELETE: pa.array(follows_delete)} if follows_delete.any() else records

    def take(self, topic: str, rows: Sequence[int], records: Records) -> None:
        """Notes the last record of each partition among `records`. rows: see Changes.last_deletes."""
        if not rows and not self._known:
            return
        partitions, deletes = np.asarray(records["partition"]), frozenset(rows)
        for row in ends_of_runs(partitions).tolist():
            place = (topic, int(partitions[row]))
            for deletes_by_place in (self._known, self._read):
                deletes_by_place.pop(place, None)
            if row in deletes:
                key = digest_of(records["key"][row].as_py(), self._secret)
                last = LastDelete(*place, records["offset"][row].as_py(), key)
                self._known[place] = self._read[place] = last

    def read_deletes(self) -> tuple[LastDelete, ...]:
        """Returns the last deletes that the task itself has read."""
        return tuple(self._read.values())

    def _is_tombstone_of(self, last: LastDelete, records: Records, row: int) -> bool:
        key = records["key"][row].as_py()
        return key is not None and is_right_behind(last, records["offset"][row].as_py(), digest_of(key, self._secret))


def begins_of_runs(partitions: NDArray[np.int32]) -> Ints:
    """Returns the index of the first record of each run of equal partitions, int64."""
    return np.flatnonzero(np.r_[True, partitions[1:] != partitions[:-1]]) if partitions.size else np.zeros(0, np.int64)


def ends_of_runs(partitions: NDArray[np.int32]) -> Ints:
    """Returns the index of the last record of each run of equal partitions, int64."""
    return np.flatnonzero(np.r_[partitions[1:] != partitions[:-1], True]) if partitions.size else np.zeros(0, np.int64)


def still_last(before: Progress, report: TaskReport, offsets: Offsets) -> tuple[LastDelete, ...]:
    """Returns the deletes that are the last records before `offsets`, in some partitions."""
    deletes = [
        delete
        for delete in before.order.last_deletes
        if delete.partition not in report.counts.latest_ms.get(delete.topic, {})
    ]
    deletes += sorted(report.changes.last_deletes, key=lambda delete: delete.offset)
    by_partition = {(delete.topic, delete.partition): delete for delete in deletes}
    ends = {place: offsets.get(place[0], {}).get(place[1], 0) for place in by_partition}
    return tuple(
        delete for place, delete in sorted(by_partition.items()) if 0 < ends[place] - delete.offset <= _FURTHEST
    )


def is_right_behind(last: LastDelete, offset: int, key: str) -> bool:
    """Returns whether a tombstone at `offset` of the delete's partition, with a key of this hash, is the tombstone of
    the delete.
    """
    return 0 < offset - last.offset <= _FURTHEST and key == last.key


def digest_of(key: bytes, secret: bytes) -> str:
    """Returns a hash of a record's key, in hexadecimal: it is in the table's progress, which is for everyone to read.
    secret: as `secret_of`.
    """
    return hashlib.blake2b(key, digest_size=8, key=secret).hexdigest()


def secret_of(target: TableTarget) -> bytes:
    """Returns the secret with which record keys of a table are hashed; empty where anybody may read its records."""
    return target.record_key.derive("record keys") if target.record_key is not None else b""
