"""What a task reports on one table, and how the reports of all tasks are merged in the driver.

They are JSON on their way. Each part has its own merge.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Self

from pydantic import TypeAdapter

from frazil.error_classes import ErrorClass
from frazil.ledger import MODULUS
from frazil.types import BadRecord, DataFile, LastDelete, NewValues, add_counts, later


@dataclass(frozen=True)
class Counts:
    """Numbers of records and bytes, and the newest timestamps."""

    #: The number of records.
    record_count: int = 0
    #: Bytes of all record values.
    value_bytes: int = 0
    #: The latest record timestamp in milliseconds, by topic and partition.
    latest_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    #: The number of records that are not changes of a row, by kind of record.
    ignored_records: Mapping[str, int] = field(default_factory=dict)
    #: The number of records that were written: as rows, or as changes of an upsert table.
    written_count: int = 0
    #: The number of rows, or of changes of an upsert table, that were written.
    row_count: int = 0
    #: The number of fields of the records, and what became of them (`types.Balance`); empty where they are not counted.
    fields: Mapping[str, int] = field(default_factory=dict)
    #: The sum of the hashes of the records (`write/digests.py`), below 2**64.
    record_digest: int = 0
    #: The sum of the hashes of the rows that are appended.
    row_digest: int = 0
    #: The number of records that earlier batches have read too: parts of values that never became whole.
    again_count: int = 0

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the sums over the tasks of a batch."""
        latest: dict[str, dict[int, int]] = {}
        for part in parts:
            latest = later(latest, part.latest_ms)
        return cls(
            record_count=sum(part.record_count for part in parts),
            value_bytes=sum(part.value_bytes for part in parts),
            latest_ms=latest,
            ignored_records=add_counts(*(part.ignored_records for part in parts)),
            written_count=sum(part.written_count for part in parts),
            row_count=sum(part.row_count for part in parts),
            fields=add_counts(*(part.fields for part in parts)),
            record_digest=sum(part.record_digest for part in parts) % MODULUS,
            row_digest=sum(part.row_digest for part in parts) % MODULUS,
            again_count=sum(part.again_count for part in parts),
        )


@dataclass(frozen=True)
class WrittenFiles:
    """Data files of the table, and of its dead-letter table."""

    #: Data files of the table.
    data: tuple[DataFile, ...] = ()
    #: Data files of the dead-letter table.
    dead_letters: tuple[DataFile, ...] = ()
    #: Names of two partitions, where the rows have more partitions than one batch may write; there are no files then.
    scattered: tuple[str, ...] = ()
    #: The number of rows that are summed and in no file (`TableFiles.is_summed`).
    summed: int = 0

    @property
    def row_count(self) -> int:
        """The number of rows of the table."""
        return sum(file.record_count for file in self.data) + self.summed

    @property
    def dead_letter_count(self) -> int:
        """The number of bad records in the files of the dead-letter table."""
        return sum(file.record_count for file in self.dead_letters)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the files of all tasks of a batch."""
        return cls(
            data=tuple(file for part in parts for file in part.data),
            dead_letters=tuple(file for part in parts for file in part.dead_letters),
            scattered=next((part.scattered for part in parts if part.scattered), ()),
            summed=sum(part.summed for part in parts),
        )


@dataclass(frozen=True)
class SchemaRequests:
    """Requests that are fulfilled or refused before the rows can be committed."""

    #: Fields that the table lacks, as JSON of `schema.evolve.dump_requested_fields`.
    requested_fields: tuple[str, ...] = ()
    #: Paths of required columns for which records have no value, as JSON lists.
    made_optional: frozenset[str] = frozenset()
    #: The fields of the records' keys, for an upsert table whose key columns are not known yet.
    key_columns: tuple[str, ...] = ()
    #: Ids of schemas that the task did not have.
    missing: frozenset[str] = frozenset()
    #: Schema changes that the table's settings do not allow.
    refusals: frozenset[str] = frozenset()
    #: Paths of fields that were left out.
    dropped: frozenset[str] = frozenset()
    #: Columns of `dedupe.by` that the table lacks, as no record so far has more than null in their fields.
    empty_ids: frozenset[str] = frozenset()

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the requests of all tasks of a batch."""
        return cls(
            requested_fields=tuple(dict.fromkeys(requested for part in parts for requested in part.requested_fields)),
            made_optional=frozenset[str]().union(*(part.made_optional for part in parts)),
            key_columns=next((part.key_columns for part in parts if part.key_columns), ()),
            missing=frozenset[str]().union(*(part.missing for part in parts)),
            refusals=frozenset[str]().union(*(part.refusals for part in parts)),
            dropped=frozenset[str]().union(*(part.dropped for part in parts)),
            empty_ids=frozenset[str]().union(*(part.empty_ids for part in parts)),
        )


