"""The results of `frazil status`, as values and as a JSON document, and how people read durations, sizes and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter

from frazil.printable import plural
from frazil.schema.rejected_changes import RefusedChange
from frazil.types import OffsetRange

NOTHING = "–"
_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class Problem:
    """A problem of the pipeline or of a table."""

    message: str
    remedy: str = ""
    where: str = ""


@dataclass(frozen=True)
class Process:
    """The process that runs the pipeline, or ran it last."""

    is_running: bool = False
    #: Whether it exists and has stopped reporting.
    is_silent: bool = False
    pid: int | None = None
    host: str = ""
    #: When it last reported.
    updated_ms: int | None = None


@dataclass(frozen=True)
class MaintenanceReport:
    """The health of a table and its due maintenance."""

    #: The median size of data files.
    p50_bytes: int = 0
    #: The share of small files, 0 to 1.
    small_share: float = 0.0
    delete_files: int = 0
    #: The number of rows that readers must skip, by the delete files.
    deleted_rows: int = 0
    manifests: int = 0
    metadata_bytes: int = 0
    #: When maintenance last did something.
    last_ms: int | None = None
    #: Actions that are worth running, with reasons.
    due: tuple[str, ...] = ()
    #: What must not be done yet.
    waiting: tuple[str, ...] = ()
    #: Figures so high that readers suffer.
    above_cap: tuple[str, ...] = ()
    #: Why the running process's last maintenance failed.
    failure: str = ""
    #: How many times as far apart as usual changes are committed until maintenance has caught up.
    slowed_by: float = 1.0


@dataclass(frozen=True)
class VerificationReport:
    """What the running process found when it compared commits of a table with the topics (`verify`)."""

    #: When it last did.
    last_ms: int | None = None
    #: The number of compared commits.
    commits: int = 0
    #: The number of their records.
    records: int = 0
    #: The number of rows that were missing.
    missing: int = 0
    #: The number of rows that no record makes.
    surplus: int = 0
    #: Whether the last comparison found no such row.
    is_equal: bool | None = None
    #: Why some commits were not compared the last time.
    reason: str = ""


@dataclass(frozen=True)
class TableReport:
    """The state of one table; None for what could not be found out."""

    name: str
    state: str
    #: Whether it needs no operator.
    is_well: bool = True
    #: Why it is stopped, or what it waits for.
    problem: Problem | None = None
    topics: tuple[str, ...] = ()
    lag_records: int | None = None
    #: The offsets among them that wait for an open transaction, from its first offset on, by topic and partition.
    open_transactions: tuple[OffsetRange, ...] = ()
    #: For how long the table has been incomplete, in seconds.
    lag_s: float | None = None
    #: The time up to which it is complete.
    watermark_ms: int | None = None
    #: Whether the pipeline has ever committed to it.
    committed: bool | None = None
    last_commit_ms: int | None = None
    rows: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    snapshots: int | None = None
    #: Unknown fields that were dropped.
    dropped_fields: tuple[str, ...] = ()
    #: The number of records in its dead-letter table.
    dead_letters: int | None = None
    #: The number of bad records skipped since the table was created.
    bad_skipped: int | None = None
    #: The number of offsets that Kafka no longer had, skipped by the running process.
    skipped_offsets: int | None = None
    #: The number of records that are no change of a row, by kind.
    ignored_records: Mapping[str, int] | None = None
    #: The number of records, or of commits, since the table was created that did not meet each of its expectations.
    expectations: Mapping[str, int] | None = None
    #: The age of the newest record in seconds, by the expectations that it is too great for.
    stale: Mapping[str, float] = field(default_factory=dict)
    #: The number of records that no other table of the route takes, by reason, of a route's table of the rest.
    rest_records: Mapping[str, int] | None = None
    #: Schema changes that the table's policy forbids, met by the running process.
    refused_changes: tuple[RefusedChange, ...] = ()
    #: Figures of its last batch of changes: keys, rows deleted, files in the table and files searched.
    last_upsert: Mapping[str, int] | None = None
    maintenance: MaintenanceReport | None = None
    #: None without `verify` in the pipeline file.
    verification: VerificationReport | None = None
    #: The partition spec of new files, in the notation of a pipeline file.
    partition_spec: tuple[str, ...] | None = None
    #: The sort order of new files, in the notation of a pipeline file.
    sort_order: tuple[str, ...] | None = None

    @property
    def average_file_bytes(self) -> float | None:
        """The average size of its data files."""
        return self.size_bytes / self.files if self.size_bytes is not None and self.files else None


@dataclass(frozen=True)
class PipelineReport:
    """The state of the whole pipeline."""

    pipeline: str
    process: Process
    #: Problems that concern more than one table.
    problems: tuple[Problem, ...]
    tables: tuple[TableReport, ...]
    now_ms: int
    #: Which process works on which tables, as the running process published it; None where none has.
    leadership: Mapping[str, Any] | None = None
    #: What the running process has published of the tables' offsets; None where it publishes none.
    published_offsets: Mapping[str, Any] | None = None

    @property
    def is_well(self) -> bool:
        """Whether the pipeline needs no operator. A process that does not run, and unread records, are no problem."""
        return not self.problems and all(table.is_well for table in self.tables)


def as_document(report: PipelineReport) -> dict[str, Any]:
    """Returns the JSON of the report."""
    process = asdict(report.process)
    return {
        "pipeline": report.pipeline,
        "ok": report.is_well,
        "now_ms": report.now_ms,
        "process": {"running": process.pop("is_running"), "silent": process.pop("is_silent"), **process},
        "leadership": report.leadership,
        "published_offsets": report.published_offsets,
        "problems": [asdict(problem) for problem in report.problems],
        "tables": {table.name: _table_document(table) for table in report.tables},
    }


def _table_document(table: TableReport) -> dict[str, Any]:
    words = asdict(table)
    del words["name"]
    problem = words.pop("problem") or asdict(Problem(""))
    average = table.average_file_bytes
    return {
        "ok": words.pop("is_well"),
        "reason": problem.pop("message"),
        **problem,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in words.items()},
        "lag_s": None if table.lag_s is None else round(table.lag_s, 3),
        "average_file_bytes": None if average is None else round(average),
    }


def table_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a table's document."""
    schema = _schema(TableReport)
    properties, problem = schema["properties"], _schema(Problem)["properties"]
    for name in ("name", "is_well", "problem"):
        del properties[name]
    reason = {"reason": problem.pop("message")}
    figures = {"ok": {"type": "boolean"}, "average_file_bytes": {"type": ["integer", "null"]}}
    return _complete({**reason, **problem, **properties, **figures})


