"""The changes that a task has read for an upsert table, and the records among them that need another task or batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from frazil.types import LastDelete, Offsets


@dataclass(frozen=True)
class FirstTombstone:
    """The first record of a partition in a task's ranges, where it is a tombstone: its delete may be the last record of
    another task.
    """

    #: The topic.
    topic: str
    #: The partition.
    partition: int
    #: The tombstone's offset.
    offset: int
    #: A hash of the record's key, as in LastDelete.
    key: str


@dataclass(frozen=True)
class Touched:
    """The changes of one task for an upsert table, reduced to the latest change of each key."""

    #: The keys with their latest changes, as `upsert.deduplicate` serialises them.
    keys: str
    #: Rows that wait for values of the rows they replace, serialised in the same way; empty without such rows.
    buffered: str = ""
    #: Paths of the data files that hold all other rows.
    files: tuple[str, ...] = ()
    #: The number of changes before deduplication.
    change_count: int = 0
    #: The tombstone that is the only change of the task. It is no change at all if it directly follows the delete of
    #: its key.
    first: FirstTombstone | None = None


@dataclass(frozen=True)
class KeyUpdatePart:
    """One of the two records of a primary-key update: the delete of the old key, or the insert of the new one.

    Both have the same position in the source's log, and may be in two partitions.
    """

    #: The topic.
    topic: str
    #: The partition.
    partition: int
    #: The record's offset.
    offset: int
    #: The record's timestamp, in milliseconds since the epoch.
    timestamp_ms: int
    #: The position in the source's log.
    position: str
    #: Whether this is the delete of the old key.
    is_delete: bool

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True)
class ChangeReport:
    """The changes of a task, with the primary-key updates and truncates that depend on other tasks or batches."""

    #: The changes, reduced to the latest of each key.
    touched: tuple[Touched, ...] = ()
    #: Whether there are primary-key updates. Their two parts may be in the ranges of two tasks, so one task must read the
    #: batch.
    has_key_updates: bool = False
    #: Topic, partition and offset of records whose row had another key, where the row of the old key was not found.
    unpaired: tuple[tuple[str, int, int], ...] = ()
    #: Parts of primary-key updates whose other part is not in the batch, of a batch read by one task.
    key_update_parts: tuple[KeyUpdatePart, ...] = ()
    #: The offsets at which the batch must end so that it has both parts of each primary-key update, or none.
    ends: Offsets = field(default_factory=dict)
    #: The position of the newest truncate in the source's log.
    emptied: str = ""
    #: Deletes at the end of what was read of a partition; their tombstones may follow.
    last_deletes: tuple[LastDelete, ...] = ()
    #: Topic, partition and offset of truncates without a position among the changes of other partitions.
    unplaced: tuple[tuple[str, int, int], ...] = ()

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the changes of all tasks of a batch."""
        return cls(
            touched=tuple(one for part in parts for one in part.touched),
            has_key_updates=any(part.has_key_updates for part in parts),
            unpaired=tuple(sorted(place for part in parts for place in part.unpaired)),
            key_update_parts=tuple(one for part in parts for one in part.key_update_parts),
            ends=next((part.ends for part in parts if part.ends), {}),
            emptied=max((part.emptied for part in parts), default=""),
            last_deletes=tuple(last for part in parts for last in part.last_deletes),
            unplaced=tuple(sorted(place for part in parts for place in part.unplaced)),
        )

    @classmethod
    def load(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the record from its JSON."""
        unpaired, unplaced = (
            tuple((topic, partition, offset) for topic, partition, offset in fields[name])
            for name in ("unpaired", "unplaced")
        )
        return cls(
            touched=tuple(map(_load_touched, fields["touched"])),
            has_key_updates=fields["has_key_updates"],
            unpaired=unpaired,
            key_update_parts=tuple(KeyUpdatePart(**part) for part in fields["key_update_parts"]),
            ends={t: {int(p): offset for p, offset in ps.items()} for t, ps in fields["ends"].items()},
            emptied=fields["emptied"],
            last_deletes=tuple(LastDelete(**last) for last in fields["last_deletes"]),
            unplaced=unplaced,
        )


def _load_touched(fields: Mapping[str, Any]) -> Touched:
    first = fields["first"]
    files = tuple(fields["files"])
    return Touched(**{**fields, "files": files, "first": FirstTombstone(**first) if first is not None else None})
