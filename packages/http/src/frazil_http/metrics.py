"""Metrics, read when Prometheus scrapes them or when they are sent: the loop counts, and does nothing else for them.

Every metric is one entry of `PROCESS` or `TABLE`, from which the reference page and `frazil_telemetry.metrics` are made too.
Lines are written here rather than by the client library, which takes several times as long for a thousand tables.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pyspark import __version__ as spark_version

import frazil
from frazil.ingest.tables.state import Histogram, RunCounts, RunState
from frazil.ingest.tables.table import Table
from frazil.ops.pipeline_status import MaintenanceReport, PipelineReport, TableStatus, VerificationReport
from frazil.ops.publishing import PublishReport
from frazil.ops.running import RunningPipeline
from frazil_http.own_process import OwnMetric, own_metrics

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Number = float | int | None
Labelled = Iterable[tuple[str, int]]
"""Numbers by the value of the metric's further label."""
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Metric:
    """A metric without its values."""

    name: str
    #: `gauge`, `counter` or `histogram`.
    kind: str
    #: What it counts or measures, in one sentence.
    help: str
    #: Its labels besides `pipeline` and `table`, with their values where these are known.
    labels: str = ""

    @property
    def label(self) -> str:
        """The name of its further label."""
        return self.labels.split(" = ")[0]


@dataclass(frozen=True)
class OfTable(Metric):
    """A metric of each table, with the label `table`."""

    #: Returns its values from what is shown of a table, and from the table; None for an unknown one.
    read: Callable[[TableStatus, Table], Number | Labelled] = lambda _report, _table: None


@dataclass(frozen=True)
class OfAll(Metric):
    """A histogram over all tables: one for each of a thousand tables would be too many series."""

    #: Returns the histogram of a table.
    read: Callable[[RunCounts], Histogram] = lambda counts: counts.batch_s


def _gauge(name: str, words: str, read: Callable[[TableStatus], Number | Labelled], labels: str = "") -> OfTable:
    return OfTable(name, "gauge", words, labels, lambda report, _: read(report))


def _counter(name: str, words: str, read: Callable[[Table], Number | Labelled], labels: str = "") -> OfTable:
    return OfTable(name, "counter", words, labels, lambda _, table: read(table))


def _measured(name: str, words: str, read: Callable[[MaintenanceReport], Number]) -> OfTable:
    def read_if_measured(report: TableStatus) -> Number:
        return None if report.derived.maintenance is None else read(report.derived.maintenance)

    return _gauge(name, f"{words}, as table maintenance last measured it.", read_if_measured)


def _verified(
    name: str, words: str, read: Callable[[VerificationReport], Number | Labelled], labels: str = ""
) -> OfTable:
    def read_if_verified(report: TableStatus, _: Table) -> Number | Labelled:
        return None if report.derived.verification is None else read(report.derived.verification)

    kind = "counter" if name.endswith("_total") else "gauge"
    return OfTable(name, kind, f"{words}, with `verify` in the pipeline file.", labels, read_if_verified)


def _published(name: str, words: str, read: Callable[[PublishReport], Number]) -> OfTable:
    def read_if_published(report: TableStatus) -> Number:
        return None if report.derived.publishing is None else read(report.derived.publishing)

    return _gauge(name, f"{words}, of a table with a `branch`.", read_if_published)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _by(counts: Mapping[str, int], known: Sequence[str] = ()) -> Labelled:
    """Returns numbers by label; known values are there from the start, so that a first event is an increase."""
    counts = dict(counts)  # The loop may add a name meanwhile.
    return [(name, counts.get(name, 0)) for name in (*known, *sorted({*counts} - {*known}))]


_STATES = tuple(state.value.replace(" ", "_") for state in RunState)
_OUTCOMES = {
    "Committed": "committed",
    "Replan": "replanned",
    "Reload": "conflict",
    "Retry": "unavailable",
    "Stop": "stopped",
}


def _states(report: TableStatus) -> Labelled:
    own = report.condition.state.replace(" ", "_")
    return [(state, int(state == own)) for state in _STATES]


