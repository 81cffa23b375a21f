"""What came after letters in their topics, up to where the table is: nothing else remembers a delete.

A record that is still in its partition has all later ones of its key behind it: retention takes the oldest first, and
compaction takes a record before it takes what came after it. So where a letter's own record is found, the rest is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.dead_letters.files import Place
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.kafka.port import Partition, ReadRecord, RecordReader, Source
from frazil.schema.arrow import arrow_type, pick
from frazil.types import OffsetRange, Progress
from frazil.upsert.changes import TRUNCATE, Changes
from frazil.upsert.deduplicate import KeySet, LatestChanges, Ranked, concat_ranked, deduplicate
from frazil.upsert.change_rows import rank
from frazil.upsert.records.read_changes import read_checked, rows_of
from frazil.upsert.truncates import have_place
from frazil.write.target import METADATA_TYPES, TableTarget

Fetch = Callable[[Iterable[str]], TableTarget]
Stamp = tuple[bytes | None, int | None]
"""A record's key and its timestamp in milliseconds: what tells it from another one at the same place of another topic."""
FIRST, LATER, UNTOLD = 0, 1, 2
"""Nothing that counts came after the letter; something did; nobody knows."""
_DEDUPLICATE_AT = 200_000
_ROUNDS = 5
_NOTHING = (None, b"null")
"""What tombstones say, the second one in JSON."""


@dataclass(frozen=True)
class Witness:
    """Who can tell what came after a dead letter. source says which topics there are, reader has their records."""

    source: Source
    reader: RecordReader


@dataclass(frozen=True)
class Asked:
    """What is asked about. topics: by their numbers in `changes`, the letters' own. stamps: of their records, by place.
    dead_letters: where the records of all letters of the table lie, also of those that are not retried. unread: of these the
    records that have ended the process which read them.
    """

    topics: tuple[str, ...]
    changes: Ranked
    stamps: Mapping[Place, Stamp]
    dead_letters: frozenset[Place]
    unread: frozenset[Place]


