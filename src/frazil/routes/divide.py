"""Which records of a topic each table of a job takes: those from its own start on, and of a share those with its values.

Tables that divide their records among them read them once where they have the same columns, and get rows. The outcome is
that of each table reading its own records, or None: where records request a change of a table's columns, only their own
table may get it, and which that is must be known first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import value_sizes
from frazil.report import ShareReport
from frazil.routes.share import Owners
from frazil.routes.together import MadeRows, ReadRows, RecordValues, Together, read_values
from frazil.rows.metadata_columns import due_records
from frazil.schema.arrow import Ints
from frazil.types import NewValues, Offsets
from frazil.write.digests import digest_of, record_hashes
from frazil.write.target import TableTarget

_MANY_BYTES = 32 * 1024 * 1024
_MANY_RECORDS = 8192  # A read of so many costs little more for each than one of a whole Arrow batch.
_MOST_HELD_BYTES = 64 * 1024 * 1024
_NONE = pa.RecordBatch.from_pydict({})
_UNREAD = -1


@dataclass(frozen=True)
class TableRecords:
    """Records of one table."""

    #: The table.
    target: TableTarget
    #: Its records.
    records: pa.RecordBatch
    #: Rows of records that were read before, together with those of other tables.
    rows: pa.Table | None = None
    #: What a table with a share reports of this read; None for records and rows of earlier reads.
    report: ShareReport | None = None
    #: Ids of schemas without which it is not known whose records these are.
    missing: frozenset[str] = frozenset()
    #: Bytes of the values of the records of this read that have become rows: int of shape (n_rows,).
    row_value_bytes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    #: The numbers of the fields of these (`Decoded.fates`); None where they are not counted.
    fates: NDArray[np.int32] | None = None
    #: The digest of these.
    record_digest: int = 0

    @property
    def places(self) -> set[tuple[int, int]]:
        """The partitions and offsets of the records."""
        return set(zip(self.records["partition"].to_pylist(), self.records["offset"].to_pylist(), strict=True))


class TopicShares:
    """Divides the records of a topic among the tables of a job.

    starts: the offsets at which the records of a table begin, for tables that do not use all of them. read: reads records at
    once for tables that are alike, and keeps few records of a table until there are more; without it each table gets its
    records at once, to read them by itself.
    """

    def __init__(
        self,
        targets: Sequence[TableTarget],
        topic: str,
        starts: Mapping[str, Offsets] = MappingProxyType({}),
        read: ReadRows | None = None,
    ) -> None:
        self._topic = topic
        self._starts = starts
        self._whole = [target for target in targets if target.share is None]
        dividing: dict[str, list[TableTarget]] = {}
        for target in targets:
            if target.share is not None:
                dividing.setdefault(target.share.rest, []).append(target)
        #: The tables that divide the records among them, a group for each table of the rest.
        self.groups = [_Group(members, topic, starts, read) for members in dividing.values()]

    def divide(self, records: pa.RecordBatch) -> Iterator[TableRecords]:
        """Yields what each table gets of some records."""
        for target in self._whole:
            due = due_records(target.name, self._topic, records, self._starts)
            yield TableRecords(target, records if due.all() else records.filter(pa.array(due)))
        for group in self.groups:
            yield from group.divide(records)


def take_kept(topics: Mapping[str, TopicShares], is_end: bool = False) -> Iterator[tuple[str, TableRecords]]:
    """Yields by topic what is kept, if it takes so much memory that more would make neither its reading nor its copies
    cheaper. is_end: whether there is no more, so that all of it is taken.
    """
    groups = [(topic, group) for topic, shares in topics.items() for group in shares.groups]
    if is_end or sum(group.held_bytes for _, group in groups) > _MOST_HELD_BYTES:
        yield from ((topic, share) for topic, group in groups for share in group.take_records())
    if is_end or sum(group.together.held_bytes for _, group in groups) >= _MANY_BYTES:
        for topic, group in groups:
            yield from ((topic, TableRecords(target, _NONE, rows)) for target, rows in group.together.take_held())


class _Group:
    """The tables that divide the records of a topic among them."""

    def __init__(
        self, targets: Sequence[TableTarget], topic: str, starts: Mapping[str, Offsets], read: ReadRows | None
    ) -> None:
        self._targets = targets
        self._topic = topic
        self._starts = starts
        #: Reads records at once.
        self.together = Together(targets, read)
        self._holds = read is not None
        #: Few records of a table, by its name: each read of some has a price of its own.
        self._held: dict[str, list[pa.RecordBatch]] = {}
        #: The memory that these take.
        self.held_bytes = 0
        self._shares = [target.share for target in targets if target.share is not None]
        division = self._shares[0].division
        self._sources = division.to.sources
        self._owners = Owners(division, next((share.derived for share in self._shares if share.is_rest), ()))

    def divide(self, records: pa.RecordBatch) -> Iterator[TableRecords]:
        """Yields what each table gets of some records. Few records of a table are kept until they are many."""
        for share in self._divide(records):
            if not self._holds or not share.records.num_rows:
                yield share
                continue
            yield replace(share, records=_NONE)
            held = self._held.setdefault(share.target.name, [])
            held.append(share.records)
            self.held_bytes += share.records.nbytes
            if sum(some.num_rows for some in held) >= _MANY_RECORDS:
                yield from self._take(share.target)

    def take_records(self) -> Iterator[TableRecords]:
        """Yields the records that are kept."""
        for target in self._targets:
            yield from self._take(target)

    def _take(self, target: TableTarget) -> Iterator[TableRecords]:
        held = self._held.pop(target.name, [])
        self.held_bytes -= sum(records.nbytes for records in held)
        for records in pa.Table.from_batches(held).combine_chunks().to_batches() if held else ():
            yield TableRecords(target, records)

    def _divide(self, records: pa.RecordBatch) -> Iterator[TableRecords]:
        """Yields the shares of the tables, first those in rows that are made for several tables at once."""
        made_rows = self.together.make_rows(self._topic, records)
        if made_rows is not None:
            are_made = made_rows.is_made.all()
            yield from self._divide_rows(
                records if are_made else records.filter(pa.array(made_rows.is_made)), made_rows
            )
            if are_made:
                return
            records = records.filter(pa.array(~made_rows.is_made))
        yield from self._divide_records(records)

    def _divide_rows(self, records: pa.RecordBatch, made_rows: MadeRows) -> Iterator[TableRecords]:
        """Yields the shares of records that have become rows: as rows where the table may have these, else as records."""
        sizes = value_sizes(records.column("value"))
        hashes = record_hashes(self._topic, dict(zip(records.schema.names, records.columns, strict=True)))
        of_rows: list[Ints] = []
        for target, own, report in self._own_records(records, made_rows.values, made_rows.values.codes):
            has_rows = target.name in self.together.tables
            of_rows.append(own if has_rows else own[:0])
            if has_rows:
                fates = None if made_rows.fates is None else made_rows.fates[:, own]
                digest = digest_of(hashes[own])
                yield TableRecords(
                    target, _NONE, report=report, row_value_bytes=sizes[own], fates=fates, record_digest=digest
                )
            else:
                yield TableRecords(target, records.take(pa.array(own)), report=report)
        self.together.hold(made_rows.rows, of_rows)

    def _divide_records(self, records: pa.RecordBatch) -> Iterator[TableRecords]:
        """Yields the shares as records. One that ends tasks, whose value is not read, goes to the tables that know of it."""
        crashing = {target.name: target.known.are_crashing(self._topic, records) for target in self._targets}
        is_read = ~np.logical_or.reduce(list(crashing.values()))
        named = records if is_read.all() else records.filter(pa.array(is_read))
        values = read_values(self._sources, self._targets, self._topic, named)
        codes = np.full(records.num_rows, _UNREAD)
        codes[is_read] = values.codes
        for target, own, report in self._own_records(records, values, codes):
            is_own = crashing[target.name].copy()
            is_own[own] = True
            yield TableRecords(
                target, records.take(pa.array(np.flatnonzero(is_own))), report=report, missing=values.missing
            )

    def _own_records(
        self, records: pa.RecordBatch, values: RecordValues, codes: Ints
    ) -> Iterator[tuple[TableTarget, Ints, ShareReport]]:
        """Yields each table with the places of its own records, in order, int64 of shape (n_own_records,), and its report on
        the others.

        codes: which of the different values each record has, _UNREAD for a record whose values are not read.
        """
        owner = self._numbers(values)[codes]
        order = np.argsort(owner, kind="stable")  # Once for all tables: there may be hundreds.
        ends = np.searchsorted(owner[order], np.arange(len(self._targets) + 1))
        for number, (target, share) in enumerate(zip(self._targets, self._shares, strict=True)):
            own, due_count = order[ends[number] : ends[number + 1]], len(owner)
            if target.name in self._starts:
                due = due_records(target.name, self._topic, records, self._starts)
                own, due_count = own[due[own]], int(np.count_nonzero(due))
            report = ShareReport(others=due_count - len(own))
            if share.is_rest:
                own, report = self._without_new(records, own, codes, values, report.others)
            yield target, own, report

    def _numbers(self, values: RecordValues) -> NDArray[np.uint16 | np.uint32]:
        """Returns the table of the records with each of the different values, and last that of records whose values are not
        read, of shape (n_distinct + 1,): its number among the tables, or their number where no table of the job takes them.
        """
        numbers: dict[tuple[str | None, ...], int] = {share.values: n for n, share in enumerate(self._shares)}
        nobody = len(self._shares)
        rest = numbers.get((), nobody)
        owners = [
            numbers.get(distinct, nobody if self._owners.has_table(distinct) else rest) for distinct in values.distinct
        ]
        # Small numbers are sorted faster.
        return np.array([*owners, nobody], np.uint16 if nobody < 2**16 else np.uint32)

    def _without_new(
        self, records: pa.RecordBatch, own: Ints, codes: Ints, values: RecordValues, others: int
    ) -> tuple[Ints, ShareReport]:
        """Returns the records of the rest without those that are to get a table, and the report on both."""
        numbers, counts = np.unique(codes[own], return_counts=True)
        rest: Counter[str] = Counter()
        new: list[int] = []
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            reason = self._owners.refuse(values.distinct[number])
            if reason is None:
                new.append(number)
            else:
                rest[reason.value] += count
        is_new = np.isin(codes[own], new)
        first = tuple(self._first_values(records, own[is_new], codes, values)) if new else ()
        return own[~is_new], ShareReport(first, dict(rest), others)

    def _first_values(
        self, records: pa.RecordBatch, rows: Ints, codes: Ints, values: RecordValues
    ) -> Iterator[NewValues]:
        """Yields the values of some records by partition: of each the first that come, as many as may get a table."""
        partitions, offsets = (np.asarray(records.column(name)) for name in ("partition", "offset"))
        for partition in np.unique(partitions[rows]).tolist():
            of_partition = rows[partitions[rows] == partition]
            of_partition = of_partition[np.argsort(offsets[of_partition], kind="stable")]
            numbers, places, counts = np.unique(codes[of_partition], return_index=True, return_counts=True)
            for n in np.argsort(places)[: self._owners.free].tolist():
                texts = tuple(map(str, values.distinct[int(numbers[n])]))
                offset = int(offsets[of_partition[places[n]]])
                yield NewValues(texts, self._topic, partition, offset, int(counts[n]))
