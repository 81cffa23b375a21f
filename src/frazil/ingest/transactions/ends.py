"""Debezium's topic of transactions, read for one table: the number of changes of each transaction that has ended.

The topic is read until the transactions that are asked for are known, from one minute before the first of their
changes: its events are written around the changes.

A connector that restarts inside a transaction writes BEGIN again, numbers the remaining changes from one, and its END
counts only these. A transaction with two BEGIN events is therefore never counted here.
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
# With more offsets than this to read, a request for the offset of a timestamp costs less.
_FAR_BEHIND = 200_000


@dataclass(frozen=True)
class Event:
    """The BEGIN or END event of a transaction."""

    #: The transaction's id.
    transaction: str
    #: When the event was written, in milliseconds since the epoch.
    at_ms: int
    #: Whether this is the END event.
    is_end: bool
    #: The number of changes of the table's topic in the transaction, of an END event; None where it has none.
    count: int | None = None


class TransactionEnds:
    """Reads the topic of transactions, and counts the changes of transactions with one BEGIN and an END."""

    def __init__(
        self,
        topic: str,
        source: Source,
        reader: RecordReader,
        read_events: Callable[[Sequence[ReadRecord]], list[Event]],
    ) -> None:
        """Reads `topic`; `read_events` returns the events of its records."""
        #: The number of changes of each transaction that has begun once and has ended, by id.
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
        """Reads on until all of these transactions are known, or to the end of the topic. since_ms: the timestamp of
        the first of their changes in milliseconds since the epoch; 0 where it is not known.

        Raises: UnavailableError when the topic does not exist, or Kafka does not answer.
        """
        ends = self._begin(since_ms)
        while not unknown <= self.counts.keys():
            ranges = [OffsetRange(*p, self._next[p], ends[p]) for p in self._next if self._next[p] < ends.get(p, 0)]
            if not ranges:
                self._partitions = []  # The next read looks for new partitions.
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
        """Forgets transactions that are committed to the table."""
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
        """Counts the ended transactions whose END was written before `at_ms`, or all where it is None. Every partition
        is read up to that time, so that each BEGIN of these transactions has been read.
        """
        while self._ended and (at_ms is None or self._ended[0][0] < at_ms):
            _, name, count = heapq.heappop(self._ended)
            if self._begun.get(name, 1) == 1:
                self.counts[name] = max(count, self.counts.get(name, 0))

    def _begin(self, since_ms: int) -> dict[Partition, int]:
        """Returns the ends of the topic, and sets the offset at which each partition is read on."""
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