def _batches(table: Table) -> Labelled:
    counts = {_OUTCOMES[name]: number for name, number in dict(table.counts.batches).items()}
    return _by(counts, tuple(_OUTCOMES.values()))


_STATE = _gauge(
    "frazil_table_state",
    "1 for the state of the table, 0 for the others.",
    _states,
    f"state = {', '.join(_STATES)}",
)
TABLE = (
    _STATE,
    _counter("frazil_table_stops_total", "Stops of the table.", lambda t: _by(t.counts.stops), "code = error"),
    _gauge(
        "frazil_table_lag_records",
        "Offsets up to the ends of the topics' logs that are not committed.",
        lambda r: r.lag.lag_records,
    ),
    _gauge(
        "frazil_table_open_transaction_records",
        "Offsets among them that wait for an open transaction.",
        lambda r: sum(waiting.span for waiting in r.lag.open_transactions),
    ),
    _gauge("frazil_table_lag_seconds", "For how long the table has been incomplete.", lambda r: r.derived.lag_s),
    _gauge(
        "frazil_table_watermark_timestamp_seconds",
        "The record timestamp up to which the table is complete.",
        lambda r: _seconds(r.progress.watermark_ms),
    ),
    _gauge(
        "frazil_table_last_commit_timestamp_seconds",
        "When the pipeline last committed to the table.",
        lambda r: _seconds(r.progress.last_commit_ms),
    ),
    _counter("frazil_records_read_total", "Records of committed batches.", lambda t: t.counts.records),
    _counter("frazil_read_bytes_total", "Bytes of the values of these records.", lambda t: t.counts.value_bytes),
    _counter(
        "frazil_rows_written_total", "Rows of the data files that commits of batches added.", lambda t: t.counts.rows
    ),
    _counter("frazil_rows_deleted_total", "Rows that changes deleted.", lambda t: t.counts.deleted_rows),
    _counter("frazil_files_written_total", "Data files that commits of batches added.", lambda t: t.counts.files),
    _counter("frazil_written_bytes_total", "Bytes of these data files.", lambda t: t.counts.file_bytes),
    _counter(
        "frazil_batches_total",
        "Batches by how they ended; a committed one is a commit.",
        _batches,
        f"outcome = {', '.join(_OUTCOMES.values())}",
    ),
    _counter(
        "frazil_dead_letters_total",
        "Dead letters of committed batches.",
        # One from the start, so that the first dead letter is an increase of the sum.
        lambda t: _by(t.counts.dead_letters, ("other",)),
        "code = error class",
    ),
    _gauge("frazil_dead_letters", "Rows of the dead-letter table.", lambda r: r.progress.dead_letters),
    _gauge(
        "frazil_waiting_records",
        "Rows of the dead-letter table that wait for a row of a reference table.",
        lambda r: r.progress.waiting_records,
    ),
    _counter(
        "frazil_records_skipped_total",
        "Bad records that were skipped (`on_bad_record: skip`).",
        lambda t: t.counts.skipped_records,
    ),
    _counter(
        "frazil_records_ignored_total",
        "Records of committed batches that make no row, such as filtered ones.",
        lambda t: _by(t.bad_records.ignored_records),
        "kind = kind of record",
    ),
    _counter(
        "frazil_offsets_lost_total",
        "Offsets that were skipped because Kafka had deleted their records.",
        lambda t: t.offsets.skipped_offsets,
    ),
    _counter(
        "frazil_schema_changes_total",
        "Schema changes that records requested.",
        lambda t: _by(t.counts.schema_changes, ("applied", "refused")),
        "outcome = applied, refused",
    ),
    _gauge("frazil_table_rows", "Rows of the newest snapshot.", lambda r: r.derived.rows),
    _gauge("frazil_table_files", "Data files of the newest snapshot.", lambda r: r.derived.files),
    _gauge(
        "frazil_table_size_bytes", "The size of the data files of the newest snapshot.", lambda r: r.derived.size_bytes
    ),
    _gauge("frazil_table_snapshots", "Snapshots that can be read.", lambda r: r.derived.snapshots),
    _published(
        "frazil_publish_held",
        "1 while audits or an operator keep the newest snapshot from main, or main has other commits, else 0",
        lambda p: int(p.state in ("held", "diverged")),
    ),
    _published("frazil_published_timestamp_seconds", "When main was last moved", lambda p: _seconds(p.published_ms)),
    _published(
        "frazil_published_watermark_timestamp_seconds",
        "The record timestamp up to which main is complete",
        lambda p: _seconds(p.complete_to_ms),
    ),
    _measured("frazil_table_delete_files", "Delete files of the newest snapshot", lambda m: m.delete_files),
    _measured("frazil_table_small_files_ratio", "The share of small files", lambda m: m.small_share),
    _measured("frazil_table_metadata_bytes", "The size of the table's metadata", lambda m: m.metadata_bytes),
    _measured("frazil_maintenance_due_actions", "The number of actions that are due", lambda m: len(m.due)),
    _measured(
        "frazil_maintenance_last_success_timestamp_seconds",
        "When table maintenance last changed the table",
        lambda m: _seconds(m.last_ms),
    ),
    _verified(
        "frazil_verify_last_timestamp_seconds",
        "When commits of the table were last compared with the topics",
        lambda v: _seconds(v.last_ms),
    ),
    _verified("frazil_verify_records_total", "Records of the compared commits", lambda v: v.records),
    _verified(
        "frazil_verify_different_rows_total",
        "Rows of the compared commits that are missing, or that no record makes",
        lambda v: _by({"missing": v.missing, "surplus": v.surplus}),
        "kind = missing, surplus",
    ),
)
"""The metrics of tables."""
PROCESS = (
    Metric("frazil_build_info", "gauge", "1, with the versions as labels.", "version, spark, python"),
    Metric("frazil_heartbeat_timestamp_seconds", "gauge", "When the loop last published its state, at most 5 s apart."),
    Metric("frazil_tables", "gauge", "The number of tables."),
    Metric("frazil_threads", "gauge", "Python threads of the process."),
    Metric("frazil_jvm_heap_used_bytes", "gauge", "The used heap of the process's JVM, at most 5 s old."),
    Metric("frazil_jvm_heap_max_bytes", "gauge", "The size up to which this heap may grow."),
    Metric("frazil_leader", "gauge", "1 while this process leads the processes of the pipeline, else 0."),
    Metric("frazil_members", "gauge", "The processes of the pipeline that could take over at once, this one included."),
    Metric(
        "frazil_offsets_published_timestamp_seconds",
        "gauge",
        "When the consumer group of the pipeline last had the offsets of its tables.",
    ),
    OfAll(
        "frazil_freshness_seconds",
        "histogram",
        "From the newest record of a batch to its commit.",
        read=lambda counts: counts.freshness_s,
    ),
    OfAll(
        "frazil_batch_seconds",
        "histogram",
        "From the plan of a batch to the end of its commit.",
        read=lambda counts: counts.batch_s,
    ),
    OfAll("frazil_commit_seconds", "histogram", "How long commits took.", read=lambda counts: counts.commit_s),
    Metric(
        "frazil_telemetry_requests_total",
        "counter",
        "Requests with metrics, traces or lineage, by where they went and how they ended.",
        "destination, outcome",
    ),
    Metric(
        "frazil_telemetry_dropped_batches_total",
        "counter",
        "Batches of which nothing was sent, as a queue was full or a request failed.",
        "destination",
    ),
)
"""The metrics of the process; those of `own_metrics` are beside them."""


