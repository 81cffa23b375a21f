"""The values that flow through Frazil: frozen, without I/O, the same in the driver, in a task and in a test.

An *offset* is always the next one to read; an offset range is half-open. All timestamps are milliseconds since
1970-01-01 UTC.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from frazil.error_classes import ErrorClass
from frazil.ledger import Ledger

T = TypeVar("T")

Offsets = Mapping[str, Mapping[int, int]]
Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""
"""The next offset to read, by topic and partition."""


MAIN = "main"
"""The branch of a table that readers see."""

RESCUED_COLUMN = "_rescued"
"""The column for values that do not fit their own column: JSON, from the path to the value and the reason."""
EXTRA_COLUMNS = frozenset((RESCUED_COLUMN,))
"""Columns of text for what other columns cannot have: no query makes them, and no setting declares them."""

EVENT_TIME = "\x01event time"
"""The column of rows with the time that their windows are made of; no table has it."""

RESERVED_COLUMNS = frozenset(
    (
        "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
        "_change_type", "_change_ordinal", "_commit_snapshot_id",
    )
)  # fmt: skip
"""Names of Iceberg's own metadata columns (class `MetadataColumns` of the Java library), compared without regard to
case. Spark refuses to read a table, or its changes, that has a column with such a name.
"""

MAX_REMEMBERED_NAMES = 100
"""The number of names of fields, or of changes of a table, that are remembered: producers can make up new names without
end.
"""

MORE_NAMES = "and more"
"""The entry that stands for all names beyond MAX_REMEMBERED_NAMES."""

FIRST_PLACEHOLDER_ID = 1000
"""Field ids from here on stand for fields that have no id in any table yet."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records from `start` (included) to `end` (excluded) of one partition."""

    topic: str
    partition: int
    #: The first offset.
    start: int
    #: The offset after the last one.
    end: int

    @property
    def span(self) -> int:
        """The number of offsets covered: at least the number of records, as compaction and transactions leave gaps."""
        return self.end - self.start


@dataclass(frozen=True)
class Watermark:
    """The record timestamp up to which a table is complete."""

    #: The timestamp by topic and partition, in milliseconds.
    partitions: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    #: The timestamp of the whole table; None while it is unknown.
    complete_to_ms: int | None = None


@dataclass(frozen=True)
class DataFile:
    """A data file that a task wrote."""

    path: str
    #: The number of rows.
    record_count: int
    size_bytes: int
    #: The file as JSON of Iceberg's `ContentFileParser`.
    content: str


@dataclass(frozen=True)
class DeleteFile:
    """A file that lists deleted rows of data files (Iceberg spec, "Row-level Deletes")."""

    path: str
    #: `vector` (deletion vector, format version 3), `positions` (position deletes, format version 2) or `equality`
    #: (written by other writers only; Frazil writes none).
    kind: str
    #: Path of the data file whose rows are deleted; empty where the file may refer to several.
    data_file: str
    #: The number of deleted rows that the file lists.
    record_count: int
    #: The file as JSON of Iceberg's `ContentFileParser`.
    content: str

    @property
    def is_of_one_file(self) -> bool:
        """Whether it refers to one data file: it is removed with that file, and a newer delete file can replace it."""
        return self.kind == "vector" or (self.kind == "positions" and bool(self.data_file))

    @property
    def file_format(self) -> str:
        """The format of the file: `puffin`, `parquet`, or another writer's `orc` or `avro`."""
        return str(json.loads(self.content)["file-format"]).lower()


@dataclass(frozen=True)
class PendingDeadLetters:
    """Bad records of one batch, written to data files of a dead-letter table and not committed there yet.

    The commit of the batch records the files; a second commit, in the dead-letter table and with the same commit id,
    adds them.
    """

    #: Name of the dead-letter table.
    table: str
    #: The data files with the records.
    files: tuple[DataFile, ...]
    #: The offsets at which the batch began, by topic and partition.
    since: Offsets = field(default_factory=dict)
    #: A Kafka topic that receives the records as well; empty for none.
    topic: str = ""


