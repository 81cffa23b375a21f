"""Where a group of tables of one Debezium source is cut: no transaction is in one of them and lacks in another.

The offsets of a moment may be inside of a transaction. The newest change before them, in the source's commit order, shows
the transaction up to which all partitions are read: each ends behind its last change that is not later. An earlier offset is
not possible, as tables may have been read to the moment already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frazil.clock import Clock
from frazil.decode.settings import WriterSchema
from frazil.errors import RecordError, UnavailableError
from frazil.ingest.tables.cuts import GRACE_S
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.ingest.transactions.lookahead import events_of, marks_of
from frazil.ingest.transactions.markers import Event
from frazil.ingest.transactions.runs import Mark
from frazil.kafka.port import Partition, ReadRecord, RecordReader, Source
from frazil.types import OffsetRange

_RECORDS_BEFORE = 100
"""Records before a moment among which the newest change of a partition is looked for."""
_ENOUGH_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Closed:
    """Offsets before which every transaction is complete, once its last change has arrived."""

    bounds: Mapping[Partition, int]
    #: The newest transaction before them; None without one.
    transaction: str | None = None
    #: The numbers of its changes that have arrived.
    orders: frozenset[int] = frozenset()
    #: The timestamp of its first change that has arrived, in milliseconds since 1970.
    since_ms: int = 0


def close(moment: Mapping[Partition, int], marks: Sequence[Mark]) -> Closed:
    """Returns the least offsets, none before the moment's, before which no transaction begins that has a change behind them.
    marks: the changes around the moment, in order per partition.
    """
    bounds = dict(moment)
    while True:
        newest = max((mark for mark in marks if mark.offset < bounds[mark.partition]), key=_place, default=None)
        if newest is None:
            return Closed(bounds)
        changes = [mark for mark in marks if mark.transaction == newest.transaction]
        last = max(map(_place, changes))
        grown = dict(bounds)
        for mark in marks:
            if mark.place <= last:
                grown[mark.partition] = max(grown[mark.partition], mark.offset + 1)
        if grown == bounds:
            orders = frozenset(mark.order for mark in changes if mark.order is not None)
            return Closed(bounds, newest.transaction, orders, min(mark.timestamp_ms for mark in changes))
        bounds = grown


def _place(mark: Mark) -> str:
    return mark.place


class TransactionCuts:
    """Closes the cuts of a pipeline's groups; used by one thread."""

    def __init__(self, source: Source, reader: RecordReader, schemas: Schemas | None, clock: Clock) -> None:
        self._source, self._reader, self._schemas, self._clock = source, reader, schemas, clock
        #: By group the newest transaction of its cut, and when its end was seen first, on the monotonic clock in seconds.
        self._ended: dict[str, tuple[str, float]] = {}
        self._of_values: dict[str, dict[str, WriterSchema]] = {}
        self._of_events: dict[str, WriterSchema] = {}

    def close(
        self, group: str, moment: Mapping[Partition, int], tables: Sequence[Table], topic: str
    ) -> Mapping[Partition, int] | None:
        """Returns the offsets at which a transaction ends, none before the moment's; None while its last change has yet to
        arrive. topic: Debezium's topic of transactions.

        Raises: UnavailableError where Kafka or the registry does not answer, or a change lacks its transaction.
        """
        closed = close(moment, self._marks(moment, tables))
        if closed.transaction is None:
            return closed.bounds
        topics = sorted({name for table in tables for name in table.offsets.topics})
        ends = [event for event in self._events(tables[0], topic, topics, closed) if event.is_end]
        if not ends:
            return None
        if any(event.count is not None and len(closed.orders) >= event.count for event in ends):
            return closed.bounds
        # Its first changes are longer ago than what was read, or the topics have other names than the source's tables.
        now_s, last = self._clock.monotonic_s(), self._ended.get(group)
        if last is None or last[0] != closed.transaction:
            last = self._ended[group] = closed.transaction, now_s
        return closed.bounds if now_s >= last[1] + GRACE_S else None

    def _marks(self, moment: Mapping[Partition, int], tables: Sequence[Table]) -> list[Mark]:
        ends, first = self._source.ends(moment), self._source.beginnings(moment)
        if not ends.keys() & first.keys() >= moment.keys():
            raise UnavailableError("a partition of the group has no leader")
        marks: list[Mark] = []
        read: set[Partition] = set()
        for table in tables:
            places = [place for place in table.partitions() if place in moment and place not in read]
            read.update(places)
            known = self._of_values.setdefault(table.name, {})
            ranges = [
                OffsetRange(*place, max(first[place], moment[place] - _RECORDS_BEFORE), ends[place]) for place in places
            ]
            records = self._read(ranges)
            if not records:
                continue
            if table.state is None:
                raise UnavailableError("the table does not exist yet", where=table.name)
            try:
                marks += marks_of(table, records, known, self._schemas)
            except RecordError as error:
                remedy = (
                    "set `provide.transaction.metadata` to true at Debezium's connector, or remove `transaction_topic`"
                )
                raise UnavailableError(f"{table.name}: {error.message}", remedy=remedy, where=error.where) from None
        return marks

    def _events(self, table: Table, topic: str, topics: Sequence[str], closed: Closed) -> list[Event]:
        """Returns the events of the newest transaction."""
        description = self._source.described([topic]).get(topic)
        if description is None:
            raise UnavailableError(
                f"topic {topic} does not exist",
                remedy="set `provide.transaction.metadata` to true at Debezium's connector, or correct the name",
                where=f"topic {topic}",
            )
        places = [(topic, number) for number in range(description.partition_count)]
        since = self._source.at_time(dict.fromkeys(places, closed.since_ms))
        ends = self._source.ends(places)
        records = self._read([OffsetRange(*place, since.get(place, end), end) for place, end in ends.items()])
        events = events_of(table, records, self._of_events, self._schemas, *topics)
        return [event for event in events if event.transaction == closed.transaction]

    def _read(self, ranges: Sequence[OffsetRange]) -> list[ReadRecord]:
        read: list[ReadRecord] = []
        while left := [wanted for wanted in ranges if wanted.span]:
            records, reached = self._reader.read(left, _ENOUGH_BYTES)
            read += records
            ranges = [OffsetRange(r.topic, r.partition, reached[r.topic, r.partition], r.end) for r in left]
        return read
