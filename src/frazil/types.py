"""The values that flow through Frazil: frozen, without I/O, the same in the driver, in a task and in a test.

An *offset* is always the next one to read, a range is half-open. All timestamps are milliseconds since the epoch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Offsets = Mapping[str, Mapping[int, int]]
"""Per topic and partition the next offset to read."""


RESCUED_COLUMN = "_rescued"
"""The column for what does not fit its own, as JSON: path to value and reason."""

RESERVED_COLUMNS = frozenset(
    (
        "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
        "_change_type", "_change_ordinal", "_commit_snapshot_id",
    )
)  # fmt: skip
"""Names of Iceberg's own metadata columns (its class MetadataColumns), in whatever capitals: Spark refuses to read a table,
or its changes, that has such a column itself.
"""

FORMATS_OF_REGISTRY = ("avro", "protobuf", "json_schema")
"""Formats of values and keys whose schemas are in the schema registry."""

MOST_NAMES = 100
"""So many names of fields, or changes of a table, are remembered: producers can make up new ones for ever."""

MORE_NAMES = "and more"
"""Stands for the names beyond MOST_NAMES."""

FIRST_PLACEHOLDER_ID = 1000
"""Ids from here on stand for fields that no table has given one yet."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records `start` (included) to `end` (excluded) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def span(self) -> int:
        """Offsets covered: at least the number of records (compaction and transactions leave gaps)."""
        return self.end - self.start


@dataclass(frozen=True)
class Watermark:
    """Up to which record timestamp a table is complete, in all and per topic and partition."""

    partitions: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    complete_to_ms: int | None = None


@dataclass(frozen=True)
class DataFile:
    """A file that a task wrote. content: Iceberg's own JSON of it (ContentFileParser)."""

    path: str
    record_count: int
    size_bytes: int
    content: str


@dataclass(frozen=True)
class DeleteFile:
    """A file that says which rows of a data file are no longer there. kind: `vector` (a deletion vector of format 3),
    `positions` (of format 2), `equality` (of another writer; Frazil writes none). data_file: the one that it speaks of,
    empty where it may speak of several. content: Iceberg's own JSON of it.
    """

    path: str
    kind: str
    data_file: str
    record_count: int
    content: str

    @property
    def is_of_one_file(self) -> bool:
        """Whether it speaks of one data file alone: it goes with that file, and new deletes of it can take its place."""
        return self.kind == "vector" or (self.kind == "positions" and bool(self.data_file))

    @property
    def is_parquet(self) -> bool:
        """Whether the file is one: others may write their deletes as Avro or ORC."""
        return str(json.loads(self.content)["file-format"]).lower() == "parquet"


@dataclass(frozen=True)
class Touched:
    """What the changes of one task ask of an upsert table, folded to the last change of each key.

    keys: the keys, as `ingest.fold` writes them; buffered: rows that wait for values of the rows they replace, the same way,
    empty when there are none. files: paths of the files that all other rows went to. change_count: before folding.
    first: the only change is that of this tombstone, and none at all if it is right behind the delete of its key.
    """

    keys: str
    buffered: str = ""
    files: tuple[str, ...] = ()
    change_count: int = 0
    first: FirstTombstone | None = None


@dataclass(frozen=True)
class PendingDeadLetters:
    """Bad records of one batch, written to files of the dead-letter table `table`: promised by the commit of the
    batch, kept by a commit of that table under the same commit id. since: per topic and partition where the batch
    began. topic: a Kafka topic that they go to as well; empty for none.
    """

    table: str
    files: tuple[DataFile, ...]
    since: Offsets = field(default_factory=dict)
    topic: str = ""


