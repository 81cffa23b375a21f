"""Finds newer changes of the rows of dead letters: in the table, in the topic, and among the other dead letters.

The last change of a key decides its row. A dead letter applies where it is certain that no newer change of its row exists;
otherwise it remains, with the reason (docs/decisions/0010).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.decode.columns import Mismatch
from frazil.decode.limits import plain_columns
from frazil.error_classes import ErrorClass
from frazil.kafka.port import Partition, ReadRecord, TopicReaders
from frazil.rows.metadata_columns import batch_of
from frazil.rows.project import shape_rows
from frazil.schema.arrow import Bools, Ints, Records, pick
from frazil.stages.changes import DELETE, Changes
from frazil.types import OffsetRange, Place, Progress
from frazil.upsert.change_notes import AGAIN
from frazil.upsert.change_rows import rank
from frazil.upsert.deduplicate import KeySet, LatestChanges, Ranked, concat_ranked, deduplicate
from frazil.upsert.emptied import are_emptied, have_place
from frazil.upsert.lookup.live_rows import read_columns
from frazil.upsert.lookup.search import Found, newest_order
from frazil.upsert.records.tombstones import LastDeletes, secret_of
from frazil.write.target import TableTarget

Read = Callable[[str, Records], Changes]
"""Returns the changes of records of a topic, with the schemas that they name."""
Verdicts = NDArray[np.int8]
APPLY, SUPERSEDED, UNKNOWN, WAITING, _ASK, _ASK_OR_APPLY = range(6)
"""Verdicts: the change applies; a newer one is in the table; unknown; a newer one is a dead letter that remains; the topic
may know, else unknown; the topic may know better, else the change applies.
"""
REASONS = {
    SUPERSEDED: (
        ErrorClass.SUPERSEDED,
        "a newer change of the row is in the table, or behind this one in its partition",
    ),
    UNKNOWN: (ErrorClass.ORDER_UNKNOWN, f"neither table nor topic shows whether the row has a newer change: {AGAIN}"),
    WAITING: (
        ErrorClass.NEWER_DEAD_LETTER,
        "a newer change of the row is a dead letter itself: replay them together, or drop both if it is a truncate",
    ),
}
REASONS_OF_WAITING = {
    UNKNOWN: REASONS[UNKNOWN],
    WAITING: (ErrorClass.LOOKUP_WAITING, REASONS[WAITING][1]),
}
"""The same of records that wait for a row of a reference table: one with a newer change has been replaced by it."""


class DeadLetters:
    """The dead letters of a table, read as changes."""

    def __init__(self, topics: Iterable[str]) -> None:
        #: The topics, by their numbers in changes.
        self.topics = tuple(sorted(topics))
        #: The changes of the dead letters to be replayed, and of readable ones that remain.
        self.changes, self.remaining = list[Ranked](), list[Ranked]()
        #: By place, key and timestamp of each record to be replayed: a recreated topic has another record there.
        self.stamps: dict[Place, tuple[bytes | None, int | None]] = {}
        #: By place, the mismatch of each record to be replayed that cannot become a change.
        self.mismatches: dict[Place, Mismatch] = {}
        #: The places of all dead letters, and of those whose records crash the process that reads them.
        self.places = set[Place]()
        self.unread: dict[Place, Mismatch] = {}
        #: The smallest time of the changes to be replayed, in microseconds (see `late_records.earliest_us`).
        self.earliest_us = 2**62

    def places_of(self, changes: Ranked) -> list[Place]:
        """Returns the places of the changes' records."""
        topics = (self.topics[source] for source in changes.source.tolist())
        return list(zip(topics, changes.partition.tolist(), changes.offset.tolist(), strict=True))

    def ranked(self, target: TableTarget, topic: str, changes: Changes, records: Records) -> list[Ranked]:
        """Returns the changes, if any, with their places in the order. records: those that the changes are of."""
        if not changes.ops.size:
            return []
        of_change = pick(records, changes.records)
        return [rank(target, self.topics.index(topic), shape_rows(target, changes, of_change), changes, of_change)]