class Later:
    """Records behind letters, read once and on from there. fetch: gets schemas that records name; the target with them."""

    def __init__(self, witness: Witness, asked: Asked, target: TableTarget, fetch: Fetch) -> None:
        self._witness = witness
        self._asked = asked
        self._target = target
        self._fetch = fetch
        self._known = KeySet(asked.changes.take(deduplicate(asked.changes).last).keys)
        self._ends: dict[Partition, int] = {}
        self._seen: set[Place] = set()
        self._last: dict[Partition, Sequence[ReadRecord]] = {}
        self._doubts: dict[Partition, list[tuple[int, bytes | None]]] = {}
        self._parts: list[Ranked] = []
        self._emptied = ""

    def read_on(self, partitions: Iterable[Partition], progress: Progress) -> None:
        """Reads these partitions, and those that were read before, up to the progress. UnavailableError as Kafka, and as the
        registry.
        """
        self._emptied = progress.emptied
        self._begin({partition for partition in partitions if partition not in self._ends}, progress)
        for (topic, number), start in list(self._ends.items()):
            end = progress.offsets.get(topic, {}).get(number, 0)
            if start < end:
                for lot in self._witness.reader.lots(OffsetRange(topic, number, start, end)):
                    self._take(topic, number, lot)
                self._ends[topic, number] = end

    def of(self, changes: Ranked, latest: LatestChanges) -> NDArray[np.int8]:
        """Per key that letters decide what came after the one that does. changes, latest: of the letters alone."""
        whole = concat_ranked([changes, *self._parts])
        decides = np.zeros(len(whole), np.bool_)
        decides[deduplicate(whole).last] = True
        found = np.full(latest.last.size, LATER, np.int8)
        for n, at in enumerate(latest.last.tolist()):
            if decides[at]:
                topic = self._asked.topics[int(changes.source[at])]
                found[n] = self._told((topic, int(changes.partition[at]), int(changes.offset[at])))
        return found

    def _begin(self, partitions: set[Partition], progress: Progress) -> None:
        topics = self._witness.source.topics({topic for topic, _ in partitions}.__contains__)
        same = [p for p in sorted(partitions) if p[0] in topics and topics[p[0]].id == progress.topic_ids.get(p[0])]
        for partition, first in self._witness.source.beginnings(same).items():
            mine = [offset for topic, number, offset in self._asked.stamps if (topic, number) == partition]
            self._ends[partition] = max(first, min(mine, default=first))

    def _told(self, place: Place) -> int:
        """Whether it is known that nothing came, where nothing was found."""
        topic, number, offset = place
        key, doubts = self._asked.stamps[place][0], self._doubts.get((topic, number), ())
        is_doubtful = any(at > offset and (None in (name, key) or name == key) for at, name in doubts)
        return UNTOLD if place not in self._seen or is_doubtful else FIRST

    def _take(self, topic: str, number: int, lot: Sequence[ReadRecord]) -> None:
        # The last one once more: its tombstone may be the first one here.
        before = self._last.get((topic, number), ())
        lot = [*before, *lot]
        self._last[topic, number] = lot[-1:]
        places = [(topic, number, record.offset) for record in lot]
        stamps = self._asked.stamps
        self._seen.update(p for one, p in zip(lot, places, strict=True) if stamps.get(p) == (one.key, one.timestamp_ms))
        is_taken = [n >= len(before) and place not in self._asked.dead_letters for n, place in enumerate(places)]
        # The tombstone of a delete says nothing of its own, which only the delete tells, a letter or not.
        followed = [_is_tombstone_of(one, lot[n + 1 : n + 2]) for n, one in enumerate(lot)]
        read = [n for n, p in enumerate(places) if is_taken[n] or (followed[n] and p not in self._asked.unread)]
        others = [lot[n] for n in read]
        if not others:
            return
        records = _columns(topic, number, others)
        changes, self._target = read_with(self._fetch, self._target, topic, records)
        is_other = np.array(is_taken)[read]
        # Such a record may have been a change in its time, and which row it was about cannot be read now.
        refused = np.flatnonzero(changes.decoded.refused & is_other).tolist()
        self._doubts.setdefault((topic, number), []).extend((others[n].offset, others[n].key) for n in refused)
        kept = changes.without_refused()
        kept = kept.only(is_other[kept.records])
        kept = kept.only(~self._is_in_progress(kept))
        of_change = pick(records, kept.records)
        if not kept.ops.size:
            return
        rows = rows_of(self._target, kept, of_change)
        ranked = rank(self._target, self._asked.topics.index(topic), rows, kept, of_change)
        places_of_keys = self._known.find([pa.chunked_array([key]) for key in ranked.keys])
        mine = np.flatnonzero((places_of_keys >= 0) | (ranked.ops == TRUNCATE))
        if mine.size:
            self._keep(ranked.take(mine))

    def _is_in_progress(self, changes: Changes) -> NDArray[np.bool_]:
        """Truncates that the place in the progress stands for. It does not for those from before `order_by` was declared,
        which in a topic's only partition go by arrival, as they did.
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
            whole = concat_ranked(self._parts)
            self._parts = [whole.take(deduplicate(whole).kept)]


def read_with(
    fetch: Fetch, target: TableTarget, topic: str, records: Mapping[str, pa.Array]
) -> tuple[Changes, TableTarget]:
    """The changes of records that need not be good ones, and the target with the schemas that they name."""
    for _ in range(_ROUNDS):
        changes = read_checked(target, topic, records, MAX_MISMATCHES)
        if not changes.decoded.missing:
            break
        target = fetch(changes.decoded.missing)
    return changes, target


def _is_tombstone_of(record: ReadRecord, following: Sequence[ReadRecord]) -> bool:
    return any(one.value in _NOTHING and one.key == record.key for one in following)


def _columns(topic: str, number: int, records: Sequence[ReadRecord]) -> dict[str, pa.Array]:
    """The records as the source would ship them."""
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