@dataclass(frozen=True)
class Progress:
    """What a table's newest ingest snapshot says about itself.

    offsets: the full vector. topic_ids: Kafka's ids, so that a topic made anew is not read on by offset alone. skipped:
    offsets that this commit passed over because Kafka no longer has them (from, to). schemas: ids of what the values
    were decoded with, or their format. bad_skipped: bad records left out since the table began, as `on_bad_record:
    skip` says. ignored_records: records since the table began that are no change of a row, by what they are. dead_letters:
    dead letters of this batch, still to be committed unless the dead-letter table has them already. epoch, run_id: who
    wrote it; a later start of the same pipeline has a greater epoch. places: of a table that shows transactions whole, the
    newest place among the source's commits that each partition has seen. emptied: of a table whose changes are in their
    source's order, the place of its newest truncate; changes from before it count no more. last_deletes: of a mirror that
    takes tombstones, what its batches have ended with where that is a delete. snapshot_id: None before the first commit,
    together with an empty vector.
    """

    offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    cluster_id: str = ""
    commit_id: str = ""
    epoch: int = 0
    run_id: str = ""
    watermark: Watermark = field(default_factory=Watermark)
    skipped: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    schemas: tuple[str, ...] = ("json",)
    bad_skipped: int = 0
    ignored_records: Mapping[str, int] = field(default_factory=dict)
    dead_letters: PendingDeadLetters | None = None
    places: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    emptied: str = ""
    last_deletes: tuple[LastDelete, ...] = ()
    snapshot_id: int | None = None
    committed_at_ms: int | None = None

    @property
    def writer(self) -> tuple[int, str]:
        """Order of writers: of two that meet, the greater one goes on."""
        return (self.epoch, self.run_id)


