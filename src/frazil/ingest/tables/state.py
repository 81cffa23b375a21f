"""What is known of one table while the pipeline runs: nine records, each with its rules beside it.

Times are of the monotonic clock, in seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from frazil.catalog.port import TableSize, TableState
from frazil.decode.settings import WriterSchema
from frazil.errors import FrazilError, SpecError
from frazil.ingest.failures import TableStopped, describe_error
from frazil.ingest.plan import ASSUMED_RECORD_BYTES, MAX_BATCH_RECORDS, learn_row_bytes
from frazil.ingest.tables.batch_ends import Cut, Waiting
from frazil.kafka.port import Partition, TopicDescription
from frazil.queries.analysis import Query
from frazil.queries.references import Reference
from frazil.report import TaskReport
from frazil.schema.evolve import RequestedFields
from frazil.schema.projection import format_path, shown_path
from frazil.schema.selection import Path
from frazil.stages.watch import Tally
from frazil.types import BadRecord, DataFile, OffsetRange, Offsets, by_partition, by_topic


class RunState(StrEnum):
    """What a table is doing."""

    WAITING = "waiting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"
    PAUSED = "paused"
    STANDBY = "standby"


@dataclass
class Status:
    """The first lines that `frazil status` shows of a table."""

    #: What the table is doing.
    run_state: RunState = RunState.WAITING
    #: Why the table backs off, stopped, or waits; empty where there is nothing to report.
    reason: str = ""
    #: What to do about the reason.
    remedy: str = ""
    #: The topic, partition and offset, or the file and line, that the reason is about.
    where: str = ""

    def set(self, state: RunState, error: FrazilError | TableStopped | None = None) -> None:
        """Sets what the table is doing, with the error as its reason; without an error the reason is cleared."""
        self.run_state = state
        self.reason, self.remedy, self.where = describe_error(error) if error is not None else ("", "", "")

    def wait_for(self, reason: str) -> None:
        """Sets the table to waiting, for a reason that is not an error."""
        self.run_state, self.reason, self.remedy, self.where = RunState.WAITING, reason, "", ""


_QUICK_S = 5.0


@dataclass
class Schedule:
    """The schedule of a table in the service's loop."""

    #: Whether a batch or a load of the table is running; nothing else is started for it until then.
    in_flight: bool = False
    #: Whether the next batch gets a job of its own, because a job that it shared has failed.
    goes_alone: bool = False
    #: Whether this process works on the table; otherwise another one does, and this one only keeps it warm.
    is_owned: bool = True
    #: Whether an operator has paused the table: no batch is planned until it is resumed.
    is_paused: bool = False
    #: Consecutive failures.
    failures: int = 0
    #: Consecutive refused commits during which no other writer made progress either.
    conflicts: int = 0
    #: When the next batch is due.
    next_due_s: float = 0.0
    #: Seconds between two commits, which table maintenance may lengthen; None before the first commit.
    interval_s: float | None = None
    #: When the last batch was planned.
    last_batch_at_s: float = 0.0
    #: When the tasks of the last batch were submitted, and when they ended; None until they did.
    tasks_from_s: float = 0.0
    tasks_to_s: float | None = None
    #: When the last batch ended.
    batch_done_at_s: float = 0.0
    #: Other tables of the last batch's shared read, while the table may wait for them.
    read_with: frozenset[str] = frozenset()
    #: The largest number of records in a batch, after more of them together took more memory or time than a task may;
    #: None without such a limit.
    most_records: int | None = None

    def read_less(self, records: int) -> bool:
        """Limits batches to a quarter of `records`, which fail a task only together; returns False for a single record."""
        if records <= 1:
            return False
        self.most_records = max(1, records // 4)
        return True

    def read_more(self, took_s: float) -> None:
        """Doubles the limit after a commit that took only seconds, and removes it once it has no effect."""
        if self.most_records is not None and took_s < _QUICK_S:
            self.most_records *= 2
            if self.most_records >= MAX_BATCH_RECORDS:
                self.most_records = None


@dataclass
class ColumnSearch:
    """How far a table without columns has read on for the first of them."""

    #: The offsets up to which records have been read without finding a column.
    read_to: Offsets = field(default_factory=dict)
    #: Whether all of these records are of kinds that change no row: none of them is waiting for a table.
    is_without_rows: bool = False
    #: The number of batches that were read without finding a column.
    batch_count: int = 0


@dataclass
class OffsetState:
    """A table's topics and offsets."""

    #: The topics that feed the table, as Kafka last described them, by name.
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    #: The offsets at which partitions without progress begin.
    first: dict[str, dict[int, int]] = field(default_factory=dict)
    #: The ids that the topics of `first` had when these offsets were read.
    first_ids: dict[str, str] = field(default_factory=dict)
    #: The partitions that the setting `start` applies to; None before a topic was seen.
    at_start: frozenset[Partition] | None = None
    #: Offsets (from, to) that Kafka no longer has and that no commit has recorded yet.
    skipped: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    #: The number of offsets that this process has skipped.
    skipped_offsets: int = 0
    #: Whether the committed offsets must be compared with what Kafka still has before the next read.
    needs_check: bool = True
    #: The ends at which there was nothing left to read; None where that is not known.
    read_to: Mapping[Partition, int | None] | None = None
    #: Offsets between the table's position and the ends of the logs; None while that is not known.
    lag_records: int | None = None
    #: Those of them that wait for an open transaction, from its first offset on.
    open_transactions: tuple[OffsetRange, ...] = ()
    #: Since when there is lag, in milliseconds since the epoch; None without any, and where it is from before this process.
    behind_since_ms: int | None = None
    #: Whether there was nothing to read when the lag was last measured.
    is_complete: bool = False
    search: ColumnSearch = field(default_factory=ColumnSearch)
    #: The end of the next batch at which it divides nothing that belongs together.
    cut: Cut | None = None
    #: The wait for such an end, while there is none.
    waiting: Waiting | None = None

    def begun(self, committed: Offsets) -> dict[str, dict[int, int]]:
        """Returns the committed offsets, with the first offsets of partitions that have none."""
        return by_topic(by_partition(self.first) | by_partition(committed))

    def set_lag(self, lag_records: int | None, now_ms: int, open_transactions: tuple[OffsetRange, ...] = ()) -> None:
        """Sets the lag as it is measured now."""
        if not lag_records:
            self.behind_since_ms = None
        elif self.is_complete:
            self.behind_since_ms = now_ms
        self.lag_records, self.is_complete = lag_records, lag_records == 0
        self.open_transactions = open_transactions if lag_records else ()

    def position(self, committed: Offsets) -> Offsets:
        """Returns the offsets to read from: those of `begun`, also of topics that do not exist, behind skipped ones."""
        vector = self.begun(committed)
        for (topic, partition), (_, to) in by_partition(self.skipped).items():
            vector[topic][partition] = max(to, vector[topic][partition])
        return vector

    def partitions(self) -> list[Partition]:
        """Returns every partition of the topics that exist."""
        return [(t.name, p) for t in self.topics.values() for p in range(t.partition_count)]

    @property
    def partition_count(self) -> int:
        """The number of these partitions."""
        return sum(topic.partition_count for topic in self.topics.values())

    def skip(self, topic: str, partition: int, start: int, end: int) -> None:
        """Moves a partition to `end`, as earlier records are gone; earlier skipped offsets that are not committed stay."""
        lost = self.skipped.setdefault(topic, {})
        lost[partition] = (lost[partition][0] if partition in lost else start, end)
        self.skipped_offsets += end - start

    def forget_skipped(self, committed: Offsets) -> None:
        """Drops skipped offsets which a load shows to be committed meanwhile, or rolled back."""
        begun = by_partition(self.begun(committed))
        lost = by_partition(self.skipped).items()
        kept = by_topic({place: offsets for place, offsets in lost if begun.get(place) == offsets[0]})
        self.needs_check |= kept != self.skipped
        self.skipped = kept


@dataclass
class CatalogState:
    """How recent and complete the catalog's answers about a table are."""

    #: Whether the table's state may be used; otherwise it is loaded before the next batch.
    is_loaded: bool = False
    #: When the table's state was last known to be current.
    loaded_at_s: float = 0.0
    #: When the table was last requested from the catalog.
    asked_at_s: float = float("-inf")
    #: Whether the table was requested since it was last checked for a due batch.
    was_asked: bool = False
    #: Whether something other than a batch, such as maintenance, has changed the table since it was last loaded.
    is_outdated: bool = False
    #: The table's size after the newest commit; None before it is known.
    size: TableSize | None = None
    #: Rows of the dead-letter table, as last counted.
    dead_letter_count: int = 0
    #: Those of them that wait for a row of a reference table; None where no lookup has `wait`, and before they are counted.
    waiting_count: int | None = None


MANY_FILES = 500
_FEW_ROWS = 2_000


@dataclass
class Sizes:
    """Sizes and rates of the batches of this process."""

    #: The average size of the last batch's records.
    record_bytes: float = ASSUMED_RECORD_BYTES
    #: The average size of a row in a data file; None before this process has written enough of them.
    row_bytes: float | None = None
    #: Whether rows of the last batch were written to very many partitions; None before the first.
    is_scattered: bool | None = None
    #: Records per second of the last batch.
    records_per_s: float = 0.0
    #: Milliseconds from the newest record of the last batch to its commit.
    freshness_ms: int | None = None

    def update(self, report: TaskReport, stored_row_bytes: float | None = None) -> None:
        """Updates the sizes from the report of a batch that was read. stored_row_bytes: of the table."""
        if report.read_count:
            self.record_bytes = report.counts.value_bytes / report.read_count
            self.row_bytes = learn_row_bytes(self.row_bytes, report, stored_row_bytes)
            if report.counts.record_count:
                few_rows = report.counts.record_count < _FEW_ROWS * len(report.written.data)
                self.is_scattered = len(report.written.data) >= MANY_FILES and few_rows


@dataclass(frozen=True)
class NoOpChange:
    """A requested schema change that left the table unchanged."""

    #: Paths of the requested fields.
    fields: frozenset[Path]
    #: The table's uuid, before and after the change.
    uuid: str
    #: The table's shape, as in TableState.
    shape: tuple[int, int, int]
    #: The table's marks, as in TableState.
    marks: Mapping[str, str]


def find_no_op_change(
    before: TableState,
    after: TableState,
    requested_fields: RequestedFields,
    made_optional: Iterable[Path],
    last: NoOpChange | None,
) -> NoOpChange | None:
    """Returns the requested change where the table is unchanged by it; None where the table differs, whoever has
    changed it.

    before: the table that the records were read for. after: the table after the change. last: the result of this
    function for the batch before.

    Raises: SpecError where the result equals `last`.
    """
    if (before.uuid, before.shape, before.marks) != (after.uuid, after.shape, after.marks):
        return None
    fields = {(*parent, name) for parent, members in requested_fields.items() for name in members}
    change = NoOpChange(frozenset(fields.union(made_optional)), after.uuid, after.shape, after.marks)
    if change != last:
        return change
    names = sorted(format_path(shown_path(path)) for path in change.fields)
    raise SpecError(
        f"records need a schema change that changes nothing: field {', '.join(names)}",
        remedy="leave the field out with `exclude`, or declare a column for it or for the field that contains it, and"
        " report this error",
        where=after.name,
    )


@dataclass
class SchemaState:
    """Registry schemas, refused schema changes and dropped fields of one table."""

    #: Registry schemas that the records refer to, by id; ids of keys and headers have a prefix.
    schemas: dict[str, WriterSchema] = field(default_factory=dict)
    #: When the newest schema was last requested, on the monotonic clock in seconds.
    schemas_at_s: float = float("-inf")
    #: Whether the registry was asked since the table was last checked for a due batch.
    was_asked: bool = False
    #: Whether schemas were added with which no committed batch was read yet.
    has_new_schemas: bool = False
    #: Requested schema changes that the table's settings do not allow.
    refusals: frozenset[str] = frozenset()
    #: Fields that cannot be columns of the table, by path with the reason: records with them are bad records.
    rejected: dict[Path, str] = field(default_factory=dict)
    #: Fields without a column whose first values are of a kind that the table cannot have, with the kind and the reason.
    refused_kinds: dict[Path, tuple[str, str]] = field(default_factory=dict)
    #: Names of fields that were dropped.
    dropped: frozenset[str] = frozenset()
    #: The schema change that the last batch requested, where it left the table unchanged.
    no_op_change: NoOpChange | None = None
    #: The table's query as analysed for the fields that its records are known to have; None before that, and without one.
    query: Query | None = None
    #: The rows of reference tables that the next batch joins, by lookup.
    references: dict[str, Reference] = field(default_factory=dict)

    @property
    def reference_versions(self) -> dict[str, Mapping[str, object]]:
        """The versions of these, for the commit of the rows that are joined with them."""
        return {name: reference.version for name, reference in self.references.items()}

    def add_schemas(self, schemas: Mapping[str, WriterSchema]) -> None:
        """Adds registry schemas that a batch has requested; the next batch is read with them."""
        self.schemas |= schemas
        self.has_new_schemas |= bool(schemas)

    @property
    def of_values(self) -> list[tuple[str, WriterSchema]]:
        """The schemas of the records' values, with their ids."""
        return [(name, schema) for name, schema in self.schemas.items() if ":" not in name]

    def under(self, prefix: str) -> tuple[tuple[str, WriterSchema], ...]:
        """Returns the schemas whose ids begin with `prefix`, by id without the prefix."""
        items = sorted(item for item in self.schemas.items() if item[0].startswith(prefix))
        return tuple((name.removeprefix(prefix), schema) for name, schema in items)


_GOOD_BATCHES = 20


@dataclass
class BadRecordState:
    """The state of bad and ignored records of one table."""

    #: The dead-letter table, as last loaded; None while batches do not read the columns of dead letters.
    dead_letters: TableState | None = None
    #: Committed batches in a row without a bad record.
    good_batches: int = 0
    #: Numbers of recent records and bad records.
    tally: Tally = field(default_factory=Tally)
    #: Records that are no change of a row, by kind, since the process started.
    ignored_records: Counter[str] = field(default_factory=Counter)
    #: Records that crash the task which reads them, until the batch with them is committed.
    crashing: frozenset[BadRecord] = frozenset()
    #: Searches for such records without a result since the last commit.
    searches: int = 0

    def note_committed(self, report: TaskReport) -> bool:
        """Counts a committed batch; returns whether batches stop reading what dead letters need, after many good ones."""
        self.tally.add(report.counts.record_count, report.bad_records.faulty_count)
        self.good_batches = 0 if report.bad_records.count else self.good_batches + 1
        if self.good_batches < _GOOD_BATCHES:
            return False
        self.dead_letters = None
        return True


@dataclass
class Histogram:
    """Numbers of observations by size."""

    #: The upper bounds of the buckets, in ascending order; larger observations are in one more bucket.
    bounds: tuple[float, ...]
    #: Observations of each bucket; empty before the first.
    counts: list[int] = field(default_factory=list)
    #: The sum of all observations.
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Adds an observation."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Bounds of histograms of durations, in seconds."""


@dataclass
class RunCounts:
    """What this process has done for a table since it started, for metrics. Only the loop's thread changes it."""

    #: Batches by outcome.
    batches: Counter[str] = field(default_factory=Counter)
    #: Records of committed batches, and the bytes of their values.
    records: int = 0
    value_bytes: int = 0
    #: Rows and bytes of the data files that were committed, and their number.
    rows: int = 0
    file_bytes: int = 0
    files: int = 0
    #: Rows that were deleted by changes.
    deleted_rows: int = 0
    #: Bad records of committed batches that became dead letters, by class of error.
    dead_letters: Counter[str] = field(default_factory=Counter)
    #: Bad records of committed batches that were skipped.
    skipped_records: int = 0
    #: Schema changes by outcome.
    schema_changes: Counter[str] = field(default_factory=Counter)
    #: Stops of the table by error.
    stops: Counter[str] = field(default_factory=Counter)
    #: Seconds from the newest record of a batch to its commit.
    freshness_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    #: Seconds from the plan of a batch to the end of its commit.
    batch_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    #: Seconds that the commits took.
    commit_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))

    def add(self, report: TaskReport, files: Sequence[DataFile], is_skipping: bool, deleted_rows: int) -> None:
        """Adds a committed batch. files: that the commit added. is_skipping: whether its bad records were skipped."""
        self.records += report.counts.record_count
        self.value_bytes += report.counts.value_bytes
        self.files += len(files)
        self.rows += sum(file.record_count for file in files)
        self.file_bytes += sum(file.size_bytes for file in files)
        self.deleted_rows += deleted_rows
        bad = report.bad_records
        if is_skipping:
            self.skipped_records += bad.count
        elif bad.count:
            self.dead_letters.update(bad.classes)
            if others := bad.count - sum(bad.classes.values()):
                self.dead_letters["other"] += others
