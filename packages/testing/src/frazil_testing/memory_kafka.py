"""The in-memory implementations of the Kafka ports, for tests: topics are lists of records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from frazil.clock import new_id
from frazil.errors import ConflictError, UnavailableError
from frazil.kafka.port import GroupOffset, OutFields, OutRecord, Partition, ReadRecord, TopicDescription, timestamp_of
from frazil.types import OffsetRange

_AT_ONCE = 3
"""Small, so that tests see more than one batch."""


@dataclass(frozen=True)
class MemoryRecord:
    """One record of a partition."""

    offset: int
    value: bytes | None
    timestamp_ms: int | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class MemoryTopic:
    """A topic with its partitions."""

    #: The records of each partition.
    partitions: list[list[MemoryRecord]]
    #: By partition, the first offset that retention has left.
    first: dict[int, int] = field(default_factory=dict)
    #: By partition, the least value of its end offset.
    ends: dict[int, int] = field(default_factory=dict)
    #: By partition, the first offset of a transaction that is still open.
    open: dict[int, int] = field(default_factory=dict)
    #: Whether it is compacted.
    is_compacted: bool = False
    #: The topic id, which changes when the topic is deleted and recreated.
    id: str = field(default_factory=new_id)

    def end(self, partition: int) -> int:
        """Returns the end offset of the partition."""
        records = self.partitions[partition]
        end = records[-1].offset + 1 if records else self.first.get(partition, 0)
        return max(end, self.ends.get(partition, 0))

    def stable_end(self, partition: int) -> int:
        """Returns the end of what a consumer of committed records may read."""
        return min(self.end(partition), self.open.get(partition, self.end(partition)))


class MemorySource:
    """Implements the ports `Source` and `RecordReader`."""

    def __init__(self) -> None:
        self.by_name: dict[str, MemoryTopic] = {}
        #: Whether every request raises UnavailableError.
        self.is_down = False
        #: By topic, the keys by which it asks for a table.
        self.keys: dict[str, dict[str, str]] = {}
        #: Partitions without a leader.
        self.silent: set[Partition] = set()

    def create(self, topic: str, partition_count: int = 1) -> MemoryTopic:
        """Creates a topic, replacing one of this name."""
        self.by_name[topic] = MemoryTopic([[] for _ in range(partition_count)])
        return self.by_name[topic]

    def produce(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        timestamp_ms: int = 0,
        gap: int = 0,
        **other: Any,
    ) -> int:
        """Appends a record after `gap` missing offsets; returns its offset. other: key and headers, see MemoryRecord."""
        log = self.by_name[topic]
        offset = log.end(partition) + gap
        log.partitions[partition].append(MemoryRecord(offset, value, timestamp_of(timestamp_ms), **other))
        return offset

    def trim(self, topic: str, partition: int, offset: int) -> None:
        """Deletes the records before `offset`, as retention does."""
        log = self.by_name[topic]
        log.partitions[partition] = [r for r in log.partitions[partition] if r.offset >= offset]
        log.first[partition] = offset

    def mark(self, topic: str, partition: int, count: int = 1) -> None:
        """Advances the end offset without records, as transaction markers do."""
        log = self.by_name[topic]
        log.ends[partition] = log.end(partition) + count

    def begin_transaction(self, topic: str, partition: int) -> None:
        """Holds all later records of the partition back from consumers, as a transaction does until it ends."""
        log = self.by_name[topic]
        log.open[partition] = log.end(partition)

    def end_transaction(self, topic: str, partition: int) -> None:
        """Commits the open transaction of the partition."""
        del self.by_name[topic].open[partition]
        self.mark(topic, partition)

    def compact(self, topic: str, partition: int, end: int, tombstones_end: int = 0) -> frozenset[int]:
        """Compacts the partition, as the log cleaner does: of the records before `end` the last one of each key stays,
        and before `tombstones_end` none without a value. Returns the offsets of deleted records.
        """
        log = self.by_name[topic]
        log.is_compacted = True
        records = [r for r in log.partitions[partition] if r.offset < end and r.key is not None]
        last = {r.key: r.offset for r in records}
        gone = {r.offset for r in records if r.offset < last[r.key] or (r.value is None and r.offset < tombstones_end)}
        log.ends[partition] = log.end(partition)
        log.partitions[partition] = [r for r in log.partitions[partition] if r.offset not in gone]
        return frozenset(gone)

    def cluster_id(self) -> str:
        self._answer()
        return "memory"

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        self._answer()
        return {
            name: TopicDescription(name, topic.id, len(topic.partitions))
            for name, topic in self.by_name.items()
            if wanted(name)
        }

    def described(self, names: Collection[str]) -> dict[str, TopicDescription]:
        return self.topics(names.__contains__)

    def topic_keys(self, control_topic: str) -> dict[str, dict[str, str]]:  # noqa: ARG002
        self._answer()
        return {topic: dict(keys) for topic, keys in self.keys.items()}

    def compacted(self, names: Collection[str]) -> frozenset[str]:
        self._answer()
        return frozenset(name for name in names if name in self.by_name and self.by_name[name].is_compacted)

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._answer()
        return {(topic, p): self.by_name[topic].stable_end(p) for topic, p in partitions if self._has(topic, p)}

    def log_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._answer()
        return {(topic, p): self.by_name[topic].end(p) for topic, p in partitions if self._has(topic, p)}

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._answer()
        return {(topic, p): self.by_name[topic].first.get(p, 0) for topic, p in partitions if self._has(topic, p)}

    def at_time(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        self._answer()
        offsets = {}
        for (topic, partition), ms in times.items():
            if not self._has(topic, partition):
                continue
            log = self.by_name[topic]
            end = log.stable_end(partition)
            records = (r for r in log.partitions[partition] if r.timestamp_ms is not None and r.offset < end)
            offsets[topic, partition] = next((r.offset for r in records if (r.timestamp_ms or 0) >= ms), end)
        return offsets

    def read(self, ranges: Iterable[OffsetRange], enough_bytes: int) -> tuple[list[ReadRecord], dict[Partition, int]]:
        self._answer()
        records_read: list[ReadRecord] = []
        reached: dict[Partition, int] = {}
        for r in ranges:
            log = self.by_name[r.topic]
            if log.first.get(r.partition, 0) > r.start:
                raise UnavailableError("offsets are gone", where=r.topic)
            reached[r.topic, r.partition] = r.start
            for record in log.partitions[r.partition]:
                if r.start <= record.offset < r.end and enough_bytes > 0:
                    records_read.append(_read(r, record))
                    reached[r.topic, r.partition] = record.offset + 1
                    enough_bytes -= len(record.value or b"")
            if enough_bytes > 0:
                reached[r.topic, r.partition] = r.end
        return records_read, reached

    def batches(self, wanted: OffsetRange) -> Iterator[Sequence[ReadRecord]]:
        self._answer()
        log = self.by_name[wanted.topic].partitions[wanted.partition]
        records = [_read(wanted, record) for record in log if wanted.start <= record.offset < wanted.end]
        for start in range(0, len(records), _AT_ONCE):
            yield records[start : start + _AT_ONCE]

    def _has(self, topic: str, partition: int) -> bool:
        if (topic, partition) in self.silent:
            return False
        return topic in self.by_name and partition < len(self.by_name[topic].partitions)

    def _answer(self) -> None:
        if self.is_down:
            raise UnavailableError("Kafka does not answer", where="memory")


def _read(r: OffsetRange, record: MemoryRecord) -> ReadRecord:
    return ReadRecord(
        r.topic, r.partition, record.offset, record.value, record.timestamp_ms, record.headers, record.key
    )


@dataclass
class MemoryOutbox:
    """Implements the port `Outbox`."""

    #: The records written, by topic.
    topics: dict[str, list[OutRecord]] = field(default_factory=dict)
    #: The faults of the next writes: `question`: the request never arrives; `answer`: it succeeds and the response is
    #: lost.
    losses: list[str] = field(default_factory=list)
    _last: dict[tuple[str, str], str] = field(default_factory=dict)

    def forget(self) -> None:
        """Forgets the last names, as a broker does with the offsets of groups that were idle for long."""
        self._last.clear()

    def last(self, owner: str, topic: str) -> str:
        return self._last.get((owner, topic), "")

    def write(self, owner: str, topic: str, name: str, records: Sequence[OutFields]) -> None:
        if self._last.get((owner, topic)) == name:
            return
        loss = self.losses.pop(0) if self.losses else ""
        if loss == "question":
            raise UnavailableError("the broker does not answer", where=topic)
        self.topics.setdefault(topic, []).extend(starmap(OutRecord, records))
        self._last[owner, topic] = name
        if loss == "answer":
            raise UnavailableError("the answer was lost", where=topic)


@dataclass
class MemoryGroup:
    """Implements the port `Group`."""

    name: str = "memory"
    #: The committed offsets.
    committed: dict[Partition, GroupOffset] = field(default_factory=dict)
    #: Whether a consumer is a member of the group.
    has_members: bool = False
    #: What every method raises; None where the broker answers.
    failure: UnavailableError | None = None
    #: The commits so far.
    commits: list[Mapping[Partition, GroupOffset]] = field(default_factory=list)

    def offsets(self, partitions: Iterable[Partition]) -> dict[Partition, GroupOffset]:
        self._answer()
        return {place: self.committed[place] for place in partitions if place in self.committed}

    def commit(self, offsets: Mapping[Partition, GroupOffset]) -> None:
        self._answer()
        if self.has_members:
            raise ConflictError("a consumer is a member of the group", where="memory")
        self.commits.append(offsets)
        self.committed |= offsets

    def is_live(self) -> bool:
        self._answer()
        return self.has_members

    def _answer(self) -> None:
        if self.failure is not None:
            raise self.failure
