"""What the first pass has of each part of a topic: hashes and places, which can be kept for a later call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from frazil.write.digests import digest_of, record_hashes, row_hashes
from frazil_verify.independent.matching import Ints
from frazil_verify.independent.rules import DELETE, Made, NotJudged, RowMaker, Rules
from frazil_verify.independent.topic import Range, Record

MOST_OFFSETS = 1_000_000
"""The most offsets of a part."""
_AT_ONCE = 2_000
"""The most records whose values are Python's at a time: so many stay in the caches of the processor."""
HASH, NUMBER, OFFSET, IS_DELETE, ORDER = "hash", "number", "offset", "is_delete", "order"


class Keeper(Protocol):
    """Keeps parts by their names."""

    def part(self, name: str) -> tuple[pa.Table, dict[str, Any]] | None:
        """Returns a part and the facts on it; None where it was not kept."""

    def keep(self, name: str, table: pa.Table, facts: Mapping[str, Any]) -> None:
        """Keeps a part."""


class InMemory:
    """Keeps parts as long as it is there itself."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[pa.Table, dict[str, Any]]] = {}

    def part(self, name: str) -> tuple[pa.Table, dict[str, Any]] | None:
        """See Keeper."""
        return self._parts.get(name)

    def keep(self, name: str, table: pa.Table, facts: Mapping[str, Any]) -> None:
        """See Keeper."""
        self._parts[name] = table, dict(facts)


@dataclass
class TopicPart:
    """What the records of one range must have become."""

    #: The rows, or of a table whose rows are replaced their changes, in the order of their records.
    rows: pa.Table
    #: The number of records.
    records: int = 0
    #: The number of records that must be dead letters.
    dead: int = 0
    #: The sum of the hashes of the records, modulo 2**64.
    digest: int = 0


@dataclass
class _Growing:
    tables: list[pa.Table] = field(default_factory=list)
    records: int = 0
    dead: int = 0
    digest: int = 0

    def add(self, rules: Rules, records: Sequence[Record], made: Made) -> None:
        """Adds records of one partition, and what they must have become."""
        offsets = np.array([record.offset for record in records], np.int64)
        hashes = row_hashes(made.rows)
        self.records += len(records)
        self.dead += len(made.dead)
        columns = {
            "partition": pa.array(np.full(len(records), records[0].partition)),
            "offset": pa.array(offsets),
            "value": pa.array([record.value for record in records], pa.binary()),
        }
        self.digest = (self.digest + digest_of(record_hashes(records[0].topic, columns))) % 2**64
        if rules.key_columns:
            self.tables.append(_changes(rules, made, hashes, offsets))
        else:
            self.tables.append(pa.table({HASH: hashes, OFFSET: offsets[made.sources]}))

    def part(self) -> TopicPart:
        rows = pa.concat_tables(self.tables) if self.tables else pa.table({HASH: pa.array([], pa.uint64())})
        return TopicPart(rows, self.records, self.dead, self.digest)


def topic_parts(
    rules: Rules,
    maker: RowMaker,
    read: Callable[[Sequence[Range]], Iterable[list[Record]]],
    ranges: Sequence[Range],
    keeper: Keeper,
) -> Iterator[tuple[Range, TopicPart]]:
    """Yields the parts of ranges in their order: those that were kept, and others when they have been read.

    Raises: NotJudged, TopicNotReadable.
    """
    unread: list[Range] = []
    for wanted in _cut(ranges):
        kept = keeper.part(_name_of(wanted))
        if kept is None:
            unread.append(wanted)
            continue
        yield from _read_parts(rules, maker, read, unread, keeper)
        unread = []
        yield wanted, TopicPart(kept[0], **kept[1])
    yield from _read_parts(rules, maker, read, unread, keeper)


def _cut(ranges: Iterable[Range]) -> Iterator[Range]:
    for wanted in ranges:
        for start in range(wanted.start, wanted.end, MOST_OFFSETS):
            yield replace(wanted, start=start, end=min(wanted.end, start + MOST_OFFSETS))


def _name_of(wanted: Range) -> str:
    return f"{wanted.topic}/{wanted.partition}/{wanted.start}/{wanted.end}"


def _read_parts(
    rules: Rules,
    maker: RowMaker,
    read: Callable[[Sequence[Range]], Iterable[list[Record]]],
    ranges: Sequence[Range],
    keeper: Keeper,
) -> Iterator[tuple[Range, TopicPart]]:
    place, growing = 0, _Growing()
    for read_records in read(_joined(ranges)) if ranges else ():
        left = read_records
        while left:
            while not _holds(ranges[place], left[0]):
                yield ranges[place], _finished(growing, ranges[place], keeper)
                place, growing = place + 1, _Growing()
            count = min(_AT_ONCE, bisect_left(left, ranges[place].end, key=lambda record: record.offset))
            records = maker.taken(left[:count])
            if records:
                growing.add(rules, records, maker.make(records))
            left = left[count:]
    for wanted in ranges[place:]:
        yield wanted, _finished(growing, wanted, keeper)
        growing = _Growing()


def _joined(ranges: Sequence[Range]) -> list[Range]:
    """Returns the ranges, those that follow each other as one: a consumer has read ahead."""
    joined: list[Range] = []
    for wanted in ranges:
        before = joined[-1] if joined else None
        if before is not None and (before.topic, before.partition, before.end) == (
            wanted.topic,
            wanted.partition,
            wanted.start,
        ):
            joined[-1] = replace(before, end=wanted.end)
        else:
            joined.append(wanted)
    return joined


def _holds(wanted: Range, record: Record) -> bool:
    is_there = (wanted.topic, wanted.partition) == (record.topic, record.partition)
    return is_there and wanted.start <= record.offset < wanted.end


def _finished(growing: _Growing, wanted: Range, keeper: Keeper) -> TopicPart:
    part = growing.part()
    keeper.keep(_name_of(wanted), part.rows, {"records": part.records, "dead": part.dead, "digest": part.digest})
    return part


def _changes(rules: Rules, made: Made, hashes: np.ndarray[Any, np.dtype[np.uint64]], offsets: Ints) -> pa.Table:
    """Returns changes with keys as Arrow has them, whoever has made them."""
    is_delete = [operation == DELETE for operation, _, _ in made.changes]
    numbers = [number for _, _, number in made.changes]
    orders = made.rows.column(rules.order_by).combine_chunks() if rules.order_by else pa.nulls(made.rows.num_rows)
    places = pa.array([None if number < 0 else number for number in numbers], pa.int64())
    columns = {
        IS_DELETE: pa.array(is_delete, pa.bool_()),
        HASH: pa.array([0 if number < 0 else int(hashes[number]) for number in numbers], pa.uint64()),
        OFFSET: offsets[np.array(made.change_sources, np.int64)],
        ORDER: orders.take(places),
    }
    try:
        for place, name in enumerate(rules.key_columns):
            values = [key[place] for _, key, _ in made.changes]
            columns[f"key{place}"] = pa.array(values, rules.schema.field(name).type)
    except (pa.ArrowException, OverflowError) as error:
        remedy = "run it without --independent: a copy of the table is made and compared"
        raise NotJudged(f"a key column does not have a value of a key: {error}", remedy) from None
    return pa.table(columns)