@dataclass(frozen=True)
class Batch:
    """What one table will read next. is_small: its records have been small, so they travel to the tasks without being
    measured; one that is not small sends the batch back (`TaskReport.has_oversized`). most_tasks: that it may be split into,
    so that files get the size that was asked for; None for as many as are quickest. is_apart: it shares no read with another
    table of its topics, as it must end where it ends, or be read by one task.
    """

    table: str
    ranges: tuple[OffsetRange, ...]
    is_small: bool = False
    most_tasks: int | None = None
    is_apart: bool = False

    @property
    def topics(self) -> frozenset[str]:
        """The topics it reads."""
        return frozenset(r.topic for r in self.ranges)

    @property
    def span(self) -> int:
        """Offsets covered."""
        return sum(r.span for r in self.ranges)

    @property
    def place(self) -> str:
        """Its ranges, in words."""
        return "; ".join(
            f"topic {r.topic}, partition {r.partition}, offsets {r.start} to {r.end - 1}" for r in self.ranges
        )


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot become a row, where it is and why. kind: the class of error (docs/reference/dead-letters.md).
    path: of the field, empty for the whole record.
    """

    topic: str
    partition: int
    offset: int
    kind: str
    path: str
    reason: str


@dataclass(frozen=True)
class LastDelete:
    """The last record that was read of a partition, where that is a delete whose tombstone may come behind it. key: a hash
    of the record's key.
    """

    topic: str
    partition: int
    offset: int
    key: str


@dataclass(frozen=True)
class FirstTombstone:
    """The first record that a task has read of a partition, where that is a tombstone: another task may have read its delete
    last. key: as in LastDelete.
    """

    topic: str
    partition: int
    offset: int
    key: str


@dataclass(frozen=True)
class KeyUpdatePart:
    """One of the two records that tell of a row which gets another key: the delete of the old one, or the insert of the new
    one. Both are at the same `position` of the source's log, in what may be two partitions.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    position: str
    is_delete: bool

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True)
class TaskReport:
    """What a task (or, merged, all tasks of a batch) found out about one table's ranges.

    value_bytes: of all record values; largest_bytes: of one. has_oversized: a light batch had a record that is not small,
    and must be read again as one that is not light. latest_ms: per topic and partition the latest record timestamp
    seen. wanted: JSON of the struct type of fields that the table lacks, by path (see `ingest.evolve`); loosened: JSON
    lists, the paths of required columns that records have no value for. bad: the first bad records; bad_count: all of
    them. missing: ids of schemas that were not there to read with. refusals: changes of the table that its policy does
    not allow. scattered: where there are rows of more partitions than one batch may write, two of them by name; there are
    no files then. dead_letters: files of the dead-letter table; dead_letter_count: bad records in them. touched: of an
    upsert table, what the changes ask of it. key_columns: of an upsert table that does not know its key yet, the fields of
    the records' keys. ignored_records: records that are no change of a row, by what they are. has_key_updates: rows get
    another key, and what belongs together may be in the ranges of two tasks, so one must read the batch. unpaired: topic,
    partition and offset of records whose row had another key, and the row of that key is not known. key_update_parts: of a
    batch that one task has read, those without their other half; ends: where the batch must end in some partitions so that
    it has both halves or none. emptied: as in Progress, of the batch's newest truncate. last_deletes: as there, of what was
    read. unplaced: topic, partition and offset of truncates that have no place among the changes of other partitions.
    """

    table: str
    files: tuple[DataFile, ...] = ()
    record_count: int = 0
    value_bytes: int = 0
    largest_bytes: int = 0
    has_oversized: bool = False
    latest_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()
    loosened: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    bad: tuple[BadRecord, ...] = ()
    bad_count: int = 0
    dead_letters: tuple[DataFile, ...] = ()
    dead_letter_count: int = 0
    missing: frozenset[str] = frozenset()
    refusals: frozenset[str] = frozenset()
    scattered: tuple[str, ...] = ()
    touched: tuple[Touched, ...] = ()
    key_columns: tuple[str, ...] = ()
    ignored_records: Mapping[str, int] = field(default_factory=dict)
    has_key_updates: bool = False
    unpaired: tuple[tuple[str, int, int], ...] = ()
    key_update_parts: tuple[KeyUpdatePart, ...] = ()
    ends: Offsets = field(default_factory=dict)
    emptied: str = ""
    last_deletes: tuple[LastDelete, ...] = ()
    unplaced: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class RowDelta:
    """What a commit takes away, as it was found in the snapshot `read_at` (None: there was none).

    deletes: new delete files; replaced: those whose deletes they have taken over; removed: data files that go as a whole.
    touched: pre-existing data files that `deletes` speak of.
    """

    read_at: int | None
    deletes: tuple[DeleteFile, ...] = ()
    replaced: tuple[DeleteFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    touched: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resolved:
    """What a batch of changes did to its table.

    changes: as they were read; keys: distinct ones. deleted: rows that were taken away; late: changes that an older row
    outlived; missing_required: values that a change left to the old row, and there was none. files: at the snapshot;
    inspected: those whose keys were read. tries: how often the rows were looked up.
    """

    changes: int = 0
    keys: int = 0
    deleted: int = 0
    late: int = 0
    missing_required: int = 0
    files: int = 0
    inspected: int = 0
    tries: int = 0


@dataclass(frozen=True)
class Commit:
    """One snapshot to be: its files and the progress it carries, valid only on top of `expected`.

    delta: of an upsert table, the rows that it takes away; None: nothing but rows come. shape: the ids of the schema,
    partition spec and sort order that the files were written for; None: whatever the table has.
    """

    table: str
    files: tuple[DataFile, ...]
    progress: Progress
    expected: Progress
    delta: RowDelta | None = None
    shape: tuple[int, int, int] | None = None


def dump_offsets(offsets: Offsets) -> str:
    """Canonical JSON: equal vectors are equal strings. Topics by name, partitions by number."""
    ordered = {t: {str(p): offsets[t][p] for p in sorted(offsets[t])} for t in sorted(offsets)}
    return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False)


def load_offsets(text: str) -> dict[str, dict[int, int]]:
    """The vector that `dump_offsets` wrote."""
    parsed: dict[str, dict[str, int]] = json.loads(text)
    return {topic: {int(p): int(o) for p, o in partitions.items()} for topic, partitions in parsed.items()}


