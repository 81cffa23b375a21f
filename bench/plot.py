"""The plot of the report: one bar for each subject, smallest and largest run as a whisker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from bench.results import Result, Results
from bench.settings import FORMAT_VARIANTS

_COLOURS = {"frazil": "#0b7285", "stock": "#e8590c", "connect": "#868e96"}
_LABELS = {"frazil": "Frazil", "stock": "Spark Structured Streaming", "connect": "Kafka Connect sink"}
_AGES = (", new", ", running")
_PANELS = (
    ("CPU seconds per million records", "cpu_s_per_million", 1.0),
    ("thousand records/s", "records_per_s", 1e-3),
    ("peak memory, MB", "peak_mb", 1.0),
)


def draw(results: Results, path: Path) -> None:
    """Draws what was measured; nothing where there is nothing to compare."""
    bars = [found for found in _bars(results) if found is not None]
    formats = _formats(results)
    fresh = sorted(results.of("freshness"), key=lambda result: list(_LABELS).index(result.subject))
    if not bars and not fresh and not formats:
        return
    with pyplot.rc_context(
        {"font.size": 9, "svg.hashsalt": "frazil", "axes.spines.top": False, "axes.spines.right": False}
    ):
        rows = 3 if formats else 2
        figure, axes = pyplot.subplots(rows, 2, figsize=(10, 2.6 * rows), layout="constrained")
        labels = [_LABELS[bar.subject] + _AGES[bar.variant.startswith("running")] for bar in bars]
        for axis, (title, name, scale) in zip(axes.flat, _PANELS, strict=False):
            _bar_panel(axis, title, bars, name, scale, labels)
        _fresh_panel(axes.flat[3], fresh)
        for axis, (title, name, scale) in zip(axes.flat[4:], _PANELS, strict=False):
            _bar_panel(axis, f"{title}, Frazil by format", formats, name, scale, [bar.variant for bar in formats])
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _bars(results: Results) -> list[Result | None]:
    return [
        results.best("throughput", subject, variant)
        for subject, variant in (
            ("frazil", "running"),
            ("frazil", "plain"),
            ("stock", "running"),
            ("stock", "plain"),
            ("connect", "plain"),
        )
    ]


def _formats(results: Results) -> list[Result]:
    """Frazil's results in other formats, plain JSON before them; nothing where only plain JSON was measured."""
    found = {result.variant: result for result in results.of("throughput", "frazil")}
    formats = [found[variant] for variant in FORMAT_VARIANTS if variant in found]
    plain = [found["running"]] if "running" in found else []
    return [*plain, *formats] if formats else []


def _bar_panel(axis: Axes, title: str, bars: Sequence[Result], name: str, scale: float, labels: Sequence[str]) -> None:
    for row, bar in enumerate(bars):
        spread = bar.spread(name) if name != "peak_mb" else bar.spread("peak_pss_mb") or bar.spread("peak_rss_mb")
        if spread is None:
            continue
        low, middle, high = (spread[key] * scale for key in ("min", "median", "max"))
        axis.barh(row, middle, color=_COLOURS[bar.subject], height=0.6)
        axis.plot([low, high], [row, row], color="black", linewidth=1)
        axis.annotate(f"{middle:,.4g}", (high, row), xytext=(4, 0), textcoords="offset points", va="center")
    axis.set_yticks(range(len(labels)), labels)
    axis.invert_yaxis()
    axis.margins(x=0.2)
    axis.set_title(title, loc="left")


def _fresh_panel(axis: Axes, fresh: Sequence[Result]) -> None:
    labels = [f"{_LABELS[one.subject]}\n{one.median('rate_per_s') or 0:,.0f} records/s" for one in fresh]
    for row, one in enumerate(fresh):
        for name, marker in (("p50_ms", "o"), ("p99_ms", "|")):
            value = one.median(name)
            if value is not None:
                axis.plot(value, row, marker, color=_COLOURS[one.subject], markersize=9, markeredgewidth=2)
                axis.annotate(f"{value:,.0f}", (value, row), xytext=(0, 8), textcoords="offset points", ha="center")
        axis.plot([one.median("p50_ms") or 0, one.median("p99_ms") or 0], [row, row], color=_COLOURS[one.subject])
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.5, -0.7)
    axis.margins(x=0.15)
    axis.set_xlim(left=0)
    axis.set_title("freshness, ms: p50 to p99", loc="left")
