"""Ends batches where transactions end: the driver reads the topic ahead, for the ids of transactions alone.

The result is kept until it is committed, so that a process reads every record once. It need not outlive the process:
another one that reads from the table's progress finds the same ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from frazil.decode.settings import Reading, WriterSchema
from frazil.ingest.failures import TableStopped
from frazil.ingest.tables.batch_ends import Cut
from frazil.ingest.tables.preflight import check_partitions
from frazil.ingest.tables.schemas import Schemas, may_change
from frazil.ingest.tables.table import Planned, Table
from frazil.ingest.tables.target import target_of
from frazil.kafka.port import Partition, ReadRecord, RecordReader, Source
from frazil.types import OffsetRange, advance, by_topic
from frazil_transactions.markers import Event, TransactionEnds, read_events, read_marks, reading_of_marks
from frazil_transactions.runs import Log, Mark, find_ends, unknown_of

LARGEST_TRANSACTION = 10_000_000
"""A table stops when a batch would need more offsets than this to contain its transactions completely."""
AT_A_TIME = 500_000
"""The number of records that are read ahead for one batch, unless a transaction has more."""
_MOST_RUNS = 100_000
# Offsets that are read before a position at which no earlier batch has ended, such as `start`.
_RECORDS_BEFORE = 10_000
_ENOUGH_BYTES = 32 * 1024 * 1024
_LEAST_GROWTH = 1000
_ROUNDS = 3


@dataclass
class _Followed:
    """The transactions of one table's topic, from the table's position on."""

    #: The offsets at which the logs begin.
    position: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    #: The transactions by partition.
    logs: dict[Partition, Log] = field(default_factory=dict)
    #: The last cut that was returned.
    cut: Cut | None = None
    #: Numbers of changes before a position at which no earlier batch has ended, by transaction.
    behind: dict[str, array[int]] = field(default_factory=dict)
    #: The topic of transactions; None before it is read.
    ends: TransactionEnds | None = None
    #: Registry schemas of record values.
    schemas: dict[str, WriterSchema] = field(default_factory=dict)
    #: Registry schemas of the events of transactions.
    of_ends: dict[str, WriterSchema] = field(default_factory=dict)

    def begin(self, planned: Planned) -> list[Partition]:
        """Moves the logs to the position of the table: after the last cut, before it, or elsewhere. Returns the
        partitions whose newest earlier change is not known.
        """
        position, places = planned.position, planned.table.progress.order.places
        if self.cut is not None and position == advance(self.cut.position, self.cut.ranges):
            done = [
                run
                for (topic, number), log in self.logs.items()
                for run in log.forget(position[topic][number], places.get(topic, {}).get(number, ""))
            ]
            if self.ends is not None:
                self.ends.forget({run.transaction for run in done})
        elif position != self.position:
            # The table was rolled back, for example: transactions that were committed, and forgotten here, are needed again.
            self.logs, self.behind, self.ends = {}, {}, None
        self.position, self.cut = position, None
        added = [partition for partition in planned.table.partitions() if partition not in self.logs]
        for topic, number in added:
            offset = position[topic][number]
            self.logs[topic, number] = Log(offset, offset, places.get(topic, {}).get(number, ""))
        return [partition for partition in added if not self.logs[partition].newest]

    @property
    def run_count(self) -> int:
        """The number of runs in all logs."""
        return sum(len(log.runs) for log in self.logs.values())

    @property
    def span(self) -> int:
        """Offsets that were read ahead and are not committed."""
        return sum(log.end - log.start for log in self.logs.values())

    def left(self, goals: Mapping[Partition, int]) -> list[OffsetRange]:
        """Returns the ranges that remain to be read up to the goals."""
        return [OffsetRange(*p, log.end, goals[p]) for p, log in self.logs.items() if log.end < goals[p]]

    def add(self, marks: Sequence[Mark], reached: Mapping[Partition, int]) -> None:
        """Adds the changes that were found up to the offsets `reached`."""
        for mark in marks:
            self.logs[mark.partition].add(mark)
        for partition, offset in reached.items():
            self.logs[partition].end = offset


class Boundaries:
    """See BatchEnds."""

    def __init__(self, source: Source, reader: RecordReader | None, schemas: Schemas | None) -> None:
        self._source = source
        self._reader = reader
        self._schemas = schemas
        self._followed: dict[str, _Followed] = {}

    def find_cut(self, planned: Planned) -> Cut | None:
        """See BatchEnds."""
        check_partitions(planned.table)
        if any(number not in planned.position.get(topic, {}) for topic, number in planned.table.partitions()):
            return None  # A partition has no leader, and may have changes that the others wait for.
        followed = self._followed.setdefault(planned.table.name, _Followed())
        followed.schemas = {name: schema for name, schema in followed.schemas.items() if not may_change(schema)}
        try:
            self._read_before(planned.table, followed, followed.begin(planned))
            followed.cut = self._find_cut(planned, followed)
        except BaseException:
            del self._followed[planned.table.name]
            raise
        return followed.cut

    def _find_cut(self, planned: Planned, followed: _Followed) -> Cut | None:
        bounds = {partition: log.start for partition, log in followed.logs.items()}
        ends = {p: max(start, planned.ends.get(p, start)) for p, start in bounds.items()}
        bounds |= {(r.topic, r.partition): r.end for r in planned.batch.ranges}
        goals, most = bounds, 1
        while True:
            self._read(planned.table, followed, goals, most)
            for limits in [bounds] if goals is bounds else [bounds, goals]:
                cut = self._cut(planned, followed, limits)
                if cut is not None:
                    return cut
            if not followed.left(ends):
                return None
            if followed.span >= LARGEST_TRANSACTION:
                raise too_large(planned.table)
            if followed.left(goals):
                most *= 2
            else:
                # Twice as far, at most to the ends.
                goals = {
                    p: min(ends[p], goal + max(_LEAST_GROWTH, goal - followed.logs[p].start))
                    for p, goal in goals.items()
                }

    def _read_before(self, table: Table, followed: _Followed, partitions: Sequence[Partition]) -> None:
        """Reads the records before a position that no batch has ended at: a transaction may continue across it."""
        assert self._reader is not None
        at = {partition: followed.logs[partition].start for partition in partitions if followed.logs[partition].start}
        first = self._source.beginnings(at)
        ranges = [OffsetRange(*p, max(first.get(p, end), end - _RECORDS_BEFORE), end) for p, end in at.items()]
        while ranges := [r for r in ranges if r.span]:
            records, reached = self._reader.read(ranges, _ENOUGH_BYTES)
            for mark in self._marks(table, followed, records, is_strict=False):
                log = followed.logs[mark.partition]
                log.newest = max(log.newest, mark.place)
                if mark.order is not None:
                    followed.behind.setdefault(mark.transaction, array("q")).append(mark.order)
            ranges = [replace(r, start=reached[r.topic, r.partition]) for r in ranges]

    def _read(self, table: Table, followed: _Followed, goals: Mapping[Partition, int], most: int) -> None:
        """Reads on until the goals are reached, or `most` times the usual number of records was read."""
        assert self._reader is not None
        count = 0
        while ranges := followed.left(goals):
            records, reached = self._reader.read(ranges, _ENOUGH_BYTES)
            followed.add(self._marks(table, followed, records), reached)
            count += len(records)
            if count >= most * AT_A_TIME or followed.run_count >= most * _MOST_RUNS:
                return

    def _cut(self, planned: Planned, followed: _Followed, limits: Mapping[Partition, int]) -> Cut | None:
        counts = self._counts(planned.table, followed)
        ends = find_ends(followed.logs, limits, counts, followed.behind)
        ranges = [OffsetRange(*p, followed.logs[p].start, end.offset) for p, end in sorted(ends.items())]
        ranges = [r for r in ranges if r.span]
        if not ranges:
            return None
        places = by_topic({partition: end.newest for partition, end in ends.items() if end.newest})
        return Cut(planned.position, tuple(ranges), places)

    def _counts(self, table: Table, followed: _Followed) -> Mapping[str, int]:
        """Returns the number of changes of transactions, as far as the topic of transactions contains it."""
        topic = table.spec.changes.atomic.transaction_topic if table.spec.changes.atomic else None
        if topic is None:
            return {}
        assert self._reader is not None
        if followed.ends is None:
            followed.ends = TransactionEnds(
                topic,
                self._source,
                self._reader,
                lambda records: events_of(table, records, followed.of_ends, self._schemas, min(table.offsets.topics)),
            )
        unknown = unknown_of(followed.logs.values(), followed.ends.counts)
        if unknown:
            since_ms = min(log.runs[0].since_ms for log in followed.logs.values() if log.runs)
            followed.ends.read_on(unknown, since_ms)
        return followed.ends.counts

    def _marks(
        self, table: Table, followed: _Followed, records: Sequence[ReadRecord], *, is_strict: bool = True
    ) -> list[Mark]:
        assert table.spec.changes.atomic is not None
        has_events = table.spec.changes.atomic.transaction_topic is not None
        return marks_of(table, records, followed.schemas, self._schemas, has_events=has_events, is_strict=is_strict)


def marks_of(
    table: Table,
    records: Sequence[ReadRecord],
    known: dict[str, WriterSchema],
    schemas: Schemas | None,
    *,
    has_events: bool = True,
    is_strict: bool = True,
) -> list[Mark]:
    """Returns the changes among records of the table, as `read_marks`. known: the registry schemas that are known; others
    that the records need are added to them.
    """
    target = target_of(table)
    assert target.envelope is not None
    marks: Iterable[Mark] = ()
    for _ in range(_ROUNDS):
        with_schemas = replace(target.reading, schemas=_sorted({**dict(target.reading.schemas), **known}))
        marks, missing = read_marks(reading_of_marks(with_schemas, target.envelope), records, has_events, is_strict)
        if not missing or schemas is None:
            break
        known |= schemas.fetch_for(table.spec, missing, min(table.offsets.topics))
    return list(marks)


def events_of(
    table: Table, records: Sequence[ReadRecord], known: dict[str, WriterSchema], schemas: Schemas | None, *topics: str
) -> list[Event]:
    """Returns the events among records of Debezium's topic of transactions, with the numbers of changes in `topics`. table:
    has the same format. known: as of `marks_of`.
    """
    reading: Reading = target_of(table).reading
    value = table.spec.source.value.model_copy(update={"subject": None, "message": None})
    events: list[Event] = []
    for _ in range(_ROUNDS):
        events, missing = read_events(replace(reading, schemas=_sorted(known)), records, *topics)
        if not missing or schemas is None or not records:
            break
        known |= schemas.fetch(missing, records[0].topic, value)
    return events


def too_large(table: Table) -> TableStopped:
    """Returns the error of a transaction that is larger than any batch."""
    return TableStopped(
        f"no transaction is complete within {LARGEST_TRANSACTION:,} offsets after the table's next offset",
        "write `atomic: batch` until the table has passed the transaction",
        table.name,
    )


def _sorted(schemas: Mapping[str, WriterSchema]) -> tuple[tuple[str, WriterSchema], ...]:
    return tuple(sorted(schemas.items(), key=lambda pair: pair[0]))
