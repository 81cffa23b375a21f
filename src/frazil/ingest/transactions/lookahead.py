"""Ends batches where transactions end: the driver reads the topic ahead of the tasks, for the transactions' ids alone.

What it has read it keeps until it is in the table, so that every record is looked at once in a process. Nothing of it must
outlive the process: a look from the table's own progress finds the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from frazil.decode.settings import Reading, WriterSchema
from frazil.errors import SpecError
from frazil.ingest.batch import Planned
from frazil.ingest.failures import TableStopped
from frazil.ingest.schemas import Schemas, may_change
from frazil.ingest.table import Table
from frazil.ingest.transactions.ends import Event, TransactionEnds
from frazil.ingest.transactions.markers import read_events, read_marks, reading_of_marks
from frazil.ingest.transactions.runs import Cut, Log, Mark, find_ends, unknown_of
from frazil.kafka.port import Partition, ReadRecord, RecordReader, Source
from frazil.types import OffsetRange, advance

LARGEST_TRANSACTION = 10_000_000
"""A batch that would have to cover more offsets to show its transactions whole stops its table."""
AT_A_TIME = 500_000
"""So many records are looked at for one batch, unless a transaction has more."""
_MOST_RUNS = 100_000
# Before a position that no cut has led to, such as `start`.
_LOOKED_BACK = 10_000
_ENOUGH_BYTES = 32 * 1024 * 1024
_LEAST_GROWTH = 1000
_ROUNDS = 3


@dataclass
class _Followed:
    """What is known of one table's topic. position: where the logs begin. cut: the last one that was answered. behind:
    numbers of changes before a position that no cut has led to, by transaction. schemas: of values; of_ends: of the events
    of transactions.
    """

    position: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    logs: dict[Partition, Log] = field(default_factory=dict)
    cut: Cut | None = None
    behind: dict[str, array[int]] = field(default_factory=dict)
    ends: TransactionEnds | None = None
    schemas: dict[str, WriterSchema] = field(default_factory=dict)
    of_ends: dict[str, WriterSchema] = field(default_factory=dict)

    def begin(self, planned: Planned) -> list[Partition]:
        """Goes on from where the table is: after the last cut, before it, or somewhere else. Partitions of which it is not
        known what is before.
        """
        position, places = planned.position, planned.table.progress.places
        if self.cut is not None and position == advance(self.cut.position, self.cut.ranges):
            done = [
                run
                for (topic, number), log in self.logs.items()
                for run in log.forget(position[topic][number], places.get(topic, {}).get(number, ""))
            ]
            if self.ends is not None:
                self.ends.forget({run.transaction for run in done})
        elif position != self.position:
            # As after a table was rolled back: what was forgotten of transactions that were in it is needed again.
            self.logs, self.behind, self.ends = {}, {}, None
        self.position, self.cut = position, None
        added = [partition for partition in planned.table.partitions() if partition not in self.logs]
        for topic, number in added:
            offset = position[topic][number]
            self.logs[topic, number] = Log(offset, offset, places.get(topic, {}).get(number, ""))
        return [partition for partition in added if not self.logs[partition].newest]

    @property
    def run_count(self) -> int:
        """How many stretches of transactions are kept in mind."""
        return sum(len(log.runs) for log in self.logs.values())

    @property
    def span(self) -> int:
        """Offsets that were looked at and are not in the table."""
        return sum(log.end - log.start for log in self.logs.values())

    def left(self, goals: Mapping[Partition, int]) -> list[OffsetRange]:
        """What is still to be looked at."""
        return [OffsetRange(*p, log.end, goals[p]) for p, log in self.logs.items() if log.end < goals[p]]

    def note(self, marks: Sequence[Mark], reached: Mapping[Partition, int]) -> None:
        """Takes what was found up to these offsets."""
        for mark in marks:
            self.logs[mark.partition].add(mark)
        for partition, offset in reached.items():
            self.logs[partition].end = offset


class Boundaries:
    """Looks for the tables of one process; used by one thread at a time."""

    def __init__(self, source: Source, reader: RecordReader | None, schemas: Schemas | None) -> None:
        self._source = source
        self._reader = reader
        self._schemas = schemas
        self._followed: dict[str, _Followed] = {}

    def look(self, planned: Planned) -> Cut | None:
        """Where the batch must end so that its table shows no part of a transaction; None when there is no whole one yet. It
        may end after what was planned, where a transaction is that large.

        Raises SpecError when it cannot be found out for such a topic, RecordError for a change that does not tell what it
        must, TableStopped for a transaction that is too large, UnavailableError when Kafka or the registry is away.
        """
        check_partitions(planned.table)
        if any(number not in planned.position.get(topic, {}) for topic, number in planned.table.partitions()):
            return None  # A partition has no leader, and may have changes that the others wait for.
        followed = self._followed.setdefault(planned.table.name, _Followed())
        followed.schemas = {name: schema for name, schema in followed.schemas.items() if not may_change(schema)}
        try:
            self._look_back(planned.table, followed, followed.begin(planned))
            followed.cut = self._look(planned, followed)
        except BaseException:
            del self._followed[planned.table.name]
            raise
        return followed.cut

    def _look(self, planned: Planned, followed: _Followed) -> Cut | None:
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
                goals = _grown(followed, goals, ends)

    def _look_back(self, table: Table, followed: _Followed, partitions: Sequence[Partition]) -> None:
        """Finds out what is before a position that no cut has led to: a transaction may reach over it."""
        assert self._reader is not None
        at = {partition: followed.logs[partition].start for partition in partitions if followed.logs[partition].start}
        first = self._source.beginnings(at)
        ranges = [OffsetRange(*p, max(first.get(p, end), end - _LOOKED_BACK), end) for p, end in at.items()]
        while ranges := [r for r in ranges if r.span]:
            records, reached = self._reader.read(ranges, _ENOUGH_BYTES)
            for mark in self._marks(table, followed, records, is_strict=False):
                log = followed.logs[mark.partition]
                log.newest = max(log.newest, mark.place)
                if mark.order is not None:
                    followed.behind.setdefault(mark.transaction, array("q")).append(mark.order)
            ranges = [replace(r, start=reached[r.topic, r.partition]) for r in ranges]

    def _read(self, table: Table, followed: _Followed, goals: Mapping[Partition, int], most: int) -> None:
        """Looks on until the goals are reached, or at `most` times as many records as is usual."""
        assert self._reader is not None
        count = 0
        while ranges := followed.left(goals):
            records, reached = self._reader.read(ranges, _ENOUGH_BYTES)
            followed.note(self._marks(table, followed, records), reached)
            count += len(records)
            if count >= most * AT_A_TIME or followed.run_count >= most * _MOST_RUNS:
                return

    def _cut(self, planned: Planned, followed: _Followed, limits: Mapping[Partition, int]) -> Cut | None:
        counts = self._counts(planned.table, followed)
        found = find_ends(followed.logs, limits, counts, followed.behind)
        ranges = [OffsetRange(*p, followed.logs[p].start, end.offset) for p, end in sorted(found.items())]
        ranges = [r for r in ranges if r.span]
        if not ranges:
            return None
        places: dict[str, dict[int, str]] = {}
        for (topic, number), end in found.items():
            if end.newest:
                places.setdefault(topic, {})[number] = end.newest
        return Cut(planned.position, tuple(ranges), places)

    def _counts(self, table: Table, followed: _Followed) -> Mapping[str, int]:
        """How many changes transactions had, as far as the topic of transactions tells."""
        topic = table.spec.atomic.transaction_topic if table.spec.atomic else None
        if topic is None:
            return {}
        assert self._reader is not None
        if followed.ends is None:
            followed.ends = TransactionEnds(
                topic, self._source, self._reader, lambda records: self._events(table, followed, records)
            )
        unknown = unknown_of(followed.logs.values(), followed.ends.counts)
        if unknown:
            since_ms = min(log.runs[0].since_ms for log in followed.logs.values() if log.runs)
            followed.ends.read_on(unknown, since_ms)
        return followed.ends.counts

    def _marks(
        self, table: Table, followed: _Followed, records: Sequence[ReadRecord], *, is_strict: bool = True
    ) -> list[Mark]:
        target = table.target()
        assert target.envelope is not None
        assert table.spec.atomic is not None
        has_events = table.spec.atomic.transaction_topic is not None
        for _ in range(_ROUNDS):
            known = replace(target.reading, schemas=_sorted({**dict(target.reading.schemas), **followed.schemas}))
            marks, missing = read_marks(reading_of_marks(known, target.envelope), records, has_events, is_strict)
            if not missing or self._schemas is None:
                break
            followed.schemas |= self._schemas.fetch_for(table.spec, missing, min(table.offsets.topics))
        return list(marks)

    def _events(self, table: Table, followed: _Followed, records: Sequence[ReadRecord]) -> list[Event]:
        reading: Reading = table.target().reading
        value = table.spec.value.model_copy(update={"subject": None, "message": None})
        events: list[Event] = []
        for _ in range(_ROUNDS):
            known = replace(reading, schemas=_sorted(followed.of_ends))
            events, missing = read_events(known, records, min(table.offsets.topics))
            if not missing or self._schemas is None or not records:
                break
            followed.of_ends |= self._schemas.fetch(missing, records[0].topic, value)
        return events


def check_partitions(table: Table) -> None:
    """Raises SpecError for a topic whose transactions nothing would tell apart."""
    count = max((topic.partition_count for topic in table.offsets.topics.values()), default=0)
    if count > 1 and table.spec.atomic is not None and table.spec.atomic.transaction_topic is None:
        raise SpecError(
            f"a transaction may span all {count} partitions of the topic, and nothing shows when it is complete",
            remedy="write `atomic: {transaction_topic: …}` with Debezium's topic, or use a topic of one partition",
            where=f"topic {min(table.offsets.topics)}",
        )


def too_large(table: Table) -> TableStopped:
    """What is said of a transaction that no batch takes."""
    return TableStopped(
        f"no transaction is complete within {LARGEST_TRANSACTION:,} offsets after the table's next offset",
        "write `atomic: batch` until the table has passed the transaction",
        table.name,
    )


def _grown(followed: _Followed, goals: Mapping[Partition, int], ends: Mapping[Partition, int]) -> dict[Partition, int]:
    """Twice as far, no further than there are records."""
    return {p: min(ends[p], goal + max(_LEAST_GROWTH, goal - followed.logs[p].start)) for p, goal in goals.items()}


def _sorted(schemas: Mapping[str, WriterSchema]) -> tuple[tuple[str, WriterSchema], ...]:
    return tuple(sorted(schemas.items(), key=lambda pair: pair[0]))