@dataclass(frozen=True)
class DerivedTable:
    """A table that was made because records have some values, which it takes."""

    #: `namespace.table`.
    name: str
    #: The values.
    values: tuple[str, ...]
    #: The offsets from which on the table takes the records with these values, by topic and partition.
    start: Offsets = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class NewValues:
    """Values of records in one partition that are to get a table."""

    values: tuple[str, ...]
    topic: str
    partition: int
    #: The offset of the first of these records.
    offset: int
    #: The number of these records.
    count: int


@dataclass(frozen=True)
class Balance:
    """What became of the records of one commit: each was written, became a dead letter or was skipped, or was dropped."""

    #: The number of records that were read.
    read: int = 0
    #: The number of records that were written, as rows or as changes of an upsert table.
    written: int = 0
    #: The number of bad records: dead letters, or skipped with `on_bad_record: skip`.
    bad: int = 0
    #: The number of records that change no row, by kind of record or by what dropped them.
    dropped: Mapping[str, int] = field(default_factory=dict)
    #: The number of fields with a value of the records themselves, not of objects inside them (`read`), and how many of
    #: these a column has (`column`), were rescued (`rescued`), are left out by a setting (`left_out`), have no type yet
    #: (`no_column`) or belong to bad records (`bad`). Empty for other formats than JSON, whose schemas have the fields.
    fields: Mapping[str, int] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """The number of records of which nothing became; negative where more became of them than was read."""
        return self.read - self.written - self.bad - sum(self.dropped.values())

    @property
    def lost_fields(self) -> int:
        """The number of fields of which nothing became; negative where more became of them than was read."""
        return 2 * self.fields.get("read", 0) - sum(self.fields.values())


class Writer(NamedTuple):
    """A run that writes a table: of two that meet, the greater one continues."""

    #: The epoch: a later start of the same pipeline has a greater one.
    epoch: int = 0
    #: The id of the run.
    run_id: str = ""


@dataclass(frozen=True)
class CommittedBatch:
    """What a commit records of its own batch."""

    #: Offsets (from, to) that were skipped because Kafka no longer has their records, by topic and partition.
    skipped: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    #: Ids of the schemas that values were decoded with, or the name of their format.
    schemas: tuple[str, ...] = ("json",)
    #: By lookup, the reference table that the rows were joined with, and its version.
    lookups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: What became of the records; None where the commit read none.
    balance: Balance | None = None


@dataclass(frozen=True)
class Totals:
    """Numbers of records since the table was created."""

    #: Bad records that were skipped, with `on_bad_record: skip`.
    bad_skipped: int = 0
    #: Records that are not changes of a row, by kind of record.
    ignored_records: Mapping[str, int] = field(default_factory=dict)
    #: Records that stages of the table have found, by name.
    findings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OrderProgress:
    """How far a table is in the orders that its changes have beside that of offsets."""

    #: The newest commit position of the source that each partition has reached, of a table whose transactions are
    #: atomic.
    places: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    #: The source position at which the table was last emptied, of a table in source order: older changes no longer count.
    emptied: str = ""
    #: The records that ended the table's batches where they are deletes, of an upsert table that accepts tombstones.
    last_deletes: tuple[LastDelete, ...] = ()
    #: The greatest time of records that windows are made of, in microseconds as `partitions`, and the time that each
    #: partition with records to read has reached, of a table with `late`.
    event_times: Watermark = field(default_factory=Watermark)
    #: The time up to which windows do not change any more, in microseconds since 1970; None while it is unknown.
    windows_complete_to_us: int | None = None

    def of_source(self) -> OrderProgress:
        """Returns the orders of the source alone: they hold whatever offsets are read next."""
        return OrderProgress(places=self.places, emptied=self.emptied)


