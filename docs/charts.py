"""Draws the charts of docs/start/compare.md from docs/figures.json: `make docs`. A test fails when one of them is stale.

`make figures` measures; an entry of the file is what one command measured of one subject, with its date and number of runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path

from bench.arithmetic import summary
from docs.scan import ROOT
from frazil_start.sizing import Load, Prices, size_of

FIGURES = ROOT / "docs" / "figures.json"
IMAGES = ROOT / "docs" / "images"
PAGE = ROOT / "docs" / "start" / "compare.md"
_BEGIN, _END = "<!-- charts begin: `make docs` -->", "<!-- charts end -->"
SUBJECTS = {
    "frazil": "Frazil",
    "connect": "Kafka Connect Iceberg sink",
    "flink": "Flink SQL",
    "stock": "Spark Structured Streaming",
}
_RECORD_BYTES = 193
_INTERVALS = {"1 s (default)": 1.0, "5 s": 5.0, "30 s": 30.0, "5 min": 300.0}
_WIDTH, _LABELS, _TEXTS, _ROW, _TOP = 720, 210, 150, 34, 34
_STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1f2933}
.title{font-weight:600}
.own{fill:#1976d2}.other{fill:#9aa5b1}
path{stroke:#1f2933;stroke-width:1.2}
@media(prefers-color-scheme:dark){
text{fill:#e4e7eb}.own{fill:#4098d7}.other{fill:#616e7c}path{stroke:#e4e7eb}}"""


@dataclass(frozen=True)
class Measured:
    """What one command measured of one subject."""

    subject: str
    #: `load`, `fresh`, `kill` or `requests`.
    what: str
    #: The subject's setting, in words; may be empty.
    label: str
    #: Smallest, median and largest of each number.
    values: Mapping[str, Mapping[str, float]]
    #: How many runs these are of.
    runs: int
    date: str
    commit: str
    machine: str

    def median(self, name: str) -> float:
        """Returns the median of a number."""
        return self.values[name]["median"]


_KEPT = {
    "load": ("cpu_s_per_million", "records_per_s", "peak_rss_mb"),
    "fresh": ("p50_ms", "p99_ms", "rate_per_s", "cores"),
    "kill": ("recovered_s",),
    "requests": ("commits", "writes_per_commit", "reads_per_commit"),
}


def entry_of(
    subject: str, what: str, label: str, runs: Sequence[Mapping[str, object]], circumstances: Mapping[str, str]
) -> Measured:
    """Returns the entry of some runs. circumstances: date, commit and machine."""
    spreads = summary(runs)
    values = {name: spreads[name] for name in _KEPT[what] if name in spreads}
    return Measured(subject, what, label, values, len(runs), **circumstances)