def known_tables(report: PipelineReport, tables: Iterable[Table]) -> list[tuple[TableStatus, Table]]:
    """Returns the tables that have metrics, each with what is shown of it."""
    by_name = {table.name: table for table in tables}
    return [(status, by_name[status.name]) for status in report.tables if status.name in by_name]


def value_of(metric: OfTable, report: TableStatus, table: Table) -> Number | Labelled:
    """Returns the values of a metric of a table. Of a table that another process works on it is the state alone: that
    process has the other metrics, and a sum over processes must count them once.
    """
    return metric.read(report, table) if table.schedule.is_owned or metric is _STATE else None


def process_values(pipeline: RunningPipeline, report: PipelineReport) -> dict[str, list[tuple[Labels, float | int]]]:
    """Returns the numbers of the metrics in `PROCESS` that are no histograms, by name, each with its labels besides
    `pipeline`; without unknown ones.
    """
    heap, leadership, published = pipeline.heap, report.leadership, report.published_offsets
    versions = {"version": frazil.__version__, "spark": spark_version, "python": platform.python_version()}
    single = {
        "frazil_heartbeat_timestamp_seconds": _seconds(report.process.updated_ms),
        "frazil_tables": len(report.tables),
        "frazil_threads": threading.active_count(),
        "frazil_jvm_heap_used_bytes": heap.used_bytes if heap else None,
        "frazil_jvm_heap_max_bytes": heap.max_bytes if heap else None,
        "frazil_offsets_published_timestamp_seconds": _seconds(published.last_ms if published else None),
        "frazil_leader": int(leadership is None or leadership.leader == leadership.name),
        "frazil_members": sum(member.is_warm for member in leadership.members) if leadership else 0,
    }
    return {
        "frazil_build_info": [(versions, 1)],
        **{name: [({}, value)] for name, value in single.items() if value is not None},
        **{name: [(labels, value) for labels, value in values] for name, values in pipeline.telemetry_counts.items()},
    }