@dataclass(frozen=True)
class RestProgress:
    """What a table of the rest records of the tables that share its topics."""

    #: The tables that were derived from values of its records.
    derived: tuple[DerivedTable, ...] = ()
    #: The number of records since the table was created that no other table took, by reason.
    records: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """The progress that a table's newest ingest snapshot records in its summary."""

    #: The next offset to read of every partition.
    offsets: Offsets = field(default_factory=dict)
    #: Kafka's topic ids by topic: a topic that was deleted and recreated is not read on by offset alone.
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    #: Kafka's cluster id.
    cluster_id: str = ""
    #: The id of the commit, by which a commit with unknown outcome is found again.
    commit_id: str = ""
    #: The run that has committed it.
    writer: Writer = field(default_factory=Writer)
    #: The record timestamp up to which the table is complete.
    watermark: Watermark = field(default_factory=Watermark)
    #: What was read for this commit.
    batch: CommittedBatch = field(default_factory=CommittedBatch)
    #: Dead letters of this batch: still to be committed unless the dead-letter table has them already.
    dead_letters: PendingDeadLetters | None = None
    #: Numbers of records since the table was created.
    totals: Totals = field(default_factory=Totals)
    #: How far the changes are, in source order and in event time.
    order: OrderProgress = field(default_factory=OrderProgress)
    #: Of a table of the rest: the tables that it has derived, and the records that no table took.
    rest: RestProgress = field(default_factory=RestProgress)
    #: The tool that continues from here in place of the pipeline; empty while the pipeline does.
    released_to: str = ""
    #: The sums over all commits; None where no commit of this table had one.
    ledger: Ledger | None = None
    #: Id of the snapshot; None before the first commit, together with empty offsets.
    snapshot_id: int | None = None
    #: The time of the snapshot; None before the first commit.
    committed_at_ms: int | None = None


@dataclass(frozen=True)
class Batch:
    """The offset ranges that one table reads next."""

    table: str
    #: The offset ranges.
    ranges: tuple[OffsetRange, ...]
    #: The number of tasks to split the batch into at most, for files of the target size; None for as many as are
    #: fastest.
    most_tasks: int | None = None
    #: Whether the batch shares no read with other tables of its topics, as it must end at a fixed offset or be read by
    #: one task.
    is_apart: bool = False
    #: The table of the rest, of tables that divide their records among them; empty for other tables.
    rest: str = ""
    #: Whether the table has no commit yet, or none of this process since it has the table: every commit of it would be late.
    is_new: bool = False

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the batch."""
        return frozenset(r.topic for r in self.ranges)

    @property
    def span(self) -> int:
        """The number of offsets covered."""
        return sum(r.span for r in self.ranges)

    @property
    def place(self) -> str:
        """The offset ranges as text for messages."""
        return "; ".join(
            f"topic {r.topic}, partition {r.partition}, offsets {r.start} to {r.end - 1}" for r in self.ranges
        )


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot become a row, with its position and the reason."""

    topic: str
    partition: int
    offset: int
    #: The class of the error.
    kind: ErrorClass
    #: Path of the field; empty for the whole record.
    path: str
    #: The message.
    reason: str


@dataclass(frozen=True)
class LastDelete:
    """The last record read of a partition, where it is a delete that a tombstone may follow."""

    topic: str
    partition: int
    offset: int
    #: A hash of the record's key.
    key: str


@dataclass(frozen=True)
class RowDelta:
    """The deletes of one commit, computed from the snapshot `read_at`."""

    #: Id of that snapshot; None where the table had none.
    read_at: int | None
    #: New delete files.
    deletes: tuple[DeleteFile, ...] = ()
    #: Delete files whose deletes are included in the new ones.
    replaced: tuple[DeleteFile, ...] = ()
    #: Data files that are removed entirely.
    removed: tuple[DataFile, ...] = ()
    #: Existing data files that the new delete files refer to.
    touched: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resolved:
    """Statistics of one upsert batch."""

    #: Changes that were read.
    changes: int = 0
    #: Distinct keys among the changes.
    keys: int = 0
    #: Rows that were deleted, including replaced rows.
    deleted: int = 0
    #: Late changes: the row in the table is newer by `order_by`.
    late: int = 0
    #: Values that were neither in a change nor in an existing row.
    missing_required: int = 0
    #: Data files of the table at the lookup.
    files: int = 0
    #: Data files whose keys were read.
    inspected: int = 0
    #: How often the rows were looked up; more than once when another writer committed in between.
    tries: int = 0