def read_figures(path: Path = FIGURES) -> list[Measured]:
    """Returns the entries of the file."""
    return [Measured(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def write_figures(path: Path, entries: Iterable[Measured]) -> None:
    """Writes the entries; of two that measure the same of one subject, the later one."""
    newest = {(entry.what, entry.subject): entry for entry in entries}
    text = json.dumps([asdict(newest[key]) for key in sorted(newest)], indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")


@dataclass(frozen=True)
class Bar:
    """A row of a chart. until: where a line beside the bar ends, such as the largest run. text: stands after it."""

    label: str
    value: float
    until: float
    text: str
    is_own: bool


@dataclass(frozen=True)
class Chart:
    """Horizontal bars from 0. sources: the entries that it is made of."""

    title: str
    about: str
    bars: Sequence[Bar]
    sources: Sequence[Measured] = field(default=())
    file: str = ""


def charts(entries: Sequence[Measured]) -> list[Chart]:
    """Returns the six charts, in the page's order."""
    cents = 1e12 / _RECORD_BYTES / 1e6 / 3600 * Prices().per_core_hour * 100
    loads, fresh, kills = (_of(entries, what) for what in ("load", "fresh", "kill"))
    return [
        Chart(
            "Compute for a terabyte, US cents",
            f"A running process reads JSON of {_RECORD_BYTES} bytes and writes Parquet; {Prices().per_core_hour} USD for an"
            " hour of a core. The figure excludes brokers, catalog and store.",
            [_bar(entry, "cpu_s_per_million", cents, "{:.1f}") for entry in loads],
            loads,
            "cost",
        ),
        Chart(
            "Freshness, seconds: half of the records, and 99 %",
            f"From the producer's clock to the first moment at which a reader of the catalog sees the record{_rate(fresh)}."
            " The line ends at the 99th percentile.",
            [_fresh_bar(entry) for entry in fresh],
            fresh,
            "freshness",
        ),
        Chart(
            "Memory, MB: largest sum of all processes",
            "The load of the first chart, each Java heap limited to 2 GB. Pages that several processes share count once for"
            " each.",
            [_bar(entry, "peak_rss_mb", 1, "{:,.0f}") for entry in loads],
            loads,
            "memory",
        ),
        Chart(
            "Recovery, seconds from kill -9 to the next commit",
            "The process is started again at once, as a supervisor does. A standby of Frazil runs already. The recovery of"
            " Flink depends on its cluster and is not measured.",
            [_bar(entry, "recovered_s", 1, "{:.1f}") for entry in kills],
            kills,
            "recovery",
        ),
        _requests(entries),
        Chart(
            "Records per second on two cores, thousands",
            "The load of the first chart. The broker runs on the same two cores.",
            [_bar(entry, "records_per_s", 1e-3, "{:,.0f}") for entry in loads],
            loads,
            "speed",
        ),
    ]


def _rate(fresh: Sequence[Measured]) -> str:
    """Returns the rate at which all of them were measured, as the end of a sentence; empty where rates differ."""
    rates = {entry.median("rate_per_s") for entry in fresh}
    return f", at {rates.pop():,.0f} records per second" if len(rates) == 1 else ""


def _requests(entries: Sequence[Measured]) -> Chart:
    prices = Prices()
    bars = []
    for label, interval_s in _INTERVALS.items():
        price = size_of(Load(1_000, commit_interval_s=interval_s), prices).requests_per_month
        bars.append(Bar(label, price, price, f"{price:,.1f}", True))
    counted = _of(entries, "requests")
    each = "; ".join(
        f"{SUBJECTS[entry.subject]} {entry.median('writes_per_commit'):.1f} that write and"
        f" {entry.median('reads_per_commit'):.1f} that read"
        for entry in counted
    )
    return Chart(
        "Requests to S3 for one table in a month, USD, by commit interval",
        f"The figure is for a table that always has records, at {prices.per_1000_puts} USD for 1,000 write requests. Counted"
        f" at a local S3 server, for each commit: {each}. The price of Frazil includes its compaction.",
        bars,
        counted,
        "requests",
    )


def _of(entries: Sequence[Measured], what: str) -> list[Measured]:
    order = list(SUBJECTS)
    return sorted(
        (entry for entry in entries if entry.what == what),
        key=lambda entry: order.index(entry.subject.partition("-")[0]),
    )


def _name(entry: Measured) -> str:
    name, _, addition = entry.subject.partition("-")
    return f"{SUBJECTS[name]} {addition}".strip()


def _bar(entry: Measured, name: str, scale: float, form: str) -> Bar:
    spread = entry.values[name]
    value = spread["median"] * scale
    return Bar(_name(entry), value, spread["max"] * scale, form.format(value), entry.subject.startswith("frazil"))


def _fresh_bar(entry: Measured) -> Bar:
    half, most = entry.median("p50_ms") / 1000, entry.median("p99_ms") / 1000
    return Bar(_name(entry), half, most, f"{half:.2f} / {most:.2f}", entry.subject == "frazil")


def draw(chart: Chart) -> str:
    """Returns the SVG of a chart."""
    most = max((bar.until for bar in chart.bars), default=1.0) or 1.0
    scale = (_WIDTH - _LABELS - _TEXTS) / most
    height = _TOP + _ROW * len(chart.bars) + 6
    told = "; ".join(f"{bar.label}: {bar.text}" for bar in chart.bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(f'{chart.title}. {told}')}</title>",
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="6" y="20">{escape(chart.title)}</text>',
    ]
    for number, bar in enumerate(chart.bars):
        top = _TOP + _ROW * number
        middle, end = top + 13, _LABELS + bar.value * scale
        until = _LABELS + bar.until * scale
        kind = "own" if bar.is_own else "other"
        lines += [
            f'<text x="{_LABELS - 8}" y="{middle + 5}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{kind}" x="{_LABELS}" y="{top}" width="{max(end - _LABELS, 1):.1f}" height="26"/>',
            *([f'<path d="M{end:.1f} {middle}H{until:.1f}"/>'] if until - end > 1 else []),
            f'<text x="{max(end, until) + 8:.1f}" y="{middle + 5}">{escape(bar.text)}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def page(text: str, entries: Sequence[Measured]) -> str:
    """Returns the page with the part between its markers written anew."""
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n\n{_charts_part(entries)}\n{_END}{rest.partition(_END)[2]}"


def _charts_part(entries: Sequence[Measured]) -> str:
    parts = []
    for chart in charts(entries):
        told = "; ".join(f"{bar.label}: {bar.text}" for bar in chart.bars)
        picture = f"![{chart.title}. {told}](../images/chart-{chart.file}.svg)"
        parts += [f"### {chart.title}\n", f"{picture}\n", f"{chart.about}\n", f"{_sources(chart.sources)}\n"]
    losses = "\n".join(f"- {line}" for line in lost(entries))
    parts += ["## Where Frazil loses in these figures\n", f"{losses}\n" if losses else "Nowhere.\n"]
    return "\n".join(parts)


def _sources(entries: Sequence[Measured]) -> str:
    """Returns what each subject's figures are of: the number of runs, the date, the commit."""
    told: dict[str, list[str]] = {}
    for entry in entries:
        runs = f"{entry.runs} run{'s' if entry.runs != 1 else ''}"
        origin = f"{entry.date}, commit {entry.commit}, {entry.machine}"
        label = f" ({entry.label})" if entry.label else ""
        told.setdefault(origin, []).append(f"{_name(entry)}{label} {runs}")
    return "*" + " ".join(f"{'; '.join(subjects)}: {origin}." for origin, subjects in told.items()) + "*"


_BETTER = {
    ("load", "cpu_s_per_million"): ("less CPU for a record", False),
    ("load", "records_per_s"): ("more records per second", True),
    ("load", "peak_rss_mb"): ("less memory", False),
    ("fresh", "p50_ms"): ("fresher, half of the records", False),
    ("fresh", "p99_ms"): ("fresher, 99 % of the records", False),
    ("fresh", "cores"): ("less CPU while fresh", False),
    ("kill", "recovered_s"): ("sooner back after a crash", False),
    ("requests", "writes_per_commit"): ("fewer requests that write, for each commit", False),
    ("requests", "reads_per_commit"): ("fewer requests that read, for each commit", False),
}


def lost(entries: Sequence[Measured]) -> list[str]:
    """Returns each figure in which another subject is better, with both values."""
    lines = []
    for (what, name), (words, more_is_better) in _BETTER.items():
        own = next((entry for entry in entries if entry.what == what and entry.subject == "frazil"), None)
        for entry in _of(entries, what):
            if own is None or name not in entry.values or name not in own.values or entry.subject.startswith("frazil"):
                continue
            theirs, ours = entry.median(name), own.median(name)
            if theirs > ours if more_is_better else theirs < ours:
                lines.append(f"{_name(entry)}: {words} ({_number(theirs)}; Frazil {_number(ours)}).")
    return lines


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write() -> None:
    """Writes the charts and the page."""
    entries = read_figures()
    for chart in charts(entries):
        (IMAGES / f"chart-{chart.file}.svg").write_text(draw(chart), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), entries), encoding="utf-8")


if __name__ == "__main__":
    write()
