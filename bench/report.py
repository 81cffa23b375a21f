"""From result files to `performance.md` and `performance.svg`: what stands between the markers is written anew."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bench.goals import GOALS
from bench.lakes import CATALOGS, STORES
from bench.plot import draw
from bench.report_kept import GOALS as GOALS_TITLE
from bench.report_kept import SURROUNDINGS, UNMEASURED, sections_of, with_kept
from bench.report_maintenance import maintenance, upserts
from bench.report_tables import median_of as _median
from bench.report_tables import number as _number
from bench.report_tables import spread_of as _spread
from bench.report_tables import table
from bench.results import Result, Results, read_results
from bench.settings import FORMAT_VARIANTS, Settings

_BEGIN, _END = "<!-- bench report begins -->", "<!-- bench report ends -->"
_PAGE = f"""# Performance

Measured by `make bench`; how, and how to repeat it, is in [bench/README.md](../bench/README.md).

{_BEGIN}
{_END}
"""
_PICTURE = "![CPU, throughput, freshness and memory](performance.svg)\n"
_NAMES = {
    "frazil": "Frazil",
    "stock": "Spark Structured Streaming",
    "connect": "Kafka Connect Iceberg sink",
    "flink": "Flink SQL",
}
# What the records of FORMAT_VARIANTS are.
_RECORDS = {
    "avro": "the same 8 fields, 95 bytes, by a registry's id",
    "avro_bad": "the Avro of `avro`, 1 % bad, to dead letters",
    "protobuf": "the same 8 fields, by a registry's id",
    "json_schema": "the JSON of `running`, by a registry's id",
    "bad": "the JSON of `running`, 1 % bad, to dead letters",
    "wide": "JSON of 1.1 kB, 60 fields, nested",
}


def write(settings: Settings) -> None:
    """Writes the page and the plot from the newest results."""
    results = read_results(settings.results)
    settings.docs.mkdir(parents=True, exist_ok=True)
    page = settings.docs / "performance.md"
    text = page.read_text() if page.exists() else _PAGE
    page.write_text(between_markers(text, render(results, text.partition(_BEGIN)[2].partition(_END)[0])))
    if results.of("throughput") and results.of("freshness"):
        draw(results, settings.docs / "performance.svg")


def between_markers(text: str, report: str) -> str:
    """The page with the report between its markers, the rest as it was."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no markers: {_BEGIN} and {_END}")
    return f"{before}{begin}\n\n{report}\n{end}{after}"


def render(results: Results, before: str = "") -> str:
    """The report as Markdown. before: the last one, of which is kept what these results do not tell."""
    sections = {
        GOALS_TITLE: _goals(results),
        "Throughput": _throughput(results),
        "Formats and bad records": _formats(results),
        "Upserts": upserts(results),
        "Table maintenance": maintenance(results),
        "Freshness": _freshness(results),
        "A new schema in mid-stream": _new_schema(results),
        "Idle and trickling topics": _many_topics(results),
        "Start": _start(results),
        "Catalogs and stores": _lakes(results),
        "A query": _query(results),
        SURROUNDINGS: _surroundings(results),
        "The files": _files(results),
    }
    told = [f"## {title}\n\n{body}\n" for title, body in with_kept(sections, sections_of(before)).items() if body]
    return "\n".join([told[0], _PICTURE, *told[1:]])


def _goals(results: Results) -> str:
    rows = []
    for goal in GOALS:
        value = goal.measured(results)
        met = "" if value is None else "yes" if goal.is_met(value) else "**no**"
        rows.append([goal.what, goal.text, UNMEASURED if value is None else _number(value), met])
    return table(["what", "goal", "measured (median)", "met"], rows)


