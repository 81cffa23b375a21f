"""The parts of primary-key updates: which belong together, what a task reports of them, and what the driver keeps.

The source writes the delete of the old key and the insert of the new one at the same position of its log. Both must be in
one batch where the insert lacks values, which only the row of the old key has.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from frazil.error_classes import ErrorClass
from frazil.kafka.port import Partition
from frazil.report import ChangeReport
from frazil.schema.arrow import Bools, Records
from frazil.stages.changes import Changes
from frazil.types import Offsets, Place
from frazil.upsert.key_updates.old_rows import updated_key_places, updated_keys
from frazil.write.target import TableTarget

_NOTES = "primary_key_updates"
UNPAIRED, ABANDONED, APPLIED_EARLY = "unpaired", "abandoned", "applied_early"
"""Names of what the driver has noted for the batch that is planned again (see KnownRecords): places of records whose row
had another key, where the row of the old key was not found; places of parts whose other part is no longer waited for; topic
and position of updates whose insert part is already in the table, because it arrived first and had all of its values.
"""
REFUSED = {
    UNPAIRED: (
        ErrorClass.INCOMPLETE_PRIMARY_KEY_UPDATE,
        "the primary-key update is incomplete: the record does not have all values, and the row of the old key is neither"
        " in the table nor in the batch",
    )
}
"""By the name under which places are noted, why their records are bad."""


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
    #: The record's timestamp, in milliseconds since the epoch; None without one.
    timestamp_ms: int | None
    #: The position in the source's log.
    position: str
    #: Whether this is the delete of the old key.
    is_delete: bool

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True)
class KeyUpdateNotes:
    """What the tasks of a batch have found about primary-key updates."""

    #: Whether there are some. Their two parts may be in the ranges of two tasks, so one task must read the batch.
    needs_one_task: bool = False
    #: Topic, partition and offset of records whose row had another key, where the row of the old key was not found.
    unpaired: tuple[Place, ...] = ()
    #: Parts whose other part is not in the batch, of a batch read by one task.
    parts: tuple[KeyUpdatePart, ...] = ()
    #: The offsets at which the batch must end so that it has both parts of each update, or none.
    ends: Offsets = field(default_factory=dict)


_NOTES_OF_TASKS = TypeAdapter(tuple[KeyUpdateNotes, ...])


def key_update_notes(changes: ChangeReport) -> KeyUpdateNotes:
    """Returns the notes of all tasks as one."""
    tasks = _NOTES_OF_TASKS.validate_python(changes.notes.get(_NOTES, ()))
    return KeyUpdateNotes(
        any(task.needs_one_task for task in tasks),
        tuple(sorted(place for task in tasks for place in task.unpaired)),
        tuple(part for task in tasks for part in task.parts),
        next((task.ends for task in tasks if task.ends), {}),
    )


class KeyUpdateSearch:
    """Searches the records of one table in one task for primary-key updates. unpaired: the places of those whose old row is
    not found, while they become known.
    """

    def __init__(self, target: TableTarget, unpaired: Collection[Place] = ()) -> None:
        self._is_one_task = target.known.is_single_task
        self._parts = IncompleteUpdates(target.known.of(ABANDONED), target.known.of(APPLIED_EARLY))
        self._unpaired = unpaired
        self._ends: Offsets = {}
        #: Whether another task must read the batch again, with all of its records.
        self.needs_one_task = False

    def take(self, topic: str, changes: Changes, records: Records) -> None:
        """Adds what these records change."""
        self.needs_one_task |= bool(updated_keys(changes).old_keys) and not self._is_one_task
        self._parts.take(topic, updated_keys(changes).parts, records)

    def close(self) -> None:
        """Finds after the last record where the batch must end; nowhere where it must be read by one task first."""
        if self._is_one_task:
            self._ends = self._parts.ends()
        else:
            self.needs_one_task |= self._parts.has_lone_deletes

    @property
    def is_refused(self) -> bool:
        """Whether the batch must be read again."""
        return bool(self.needs_one_task or self._ends or self._unpaired)

    def notes(self) -> dict[str, tuple[Any, ...]]:
        """Returns what the task reports, as `key_update_notes` reads it."""
        notes = KeyUpdateNotes(self.needs_one_task, tuple(sorted(self._unpaired)), self._parts.alone(), self._ends)
        return {} if notes == KeyUpdateNotes() else {_NOTES: (asdict(notes),)}


def are_parts(changes: Changes) -> Bools:
    """Returns which changes are a part of a primary-key update that may depend on the other part, bool `(n_changes,)`."""
    counts, updated = np.bincount(changes.records, minlength=1), updated_keys(changes)
    is_part = counts[changes.records] > 1
    is_part |= np.isin(changes.records, [row for row, _, _ in updated.parts])
    is_part[updated_key_places(updated.old_keys)] = True
    return is_part


@dataclass
class _Pair:
    """The parts of one primary-key update: a source that repeats changes sends each part more than once."""

    deletes: list[KeyUpdatePart] = field(default_factory=list)
    inserts: list[KeyUpdatePart] = field(default_factory=list)


class IncompleteUpdates:
    """The parts of primary-key updates among the records of one task.

    abandoned: places of parts whose other part is no longer waited for. applied_early: topic and position of updates
    whose insert part is already in the table, because it arrived first and had all of its values.
    """

    def __init__(self, abandoned: Collection[Place] = (), applied_early: Collection[tuple[str, str]] = ()) -> None:
        self._abandoned = frozenset(abandoned)
        self._applied_early = frozenset(applied_early)
        self._pairs: dict[tuple[str, str], _Pair] = defaultdict(_Pair)

    def take(self, topic: str, parts: Sequence[tuple[int, str, bool]], records: Records) -> None:
        """Adds parts. parts: as UpdatedKeys.parts, of these records."""
        for row, position, is_delete in parts:
            if is_delete and (topic, position) in self._applied_early:
                continue
            partition, offset = records["partition"][row].as_py(), records["offset"][row].as_py()
            at_us = records["timestamp"].cast(pa.int64())[row].as_py()
            at_ms = None if at_us is None else at_us // 1000
            part = KeyUpdatePart(topic, partition, offset, at_ms, position, is_delete)
            if part.place not in self._abandoned:
                pair = self._pairs[topic, position]
                (pair.deletes if is_delete else pair.inserts).append(part)

    @property
    def has_lone_deletes(self) -> bool:
        """Whether there is a delete part without its insert part."""
        return any(pair.deletes and not pair.inserts for pair in self._pairs.values())

    def alone(self) -> tuple[KeyUpdatePart, ...]:
        """Returns the parts without their other part."""
        lone = (pair for pair in self._pairs.values() if not (pair.deletes and pair.inserts))
        return tuple(part for pair in lone for part in (*pair.deletes, *pair.inserts))

    def ends(self) -> dict[str, dict[int, int]]:
        """Returns per topic and partition the offset at which the batch must end so that it contains both parts or
        neither; empty where it need not end earlier. An insert part without its delete part does not count: it may have
        all of its values.
        """
        pairs = [pair for pair in self._pairs.values() if pair.deletes]
        ends: dict[Partition, int] = {}
        while divided := [part for pair in pairs for part in _divided(pair, ends)]:
            for part in divided:
                place = part.topic, part.partition
                ends[place] = min(part.offset, ends.get(place, part.offset))
        offsets: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in ends.items():
            offsets.setdefault(topic, {})[partition] = offset
        return offsets


def _divided(pair: _Pair, ends: Mapping[Partition, int]) -> list[KeyUpdatePart]:
    """Returns the parts before these ends of an update whose other parts all lie behind them."""
    deletes, inserts = _before(pair.deletes, ends), _before(pair.inserts, ends)
    return [] if deletes and inserts else [*deletes, *inserts]


def _before(key_update_parts: Iterable[KeyUpdatePart], ends: Mapping[Partition, int]) -> list[KeyUpdatePart]:
    return [part for part in key_update_parts if part.offset < ends.get((part.topic, part.partition), math.inf)]


# In the driver, from one batch to the next


@dataclass
class PendingUpdate:
    """The state of a primary-key update of which only one part has been read."""

    #: When the table first met the record, by the clock of the process.
    since_ms: int
    #: The ends of the partitions one minute later: the source writes both parts at once, so the other part is before
    #: these.
    ends: Mapping[Partition, int] | None = None


@dataclass
class KeyUpdateState:
    """Incomplete primary-key updates of a table."""

    #: Records whose row had another key, where the row of that key is not known; for the batch that is planned again.
    unpaired: frozenset[Place] = frozenset()
    #: Records whose other part is no longer waited for; for the batch that is planned again.
    abandoned: frozenset[Place] = frozenset()
    #: Records without their other part, or without the row, with the time at which each was first read.
    pending: dict[Place, PendingUpdate] = field(default_factory=dict)
    #: By topic and position in the source's log, updates whose insert alone is in the table, with the time of that commit in
    #: milliseconds since the epoch.
    applied_early: dict[tuple[str, str], int] = field(default_factory=dict)

    def end_batch(self) -> None:
        """Forgets the records that were collected for a batch which is committed now."""
        self.unpaired = self.abandoned = frozenset()

    def noted(self) -> dict[str, tuple[Place, ...] | tuple[tuple[str, str], ...]]:
        """Returns what tasks must know, by name (see KnownRecords)."""
        return {
            UNPAIRED: tuple(sorted(self.unpaired)),
            ABANDONED: tuple(sorted(self.abandoned)),
            APPLIED_EARLY: tuple(sorted(self.applied_early)),
        }
