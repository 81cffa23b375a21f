"""Debezium's topic of transactions, read for one table: how many changes each transaction had that has ended.

It is read no further than the transactions are known that are asked for, and from no earlier than a minute before the
first of their changes: its events are written around them.

A connector that has died inside of a transaction says BEGIN again when it goes on, numbers the rest of the changes from one,
and its END counts this rest alone. So what has begun twice is never counted here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frazil.errors import UnavailableError
from frazil.kafka.port import Partition, ReadRecord, RecordReader, Source
from frazil.types import OffsetRange

_MARGIN_MS = 60_000
_ENOUGH_BYTES = 4 * 1024 * 1024
# With more than this to read it is worth asking for the offset of a time.
_FAR_BEHIND = 200_000


@dataclass(frozen=True)
class Event:
    """A transaction begins, or it ends after `count` changes of the table; None where the table has none. at_ms: when that
    was written.
    """

    transaction: str
    at_ms: int
    is_end: bool
    count: int | None = None


class TransactionEnds:
    """counts: of transactions that have begun once and have ended, by id. read_events: what records of the topic say."""

    def __init__(
        self,
        topic: str,
        source: Source,
        reader: RecordReader,
        read_events: Callable[[Sequence[ReadRecord]], list[Event]],
    ) -> None:
        self.counts: dict[str, int] = {}
        self._topic = topic
        self._source = source
        self._reader = reader
        self._read_events = read_events
        self._partitions: list[Partition] = []
        self._next: dict[Partition, int] = {}
        self._since_ms: int | None = None
        self._read_to_ms: dict[Partition, int] = {}
        self._begun: dict[str, int] = {}
        self._ended: list[tuple[int, str, int]] = []

    def read_on(self, unknown: set[str], since_ms: int) -> None:
        """Until all of these transactions are known, or there is no more. since_ms: the timestamp of the first of their
        changes; 0: not known.

        Raises UnavailableError when the topic does not exist, or Kafka does not answer.
        """
        ends = self._begin(since_ms)
        while not unknown <= self.counts.keys():
            ranges = [OffsetRange(*p, self._next[p], ends[p]) for p in self._next if self._next[p] < ends.get(p, 0)]
            if not ranges:
                self._partitions = []  # There may be more of them by now.
                return
            records, reached = self._reader.read(ranges, _ENOUGH_BYTES)
            for record in records:
                self._read_to_ms[record.topic, record.partition] = record.timestamp_ms or 0
            for event in self._read_events(records):
                self._take(event)
            self._next |= reached
            behind = [self._read_to_ms.get(p, 0) for p, end in ends.items() if self._next[p] < end]
            self._count_up_to(min(behind, default=None))

    def forget(self, transactions: set[str]) -> None:
        """These are in the table."""
        for transaction in transactions:
            self.counts.pop(transaction, None)
            self._begun.pop(transaction, None)

    def _take(self, event: Event) -> None:
        name = event.transaction
        if not event.is_end:
            self._begun[name] = self._begun.get(name, 0) + 1
            if self._begun[name] > 1:
                self.counts.pop(name, None)
        elif event.count is not None:
            heapq.heappush(self._ended, (event.at_ms, name, event.count))
        elif self._begun.get(name) == 1:
            del self._begun[name]

    def _count_up_to(self, at_ms: int | None) -> None:
        """Takes the ends that were written by this time, up to which every partition is read: of what they end, every
        beginning has been seen then. None: all of them.
        """
        while self._ended and (at_ms is None or self._ended[0][0] < at_ms):
            _, name, count = heapq.heappop(self._ended)
            if self._begun.get(name, 1) == 1:
                self.counts[name] = max(count, self.counts.get(name, 0))

    def _begin(self, since_ms: int) -> dict[Partition, int]:
        """Where the topic ends; settles where each partition is read on."""
        if not self._partitions:
            found = self._source.topics(lambda name: name == self._topic).get(self._topic)
            if found is None:
                raise UnavailableError(
                    f"topic {self._topic} does not exist",
                    remedy="set `provide.transaction.metadata` to true at Debezium's connector, or correct the name",
                    where=f"topic {self._topic}",
                )
            self._partitions = [(self._topic, number) for number in range(found.partition_count)]
        if self._since_ms is None or since_ms < self._since_ms - _MARGIN_MS // 2:
            self._since_ms, self._next = since_ms, {}
            self._begun, self._ended, self._read_to_ms = {}, [], {}
        ends, beginnings = self._source.ends(self._partitions), self._source.beginnings(self._partitions)
        behind = sum(end - self._next[p] for p, end in ends.items() if p in self._next)
        if since_ms and (behind > _FAR_BEHIND or ends.keys() - self._next.keys()):
            beginnings |= self._source.at_time(dict.fromkeys(ends, since_ms - _MARGIN_MS))
        for partition, end in ends.items():
            self._next[partition] = min(max(self._next.get(partition, 0), beginnings.get(partition, 0)), end)
        return ends