def merged(metric: OfAll, tables: Iterable[Table]) -> Histogram:
    """Returns the histogram of all tables."""
    parts = [metric.read(table.counts) for table in tables]
    bounds = metric.read(RunCounts()).bounds
    counts = [sum(column) for column in zip(*(part.counts for part in parts if part.counts), strict=True)]
    return Histogram(bounds, counts or [0] * (len(bounds) + 1), sum(part.total for part in parts))


def render(pipeline: RunningPipeline) -> bytes:
    """Returns all metrics in Prometheus's text format.

    Raises: UnavailableError until the tables are known.
    """
    report, tables = pipeline.report(), pipeline.tables
    label = f'pipeline="{_escaped(report.pipeline)}"'
    lines, single = list[str](), process_values(pipeline, report)
    for process_metric in PROCESS:
        lines += _head(process_metric)
        if isinstance(process_metric, OfAll):
            lines += _histogram(process_metric.name, merged(process_metric, tables), label)
        for more, number in single.get(process_metric.name, ()):
            words = "".join(f',{name}="{_escaped(value)}"' for name, value in more.items())
            lines.append(f"{process_metric.name}{{{label}{words}}} {number}")
    labelled_tables = [
        (f'{label},table="{_escaped(table_status.name)}"', table_status, table)
        for table_status, table in known_tables(report, tables)
    ]
    for metric in TABLE:
        lines += _head(metric)
        name, further = metric.name, metric.label
        for labels, status, table in labelled_tables:
            value = value_of(metric, status, table)
            if isinstance(value, int | float):
                lines.append(f"{name}{{{labels}}} {value}")
            elif value is not None:
                lines += [f'{name}{{{labels},{further}="{_escaped(kind)}"}} {number}' for kind, number in value]
    for own in own_metrics():
        lines += [*_head(own), f"{own.name} {own.value}"]
    return "\n".join([*lines, ""]).encode()


def _histogram(name: str, histogram: Histogram, label: str) -> Iterator[str]:
    sums = list(accumulate(histogram.counts))
    for bound, number in zip((*map(str, histogram.bounds), "+Inf"), sums, strict=True):
        yield f'{name}_bucket{{{label},le="{bound}"}} {number}'
    yield f"{name}_count{{{label}}} {sums[-1]}"
    yield f"{name}_sum{{{label}}} {histogram.total}"


def _head(metric: Metric | OwnMetric) -> tuple[str, str]:
    return f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
