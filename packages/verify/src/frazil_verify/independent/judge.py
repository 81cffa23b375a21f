"""Compares the rows that records must have become with those that a table has, and reports where in Kafka they differ.

The first pass has a hash and a place of each row, on disk, and sums of the hashes in memory. What is left when equal
hashes are paired is read again, record by record and value by value, so that a difference is one that Python sees, and is
shown with both values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.printable import percent
from frazil.write.digests import digest_of, row_hashes
from frazil_verify.findings import MOST_SHOWN, Finding, Findings, Kind
from frazil_verify.independent.matching import (
    NOWHERE,
    U64,
    Ints,
    Places,
    Side,
    are_inside,
    distinct_of,
    doubled,
    match,
    runs_of,
)
from frazil_verify.independent.parts import (
    HASH,
    IS_DELETE,
    NUMBER,
    OFFSET,
    ORDER,
    InMemory,
    Keeper,
    TopicPart,
    topic_parts,
)
from frazil_verify.independent.rules import NotJudged, RowMaker, Rules
from frazil_verify.independent.stored import StoredRows
from frazil_verify.independent.topic import Range, Record
from frazil_verify.model.equal import has_struct, same

_HOURLY = 100_000
"""The most records without a row whose timestamps are read."""
Read = Callable[[Sequence[Range]], Iterable[list[Record]]]
Note = Callable[[str], None]


@dataclass(frozen=True)
class Repair:
    """A row to be added, or one to be removed."""

    kind: Kind
    #: Topic, partition and offset; None where the row names no place.
    place: tuple[str, int, int] | None
    #: The row to be added, in the compared columns; None for a row to be removed.
    added: Mapping[str, Any] | None = None
    #: The hash of the row to be removed; None for a row to be added.
    removed: int | None = None


@dataclass
class Judgement:
    """What judging one table has found."""

    findings: Findings = field(default_factory=Findings)
    #: The number of records that were read.
    records: int = 0
    #: The number of rows of the table.
    rows: int = 0
    #: Records that must be dead letters.
    dead: int = 0
    #: The sum of the hashes of all records, modulo 2**64.
    record_digest: int = 0
    #: The sum of the hashes of all rows that were compared.
    row_digest: int = 0
    #: The sum of the hashes of the rows that the records must have become.
    expected_digest: int = 0
    #: The number of these rows.
    expected_rows: int = 0
    #: What makes the table's rows those of the records, as far as differences are kept.
    repairs: list[Repair] = field(default_factory=list)


@dataclass
class _State:
    """The last change of each key."""

    #: Hash, number of the partition, offset, and the value that orders changes.
    rows: dict[tuple[Any, ...], tuple[int, int, int, Any]] = field(default_factory=dict)

    def apply(self, changes: pa.Table, number: int, key_count: int) -> None:
        """Applies changes of one partition in the order of their records. number: of the partition."""
        keys = zip(*(changes.column(f"key{place}").to_pylist() for place in range(key_count)), strict=True)
        columns = (changes.column(name).to_pylist() for name in (IS_DELETE, HASH, OFFSET, ORDER))
        for key, is_delete, hash_of_row, offset, order in zip(keys, *columns, strict=True):
            if is_delete:
                self.rows.pop(key, None)
                continue
            before = self.rows.get(key)
            if before is not None and order is not None and before[3] is not None and order < before[3]:
                continue
            self.rows[key] = (hash_of_row, number, offset, order)


class Judge:
    """Judges one table once."""

    def __init__(
        self,
        rules: Rules,
        stored: StoredRows,
        read: Read,
        ranges: Sequence[Range],
        note: Note,
        read_ranges: Sequence[Range] | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        """read: returns the records of ranges. ranges: of all records that count. note: receives the progress. read_ranges:
        with further records, which may replace the rows of those that count; None: these alone are read. keeper:
        keeps what the first pass has, and has what it had before; None: it is kept in memory.
        """
        self._rules = rules
        self._stored = stored
        self._read = read
        self._ranges = ranges
        self._read_ranges = ranges if read_ranges is None else read_ranges
        self._note = note
        self._keeper: Keeper = InMemory() if keeper is None else keeper
        self._maker = RowMaker(rules)
        self._names = [column.name for column in rules.compared]
        self._place_columns = {
            name: column for name, column in rules.settings.metadata.items() if name in ("topic", "partition", "offset")
        }
        self._is_bounded = False
        self._file_digests: dict[str, tuple[int, int]] = {}
        self.judgement = Judgement()

    def run(self, keeps_all: bool = False, is_partial: bool = False, is_bounded: bool = False) -> Judgement:
        """Returns the judgement. keeps_all: whether every difference is kept. is_partial: whether Kafka has deleted records
        whose rows may still be there: rows without a record are not judged then. is_bounded: whether the ranges are a
        part of what the table has read: rows outside of them do not count.

        Raises: NotJudged, TopicNotReadable and RowsNotReadable.
        """
        judgement = self.judgement
        judgement.findings.keeps_all, self._is_bounded = keeps_all, is_bounded
        expected, actual = self._expected(), self._actual()
        judgement.findings.add_unreadable(self._stored.unreadable)
        judgement.row_digest, judgement.expected_digest = actual.sums.digest, expected.sums.digest
        judgement.rows, judgement.expected_rows = actual.sums.count, expected.sums.count
        differing = expected.sums.differing(actual.sums)
        if differing.any():
            self._note("reading what differs again")
            self._find_differences(expected, actual, differing, is_partial)
        return judgement

    def _find_differences(
        self, expected: Side, actual: Side, differing: np.ndarray[Any, np.dtype[np.bool_]], is_partial: bool
    ) -> None:
        """Adds a finding for each row that one side lacks. differing: the sums that differ."""
        (hashes, numbers, offsets), _ = expected.rows_in(differing)
        (stored_hashes, stored_numbers, stored_offsets), indexes = actual.rows_in(differing)
        unmatched = match(hashes, stored_hashes)
        missing = [
            (*expected.partitions[int(numbers[index])], int(offsets[index])) for index in unmatched.missing.tolist()
        ]
        surplus = unmatched.surplus
        known = {int(value) for value in hashes[np.isin(hashes, stored_hashes[surplus])].tolist()}
        surplus_places = [
            (*actual.partitions[int(stored_numbers[index])], int(stored_offsets[index]))
            if stored_offsets[index] != NOWHERE
            else None
            for index in surplus.tolist()
        ]
        placed = surplus[stored_offsets[surplus] != NOWHERE]
        (_, numbers_there, offsets_there), there = actual.rows_at(stored_numbers[placed], stored_offsets[placed])
        repeated = np.isin(indexes, there[doubled(numbers_there, offsets_there)])
        are_repeated = set(np.flatnonzero(repeated).tolist())
        self._explain(missing, surplus, surplus_places, stored_hashes, known, are_repeated, is_partial)

    @property
    def file_digests(self) -> Mapping[str, tuple[int, int]] | None:
        """The numbers of the rows of files, and the sums of their hashes, by the names of the files; None where some columns
        are not compared.
        """
        return self._file_digests if len(self._names) == len(self._rules.schema) else None

    def changed_keys(self, ranges: Sequence[Range]) -> set[Any]:
        """Returns what `key_of` is for the rows that records change; nothing for a table whose rows are not replaced."""
        if not self._rules.key_columns:
            return set()
        changes = (
            key for records in self._read(ranges) for _, key, _ in self._maker.make(self._maker.taken(records)).changes
        )
        return {self._key(key) for key in changes}

    def key_of(self, row: Mapping[str, Any]) -> Any:
        """Returns what pairs rows of one key; None for a row without one."""
        names = self._rules.key_columns
        return self._key([row.get(name) for name in names]) if names and row else None

    def _key(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Returns a key whose values are as Arrow returns them, whoever has made them."""
        types = (self._rules.schema.field(name).type for name in self._rules.key_columns)
        return ("key", *(repr(pa.scalar(value, kind).as_py()) for value, kind in zip(values, types, strict=True)))

    # ---- the first pass

    def _expected(self) -> Side:
        """Returns the rows that the records must have become; counts the records."""
        places, state, judgement = Places(), _State(), self.judgement
        side = Side(lambda: self._expected_places(places), places.partitions)
        total = sum(wanted.end - wanted.start for wanted in self._read_ranges)
        covered = 0
        for wanted, part in self._topic_parts():
            judgement.records += part.records
            judgement.dead += part.dead
            judgement.record_digest = (judgement.record_digest + part.digest) % 2**64
            covered += wanted.end - wanted.start
            self._note(f"{covered:,} of {total:,} offsets read, {percent(covered, total)}")
            if not part.rows.num_rows:
                continue
            number = places.number_of(wanted.topic, wanted.partition)
            if self._rules.key_columns:
                state.apply(part.rows, number, len(self._rules.key_columns))
            else:
                side.sums.add(np.asarray(part.rows.column(HASH)))
        if self._rules.key_columns:
            places.add(*self._last(state, places.partitions))
            side = Side(lambda: iter([places.joined()]), places.partitions)
            side.sums.add(places.joined()[0])
        return side

    def _topic_parts(self) -> Iterator[tuple[Range, TopicPart]]:
        return topic_parts(self._rules, self._maker, self._read, self._read_ranges, self._keeper)

    def _expected_places(self, places: Places) -> Iterator[tuple[U64, Ints, Ints]]:
        """Yields hashes, numbers of partitions and offsets of the rows that the records of a table without keys make."""
        for wanted, part in self._topic_parts():
            if part.rows.num_rows:
                hashes, offsets = (np.asarray(part.rows.column(name)) for name in (HASH, OFFSET))
                yield hashes, np.full(hashes.size, places.number_of(wanted.topic, wanted.partition)), offsets

    def _last(self, state: _State, partitions: Sequence[tuple[str, int]]) -> tuple[U64, Ints, Ints]:
        """Returns the last changes of all keys: hashes, numbers of partitions and offsets."""
        last = list(state.rows.values())
        hashes = np.array([change[0] for change in last], np.uint64)
        numbers, offsets = (np.array([change[part] for change in last], np.int64) for part in (1, 2))
        if not self._is_bounded:
            return hashes, numbers, offsets
        inside = are_inside(self._ranges, partitions, numbers, offsets)
        return hashes[inside], numbers[inside], offsets[inside]

    def _actual(self) -> Side:
        """Returns the rows that the table has."""
        places = Places()
        side = Side(lambda: self._stored_parts(places), places.partitions)
        for hashes, _, _ in side.parts():
            side.sums.add(hashes)
        return side

    def _stored_parts(self, places: Places) -> Iterator[tuple[U64, Ints, Ints]]:
        """Yields hashes, numbers of partitions and offsets of the rows, file by file."""
        topics = sorted({wanted.topic for wanted in self._ranges})
        for name, batches in self._stored.parts(self._names):
            kept = self._keeper.part(name)
            if kept is None:
                table, partitions = self._part_of(name, batches, topics)
                if not self._stored.is_unreadable(name):
                    self._keeper.keep(name, table, {"partitions": partitions})
            else:
                table, partitions = kept[0], [(topic, number) for topic, number in kept[1]["partitions"]]
            known = np.array([places.number_of(*partition) for partition in partitions] or [0], np.int64)
            digest = 0
            for batch in table.to_batches():
                hashes, numbers, offsets = (np.asarray(batch.column(column)) for column in (HASH, NUMBER, OFFSET))
                digest += digest_of(hashes)
                part = hashes, known[numbers], offsets
                if self._is_bounded:
                    inside = self._inside(places, *part[1:])
                    part = hashes[inside], part[1][inside], offsets[inside]
                yield part
            self._file_digests[name] = table.num_rows, digest % 2**64

    def _part_of(
        self, name: str, batches: Iterable[pa.RecordBatch], topics: Sequence[str]
    ) -> tuple[pa.Table, list[tuple[str, int]]]:
        """Returns hashes and places of rows, none of a file that cannot be read, and the partitions by their numbers among
        these.
        """
        own = Places()
        for batch in batches:
            own.add(row_hashes(batch), *self._places_of(own, batch, topics))
        if self._stored.is_unreadable(name):
            own = Places()
        kinds = {HASH: pa.uint64(), NUMBER: pa.int32(), OFFSET: pa.int64()}
        parts = (own.hashes, own.numbers, own.offsets)
        columns = [pa.chunked_array(part, kind) for part, kind in zip(parts, kinds.values(), strict=True)]
        return pa.table(columns, names=list(kinds)), own.partitions

    def _inside(self, places: Places, numbers: Ints, offsets: Ints) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns which rows are of the ranges. Raises: NotJudged where rows do not name their places."""
        if (offsets == NOWHERE).any():
            reason = "a part of it is compared by the columns of partition and offset, which its rows do not have"
            raise NotJudged(reason, "leave --from and --to out")
        return are_inside(self._ranges, places.partitions, numbers, offsets)

    def _places_of(self, places: Places, batch: pa.RecordBatch, topics: Sequence[str]) -> tuple[Ints, Ints]:
        """Returns the numbers of the partitions, and the offsets, that rows name in their own columns."""
        columns = self._place_columns
        partitions = {wanted.partition for wanted in self._ranges}
        lacks = "offset" not in columns or ("partition" not in columns and len(partitions) > 1)
        if lacks or ("topic" not in columns and len(topics) > 1):
            return np.full(batch.num_rows, 0), np.full(batch.num_rows, NOWHERE)
        offsets = np.asarray(pc.fill_null(batch.column(columns["offset"]), NOWHERE)).astype(np.int64)
        names = batch.column(columns["topic"]) if "topic" in columns else pa.repeat(topics[0], batch.num_rows)
        of_rows = (
            batch.column(columns["partition"]) if "partition" in columns else pa.repeat(min(partitions), batch.num_rows)
        )
        encoded, own_partitions = (
            pc.fill_null(names, "").dictionary_encode(),
            np.asarray(pc.fill_null(of_rows, NOWHERE)),
        )
        # Topic and partition in one word, so that each pair is looked up once.
        words = np.asarray(encoded.indices).astype(np.int64) << 32 | own_partitions.astype(np.int64) & 0xFFFFFFFF
        distinct, inverse = distinct_of(words)
        known = encoded.dictionary.to_pylist()
        of_distinct = [
            places.number_of(known[word >> 32], int(np.uint32(word & 0xFFFFFFFF).view(np.int32))) for word in distinct
        ]
        return np.array(of_distinct, np.int64)[inverse], offsets

    # ---- the second pass

    def _explain(
        self,
        missing: Sequence[tuple[str, int, int]],
        surplus: Ints,
        surplus_places: Sequence[tuple[str, int, int] | None],
        stored_hashes: np.ndarray[Any, Any],
        known: set[int],
        repeated: set[int],
        is_partial: bool,
    ) -> None:
        """Adds a finding for each row that one side lacks."""
        stored = self._stored_rows({int(stored_hashes[index]) for index in surplus.tolist()})
        by_place: dict[Any, list[tuple[int, Mapping[str, Any]]]] = {}
        for index, place in zip(surplus.tolist(), surplus_places, strict=True):
            own_rows = stored.get(int(stored_hashes[index]), [])
            row: Mapping[str, Any] = own_rows.pop() if own_rows else {}
            by_place.setdefault(place if place is not None else self.key_of(row), []).append((index, row))
        # A row whose hash alone differs, as an empty list that is null, is no difference: its record is read.
        is_whole = surplus.size > 0 or self.judgement.findings.keeps_all
        kept = len(missing) if is_whole else _HOURLY
        for place, record, expected in self._expected_rows(missing[:kept]):
            candidates = by_place.get(place) or by_place.get(self.key_of(expected)) or []
            if candidates:
                index, row = candidates.pop()
                if self._add_changed(record, expected, row):
                    self._repair(Kind.CHANGED, place, expected, int(stored_hashes[index]))
            else:
                self._add_row(Kind.MISSING, record, expected, None, "has no row")
                self._repair(Kind.MISSING, place, expected, None)
        if len(missing) > kept:
            self.judgement.findings.counts[Kind.MISSING] += len(missing) - kept
        for place, left in by_place.items():
            for index, row in left:
                is_doubled = index in repeated or int(stored_hashes[index]) in known
                if self._add_surplus(place, row, is_doubled, is_partial):
                    kind = Kind.DOUBLED if is_doubled else Kind.INVENTED
                    named = place if isinstance(place, tuple) and place[0] != "key" else None
                    self._repair(kind, named, None, int(stored_hashes[index]))

    def _repair(
        self, kind: Kind, place: tuple[str, int, int] | None, added: Mapping[str, Any] | None, removed: int | None
    ) -> None:
        """Keeps what mends one difference."""
        repairs = self.judgement.repairs
        if self.judgement.findings.keeps_all:
            repairs += [Repair(kind, place, removed=removed)] if removed is not None else []
            repairs += [Repair(kind, place, added=added)] if added is not None else []

    def _expected_rows(
        self, places: Sequence[tuple[str, int, int]]
    ) -> Iterator[tuple[tuple[str, int, int], Record, dict[str, Any]]]:
        """Yields records that must have rows, with their rows."""
        by_partition: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in places:
            by_partition.setdefault((topic, partition), []).append(offset)
        for (topic, partition), offsets in by_partition.items():
            wanted = set(offsets)
            ranges = [Range(topic, partition, start, end) for start, end in runs_of(sorted(wanted))]
            for records in self._read(ranges):
                chosen = [record for record in records if record.offset in wanted]
                made = self._maker.make(chosen)
                for source, row in zip(made.sources.tolist(), made.rows.to_pylist(), strict=True):
                    yield chosen[source].place, chosen[source], row

    def _stored_rows(self, hashes: set[int]) -> dict[int, list[Mapping[str, Any]]]:
        """Returns the rows of the table with these hashes."""
        rows: dict[int, list[Mapping[str, Any]]] = {}
        if not hashes:
            return rows
        wanted = np.array(sorted(hashes), np.uint64)
        for batch in self._stored.batches(self._names):
            own = row_hashes(batch)
            places = np.flatnonzero(np.isin(own, wanted))
            if places.size:
                for place, row in zip(places.tolist(), batch.take(pa.array(places)).to_pylist(), strict=True):
                    rows.setdefault(int(own[place]), []).append(row)
        return rows

    def _add_changed(self, record: Record, expected: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
        """Adds a finding where values differ; returns whether they do."""
        columns, settings = [], self._rules.settings
        for name in self._names:
            kind = self._rules.table.columns.get(name)
            is_strict = kind is not None and name in settings.columns and not has_struct(kind)
            wanted, value = expected.get(name), actual.get(name)
            if not (wanted == value if kind is None else same(wanted, value, kind, is_strict=is_strict)):
                columns.append(name)
        if columns:  # An empty list that is null differs in its hash alone.
            words = f"has other values in {', '.join(columns)}"
            self._add_row(Kind.CHANGED, record, expected, actual, words, tuple(columns))
        return bool(columns)

    def _add_surplus(self, place: Any, row: Mapping[str, Any], is_doubled: bool, is_partial: bool) -> bool:
        """Adds a finding of a row without a record, unless it cannot be judged; returns whether it was added."""
        findings = self.judgement.findings
        if is_partial and not is_doubled:
            findings.note("Kafka has deleted some records: rows without a record are not judged")
            return False
        kind = Kind.DOUBLED if is_doubled else Kind.INVENTED
        words = "is in the table more often than its record makes it" if is_doubled else "is a row that no record makes"
        if isinstance(place, tuple) and place[0] != "key":
            topic, partition, offset = place
            where = f"topic {topic}, partition {partition}, offset {offset}"
            findings.add(Finding(kind, f"{where}: {words}", topic, partition, offset, actual=row))
        else:
            findings.add(Finding(kind, f"a row {words}", actual=row))
        return True

    def _add_row(
        self,
        kind: Kind,
        record: Record,
        expected: Mapping[str, Any],
        actual: Mapping[str, Any] | None,
        words: str,
        columns: tuple[str, ...] = (),
    ) -> None:
        place = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
        moment = record.timestamp_ms
        finding = Finding(kind, f"{place}: {words}", *record.place, None, moment, expected, actual, columns)
        self.judgement.findings.add(finding)


__all__ = ["MOST_SHOWN", "Judge", "Judgement"]
