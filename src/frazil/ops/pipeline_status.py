"""The status of a pipeline and of its tables, as models.

The loop writes them, and commands, the API, metrics and the console show them. `frazil run` writes the status of its tables
into the state file, with what its process records there, and prints it at its end. A field is a key of the JSON, its comment
the meaning in `docs/reference/output.md`, and text in `Annotated` the type there. The groups of a table are side by side in
one object. Nobody changes them: those that the loop makes of each of a thousand tables, twice a second, are not frozen, as
that would take half as long again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from frazil.catalog.port import TableSize
from frazil.ingest.loop.leadership import LeadershipState
from frazil.ingest.loop.published_offsets import Published
from frazil.ingest.tables.table import Table
from frazil.maintenance.due import RoundsStatus
from frazil.ops.reports import Problem, object_schema, schema_of, to_json
from frazil.ops.seen_by_readers import PublishReport, report_of_state, report_shown
from frazil.schema.conflicts import RefusedChange
from frazil.types import MAIN, OffsetRange, Resolved, list_names

Milliseconds = Annotated[int, Field(ge=-(2**63), lt=2**63), "milliseconds since the epoch"]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Reports = Mapping[str, Mapping[str, Any]]
"""What observers report of tables: by the name in REPORTED, a report by table."""
REPORTED = ("verification", "publishing")
"""The fields of `Recorded` that observers report."""


@dataclass(slots=True)
class TableCondition:
    """What a table is doing, and why."""

    #: `waiting`, `running`, `backing off`, `stopped`, `paused`, `standby` or `not running`
    #: ([states](../troubleshoot/README.md)).
    state: str = "waiting"
    #: Why the table is stopped, or what it waits for; empty otherwise.
    reason: str = ""
    #: What to do.
    remedy: str = ""
    #: The place: topic, partition and offset, or the table, or file and line.
    where: str = ""

    @property
    def problem(self) -> Problem | None:
        """The reason with its remedy and place; None without a reason."""
        return Problem(self.reason, self.remedy, self.where) if self.reason else None


@dataclass(slots=True)
class Lag:
    """The records that are not read yet."""

    #: The topics that the table reads.
    topics: tuple[str, ...] = ()
    #: Offsets up to the ends of the topics' logs that are not committed. Null before they are measured, and if topics
    #: are missing or were recreated.
    lag_records: Count | None = None
    #: The offsets among them that wait for an [open transaction](../troubleshoot/open-transaction.md): `topic`,
    #: `partition`, `start` (its first offset) and `end` (that of the log).
    open_transactions: tuple[OffsetRange, ...] = ()


@dataclass(slots=True)
class TableProgress:
    """Values that are stored in the table, whichever process has committed to it."""

    #: Whether the pipeline has ever committed to the table. Null if this is unknown.
    committed: bool | None = None
    #: The record timestamp up to which the table is [complete](../concepts/README.md#watermark).
    watermark_ms: Milliseconds | None = None
    #: The time of the pipeline's newest commit to the table.
    last_commit_ms: Milliseconds | None = None
    #: Rows of the dead-letter table.
    dead_letters: Count | None = None
    #: The dead letters among them that [wait](../guides/lookup.md#records-that-wait) for a row of a reference table; null
    #: where no lookup has `wait`.
    waiting_records: Count | None = None
    #: Bad records that `on_bad_record: skip` has skipped since the table was created.
    bad_skipped: Count | None = None
    #: Records that change no row, by kind.
    ignored_records: Annotated[Mapping[str, Count], "object: kind → number"] | None = None
    #: Records, or commits, since the table was created that did not meet each of its
    #: [expectations](../guides/expect.md).
    expectations: Mapping[str, Count] | None = None
    #: The time up to which [windows](../guides/aggregate.md#late-records) are complete; null without `late`.
    windows_complete_to_ms: Milliseconds | None = None
    #: In the rest table, records that no other table of the [route](../guides/route.md) receives.
    rest_records: Annotated[Mapping[str, Count], "object: reason → number"] | None = None


@dataclass(slots=True)
class Noticed:
    """Values that only the process has."""

    #: Fields that `unknown_fields: drop` has dropped since the process started.
    dropped_fields: tuple[str, ...] = ()
    #: Offsets that the process has skipped because Kafka had deleted their records.
    skipped_offsets: Count | None = None
    #: The last batch of an upsert table.
    last_upsert: Resolved | None = None


@dataclass(frozen=True)
class MaintenanceReport:
    """The findings of [table maintenance](../guides/maintain.md)."""

    #: The median size of the data files.
    p50_bytes: int = 0
    #: The fraction of small files, 0 to 1.
    small_share: float = 0.0
    #: The number of delete files.
    delete_files: int = 0
    #: Rows that delete files delete.
    deleted_rows: int = 0
    #: Manifests of the newest snapshot.
    manifests: int = 0
    #: The size of the metadata file.
    metadata_bytes: int = 0
    #: The last maintenance action.
    last_ms: Milliseconds | None = None
    #: Due actions, with their reasons.
    due: tuple[str, ...] = ()
    #: Actions that must wait, with their reasons.
    waiting: tuple[str, ...] = ()
    #: Numbers so high that they slow readers down.
    above_cap: tuple[str, ...] = ()
    #: Why the last maintenance of the running process failed.
    failure: str = ""
    #: The factor by which the commit interval is extended until maintenance has caught up.
    slowed_by: float = 1.0


@dataclass(frozen=True)
class VerificationReport:
    """What the running process has found with [`verify`](../guides/verify-schedule.md), since it started."""

    #: When commits were last compared.
    last_ms: Milliseconds | None = None
    #: The compared commits.
    commits: Count = 0
    #: Their records.
    records: Count = 0
    #: Rows of records that the table does not have.
    missing: Count = 0
    #: Rows that no record makes.
    surplus: Count = 0
    #: Whether the last comparison found no such row; null before the first comparison.
    is_equal: bool | None = None
    #: Why commits were not compared the last time; empty if all chosen commits were compared.
    reason: str = ""

    @property
    def is_well(self) -> bool:
        """Whether nothing that was compared differs."""
        return self.is_equal is not False


@dataclass(slots=True)
class Recorded:
    """What the process records, and others work out what they show from it."""

    #: Since when records wait; null where none does, and where some did when the process began.
    behind_since_ms: Milliseconds | None = None
    #: The age of the newest record of the last batch at its commit.
    freshness_ms: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    #: Records per second of the last batch.
    records_per_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    #: Schema changes that the policy of the table forbids.
    refused_changes: tuple[str, ...] = ()
    #: `row_count` including deleted rows, `deleted_row_count`, `file_count`, `size_bytes`, `snapshot_count`.
    size: TableSize | None = None
    #: What works beside the loop, in the state file alone.
    maintenance: RoundsStatus = field(default_factory=RoundsStatus)
    verification: VerificationReport | None = None
    publishing: PublishReport | None = None


@dataclass(frozen=True)
class Derived:
    """Values that are computed when the table is shown."""

    #: Whether the table is healthy.
    is_well: Annotated[bool, Field(alias="ok")] = True
    #: For how many seconds the table has been incomplete; 0 when everything is committed.
    lag_s: float | None = None
    #: Rows of the newest snapshot minus rows deleted by delete files; equality deletes are not counted.
    rows: int | None = None
    #: The number of data files.
    files: int | None = None
    #: The total size of the data files.
    size_bytes: int | None = None
    #: The average size of a data file.
    average_file_bytes: int | None = None
    #: Snapshots that are not expired.
    snapshots: int | None = None
    #: The partition spec of new files, as in a pipeline file.
    partition_spec: tuple[str, ...] | None = None
    #: The sort order of new files.
    sort_order: tuple[str, ...] | None = None
    #: The age of the newest record in the table, by each expectation whose `max_age` it exceeds.
    stale: Annotated[Mapping[str, float], "object: name → seconds"] = field(default_factory=dict)
    #: Schema changes that the policy of the table forbids: `change`, `schemas`, `remedy`.
    refused_changes: tuple[RefusedChange, ...] = ()
    #: The health of the table's files, and due maintenance.
    maintenance: MaintenanceReport | None = None
    #: The result of the comparison of commits with the topics; null without `verify`.
    verification: VerificationReport | None = None
    #: What readers see of a table with a [`branch`](../guides/publish.md); null for a table that commits to main.
    publishing: PublishReport | None = None


@dataclass(slots=True)
class TableStatus:
    """The status of one table; unknown values have their defaults."""

    name: str
    condition: TableCondition = field(default_factory=TableCondition)
    lag: Lag = field(default_factory=Lag)
    progress: TableProgress = field(default_factory=TableProgress)
    noticed: Noticed = field(default_factory=Noticed)
    recorded: Recorded = field(default_factory=Recorded)
    derived: Derived = Derived()

    def lag_s(self, now_ms: int) -> float | None:
        """Returns for how long the table has been incomplete, in seconds: 0 without unread records; None where that is not
        known.

        A table is complete up to its watermark, and it was complete until the first unread record came: of an idle topic the
        watermark may be days old by then.
        """
        if self.lag.lag_records == 0:
            return 0.0
        complete = [ms for ms in (self.progress.watermark_ms, self.recorded.behind_since_ms) if ms is not None]
        return None if self.lag.lag_records is None or not complete else max(0.0, (now_ms - max(complete)) / 1000)

    def freshness_s(self, now_ms: int) -> float | None:
        """Returns how far a reader of the table is behind, in seconds: while records wait, for how long the table has been
        incomplete; otherwise how long the newest record of the last batch took to its commit. None before the first commit,
        and while the lag is not known.
        """
        if self.lag.lag_records != 0:
            return self.lag_s(now_ms)
        return None if self.recorded.freshness_ms is None else self.recorded.freshness_ms / 1000


_BOTH: Mapping[str, type] = {"condition": TableCondition, "lag": Lag, "progress": TableProgress, "noticed": Noticed}
RECORDED = {**_BOTH, "recorded": Recorded}
"""The groups of a table in the state file."""
SHOWN = {**_BOTH, "derived": Derived}
"""The groups of a table in `frazil status` and the API."""


def table_document(table: TableStatus, groups: Iterable[str]) -> dict[str, Any]:
    """Returns the JSON object of a table, with the keys of these groups."""
    return {key: value for group in groups for key, value in to_json(getattr(table, group)).items()}


def ended_document(status: TableStatus) -> dict[str, Any]:
    """Returns the JSON of the status of a table at the end of a run."""
    return table_document(status, _BOTH) | to_json(status.recorded, "maintenance", *REPORTED)


def with_unobserved(tables: Iterable[Table], reports: Reports) -> Reports:
    """Returns the reports, and what readers see of the tables with a branch that no observer reports of."""
    known = reports.get("publishing", {})
    seen = {
        table.name: known.get(table.name) or report_of_state(table.spec.publishing, table.state)
        for table in tables
        if table.schedule.is_owned and table.spec.publishing.branch != MAIN
    }
    return {**reports, "publishing": seen}


def shown_reports(table: Table, recorded: Recorded) -> dict[str, Any]:
    """Returns what is shown of a table by the names in REPORTED. recorded: by the process."""
    seen = report_shown(table.spec.publishing, table.state, recorded.publishing)
    return {"verification": recorded.verification, "publishing": seen}


@dataclass(frozen=True)
class Observations:
    """What works beside the loop reports of tables."""

    #: By table, what its maintenance came to.
    maintenance: Mapping[str, RoundsStatus] = field(default_factory=dict)
    #: What observers report of tables.
    reports: Reports = field(default_factory=dict)


def status_of(table: Table, observed: Observations | None = None) -> TableStatus:
    """Returns the status of a table as the loop knows it, with what was observed of it."""
    observed = observed or Observations()
    condition, offsets, sizes = table.shown_status, table.offsets, table.sizes
    return TableStatus(
        table.name,
        TableCondition(condition.run_state.value, condition.reason, condition.remedy, condition.where),
        Lag(tuple(sorted(offsets.topics)), offsets.lag_records, offsets.open_transactions),
        progress_of(table),
        Noticed(tuple(list_names(table.schema.dropped)), offsets.skipped_offsets, table.changes.resolved),
        Recorded(
            offsets.behind_since_ms,
            sizes.freshness_ms,
            round(sizes.records_per_s, 1),
            tuple(list_names(table.schema.refusals)),
            table.catalog.size,
            observed.maintenance.get(table.name) or RoundsStatus(),
            **{name: by_table.get(table.name) for name, by_table in observed.reports.items()},
        ),
    )


def progress_of(table: Table) -> TableProgress:
    """Returns what a table that is loaded records."""
    progress = table.progress
    return TableProgress(
        committed=bool(progress.offsets),
        watermark_ms=progress.watermark.complete_to_ms,
        last_commit_ms=progress.committed_at_ms,
        dead_letters=table.catalog.dead_letter_count,
        waiting_records=table.catalog.waiting_count,
        bad_skipped=progress.totals.bad_skipped,
        ignored_records=dict(progress.totals.ignored_records),
        expectations=dict(progress.totals.findings),
        windows_complete_to_ms=None
        if progress.order.windows_complete_to_us is None
        else progress.order.windows_complete_to_us // 1000,
        rest_records=dict(progress.rest.records),
    )


@dataclass(frozen=True)
class ProcessState:
    """What a process records of itself and its tables; what is not known has its default."""

    pid: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    host: str = ""
    #: When the process was started, in clock ticks since boot.
    started: str | None = None
    #: The address of the catalog that has the tables.
    catalog: str = ""
    ended: bool = False
    updated_ms: Milliseconds | None = None
    leadership: LeadershipState | None = None
    published_offsets: Published | None = None
    tables: Mapping[str, TableStatus] = field(default_factory=dict)

    def table(self, name: str) -> TableStatus:
        """Returns the status of a table; of one that the process has not recorded nothing is known."""
        return self.tables.get(name) or TableStatus(name)


@dataclass(frozen=True)
class Process:
    """The process that runs the pipeline, or ran it last."""

    #: Whether the process is running.
    is_running: Annotated[bool, Field(alias="running")] = False
    #: Whether the process is running and has not written its state for a minute.
    is_silent: Annotated[bool, Field(alias="silent")] = False
    #: The process id.
    pid: int | None = None
    #: The host of the process.
    host: str = ""
    #: When the process last wrote its state.
    updated_ms: Milliseconds | None = None


@dataclass(frozen=True)
class PipelineReport:
    """The status of the whole pipeline."""

    #: The pipeline's name.
    pipeline: str
    #: The process that runs the pipeline, or the last one that did.
    process: Process
    #: Problems of more than one table: `message`, `remedy` and `where`.
    problems: tuple[Problem, ...]
    #: The tables by name.
    tables: Annotated[tuple[TableStatus, ...], "object"]
    #: The time of the report.
    now_ms: Milliseconds
    #: The [processes of the pipeline](../operate/standby.md) and their leader; null while no process runs.
    leadership: LeadershipState | None = None
    #: The offsets for [lag tools](../operate/lag.md): the consumer group `group`, `last_ms` when of the last
    #: publication, and `failure`, the reason of a failure; null while no process runs, and with `publish_offsets:
    #: false`.
    published_offsets: Published | None = None

    @property
    def is_well(self) -> bool:
        """Whether the pipeline needs no operator. A process that does not run, and unread records, are not a problem."""
        return not self.problems and all(table.derived.is_well for table in self.tables)

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the report."""
        return as_document(self)


def pipeline_document(report: PipelineReport) -> dict[str, Any]:
    """Returns the JSON of the report without its tables."""
    return {"ok": report.is_well, **to_json(report, "tables")}


def tables_document(report: PipelineReport) -> dict[str, Any]:
    """Returns the JSON of the tables, by name."""
    return {table.name: table_document(table, SHOWN) for table in report.tables}


def as_document(report: PipelineReport) -> dict[str, Any]:
    """Returns the JSON of the report."""
    return {**pipeline_document(report), "tables": tables_document(report)}


def pipeline_schema() -> dict[str, Any]:
    """Returns the JSON Schema of the pipeline's document without its tables."""
    properties = schema_of(PipelineReport)["properties"]
    del properties["tables"]
    return object_schema({"ok": {"type": "boolean"}, **properties})
