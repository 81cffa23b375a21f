"""The end of a batch: one of five outcomes, and the findings that come before a commit.

The service handles outcomes in one `match`. A finding is one class each: its log event, and its effect on the next plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from frazil.catalog.port import TableState
from frazil.clock import Clock
from frazil.decode.settings import WriterSchema
from frazil.error_classes import ErrorClass
from frazil.errors import ConflictError, UnavailableError, record_place
from frazil.ingest.batches.bad_records import remedy_for
from frazil.ingest.plan import lag_records
from frazil.ingest.tables.first_values import RefusedKinds
from frazil.ingest.tables.schema_changes import CLASH_REMEDY
from frazil.ingest.tables.state import NoOpChange, RunState
from frazil.ingest.tables.table import Planned
from frazil.report import TaskReport
from frazil.schema.selection import Path
from frazil.spec import TableSpec
from frazil.stages.watch import FEWEST_TO_JUDGE
from frazil.types import DataFile, DerivedTable, Resolved, advance


class BatchFinding(Protocol):
    """A finding of a batch that must be handled before its offsets can be committed: one class, with its own log event
    and its own effect on the next plan.
    """

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:
        """Logs the finding, and sets the fields of the table that the next plan of these offsets needs."""


@dataclass(frozen=True)
class Committed:
    """The batch is committed."""

    #: The table with its new progress.
    state: TableState
    #: The merged report of its tasks.
    report: TaskReport
    #: The data files that the commit added: also those that the commit wrote itself, with completed rows for example.
    files: tuple[DataFile, ...]
    #: How the changes affected the rows of an upsert table; None for other tables.
    resolved: Resolved | None = None
    #: How long the commit took, in seconds.
    took_s: float = 0.0


@dataclass(frozen=True)
class Replan:
    """Nothing of the batch is committed; its offsets are planned again, with its findings."""

    #: The table after the batch; its schema may have changed. None while the table does not exist.
    state: TableState | None
    #: The merged report of its tasks.
    report: TaskReport
    #: The findings, in the order in which they are applied.
    findings: tuple[BatchFinding, ...]


@dataclass(frozen=True)
class Reload:
    """The commit was refused, or records that were read are gone: the table is loaded, and planned again."""

    #: The error of the commit or of the read.
    error: ConflictError


@dataclass(frozen=True)
class Retry:
    """A service did not answer: the table backs off, is loaded, and is planned again."""

    #: The error of the service; of a shared job, of whichever table's service.
    error: UnavailableError | ConflictError
    #: Whether other tables were read in the same job: each is planned again at once, alone, and finds its own error.
    is_shared: bool = False


@dataclass(frozen=True)
class Stop:
    """Another attempt would fail as well: the table stops, or all tables where `error` concerns the process."""

    #: The error that another attempt would repeat.
    error: BaseException


Outcome = Committed | Replan | Reload | Retry | Stop


def outcome_of(error: BaseException, *, is_shared: bool = False) -> Reload | Retry | Stop:
    """Returns the outcome of a batch that failed with `error`, or whose job did, which several tables may share."""
    if is_shared and isinstance(error, ConflictError | UnavailableError):
        return Retry(error, is_shared)
    if isinstance(error, ConflictError):
        return Reload(error)
    return Retry(error) if isinstance(error, UnavailableError) else Stop(error)


log = structlog.get_logger("frazil")

EMPTY_RETRY_S = 5.0
# A search for columns begins at the same offsets each time: it may take a tenth of the time.
EMPTY_RETRY_TIMES = 9
TOO_BAD = "too many of the table's first records are bad: some dead letters are committed before the table stops"


@dataclass(frozen=True)
class NewSchemas:
    """The records refer to registry schemas that the tasks did not have."""

    #: The schemas by id, as the registry returned them, including ids that it does not know.
    schemas: Mapping[str, WriterSchema]

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:  # noqa: ARG002
        """See BatchFinding."""
        planned.table.schema.add_schemas(self.schemas)
        log.info("schemas_fetched", table=planned.table.name, schemas=sorted(self.schemas))


@dataclass(frozen=True)
class SchemaChanged:
    """The table was created, or received the columns or wider types that the records need."""

    #: The number of top-level columns.
    column_count: int
    #: Whether the table's schema is another one than before: a change may be of the known fields of a query's records alone.
    is_visible: bool = True
    #: The change that the records requested, where it left the table unchanged.
    no_op_change: NoOpChange | None = None

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:  # noqa: ARG002
        """See BatchFinding."""
        planned.table.schema.no_op_change = self.no_op_change
        if self.is_visible:
            planned.table.counts.schema_changes["applied"] += 1
            log.info("schema_changed", table=planned.table.name, columns=self.column_count)


@dataclass(frozen=True)
class RejectedFields:
    """Some fields cannot be columns of the table: records with them are bad records. `add_refusals` logs the reasons."""

    #: The reason by path.
    fields: Mapping[Path, str]

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:  # noqa: ARG002
        """See BatchFinding."""
        planned.table.schema.rejected |= self.fields


@dataclass(frozen=True)
class FirstValuesRefused:
    """The first values of some fields are of a kind that the table cannot have: the fields are read without them."""

    #: What is refused, and why, by path.
    kinds: RefusedKinds

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:  # noqa: ARG002
        """See BatchFinding."""
        planned.table.schema.refused_kinds |= self.kinds
        for path, (kind, reason) in self.kinds.items():
            words = reason.replace("{value}", f"the first value, {kind},")
            log.warning("first_value_refused", table=planned.table.name, field=".".join(path), reason=words)


@dataclass(frozen=True)
class NewTables:
    """Records have values that get a table of their own. A commit of the table of the rest has named these
    tables, without a row, with the offsets that they begin at: from there one read serves them and the table of the rest.
    """

    #: The new tables.
    tables: tuple[DerivedTable, ...]

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:  # noqa: ARG002
        """See BatchFinding."""
        table, share = planned.table, planned.table.spec.source.share
        assert share is not None
        log.info("routed_tables_found", table=table.name, tables=[derived.name for derived in self.tables])
        limit = share.division.limit
        if len(table.derived) >= limit:
            remedy = "raise `limit` of the route, or route by a value of which there are fewer"
            log.warning("route_limit_reached", table=share.rest, limit=limit, remedy=remedy)


@dataclass(frozen=True)
class NoColumns:
    """No record has a column for a table that declares none: the next plan reads further, at once, or later where there
    are no more records.
    """

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:
        """See BatchFinding."""
        table, counts, search = planned.table, report.counts, planned.table.offsets.search
        search.read_to = advance(planned.position, planned.batch.ranges)
        search.is_without_rows = 0 < counts.record_count == sum(counts.ignored_records.values())
        if lag_records(search.read_to, planned.reach):
            search.batch_count += 1
            return
        now_s = clock.monotonic_s()
        table.schedule.next_due_s = now_s + max(EMPTY_RETRY_S, EMPTY_RETRY_TIMES * (now_s - planned.planned_at_s))
        if search.is_without_rows:  # There is nothing to look for in them again.
            table.offsets.read_to = {place: planned.reach.get(place) for place in table.partitions()}
            table.offsets.set_lag(lag_records(search.read_to, planned.ends), clock.now_ms())
        # Offsets without records (aborted transactions, compacted records) are no reason to back off.
        is_waiting = search.is_without_rows or not counts.record_count
        before = table.status.reason
        table.status.set(RunState.WAITING if is_waiting else RunState.BACKING_OFF, no_columns(report, table.spec))
        if search.is_without_rows and table.status.reason != before:
            for kind, records in sorted(counts.ignored_records.items()):
                log.info("records_ignored", table=table.name, kind=kind, records=records)


@dataclass(frozen=True)
class BadStart:
    """Too many of a new table's first records are bad: the next batch is so small that its dead letters are committed,
    and can be examined, before the table stops.
    """

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:  # noqa: ARG002
        """See BatchFinding."""
        table = planned.table
        table.schedule.most_records = FEWEST_TO_JUDGE - 1
        log.warning("batch_size_reduced", table=table.name, records=table.schedule.most_records, reason=TOO_BAD)


@dataclass(frozen=True)
class FirstBadRecord:
    """The first bad record, in a batch without the columns of dead letters: later batches read them."""

    #: The dead-letter table, created or loaded.
    dead_letters: TableState

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:  # noqa: ARG002
        """See BatchFinding."""
        table = planned.table
        table.bad_records.dead_letters, table.bad_records.good_batches = self.dead_letters, 0
        log.info("dead_letter_capture_started", table=table.name, dead_letter_table=self.dead_letters.name)


@dataclass(frozen=True)
class MissingRequired:
    """Records have no value for a required column, and no earlier row had one: they are bad records."""

    #: Topic, partition and offset of each record.
    places: tuple[tuple[str, int, int], ...]

    def apply(self, planned: Planned, report: TaskReport, clock: Clock) -> None:  # noqa: ARG002
        """See BatchFinding."""
        table = planned.table
        table.changes.missing_required |= frozenset(self.places)
        log.info("required_values_missing", table=table.name, dead_letters=len(table.changes.missing_required))


_OF_ANOTHER_FORMAT = (ErrorClass.MALFORMED, ErrorClass.INVALID_TEXT, ErrorClass.NOT_AN_OBJECT)
"""Classes of error that every record of a topic has whose values are in another format than the pipeline file names."""


WITHOUT_DOCUMENT = (
    "without a document, which changes no row: the document was deleted meanwhile, or the connector has"
    " `capture.mode=change_streams`, and rows go stale: use `change_streams_update_full`"
)
"""What an update of a MongoDB document without the document is."""
WITHOUT_ROWS_REMEDY = "nothing, or leave the topic out where it has no other records"


def without_rows(ignored: Iterable[str]) -> str:
    """Returns why a table does not exist whose records all change no row. ignored: their kinds."""
    return f"the records so far change no row ({', '.join(sorted(ignored))}), so the table has no column yet"


def no_columns(report: TaskReport, spec: TableSpec) -> UnavailableError:
    """Returns the error of a table for which no record has had a column yet."""
    remedy, ignored = "produce records with fields, or declare `columns`", report.counts.ignored_records
    if not report.bad_records.first:
        if ignored and sum(ignored.values()) == report.counts.record_count:
            return UnavailableError(without_rows(ignored), remedy=WITHOUT_ROWS_REMEDY)
        why = f"; some change no row ({', '.join(sorted(ignored))})" if ignored else ""
        reason = f"no record has a field yet, so the table has no column{why}"
        return UnavailableError(reason, remedy=remedy)
    first = report.bad_records.first[0]
    if first.kind in _OF_ANOTHER_FORMAT:
        remedy = ErrorClass.NO_WIRE_FORMAT.entry.remedy
    if first.kind == ErrorClass.NAME_CONFLICT:
        remedy = CLASH_REMEDY
    field = f" at {first.path}" if first.path else ""
    fault = f"{first.kind}{field}: {first.reason}"
    return UnavailableError(
        f"no record could become a row yet, so the table has no column; the first: {fault}",
        remedy=remedy_for(first.kind, spec, remedy),
        where=record_place(first.topic, first.partition, first.offset),
    )
