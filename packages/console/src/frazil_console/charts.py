"""Charts as SVG, drawn here: a page needs no script to show them. Colours come from the style sheet. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

Values = npt.NDArray[np.float32]
_SPARK = Markup('<svg class="spark" viewBox="0 0 58 16" aria-hidden="true"><path d="{}"/></svg>')
_SPARK_POINTS, _SPARK_HEIGHT = 30, 14
_CHART = Markup(
    '<svg class="chart" viewBox="0 0 600 134" role="img" aria-label="{label}"><path class="area" d="{area}"/>'
    '<path d="{line}"/>{axes}{hovers}</svg>'
)
_AXIS = Markup('<path class="grid" d="M0 {y}H600"/><text x="2" y="{below}">{text}</text>')
_TIME = Markup('<text x="{x}" y="130" text-anchor="{anchor}">{text}</text>')
_HOVER = Markup('<rect class="hover" x="{x}" width="{width}" height="112"><title>{text}</title></rect>')
_POINTS, _HEIGHT, _WIDTH = 240, 110, 600
_HOVERS = 60
_SHORTEST_S = 60
_HOUR_S = 3_600
_BAR = Markup('<svg class="bar" viewBox="0 0 300 12" aria-hidden="true"><rect width="{}"/></svg>')
_BARS = 300


@dataclass(frozen=True)
class Chart:
    """One chart of the past, with what a reader of the page hears instead of seeing it."""

    title: str
    svg: Markup
    now: str
    highest: str
    #: Time in seconds since the epoch, and the value as text, of at most a dozen moments.
    rows: tuple[tuple[int, str], ...]


def sparkline(values: Values, lowest_top: float) -> Markup:
    """Returns a small chart of these values, NaN where nothing is known. lowest_top: the least value of its upper edge, so
    that noise stays flat.
    """
    points = peaks(values, _SPARK_POINTS)
    return _SPARK.format(_path(points, max(lowest_top, _top(points)), 2, _SPARK_HEIGHT))


def chart(title: str, values: Values, end_s: int, step_s: int, text: Callable[[float], str]) -> Chart:
    """Returns a chart of values, the last of which is of the time `end_s`. It begins where the first value is known, a
    minute before its end at the latest: a young past fills its chart. It ends with the last value but one where the last is
    not known. text: how a value reads.
    """
    if len(values) > 1 and np.isnan(values[-1]) and not np.isnan(values[-2]):  # The newest sample is not taken yet.
        values, end_s = values[:-1], end_s - step_s
    known = np.flatnonzero(~np.isnan(values))
    first = int(known[0]) if len(known) else 0
    values = values[max(0, min(first, len(values) - _SHORTEST_S // step_s)) :]
    points = peaks(values, _POINTS)
    top = _top(points)
    x_step = _WIDTH / max(1, len(points) - 1)
    line = _path(points, top or 1, x_step, _HEIGHT)
    label = f"{title}: now {_text(points[-1:], text)}, highest {text(top) if _is_known(points) else 'unknown'}"
    begin_s = end_s - step_s * (len(values) - 1)
    each = -(-len(values) // 12)
    rows = [(begin_s + step_s * place, values[place]) for place in range((len(values) - 1) % each, len(values), each)]
    axes = Markup().join([*_values_axis(top, text), *_time_axis(begin_s, end_s)]) if _is_known(points) else Markup()
    return Chart(
        title,
        _CHART.format(
            label=label, line=line, area=_area(line), axes=axes, hovers=_hovers(values, begin_s, end_s, text)
        ),
        _text(points[-1:], text),
        text(top) if _is_known(points) else "–",
        tuple((at_s, "–" if np.isnan(value) else text(float(value))) for at_s, value in rows),
    )


def _values_axis(top: float, text: Callable[[float], str]) -> Iterator[Markup]:
    """Yields the lines of the highest value and of half of it; of nothing but zeros, none."""
    for share in (1.0, 0.5) if top else ():
        y = round(_HEIGHT + 1 - _HEIGHT * share)
        yield _AXIS.format(y=y, below=y + 15, text=text(top * share))


def _time_axis(begin_s: int, end_s: int) -> Iterator[Markup]:
    for share, anchor in ((0.0, "start"), (0.25, "middle"), (0.5, "middle"), (0.75, "middle"), (1.0, "end")):
        at_s = begin_s + share * (end_s - begin_s)
        yield _TIME.format(x=round(_WIDTH * share), anchor=anchor, text=_clock(at_s, end_s - begin_s))


def _hovers(values: Values, begin_s: int, end_s: int, text: Callable[[float], str]) -> Markup:
    """Returns stretches of the chart, each with its time and highest value as what a pointer shows."""
    highest = peaks(values, _HOVERS)
    width, stretch_s = _WIDTH / len(highest), (end_s - begin_s) / len(highest)
    return Markup().join(
        _HOVER.format(
            x=f"{place * width:.5g}",
            width=f"{width:.5g}",
            text=f"{_clock(begin_s + (place + 1) * stretch_s, end_s - begin_s)}: {text(value)}",
        )
        for place, value in enumerate(highest.tolist())
        if not np.isnan(value)
    )


def _clock(at_s: float, span_s: float) -> str:
    """Returns a time in UTC, as exact as a chart of this length needs."""
    moment = datetime.fromtimestamp(at_s, UTC)
    if span_s <= 2 * _HOUR_S:
        return f"{moment:%H:%M:%S}" if span_s <= _HOUR_S / 4 else f"{moment:%H:%M}"
    return f"{moment:%b %d %H:%M}" if span_s <= 48 * _HOUR_S else f"{moment:%b %d}"


def peaks(values: Values, count: int) -> Values:
    """Returns the largest value of each of `count` equal stretches, so that no peak is lost; NaN where none is known."""
    size = -(-len(values) // count)
    padded = np.full(size * -(-len(values) // size), np.nan, np.float32)
    padded[len(padded) - len(values) :] = values
    stretches = padded.reshape(-1, size)
    has_value = ~np.isnan(stretches)
    largest = np.max(stretches, axis=1, where=has_value, initial=-np.inf)
    return np.where(has_value.any(axis=1), largest, np.float32(np.nan)).astype(np.float32)


def bars(counts: Sequence[int], labels: Sequence[str]) -> list[tuple[str, int, Markup]]:
    """Returns a row of a histogram for each count: its label, the count, and a bar."""
    most = max(counts, default=0) or 1
    return [
        (label, count, _BAR.format(f"{max(1.0, _BARS * count / most):.0f}" if count else "0"))
        for label, count in zip(labels, counts, strict=True)
    ]


def _is_known(points: Values) -> bool:
    return bool((~np.isnan(points)).any())


def _top(points: Values) -> float:
    return float(np.nanmax(points)) if _is_known(points) else 0.0


def _text(points: Values, text: Callable[[float], str]) -> str:
    return text(float(points[0])) if len(points) and not np.isnan(points[0]) else "–"


def _path(points: Values, top: float, x_step: float, height: int) -> str:
    """Returns the path of a line; a run of equal points is one stroke, a gap begins another line."""
    ys = [None if np.isnan(value) else round(height + 1 - height * value / top) for value in points.tolist()]
    parts: list[str] = []
    for place, y in enumerate(ys):
        if y is None:
            continue
        before = ys[place - 1] if place else None
        after = ys[place + 1] if place + 1 < len(ys) else None
        x = f"{place * x_step:.6g}"
        if before is None:
            parts.append(f"M{x} {y}" + ("h1" if after is None else ""))
        elif not before == y == after:
            parts.append(f"H{x}" if before == y else f"L{x} {y}")
    return "".join(parts)


def _area(line: str) -> str:
    """Returns the area below a line, down to the lower edge."""
    strokes = [stroke for stroke in line.split("M") if stroke]
    bottom = _HEIGHT + 1
    return "".join(f"M{stroke.split(' ')[0]} {bottom}L{stroke}V{bottom}Z" for stroke in strokes)