def pipeline_schema() -> dict[str, Any]:
    """Returns the JSON Schema of the pipeline's document without its tables."""
    process = _schema(Process)["properties"]
    for name in ("running", "silent"):
        process[name] = process.pop(f"is_{name}")
    text, problem = {"type": "string"}, _complete(_schema(Problem)["properties"])
    return _complete(
        {
            "pipeline": text,
            "ok": {"type": "boolean"},
            "now_ms": {"type": "integer"},
            "process": _complete(process),
            "leadership": {"type": ["object", "null"]},
            "published_offsets": {"type": ["object", "null"]},
            "problems": {"type": "array", "items": problem},
        }
    )


def _schema(kind: type) -> dict[str, Any]:
    """Returns the JSON Schema of a report, without references."""
    schema = TypeAdapter(kind).json_schema()
    definitions = schema.pop("$defs", {})

    def expand(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return expand(definitions[value["$ref"].rpartition("/")[2]])
            return {name: expand(held) for name, held in value.items() if name not in ("title", "default")}
        return [expand(held) for held in value] if isinstance(value, list) else value

    found: dict[str, Any] = expand(schema)
    return found


def _complete(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(properties),
        "required": list(properties),
    }


def lag_s(lag_records: int | None, watermark_ms: int | None, behind_since_ms: int | None, now_ms: int) -> float | None:
    """Returns for how long a table has been incomplete, in seconds: 0 without unread records; None where that is not known.

    A table is complete up to its watermark, and it was complete until the first unread record came: of an idle topic the
    watermark may be days old by then. behind_since_ms: since when records wait; None where there were some already when the
    process began.
    """
    if lag_records == 0:
        return 0.0
    known = [ms for ms in (watermark_ms, behind_since_ms) if ms is not None]
    return None if lag_records is None or not known else max(0.0, (now_ms - max(known)) / 1000)


def behind(lag_records: int | None) -> str:
    """Returns how far a table is behind, for a sentence: `3 records behind`."""
    return "its lag is not known" if lag_records is None else f"{plural(lag_records, 'record')} behind"


OPEN_TRANSACTION_REMEDY = (
    "wait until its producer commits or aborts it, or Kafka does after `transaction.timeout.ms`; if it stays, find and"
    " end it with `kafka-transactions.sh find-hanging` and `abort`"
)


def held_back(open_transactions: Sequence[OffsetRange]) -> Problem | None:
    """Returns what keeps records from being read though they are in Kafka; None where nothing does."""
    if not open_transactions:
        return None
    first, *others = open_transactions
    records = sum(one.span for one in open_transactions)
    verb = "waits" if records == 1 else "wait"
    reason = f"{plural(records, 'record')} {verb} behind an open transaction since offset {first.start}"
    if others:
        reason += f", and behind others in {plural(len(others), 'more partition')}"
    return Problem(reason, OPEN_TRANSACTION_REMEDY, f"topic {first.topic}, partition {first.partition}")


def duration(seconds: float | None) -> str:
    """Returns a duration in the largest unit in which it is at least one: `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`."""
    if seconds is None:
        return NOTHING
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 9.95 or seconds == 0 else f"{seconds:.1f} s"


def ago(then_ms: int | None, now_ms: int) -> str:
    """Returns how long ago a time was: `3 s ago`; `now` within a second, also for a clock slightly ahead of ours."""
    if then_ms is None:
        return NOTHING
    seconds = (now_ms - then_ms) // 1000
    if seconds < 1:
        return "now"
    return f"{seconds} s ago" if seconds < 60 else f"{duration(seconds)} ago"


def size(bytes_: float | None) -> str:
    """Returns a size: `512 B`, `1.4 MiB`, `23 GiB`."""
    if bytes_ is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if bytes_ < 1024 or unit == "TiB":
            break
        bytes_ /= 1024
    return f"{bytes_:.1f} {unit}" if unit != "B" and bytes_ < 9.95 else f"{bytes_:.0f} {unit}"


def count(number: float | None) -> str:
    """Returns a number with separators: `1,234`."""
    return NOTHING if number is None else f"{number:,.0f}"
