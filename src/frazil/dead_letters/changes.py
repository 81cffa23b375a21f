"""Changes of rows that a replay of dead letters compares.

They are those of the dead letters, read and written as in a task, and those that came after them in their topics, up to
the table's progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.dead_letters.files import Place, by_topic, places_of, records_of
from frazil.dead_letters.record import UNEXPLAINED, first_mismatches
from frazil.dead_letters.requirements import Needs, split_crashing
from frazil.decode.columns import Mismatch
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.limits import read_bounded
from frazil.error_classes import ErrorClass
from frazil.ingest.tables.queries import QueryTables
from frazil.ingest.tasks.task import read_records
from frazil.kafka.port import Partition, ReadRecord, RecordReader, Source
from frazil.report import ChangeReport, TaskReport, Touched, WrittenFiles
from frazil.rows.decoder import has_value
from frazil.rows.project import shape_rows
from frazil.schema.arrow import arrow_type, pick
from frazil.stages.changes import TRUNCATE, Changes
from frazil.types import OffsetRange, Progress
from frazil.upsert.change_rows import ChangeRows, rank
from frazil.upsert.deduplicate import KeySet, LatestChanges, Ranked, concat_ranked, deduplicate, load_ranked
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.read_changes import refuse
from frazil.upsert.truncates import have_place
from frazil.write.target import METADATA_TYPES, TableTarget
from frazil.write.write import FileWriter

Fetch = Callable[[Iterable[str]], TableTarget]
Stamp = tuple[bytes | None, int | None]
"""A record's key and its timestamp in milliseconds, which distinguish it from a record at the same place of a recreated
topic.
"""
NOTHING_NEWER, NEWER_EXISTS, NOT_KNOWN = 0, 1, 2
"""What came after a dead letter: no change that counts; some change; unknown."""
_DEDUPLICATE_AT = 200_000
_ROUNDS = 5
_ALL = 2**31
_EMPTYING = "a truncate deletes all rows, and it is unknown which rows are newer"


@dataclass(frozen=True)
class TopicReaders:
    """Access to the topics, to find out what came after a dead letter."""

    #: Names the topics that exist.
    source: Source
    #: Reads their records.
    reader: RecordReader


@dataclass(frozen=True)
class HistoryQuery:
    """The dead letters to be replayed, whose later changes are searched."""

    #: The topics by their numbers in `changes`: those of the dead letters.
    topics: tuple[str, ...]
    #: The dead letters as changes.
    changes: Ranked
    #: The stamps of their records, by place.
    stamps: Mapping[Place, Stamp]
    #: The places of all dead letters of the table, also of those that are not replayed.
    dead_letters: frozenset[Place]
    #: The places of dead letters whose records crashed the process that read them.
    unread: frozenset[Place]


class NewerChanges:
    """The changes behind dead letters in their topics, read once and continued from there. reader: reads them."""

    def __init__(
        self, topic_readers: TopicReaders, asked: HistoryQuery, target: TableTarget, reader: ChangeReader
    ) -> None:
        self._topic_readers = topic_readers
        self._asked = asked
        self._target = target
        self._reader = reader
        self._keys = KeySet(asked.changes.take(deduplicate(asked.changes).last).keys)
        self._ends: dict[Partition, int] = {}
        self._seen: set[Place] = set()
        self._last: dict[Partition, Sequence[ReadRecord]] = {}
        self._doubts: dict[Partition, list[tuple[int, bytes | None]]] = {}
        self._parts: list[Ranked] = []
        self._emptied = ""

    def read_on(self, partitions: Iterable[Partition], progress: Progress) -> None:
        """Reads these partitions, and the partitions read before, up to the table's progress.

        Raises: UnavailableError where Kafka or the registry does not answer.
        """
        self._emptied = progress.emptied
        self._begin({partition for partition in partitions if partition not in self._ends}, progress)
        for (topic, number), start in list(self._ends.items()):
            end = progress.offsets.get(topic, {}).get(number, 0)
            if start < end:
                for batch in self._topic_readers.reader.batches(OffsetRange(topic, number, start, end)):
                    self._take(topic, number, batch)
                self._ends[topic, number] = end

    def of(self, changes: Ranked, latest: LatestChanges) -> NDArray[np.int8]:
        """Returns per key what came after the dead letter that decides it, int8 `(n_keys,)`. changes, latest: of the
        dead letters alone.
        """
        combined = concat_ranked([changes, *self._parts])
        decides = np.zeros(len(combined), np.bool_)
        decides[deduplicate(combined).last] = True
        later_changes = np.full(latest.last.size, NEWER_EXISTS, np.int8)
        for n, position in enumerate(latest.last.tolist()):
            if decides[position]:
                topic = self._asked.topics[int(changes.source[position])]
                later_changes[n] = self._newest_or_unknown(
                    (topic, int(changes.partition[position]), int(changes.offset[position]))
                )
        return later_changes

    def _begin(self, partitions: set[Partition], progress: Progress) -> None:
        topics = self._topic_readers.source.topics({topic for topic, _ in partitions}.__contains__)
        same = [p for p in sorted(partitions) if p[0] in topics and topics[p[0]].id == progress.topic_ids.get(p[0])]
        for partition, first in self._topic_readers.source.beginnings(same).items():
            mine = [offset for topic, number, offset in self._asked.stamps if (topic, number) == partition]
            self._ends[partition] = max(first, min(mine, default=first))

    def _newest_or_unknown(self, place: Place) -> int:
        """Returns NOTHING_NEWER where it is known that no later change exists, else NOT_KNOWN."""
        topic, number, offset = place
        key, doubts = self._asked.stamps[place][0], self._doubts.get((topic, number), ())
        is_doubtful = any(
            doubt_offset > offset and (None in (name, key) or name == key) for doubt_offset, name in doubts
        )
        return NOT_KNOWN if place not in self._seen or is_doubtful else NOTHING_NEWER

    def _take(self, topic: str, number: int, batch: Sequence[ReadRecord]) -> None:
        # The last record once more: its tombstone may be the first one here.
        before = self._last.get((topic, number), ())
        batch = [*before, *batch]
        self._last[topic, number] = batch[-1:]
        places = [(topic, number, record.offset) for record in batch]
        stamps = self._asked.stamps
        self._seen.update(
            p for record, p in zip(batch, places, strict=True) if stamps.get(p) == (record.key, record.timestamp_ms)
        )
        is_taken = [n >= len(before) and place not in self._asked.dead_letters for n, place in enumerate(places)]
        # The tombstone of a delete changes nothing, which only the delete shows, whether it is a dead letter or not.
        values = pa.array([record.value for record in batch], pa.binary())
        are_gone = [*(~has_value(self._target.reading, values)).tolist()[1:], False]
        followed = [
            is_gone and record.key == after.key
            for record, after, is_gone in zip(batch, [*batch[1:], *batch[-1:]], are_gone, strict=True)
        ]
        read = [n for n, p in enumerate(places) if is_taken[n] or (followed[n] and p not in self._asked.unread)]
        others = [batch[n] for n in read]
        if not others:
            return
        records = _columns(topic, number, others)
        changes, self._target = self._reader.read(self._target, topic, records)
        is_other = np.array(is_taken)[read]
        # The record may have been a change when it was written, and its row cannot be determined now.
        refused = np.flatnonzero(changes.decoded.refused & is_other).tolist()
        self._doubts.setdefault((topic, number), []).extend((others[n].offset, others[n].key) for n in refused)
        kept = changes.without_refused()
        kept = kept.only(is_other[kept.records])
        kept = kept.only(~self._is_in_progress(kept))
        if not kept.ops.size:
            return
        of_these_keys = of_keys(
            self._keys, ranked_changes(self._target, self._asked.topics.index(topic), kept, records)
        )
        if len(of_these_keys):
            self._keep(of_these_keys)

    def _is_in_progress(self, changes: Changes) -> NDArray[np.bool_]:
        """Returns which truncates are covered by the position in the table's progress, bool `(n_changes,)`. Truncates
        from before `order_by` was declared are not, in a topic with one partition; they apply by arrival, as they did
        then.
        """
        is_placed = have_place(self._target, changes)
        assert self._target.changes is not None
        if changes.order is None or not is_placed.any() or not self._target.changes.is_one_partition:
            return is_placed
        is_older = np.asarray(pc.fill_null(pc.less_equal(changes.order, self._emptied), False), np.bool_)
        return np.logical_and(is_placed, is_older)

    def _keep(self, changes: Ranked) -> None:
        self._parts.append(changes)
        if sum(len(part) for part in self._parts) > _DEDUPLICATE_AT:
            combined = concat_ranked(self._parts)
            self._parts = [combined.take(deduplicate(combined).kept)]


@dataclass(frozen=True)
class ChangeReader:
    """Reads records that may be bad as changes."""

    #: Fetches schemas that records name, and returns the target with them.
    fetch: Fetch
    #: Evaluates what of the table's query is Spark's.
    queries: QueryTables

    def read(self, target: TableTarget, topic: str, records: dict[str, pa.Array]) -> tuple[Changes, TableTarget]:
        """Returns the changes of records, and the target with the schemas that they name."""
        for _ in range(_ROUNDS):
            of_target = partial(read_records, target, topic, limit=MAX_MISMATCHES)
            changes = self.queries.asking_spark(target, topic, of_target)(records)
            if not changes.decoded.missing:
                break
            target = self.fetch(changes.decoded.missing)
        return changes, target


def ranked_changes(target: TableTarget, topic: int, changes: Changes, records: Mapping[str, pa.Array]) -> Ranked:
    """Returns the changes with their places in the order. topic: its number. records: those that the changes are of."""
    of_change = pick(records, changes.records)
    return rank(target, topic, shape_rows(target, changes, of_change), changes, of_change)


def numbers_of_keys(keys: KeySet, changes: Ranked) -> NDArray[np.int64]:
    """Returns per change the number of its key in `keys`, int64 `(n_changes,)`; -1 where it is another one."""
    return keys.find([pa.chunked_array([column]) for column in changes.keys])


def of_keys(keys: KeySet, changes: Ranked) -> Ranked:
    """Returns the changes of these keys, and truncates."""
    return changes.take(np.flatnonzero((numbers_of_keys(keys, changes) >= 0) | (changes.ops == TRUNCATE)))


def _columns(topic: str, number: int, records: Sequence[ReadRecord]) -> dict[str, pa.Array]:
    """Returns the records with the columns that the source would send."""
    headers = [[{"key": name, "value": value} for name, value in record.headers] for record in records]
    times = [None if record.timestamp_ms is None else record.timestamp_ms * 1000 for record in records]
    count = len(records)
    return {
        "topic": pa.repeat(pa.scalar(topic), count),
        "partition": pa.repeat(pa.scalar(number, pa.int32()), count),
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
        "key": pa.array([record.key for record in records], pa.binary()),
        "headers": pa.array(headers, arrow_type(METADATA_TYPES["headers"])),
        "value": pa.array([record.value for record in records], pa.binary()),
    }


class Draft:
    """Reads dead letters until a missing schema or column is found; all of them are in memory until `finish`."""

    def __init__(self, target: TableTarget, topics: Sequence[str], queries: QueryTables) -> None:
        self._queries = queries
        self.target = target
        #: The topics of the dead letters.
        self.topics = tuple(topics)
        self.needs = Needs()
        #: By place, the stamps of the records taken, also of those that were not read.
        self.stamps: dict[Place, Stamp] = {}
        #: By place, the mismatch of each record that cannot become a change.
        self.mismatches: dict[Place, Mismatch] = {}
        #: The truncates among the dead letters, which all remain.
        self.truncates: list[Ranked] = []
        #: The report of a task with these changes; empty before `finish`.
        self.report = TaskReport(table=target.name)
        self.writer = FileWriter(target)
        self._rows = ChangeRows(target, self.topics)
        self._ranked: list[Ranked] = []

    @property
    def lost(self) -> set[Place]:
        """Primary-key updates whose old row is unknown."""
        return self._rows.lost

    @property
    def changes(self) -> Ranked:
        """All changes of all dead letters, of which there is at least one."""
        return concat_ranked(self._ranked)

    @property
    def latest(self) -> Ranked:
        """The changes after deduplication, as a task reports them."""
        return load_ranked(self.report.changes.touched[0].keys)

    def take(self, dead_letters: pa.Table) -> None:
        """Reads dead letters to be replayed; those that crash their reader are mismatches."""
        readable, crashing, reasons = split_crashing(self.target, dead_letters)
        self.mismatches |= dict(zip(places_of(crashing), reasons, strict=True))
        for batch in crashing.to_batches():
            self._note_stamps(places_of(batch), records_of(self.target, batch))
        for topic, batch in by_topic(readable):
            self._take(topic, batch)

    def finish(self) -> bool:
        """Closes the files; returns False where they cannot be used, because something is missing or values are lost."""
        if not self.needs.is_met:
            return False
        keys, held, count = self._rows.finish(self.writer)
        if self.lost:
            return False
        files = tuple(self.writer.finish())
        touched = (Touched(keys, held, tuple(file.path for file in files), count),) if keys else ()
        self.report = TaskReport(
            table=self.target.name, written=WrittenFiles(data=files), changes=ChangeReport(touched=touched)
        )
        return True

    def _take(self, topic: str, dead_letters: pa.RecordBatch) -> None:
        read = self._queries.asking_spark(self.target, topic, partial(read_records, self.target, topic, limit=_ALL))
        columns_left, columns_of = self.target.reading.columns_left, partial(records_of, self.target)
        for some, records, changes in read_bounded(dead_letters, read, columns_left, columns_of):
            self._take_read(topic, some, records, changes)

    def _take_read(
        self, topic: str, dead_letters: pa.RecordBatch, records: Mapping[str, pa.Array], changes: Changes
    ) -> None:
        self.needs.note(changes.decoded, [topic], (self.target.source or self.target).fixed)
        self.needs.key_columns = self.needs.key_columns or changes.key_columns
        if not self.needs.is_met:
            return
        readable = changes.without_refused()
        truncates = readable.only(readable.ops == TRUNCATE)
        if truncates.ops.size:
            self.truncates.append(ranked_changes(self.target, self.topics.index(topic), truncates, records))
        mismatches = first_mismatches(changes.decoded) | {mismatch.row: mismatch for mismatch in self._refuse(changes)}
        places = places_of(dead_letters)
        self._note_stamps(places, records)
        for row in np.flatnonzero(changes.decoded.refused).tolist():
            self.mismatches[places[row]] = mismatches.get(row, UNEXPLAINED)
        kept = changes.without_refused()
        if kept.ops.size:
            of_change = pick(records, kept.records)
            rows = shape_rows(self.target, kept, of_change)
            self._rows.take(topic, rows, kept, of_change)
            self._ranked.append(rank(self.target, self.topics.index(topic), rows, kept, of_change))

    def _note_stamps(self, places: Sequence[Place], records: Mapping[str, pa.Array]) -> None:
        times_us = records["timestamp"].cast(pa.int64()).to_pylist()
        for place, key, at_us in zip(places, records["key"].to_pylist(), times_us, strict=True):
            self.stamps[place] = (key, None if at_us is None else at_us // 1000)

    def _refuse(self, changes: Changes) -> list[Mismatch]:
        """Refuses changes that ingestion applies in place and a dead letter cannot."""
        reading = self.target.changes
        assert reading is not None
        mismatches = refuse(changes, changes.ops == TRUNCATE, "", ErrorClass.ORDER_UNKNOWN, _EMPTYING, _ALL)
        for path, name in zip(reading.paths, reading.key_columns, strict=True):
            if not has_column(self.target, path):
                lacks = np.ones(changes.ops.size, np.bool_)
                mismatches += refuse(
                    changes, lacks, name, ErrorClass.NO_KEY, f"the key column {name} has no value", _ALL
                )
        return mismatches