@dataclass(frozen=True)
class Commit:
    """One snapshot to be committed: its files and its progress, valid only on top of `expected`."""

    table: str
    #: The data files that the commit adds.
    files: tuple[DataFile, ...]
    #: The progress that the commit records.
    progress: Progress
    #: The progress that the table must have before the commit.
    expected: Progress
    #: The rows that the commit deletes, of an upsert table; None for a commit that only appends.
    delta: RowDelta | None = None
    #: Ids of the schema, partition spec and sort order that the files were written for; None: those of the table.
    shape: tuple[int, int, int] | None = None
    #: The newest snapshot that the table must have before the commit; None: any.
    head_id: int | None = None
    #: Further entries of the summary, for other tools.
    entries: Mapping[str, str] = field(default_factory=dict)


def dump_offsets(offsets: Offsets) -> str:
    """Returns the offsets as canonical JSON, topics by name and partitions by number: equal offsets are equal strings."""
    ordered = {t: {str(p): offsets[t][p] for p in sorted(offsets[t])} for t in sorted(offsets)}
    return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False)


def load_offsets(text: str) -> dict[str, dict[int, int]]:
    """Returns the offsets from the JSON of `dump_offsets`."""
    parsed: dict[str, dict[str, int]] = json.loads(text)
    return {topic: {int(p): int(o) for p, o in partitions.items()} for topic, partitions in parsed.items()}


def by_partition(values: Mapping[str, Mapping[int, T]]) -> dict[tuple[str, int], T]:
    """Returns values that are by topic and partition under pairs of both."""
    return {(topic, number): value for topic, numbers in values.items() for number, value in numbers.items()}


def by_topic(values: Mapping[tuple[str, int], T]) -> dict[str, dict[int, T]]:
    """Returns values that are under pairs of topic and partition by topic, then by partition."""
    by_name: dict[str, dict[int, T]] = {}
    for (topic, number), value in values.items():
        by_name.setdefault(topic, {})[number] = value
    return by_name


def advance(offsets: Offsets, ranges: Iterable[OffsetRange]) -> dict[str, dict[int, int]]:
    """Returns the offsets after `ranges` have been read."""
    return by_topic(by_partition(offsets) | {(r.topic, r.partition): r.end for r in ranges})


def later(offsets: Offsets, other: Offsets) -> dict[str, dict[int, int]]:
    """Returns the greater of two numbers, by topic and partition."""
    merged = {topic: dict(numbers) for topic, numbers in offsets.items() if numbers}
    for topic, numbers in other.items():
        for partition, number in numbers.items():
            greatest = merged.setdefault(topic, {})
            greatest[partition] = max(number, greatest.get(partition, number))
    return merged


def add_counts(*many: Mapping[str, int]) -> dict[str, int]:
    """Returns the sum of the counts, by name."""
    return dict(sum(map(Counter, filter(None, many)), Counter()))


def as_json(value: Any) -> str:
    """Returns compact JSON with sorted keys, for summaries and logs."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def add_names(names_so_far: frozenset[str], new_names: Iterable[str]) -> frozenset[str]:
    """Returns `names_so_far` with `new_names`: at most MAX_REMEMBERED_NAMES, and MORE_NAMES where some were left out."""
    new = sorted(set(new_names) - names_so_far)
    if not new or MORE_NAMES in names_so_far:
        return names_so_far
    names = [name for name in new if name != MORE_NAMES]
    free = MAX_REMEMBERED_NAMES - len(names_so_far)
    more = {MORE_NAMES} if len(names) > free or len(names) < len(new) else set()
    return names_so_far.union(names[:free], more)


def list_names(names: Iterable[str]) -> list[str]:
    """Returns the names sorted, MORE_NAMES last."""
    unsorted = list(names)
    return sorted(unsorted, key=lambda name: (name == MORE_NAMES, name)) if len(unsorted) > 1 else unsorted
