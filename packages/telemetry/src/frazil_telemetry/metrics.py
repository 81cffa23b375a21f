"""The metrics of `frazil_http.metrics` for OpenTelemetry: the same numbers, read at the moment at which they are sent.

A name is made so that Prometheus's translation of it gives the name that Frazil's own page has: dots for the underscores
between namespaces, the unit and `_total` left to the translation. So the alert rules and the dashboard hold for both ways.
Numbers that the semantic conventions name are sent under that name too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtelMetric
from opentelemetry.sdk.metrics.export import MetricsData as OtelMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import frazil
from frazil.ops.running import RunningPipeline
from frazil_http.metrics import (
    PROCESS,
    TABLE,
    Labels,
    Metric,
    OfAll,
    known_tables,
    merged,
    process_values,
    value_of,
)
from frazil_http.own_process import own_metrics
from frazil_telemetry.spans import MESSAGING

_UNITS = {"_seconds": "s", "_bytes": "By", "_ratio": "1"}
# Both begin with the same words: without its suffix the counter would have the name of the gauge.
_WITH_TOTAL = "frazil_dead_letters_total"
_Points = Sequence[NumberDataPoint] | Sequence[HistogramDataPoint]
_HEAP = {"jvm.memory.type": "heap"}
_CONVENTIONS: Mapping[str, tuple[str, str, Labels]] = {
    "frazil_records_read_total": ("messaging.client.consumed.messages", "{message}", MESSAGING),
    "frazil_batch_seconds": ("messaging.process.duration", "s", MESSAGING),
    "frazil_jvm_heap_used_bytes": ("jvm.memory.used", "By", _HEAP),
    "frazil_jvm_heap_max_bytes": ("jvm.memory.limit", "By", _HEAP),
    "process_cpu_seconds_total": ("process.cpu.time", "s", {}),
    "process_resident_memory_bytes": ("process.memory.usage", "By", {}),
    "process_virtual_memory_bytes": ("process.memory.virtual", "By", {}),
    "process_open_fds": ("process.unix.file_descriptor.count", "{file_descriptor}", {}),
    "frazil_threads": ("process.thread.count", "{thread}", {}),
}
"""Names of the semantic conventions, with their units and attributes."""


def otel_name(metric: Metric) -> tuple[str, str]:
    """Returns a metric's name for OpenTelemetry, and its unit; an empty one where it only counts."""
    name, unit = metric.name, ""
    if metric.kind == "counter" and name != _WITH_TOTAL:
        name = name.removesuffix("_total")
    for suffix, suffix_unit in _UNITS.items():
        if name.endswith(suffix):
            name, unit = name.removesuffix(suffix), suffix_unit
    for start in ("frazil_table_", "frazil_"):
        if name.startswith(start):
            name = start.replace("_", ".") + name.removeprefix(start)
    return name, unit


@dataclass(frozen=True)
class Times:
    """The interval that cumulative numbers are of, in nanoseconds since the epoch."""

    began: int
    now: int


def otel_metrics(pipeline: RunningPipeline, resource: Resource, times: Times) -> OtelMetrics:
    """Returns all metrics as they are now.

    Raises: UnavailableError until the tables are known.
    """
    report, tables = pipeline.report(), pipeline.tables
    metrics, pipeline_labels = list[OtelMetric](), {"pipeline": report.pipeline}
    single = process_values(pipeline, report)
    for metric in PROCESS:
        if isinstance(metric, OfAll):
            total = merged(metric, tables)
            metrics += _named(metric, [_histogram(total.counts, total.bounds, total.total, pipeline_labels, times)])
        else:
            points = [
                _point(value, {**pipeline_labels, **labels}, times) for labels, value in single.get(metric.name, ())
            ]
            metrics += _named(metric, points)
    reported_tables = known_tables(report, tables)
    for metric in TABLE:
        points = list[NumberDataPoint]()
        for recorded, table in reported_tables:
            value, labels = value_of(metric, recorded, table), {**pipeline_labels, "table": recorded.name}
            if isinstance(value, int | float):
                points.append(_point(value, labels, times))
            elif value is not None:
                points += [_point(number, {**labels, metric.label: kind}, times) for kind, number in value]
        metrics += _named(metric, points)
    metrics += [
        _as_convention(own.name, own.help, own.kind, [_point(own.value, pipeline_labels, times)])
        for own in own_metrics()
        if own.name in _CONVENTIONS
    ]
    scope = ScopeMetrics(InstrumentationScope("frazil", frazil.__version__), metrics, "")
    return OtelMetrics([ResourceMetrics(resource, [scope], "")])


def _named(metric: Metric, points: _Points) -> Iterable[OtelMetric]:
    """Yields the metric under its own name, and under that of the conventions where they have one."""
    if not points:
        return
    name, unit = otel_name(metric)
    yield OtelMetric(name, metric.help, unit, _data(metric.kind, points))
    if metric.name in _CONVENTIONS:
        yield _as_convention(metric.name, metric.help, metric.kind, points)


def _as_convention(name: str, words: str, kind: str, points: _Points) -> OtelMetric:
    other, unit, attributes = _CONVENTIONS[name]
    more: Any = [replace(point, attributes={**(point.attributes or {}), **attributes}) for point in points]
    return OtelMetric(other, words, unit, _data("counter" if other == "process.cpu.time" else kind, more))


def _data(kind: str, points: _Points) -> Sum | Gauge | Histogram:
    if kind == "histogram":
        return Histogram(points, AggregationTemporality.CUMULATIVE)  # type: ignore[arg-type]
    if kind == "counter":
        return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)  # type: ignore[arg-type]
    return Gauge(points)  # type: ignore[arg-type]


def _point(value: float, labels: Labels, times: Times) -> NumberDataPoint:
    return NumberDataPoint(dict(labels), times.began, times.now, value)


def _histogram(
    counts: Sequence[int], bounds: Sequence[float], total: float, labels: Labels, times: Times
) -> HistogramDataPoint:
    count = sum(counts)
    # The extremes are optional in OTLP, and a histogram of buckets alone does not know them.
    extremes: dict[str, None] = {"min": None, "max": None}
    return HistogramDataPoint(dict(labels), times.began, times.now, count, total, counts, bounds, **extremes)  # type: ignore[arg-type]