MOST_BAD = 20
"""The largest number of bad records that are reported one by one."""


@dataclass(frozen=True)
class BadRecords:
    """The number of bad records, and the first of them."""

    #: The first bad records, by topic, partition and offset.
    first: tuple[BadRecord, ...] = ()
    #: The number of all bad records.
    count: int = 0
    #: The numbers of bad records by class of error, as far as they were looked at one by one.
    classes: Mapping[str, int] = field(default_factory=dict)

    @property
    def faulty_count(self) -> int:
        """The number of bad records without those that only wait, as far as their classes show these."""
        judged, waiting = sum(self.classes.values()), self.classes.get(ErrorClass.LOOKUP_WAITING, 0)
        return self.count - self.count * waiting // judged if waiting else self.count

    @classmethod
    def merge(cls, parts: Sequence[Self], limit: int = MOST_BAD) -> Self:
        """Returns the bad records of all tasks of a batch; the first `limit` of them are listed one by one."""
        first = sorted(
            (bad_record for part in parts for bad_record in part.first), key=lambda b: (b.topic, b.partition, b.offset)
        )
        classes = add_counts(*(part.classes for part in parts))
        return cls(tuple(first[:limit]), sum(part.count for part in parts), classes)


@dataclass(frozen=True)
class FirstTombstone:
    """A tombstone that is a partition's first record in a task's ranges: its delete may be another task's last one."""

    #: The topic.
    topic: str
    #: The partition.
    partition: int
    #: The tombstone's offset.
    offset: int
    #: A hash of the record's key, as in LastDelete.
    key: str


@dataclass(frozen=True)
class Touched:
    """The changes of one task for an upsert table, reduced to the latest change of each key."""

    #: The keys with their latest changes, as `upsert.deduplicate` serialises them.
    keys: str
    #: Rows that wait for values of the rows they replace, serialised in the same way; empty without such rows.
    buffered: str = ""
    #: Paths of the data files that hold all other rows.
    files: tuple[str, ...] = ()
    #: The number of changes before deduplication.
    change_count: int = 0
    #: The tombstone that is the only change of the task. It is not a change at all if it directly follows the delete of
    #: its key.
    first: FirstTombstone | None = None


@dataclass(frozen=True)
class ChangeReport:
    """The changes of a task for an upsert table."""

    #: The changes, reduced to the latest of each key.
    touched: tuple[Touched, ...] = ()
    #: Deletes at the end of what was read of a partition; their tombstones may follow.
    last_deletes: tuple[LastDelete, ...] = ()
    #: What the changes need of other tasks or batches, by the name of the room of `upsert` that writes and reads it: values
    #: of JSON, of all tasks.
    notes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the changes of all tasks of a batch."""
        names = dict.fromkeys(name for part in parts for name in part.notes)
        return cls(
            touched=tuple(touched for part in parts for touched in part.touched),
            last_deletes=tuple(last for part in parts for last in part.last_deletes),
            notes={name: tuple(note for part in parts for note in part.notes.get(name, ())) for name in names},
        )


@dataclass(frozen=True)
class ShareReport:
    """What becomes of records that several tables divide among them: those of other tables, and those of no other table."""

    #: Values of records that are to get a table first, of the table of the rest, by partition: of each partition the values
    #: that come first, as many as may get a table.
    new_values: tuple[NewValues, ...] = ()
    #: The number of records that go to the table of the rest, by reason.
    rest_records: Mapping[str, int] = field(default_factory=dict)
    #: The number of records that other tables take.
    others: int = 0

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the sums over the tasks of a batch."""
        new_values: dict[tuple[Any, ...], NewValues] = {}
        for new in (new for part in parts for new in part.new_values):
            place = (new.topic, new.partition, new.values)
            before = new_values.get(place, replace(new, count=0))
            offset, count = min(before.offset, new.offset), before.count + new.count
            new_values[place] = replace(new, offset=offset, count=count)
        return cls(
            new_values=tuple(new_values[place] for place in sorted(new_values)),
            rest_records=add_counts(*(part.rest_records for part in parts)),
            others=sum(part.others for part in parts),
        )


