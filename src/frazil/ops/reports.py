"""What `frazil status` found, as values and as the JSON document that programs read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from frazil.schema.rejected_changes import RefusedChange


@dataclass(frozen=True)
class Problem:
    """What is wrong, what to do about it, and where."""

    message: str
    remedy: str = ""
    where: str = ""


@dataclass(frozen=True)
class Process:
    """The process that runs the pipeline, or the last one that did. is_silent: it is there and says nothing more."""

    is_running: bool = False
    is_silent: bool = False
    pid: int | None = None
    host: str = ""
    updated_ms: int | None = None


@dataclass(frozen=True)
class MaintenanceReport:
    """How a table is stored, and what table care has to do about it. p50_bytes: the median size of its data files.
    deleted_rows: those that readers must leave out, as delete files say. due: what is worth doing and why; waiting: what
    must not be done yet; above_cap: what is so much that readers suffer. failure: why the running process's last care
    failed. slowed_by: how many times as far apart as usual it commits changes until care has caught up.
    """

    p50_bytes: int = 0
    small_share: float = 0.0
    delete_files: int = 0
    deleted_rows: int = 0
    manifests: int = 0
    metadata_bytes: int = 0
    last_ms: int | None = None
    due: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    above_cap: tuple[str, ...] = ()
    failure: str = ""
    slowed_by: float = 1.0


@dataclass(frozen=True)
class TableReport:
    """One table; None is what could not be found out. problem: why it does not go on, or what it waits for. dead_letters:
    records in its dead-letter table; bad_skipped: records left out since it began; ignored_records: records since then that
    are no change of a row, by what they are; skipped_offsets: those that Kafka no longer had and the running process
    has passed over; refused_changes: changes of the table that its policy forbids, as the running process has met them.
    last_upsert: what its last batch of changes did: keys, rows deleted, files that were there and that were looked at.
    partition_spec, sort_order: what new files get, in the words of a pipeline file.
    """

    name: str
    state: str
    is_well: bool = True
    problem: Problem | None = None
    topics: tuple[str, ...] = ()
    lag_records: int | None = None
    lag_s: float | None = None
    watermark_ms: int | None = None
    last_commit_ms: int | None = None
    rows: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    snapshots: int | None = None
    dropped_fields: tuple[str, ...] = ()
    dead_letters: int | None = None
    bad_skipped: int | None = None
    skipped_offsets: int | None = None
    ignored_records: Mapping[str, int] | None = None
    refused_changes: tuple[RefusedChange, ...] = ()
    last_upsert: Mapping[str, int] | None = None
    maintenance: MaintenanceReport | None = None
    partition_spec: tuple[str, ...] | None = None
    sort_order: tuple[str, ...] | None = None

    @property
    def average_file_bytes(self) -> float | None:
        """How large its data files are."""
        return self.size_bytes / self.files if self.size_bytes is not None and self.files else None


@dataclass(frozen=True)
class PipelineReport:
    """The whole pipeline at `now_ms`. problems: what concerns more than one table."""

    pipeline: str
    process: Process
    problems: tuple[Problem, ...]
    tables: tuple[TableReport, ...]
    now_ms: int

    @property
    def is_well(self) -> bool:
        """Whether nothing needs its operator. That no process runs, or that there are records to read, is no fault."""
        return not self.problems and all(table.is_well for table in self.tables)


def as_document(report: PipelineReport) -> dict[str, Any]:
    """The whole report as JSON."""
    process = report.process
    return {
        "pipeline": report.pipeline,
        "ok": report.is_well,
        "now_ms": report.now_ms,
        "process": {"running": process.is_running, "silent": process.is_silent}
        | {"pid": process.pid, "host": process.host, "updated_ms": process.updated_ms},
        "problems": [asdict(problem) for problem in report.problems],
        "tables": {table.name: _table_document(table) for table in report.tables},
    }


def _table_document(table: TableReport) -> dict[str, Any]:
    problem = table.problem or Problem("")
    average = table.average_file_bytes
    return {
        "state": table.state,
        "ok": table.is_well,
        "reason": problem.message,
        "remedy": problem.remedy,
        "where": problem.where,
        "topics": list(table.topics),
        "lag_records": table.lag_records,
        "lag_s": None if table.lag_s is None else round(table.lag_s, 3),
        "watermark_ms": table.watermark_ms,
        "last_commit_ms": table.last_commit_ms,
        "rows": table.rows,
        "files": table.files,
        "size_bytes": table.size_bytes,
        "average_file_bytes": None if average is None else round(average),
        "snapshots": table.snapshots,
        "partition_spec": None if table.partition_spec is None else list(table.partition_spec),
        "sort_order": None if table.sort_order is None else list(table.sort_order),
        "dropped_fields": list(table.dropped_fields),
        "dead_letters": table.dead_letters,
        "bad_skipped": table.bad_skipped,
        "skipped_offsets": table.skipped_offsets,
        "ignored_records": None if table.ignored_records is None else dict(table.ignored_records),
        "refused_changes": [asdict(refused) for refused in table.refused_changes],
        "last_upsert": None if table.last_upsert is None else dict(table.last_upsert),
        "maintenance": None if table.maintenance is None else asdict(table.maintenance),
    }