class ChangeOrder:
    """Decides which dead letters apply. only_topic: the only topic of the table; empty where there may be several. readers:
    None without access to the topics.
    """

    def __init__(
        self, target: TableTarget, draft: DeadLetters, only_topic: str, readers: TopicReaders | None, read: Read
    ) -> None:
        self._target, self._draft, self._only_topic = target, draft, only_topic
        self._readers, self._read, self._last_deletes = readers, read, LastDeletes((), secret_of(target))
        self._ends: dict[Partition, int] = {}
        self._seen = set[Place]()
        self._unreadable: list[ReadRecord] = []
        self._later: list[Ranked] = []

    def verdicts(self, changes: Ranked, latest: LatestChanges, live_rows: Found, progress: Progress) -> Verdicts:
        """Returns per key the verdict on the change that decides it, int8 `(n_keys,)`. changes: of the dead letters to be
        replayed. live_rows: of their keys. progress: the table's.

        Raises: OSError where the store fails; UnavailableError where Kafka or the registry does not answer.
        """
        keys = changes.take(latest.last)
        assert self._target.changes is not None
        if self._target.changes.counts_every_row:
            return self._of_merged(keys, progress, is_taken_off=self._target.changes.retracts)
        if self._target.changes.history is not None:
            return self._of_versions(keys, progress)
        verdicts, places = self._by_rows(keys, live_rows), self._draft.places_of(keys)
        ends = [progress.offsets.get(topic, {}).get(partition, 0) for topic, partition, _ in places]
        # The table was rolled back and will read the record again, or the topic was recreated.
        verdicts[(keys.offset >= np.array(ends, np.int64)) & (verdicts != SUPERSEDED)] = UNKNOWN
        is_asked = verdicts >= _ASK
        if is_asked.any() and self._readers is not None:
            self._read_on({places[n][:2] for n in np.flatnonzero(is_asked).tolist()}, keys, progress, self._readers)
            decides = np.isin(latest.last, deduplicate(concat_ranked([changes, *self._later])).last)
            is_known = [place in self._seen and not self._may_be_followed(place) for place in places]
            verdicts[is_asked & ~decides] = SUPERSEDED
            verdicts[is_asked & decides & np.array(is_known)] = APPLY
        verdicts[verdicts == _ASK] = UNKNOWN
        verdicts[verdicts == _ASK_OR_APPLY] = APPLY
        verdicts[are_emptied(self._target, keys, progress.order.emptied)] = SUPERSEDED
        for remaining in self._draft.remaining:
            verdicts[_are_newer(remaining, keys) & (verdicts == APPLY)] = WAITING
        return verdicts

    def _of_merged(self, keys: Ranked, progress: Progress, *, is_taken_off: bool) -> Verdicts:
        """Returns the verdicts where all records of a key are merged into its row: dead letters apply in any order. UNKNOWN
        where one is beyond the table's progress, or deletes the row, whose records may be newer; SUPERSEDED where the
        topic shows that the row was deleted behind one, or the table emptied. is_taken_off: a delete takes a row off,
        and does not delete the row of its key.
        """
        every = concat_ranked(self._draft.changes)
        places = self._draft.places_of(every)
        ends = [progress.offsets.get(topic, {}).get(partition, 0) for topic, partition, _ in places]
        is_waiting = every.offset >= np.array(ends, np.int64)
        if not is_taken_off:
            is_waiting |= every.ops == DELETE
        verdicts = np.full(len(keys), APPLY, np.int8)
        numbers = find(keys, every)
        verdicts[numbers[is_waiting]] = UNKNOWN
        assert self._target.changes is not None
        may_end = self._target.changes.is_one_partition if is_taken_off else not self._target.record.tombstones
        if may_end and self._readers is not None:
            self._read_on({place[:2] for place in places}, keys, progress, self._readers)
            verdicts[numbers[self._are_ended(every, numbers, keys, is_taken_off=is_taken_off)]] = SUPERSEDED
        return verdicts

    def _of_versions(self, keys: Ranked, progress: Progress) -> Verdicts:
        """Returns the verdicts where every change is a version at its time, so that dead letters apply in any order:
        UNKNOWN where one is beyond the table's progress.
        """
        every = concat_ranked(self._draft.changes)
        places = self._draft.places_of(every)
        ends = [progress.offsets.get(topic, {}).get(partition, 0) for topic, partition, _ in places]
        verdicts = np.full(len(keys), APPLY, np.int8)
        verdicts[find(keys, every)[every.offset >= np.array(ends, np.int64)]] = UNKNOWN
        return verdicts

    def _are_ended(self, every: Ranked, numbers: Ints, keys: Ranked, *, is_taken_off: bool) -> Bools:
        """Returns which changes are before a delete of their row, or of all rows, in their partition, bool `(n_changes,)`.
        numbers: of their keys.
        """
        ends = dict[tuple[int, int, int], int]()
        for later in self._later:
            is_end = ~later.have_keys | ((later.ops == DELETE) & (not is_taken_off))
            rows = np.flatnonzero(is_end)
            of_key = np.where(~later.have_keys, -1, find(keys, later))
            columns = (array[rows].tolist() for array in (later.source, later.partition, of_key, later.offset))
            for source, partition, number, offset in zip(*columns, strict=True):
                ends[source, partition, number] = max(offset, ends.get((source, partition, number), -1))
        columns = (array.tolist() for array in (every.source, every.partition, numbers, every.offset))
        are_ended = (
            offset < max(ends.get((source, partition, number), -1), ends.get((source, partition, -1), -1))
            for source, partition, number, offset in zip(*columns, strict=True)
        )
        return np.fromiter(are_ended, np.bool_, len(every))

    def _by_rows(self, keys: Ranked, live_rows: Found) -> Verdicts:
        """Returns what the live rows show, by the ordering column or else by where they come from."""
        verdicts, rows = np.where(keys.ops == DELETE, APPLY, _ASK).astype(np.int8), live_rows.keys()
        if rows.size:
            verdicts[rows] = self._by_coordinates(keys.take(rows), live_rows)
        if rows.size and keys.order is not None:
            live = newest_order(self._target, live_rows, len(keys))
            # Behind a snapshot row an older position means nothing: order of arrival decides.
            is_older = _true(pc.less(keys.order, live.order)) & ~live.were_read_in(keys.partition)
            verdicts[_true(pc.greater(keys.order, live.order))] = _ASK_OR_APPLY
            verdicts[is_older] = SUPERSEDED
        return verdicts

    def _by_coordinates(self, keys: Ranked, live_rows: Found) -> Verdicts:
        """Returns the verdicts on these keys, one for each live row, by the columns with the places of records."""
        columns = dict(self._target.metadata)
        if not columns.keys() >= {"partition", "offset"} or not (self._only_topic or "topic" in columns):
            return np.full(len(keys), _ASK, np.int8)
        wanted = [(columns[name],) for name in ("partition", "offset", "topic") if name in columns]
        parts = [read_columns(self._target, hit.file, wanted, hit.rows) for hit in live_rows.hits]
        partition, offset, *topics = (pa.concat_arrays(arrays) for arrays in zip(*parts, strict=True))
        topic = topics[0] if topics else pa.repeat(pa.scalar(self._only_topic), len(keys))
        own_topic = pa.array([topic for topic, _, _ in self._draft.places_of(keys)], pa.string())
        is_known = np.asarray(pc.and_(pc.and_(partition.is_valid(), offset.is_valid()), topic.is_valid()))
        is_same = _true(pc.and_(pc.equal(partition, pa.array(keys.partition)), pc.equal(topic, own_topic)))
        verdicts = np.where(_true(pc.greater(offset, pa.array(keys.offset))), SUPERSEDED, APPLY)
        return np.where(is_known, np.where(is_same, verdicts, UNKNOWN), _ASK).astype(np.int8)

    def _read_on(self, asked: set[Partition], keys: Ranked, progress: Progress, readers: TopicReaders) -> None:
        """Reads these partitions, and those read before, up to the table's progress."""
        for partition, first in readers.source.beginnings(sorted(asked - self._ends.keys())).items():
            mine = (offset for *place, offset in self._draft.stamps if tuple(place) == partition)
            self._ends[partition] = max(first, min(mine))
        for (topic, number), start in list(self._ends.items()):
            end = progress.offsets.get(topic, {}).get(number, 0)
            for batch in readers.reader.batches(OffsetRange(topic, number, start, end)) if start < end else ():
                self._take(topic, number, batch, keys)
            self._ends[topic, number] = max(start, end)

    def _take(self, topic: str, number: int, batch: Sequence[ReadRecord], keys: Ranked) -> None:
        draft, reading = self._draft, self._target.changes
        batch = [record for record in batch if (topic, number, record.offset) not in draft.unread]
        if not batch or reading is None:
            return
        places = [(topic, number, record.offset) for record in batch]
        stamps = [(record.key, record.timestamp_ms) for record in batch]
        self._seen |= {place for place, stamp in zip(places, stamps, strict=True) if draft.stamps.get(place) == stamp}
        # Dead letters are read too: the tombstone of a delete changes nothing, whatever became of the delete.
        records = self._last_deletes.mark_following_deletes(topic, plain_columns(batch_of(batch)))
        changes = self._read(topic, records)
        self._last_deletes.take(topic, changes.last_deletes, records)
        is_other = np.array([place not in draft.places for place in places])
        # The record may have been a change when it was written, and its row cannot be determined now.
        self._unreadable += [batch[row] for row in np.flatnonzero(changes.decoded.refused & is_other).tolist()]
        # The positions of deletes of all rows, also of those in other partitions, are in the table's progress.
        is_placed = have_place(self._target, changes) & (not reading.is_one_partition)
        kept = changes.only(is_other[changes.records] & ~is_placed).without_refused()
        for later in draft.ranked(self._target, topic, kept, records):
            self._later.append(later.take(np.flatnonzero((find(keys, later) >= 0) | ~later.have_keys)))

    def _may_be_followed(self, place: Place) -> bool:
        """Returns whether a record behind this one that cannot be read any more may have changed the same row."""
        later = (record for record in self._unreadable if (record.topic, record.partition) == place[:2])
        keys = {record.key for record in later if record.offset > place[2]}
        own_key = self._draft.stamps[place][0]
        return bool(keys) and (own_key is None or not keys.isdisjoint((None, own_key)))


def find(keys: Ranked, changes: Ranked) -> Ints:
    """Returns per change the number of its key among `keys`, int64 `(n_changes,)`; -1 where it is another one."""
    return KeySet(keys.keys).find([pa.chunked_array([column]) for column in changes.keys])


def _are_newer(remaining: Ranked, keys: Ranked) -> Bools:
    """Returns which keys a remaining dead letter changes that is not known to be older, bool `(n_keys,)`."""
    numbers, are_newer = find(keys, remaining), np.zeros(len(keys), np.bool_)
    are_cuts = ~remaining.have_keys
    for n in np.flatnonzero((numbers >= 0) | are_cuts).tolist():
        at = slice(None) if are_cuts[n] else slice(numbers[n], numbers[n] + 1)
        is_same = (keys.source[at] == remaining.source[n]) & (keys.partition[at] == remaining.partition[n])
        is_older = is_same & (remaining.offset[n] < keys.offset[at])
        if keys.order is not None and remaining.order is not None:
            is_older |= ~is_same & _true(pc.less(remaining.order[n], keys.order[at]))
        are_newer[at] |= ~is_older
    return are_newer


def _true(flags: pa.Array) -> Bools:
    return np.asarray(pc.fill_null(flags, False), np.bool_)