def _throughput(results: Results) -> str:
    rows = []
    for result in sorted((one for one in results.of("throughput") if one.variant not in _RECORDS), key=_order):
        times = results.times_frazil(result, "cpu_s_per_million")
        rows.append(
            [
                _NAMES[result.subject],
                result.variant,
                _spread(result, "records_per_s"),
                _spread(result, "cpu_s_per_million"),
                "" if times is None or result.subject == "frazil" else f"{times:.2f}",
                _spread(result, "cpu_s_per_million_with_start"),
                f"{_median(result, 'peak_pss_mb')} / {_median(result, 'peak_rss_mb')}",
                f"{_median(result, 'files')} / {_median(result, 'size_mb')}",
                str(len(result.runs)),
            ]
        )
    head = ["subject", "variant", "records/s", "CPU s per M", "× Frazil", "CPU s per M from process start"]
    head += ["peak MB (PSS / RSS)", "files / MB", "runs"]
    note = (
        "Smallest / **median** / largest. `metadata`: with the columns partition, offset and timestamp. CPU is that of "
        "the whole process tree, from just before the first record is read until the last commit is visible; `running`: "
        "from the first commit of 4 M records until that of the last of two more.\n\n"
    )
    body = table(head, rows)
    return note + body if body else ""


def _formats(results: Results) -> str:
    rows = [
        [
            result.variant,
            _RECORDS[result.variant],
            _spread(result, "records_per_s"),
            _spread(result, "cpu_s_per_million"),
            _number(results.times("throughput", result.variant, "running", "cpu_s_per_million")),
            f"{_median(result, 'peak_pss_mb')} / {_median(result, 'peak_rss_mb')}",
            f"{_median(result, 'files')} / {_median(result, 'size_mb')}",
            str(len(result.runs)),
        ]
        for variant in FORMAT_VARIANTS
        for result in results.of("throughput", "frazil", variant)
        if result.variant == variant
    ]
    head = [
        "variant",
        "records",
        "records/s",
        "CPU s per M",
        "× plain JSON",
        "peak MB (PSS / RSS)",
        "files / MB",
        "runs",
    ]
    note = (
        "All of them `running`, as above; `wide` has fewer records, because each is larger. × plain JSON: CPU, divided by "
        "the CPU of `running` in the same run.\n\n"
    )
    body = table(head, rows)
    return note + body if body else ""