def advance(offsets: Offsets, ranges: Iterable[OffsetRange]) -> dict[str, dict[int, int]]:
    """The vector after `ranges` have been read."""
    moved = {topic: dict(partitions) for topic, partitions in offsets.items()}
    for r in ranges:
        moved.setdefault(r.topic, {})[r.partition] = r.end
    return moved


def later(one: Mapping[str, Mapping[int, int]], other: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    """Per topic and partition the greater of two numbers."""
    merged = {topic: dict(partitions) for topic, partitions in one.items()}
    for topic, partitions in other.items():
        mine = merged.setdefault(topic, {})
        for partition, number in partitions.items():
            mine[partition] = max(number, mine.get(partition, number))
    return merged


def add_counts(*many: Mapping[str, int]) -> dict[str, int]:
    """Per word the sum of all its numbers."""
    return dict(sum(map(Counter, many), Counter()))


def merge_reports(table: str, reports: Iterable[TaskReport], limit: int = 20) -> TaskReport:
    """All that the tasks of one batch said about `table`; of the bad records the first by place, `limit` at most."""
    mine = [report for report in reports if report.table == table]
    latest: dict[str, dict[int, int]] = {}
    for report in mine:
        latest = later(latest, report.latest_ms)
    bad = sorted((b for report in mine for b in report.bad), key=lambda b: (b.topic, b.partition, b.offset))
    return TaskReport(
        table=table,
        files=tuple(f for report in mine for f in report.files),
        record_count=sum(report.record_count for report in mine),
        value_bytes=sum(report.value_bytes for report in mine),
        largest_bytes=max((report.largest_bytes for report in mine), default=0),
        has_oversized=any(report.has_oversized for report in mine),
        latest_ms=latest,
        wanted=tuple(dict.fromkeys(w for report in mine for w in report.wanted)),
        loosened=frozenset().union(*(report.loosened for report in mine)),
        dropped=frozenset().union(*(report.dropped for report in mine)),
        bad=tuple(bad[:limit]),
        bad_count=sum(report.bad_count for report in mine),
        dead_letters=tuple(f for report in mine for f in report.dead_letters),
        dead_letter_count=sum(report.dead_letter_count for report in mine),
        missing=frozenset().union(*(report.missing for report in mine)),
        refusals=frozenset().union(*(report.refusals for report in mine)),
        scattered=next((report.scattered for report in mine if report.scattered), ()),
        touched=tuple(t for report in mine for t in report.touched),
        key_columns=next((report.key_columns for report in mine if report.key_columns), ()),
        ignored_records=add_counts(*(report.ignored_records for report in mine)),
        has_key_updates=any(report.has_key_updates for report in mine),
        unpaired=tuple(sorted(place for report in mine for place in report.unpaired)),
        key_update_parts=tuple(part for report in mine for part in report.key_update_parts),
        ends=next((report.ends for report in mine if report.ends), {}),
        emptied=max((report.emptied for report in mine), default=""),
        last_deletes=tuple(last for report in mine for last in report.last_deletes),
        unplaced=tuple(sorted(place for report in mine for place in report.unplaced)),
    )


def as_json(value: Any) -> str:
    """Compact JSON with sorted keys, for summaries and logs."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def note_names(known: frozenset[str], found: Iterable[str]) -> frozenset[str]:
    """`known` and what is found besides: MOST_NAMES in all, and MORE_NAMES when there are others."""
    new = sorted(set(found) - known)
    if not new or MORE_NAMES in known:
        return known
    names = [name for name in new if name != MORE_NAMES]
    room = MOST_NAMES - len(known)
    more = {MORE_NAMES} if len(names) > room or len(names) < len(new) else set()
    return known.union(names[:room], more)


def list_names(names: Iterable[str]) -> list[str]:
    """Sorted, MORE_NAMES at the end."""
    return sorted(names, key=lambda name: (name == MORE_NAMES, name))