@dataclass(frozen=True)
class FindingReport:
    """What stages have found in records, or in the batch."""

    #: The number of records by the name of the finding.
    counts: Mapping[str, int] = field(default_factory=dict)
    #: The first record by the name, in the order of topic, partition and offset, with the reason.
    first: Mapping[str, BadRecord] = field(default_factory=dict)

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Returns the sums over the tasks of a batch."""
        first_records = ((name, record) for part in parts for name, record in part.first.items())
        ordered = sorted(
            first_records, key=lambda named: (named[1].topic, named[1].partition, named[1].offset), reverse=True
        )
        return cls(add_counts(*(part.counts for part in parts)), dict(ordered))


@dataclass(frozen=True)
class TaskTime:
    """The time that one task took for all of its tables."""

    #: When it began, in milliseconds since the epoch by the clock of its machine.
    began_ms: int
    #: When it ended, by the same clock.
    ended_ms: int
    #: The number of records that it read for the table.
    record_count: int


@dataclass(frozen=True)
class TaskReport:
    """The results of a task, or of all tasks of a batch after `merge_reports`, for one table's ranges."""

    #: `namespace.table`.
    table: str
    #: Numbers and sizes of the records that were read.
    counts: Counts = field(default_factory=Counts)
    #: The files that were written.
    written: WrittenFiles = field(default_factory=WrittenFiles)
    #: Schema changes, key columns and registry schemas that the records need.
    schema: SchemaRequests = field(default_factory=SchemaRequests)
    #: The number of bad records, and the first of them.
    bad_records: BadRecords = field(default_factory=BadRecords)
    #: The changes of an upsert table.
    changes: ChangeReport = field(default_factory=ChangeReport)
    #: The records of other tables, of a table with a share.
    share: ShareReport = field(default_factory=ShareReport)
    #: What the table's stages have found.
    findings: FindingReport = field(default_factory=FindingReport)
    #: The times of the tasks.
    times: tuple[TaskTime, ...] = ()

    @property
    def read_count(self) -> int:
        """The number of records that were read, for this table and for others with which it shares them."""
        return self.counts.record_count + self.share.others


def merge_reports(table: str, reports: Iterable[TaskReport], limit: int = MOST_BAD) -> TaskReport:
    """Returns the reports of all tasks of a batch for `table` as one, with the first `limit` bad records by position."""
    mine = [report for report in reports if report.table == table]
    return TaskReport(
        table,
        Counts.merge([report.counts for report in mine]),
        WrittenFiles.merge([report.written for report in mine]),
        SchemaRequests.merge([report.schema for report in mine]),
        BadRecords.merge([report.bad_records for report in mine], limit),
        ChangeReport.merge([report.changes for report in mine]),
        ShareReport.merge([report.share for report in mine]),
        FindingReport.merge([report.findings for report in mine]),
        tuple(time for report in mine for time in report.times),
    )


_SERIALIZED = ("keys", "buffered")
"""The members of `Touched` that are serialized tables: megabytes of text without a line break."""


def dump_report(report: TaskReport) -> str:
    """Returns a report as a line of JSON, followed by a line for each serialized table, which need not be escaped."""
    document = asdict(report)
    lines = [""]
    for touched in document["changes"]["touched"]:
        for name in _SERIALIZED:
            lines.append(touched[name])
            touched[name] = ""
    lines[0] = json.dumps(document, default=sorted)
    return "\n".join(lines)


def load_report(text: str) -> TaskReport:
    """Returns the report that `dump_report` wrote."""
    document, *lines = text.split("\n")
    # Not `validate_json`: names of fields may have surrogates that are not Unicode.
    report = json.loads(document)
    for number, touched in enumerate(report["changes"]["touched"]):
        touched.update(zip(_SERIALIZED, lines[number * len(_SERIALIZED) :], strict=False))
    return _reader().validate_python(report)


@cache
def _reader() -> TypeAdapter[TaskReport]:
    return TypeAdapter(TaskReport)