def _freshness(results: Results) -> str:
    rows = [
        [
            _NAMES[result.subject],
            result.variant,
            _median(result, "rate_per_s"),
            _median(result, "seconds"),
            *(_median(result, name) for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")),
            _median(result, "commit_gap_median_ms"),
            _median(result, "cores"),
            _median(result, "files"),
        ]
        for result in sorted(results.of("freshness"), key=_order)
    ]
    head = ["subject", "interval", "records/s", "seconds", "p50 ms", "p95 ms", "p99 ms", "max ms"]
    body = table([*head, "commit gap ms", "cores used", "files"], rows)
    note = (
        "From the producer's clock to the first sight of the snapshot in the catalog, over every record after the "
        "warm-up. Kafka Connect's freshness is measured to the snapshot's own timestamp, as the sink's own benchmark "
        "measures it.\n\n"
    )
    return note + body if body else ""


def _new_schema(results: Results) -> str:
    names = ("back_s", "first_new_row_s", "max_ms")
    rows = [
        [result.variant, _median(result, "rate_per_s"), *(_spread(result, name) for name in names)]
        for result in results.of("new_schema")
    ]
    head = ["interval", "records/s", "freshness back under 2 s after, s", "first new row visible after, s", "oldest ms"]
    note = (
        "Avro; from one record to the next the producer's schema has a field more. Counted from that record on; 0 is a "
        "table that was never 2 s behind.\n\n"
    )
    body = table(head, rows)
    return note + body if body else ""


_DUE = "A commit is due when its interval has passed. A negative number is a commit before that, as a file was full."


def _many_topics(results: Results) -> str:
    rows = [
        [
            result.benchmark,
            result.variant,
            _median(result, "percent_of_core"),
            _median(result, "active_percent"),
            _median(result, "late_p50_ms"),
            _median(result, "late_p99_ms"),
            _median(result, "late_max_ms"),
            _median(result, "peak_pss_mb"),
        ]
        for name in ("idle", "many")
        for result in results.of(name)
    ]
    head = ["benchmark", "load", "% of one core", "with ten active", "commit after due: p50 ms", "p99 ms", "max ms"]
    return f"{_DUE}\n\n{table([*head, 'peak MB'], rows)}"


def _start(results: Results) -> str:
    rows = [[_spread(result, "start_s"), _spread(result, "restart_s")] for result in results.of("start")]
    return table(["command to first commit, s", "after kill -9, s"], rows)


def _lakes(results: Results) -> str:
    commits = [
        [name, _median(result, f"{name}_ms"), _number(result.median(f"{name}_times"))]
        for result in results.of("lakes", "frazil", "commits")
        for name in CATALOGS
    ]
    stores = [
        [result.variant, *(_spread(result, name) for name in ("records_per_s", "cpu_s_per_million"))]
        for variant in STORES
        for result in results.of("lakes", "frazil", variant)
    ]
    note = "The time of a small commit in each catalog in turn, and the records of `running` to each store in turn.\n\n"
    parts = (
        table(["catalog", "commit, ms", "× JDBC on SQLite"], commits),
        table(["store", "records/s", "CPU s per M"], stores),
    )
    return note + "\n".join(filter(None, parts)) if any(parts) else ""


def _query(results: Results) -> str:
    rows = [
        [label, *(_spread(result, name) for name in ("records_per_s", "cpu_s_per_million")), _median(result, "rows")]
        for subject, variant, label in (
            ("frazil", "plain", "plain"),
            ("frazil", "query", "query"),
            ("stock", "query", "query in Spark Structured Streaming"),
            ("flink", "query", "query in Flink SQL"),
            ("frazil", "lookup", "lookup"),
            ("frazil", "spark", "query computed by Spark"),
            ("frazil", "kinds", "20 kinds in one table"),
            ("frazil", "route", "20 kinds, routed to 20 tables"),
        )
        for result in results.of("process", subject, variant)
    ]
    note = (
        "The records of `running` into a table as they are, and through a query that keeps half of them, with two casts "
        "and one hash; and with one column looked up in 100,000 rows; in turn. Per record that is read: the query writes "
        "half as many rows. And records of 20 kinds into one table, and into a table of each kind.\n\n"
    )
    body = table(["table", "records/s", "CPU s per M", "rows"], rows)
    return note + body if body else ""


def _surroundings(results: Results) -> str:
    everything = list(results)
    if not everything:
        return ""
    newest = max(everything, key=lambda result: str(result.content["finished"])).content
    machine: Mapping[str, object] = newest["machine"]
    packages = machine["packages"]
    assert isinstance(packages, dict)
    others = [run["other_cores"] for result in everything for run in result.runs if "other_cores" in run]
    commands = sorted({" ".join(result.content["command"]) for result in everything})
    lines = [
        f"- {machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB, {machine['system']}",
        f"- {machine['java']}; Python {machine['python']}; "
        + ", ".join(f"{name} {version}" for name, version in packages.items()),
        f"- Frazil at commit {machine['commit']}, {newest['finished']}",
        f"- other processes used {min(others):.2f} to {max(others):.2f} cores during the runs" if others else "",
        *(f"- `{command}`" for command in commands),
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _files(results: Results) -> str:
    """The pipeline file and the peer's settings, as they were run."""
    blocks = []
    for result in results.of("throughput", variant="plain"):
        if "pipeline" in result.content:
            blocks.append(f"Frazil's pipeline file:\n\n```yaml\n{str(result.content['pipeline']).strip()}\n```\n")
        settings = result.content.get("job") or result.content.get("peer_settings")
        if settings:
            told = json.dumps(settings, indent=1)
            blocks.append(f"{_NAMES[result.subject]}, {result.variant}:\n\n```json\n{told}\n```\n")
    return "\n".join(blocks)


def _order(result: Result) -> tuple[bool, int]:
    return result.variant.startswith("metadata"), list(_NAMES).index(result.subject)
