"""The figures that Frazil must reach on two shared cores with the broker on them, and where each is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from bench.arithmetic import ratio
from bench.results import Results

_SCATTERED_2 = "scattered-2000000"
READERS = {"spark": "Spark", "duckdb": "DuckDB", "polars": "Polars", "pyiceberg": "PyIceberg"}
"""Those who read the mirror after its stream of changes."""


@dataclasses.dataclass(frozen=True)
class Goal:
    """A figure: at most or at least `limit`."""

    what: str
    unit: str
    limit: float
    measured: Callable[[Results], float | None]
    at_least: bool = False

    @property
    def text(self) -> str:
        """The goal, for the report."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:,.9g} {self.unit}".strip()

    def is_met(self, value: float) -> bool:
        """Whether the measured value reaches the goal."""
        return value >= self.limit if self.at_least else value <= self.limit


def _of(benchmark: str, variant: str, name: str) -> Callable[[Results], float | None]:
    return lambda results: results.median(benchmark, "frazil", variant, name)


def _of_kills(name: str) -> Callable[[Results], float | None]:
    return _of("standby", "kill-9", name)


def _cpu(variant: str) -> Callable[[Results], float | None]:
    """Of exactly this variant."""

    def measured(results: Results) -> float | None:
        found = [result for result in results.of("throughput", "frazil") if result.variant == variant]
        return found[0].median("cpu_s_per_million") if found else None

    return measured


def _times(peer: str, variant: str) -> Callable[[Results], float | None]:
    return lambda results: results.best_ratio("throughput", peer, variant, "cpu_s_per_million")


def _times_own(variant: str, other: str = "running") -> Callable[[Results], float | None]:
    """The CPU of a variant by that of another one, both Frazil's."""
    return lambda results: results.times("throughput", variant, other, "cpu_s_per_million")


def _among(benchmark: str, peer: str, variant: str, own: str, name: str) -> Callable[[Results], float | None]:
    """A number of one result by the same of another: `peer`'s `variant` by Frazil's `own`."""

    def measured(results: Results) -> float | None:
        return ratio(results.median(benchmark, peer, variant, name), results.median(benchmark, "frazil", own, name))

    return measured


def _to_s3(results: Results) -> float | None:
    return results.times("lakes", "s3", "local", "records_per_s")


def _query(results: Results) -> float | None:
    return results.times("process", "query", "plain", "cpu_s_per_million")


def _lookup(results: Results) -> float | None:
    return results.times("process", "lookup", "plain", "cpu_s_per_million")


def _route(results: Results) -> float | None:
    return results.times("process", "route", "kinds", "cpu_s_per_million")


def _cost_of_maintenance(results: Results) -> float | None:
    """What the same records cost with maintenance beyond what they cost without, by the latter; in percent."""
    times = results.times("maintenance", "on", "off", "cpu_s_per_million")
    return None if times is None else 100 * (times - 1)


def _cost_of_publishing(results: Results) -> float | None:
    """What a publish each minute costs beyond ingestion, by the latter; in percent."""
    times = results.times("publish", "on", "off", "cores")
    return None if times is None else 100 * (times - 1)


def _copies(results: Results) -> float | None:
    return results.times("copies", "copy_on_write", "merge_on_read", "cpu_s_per_million")


def _fresh(name: str) -> Callable[[Results], float | None]:
    """One interval has to reach both percentiles: the one with the best p99."""

    def measured(results: Results) -> float | None:
        best = results.best("freshness", "frazil", by="p99_ms")
        return best.median(name) if best else None

    return measured


def _fast(variant: str) -> Callable[[Results], float | None]:
    def measured(results: Results) -> float | None:
        found = [result for result in results.of("throughput", "frazil") if result.variant == variant]
        return found[0].median("records_per_s") if found else None

    return measured


def _read(what: str, name: str) -> Goal:
    return Goal(what, "× rewritten", 1.15, _of("upsert", "steady", name))


GOALS = (
    Goal("JSON, 8 fields: CPU seconds per million records, running process", "", 0.95, _cpu("running")),
    Goal("JSON, 8 fields: CPU seconds per million records, the first 4 M of a new process", "", 1.6, _cpu("plain")),
    Goal("JSON, 8 fields: records/s, running process", "", 1_500_000, _fast("running"), at_least=True),
    Goal("JSON, 8 fields: records/s, the first 4 M of a new process", "", 600_000, _fast("plain"), at_least=True),
    Goal("CPU seconds with metadata columns, running process", "", 2.8, _cpu("running_metadata")),
    Goal("CPU seconds with metadata columns, the first 4 M of a new process", "", 2.8, _cpu("metadata")),
    Goal(
        "CPU of Spark Structured Streaming, both running", "× Frazil's", 4.7, _times("stock", "running"), at_least=True
    ),
    Goal("CPU of Spark Structured Streaming, both new", "× Frazil's", 4.0, _times("stock", "plain"), at_least=True),
    Goal("CPU of the Kafka Connect sink, both running", "× Frazil's", 3.6, _times("connect", "running"), at_least=True),
    Goal("CPU of the Kafka Connect sink, both new", "× Frazil's", 3.2, _times("connect", "plain"), at_least=True),
    Goal("Avro of the same record: CPU seconds per million records", "", 0.65, _cpu("avro")),
    Goal("Avro of the same record: records/s", "", 800_000, _fast("avro"), at_least=True),
    Goal("Protobuf of the same record: CPU seconds per million records", "", 0.75, _cpu("protobuf")),
    Goal("JSON Schema framing: CPU", "× plain JSON's", 1.1, _times_own("json_schema")),
    Goal("JSON of 1.1 kB, 60 fields, nested: CPU seconds per million records", "", 9.0, _cpu("wide")),
    Goal("1 % bad records scattered evenly: CPU", "× plain JSON's", 1.5, _times_own("bad")),
    Goal("1 % bad records scattered evenly, in Avro: CPU", "× clean Avro's", 1.5, _times_own("avro_bad", "avro")),
    Goal(
        "partitioned by bucket(x, 16), day(ts), records of two days: CPU, both running",
        "× unpartitioned",
        1.3,
        _times_own("running_partitioned", "running_days"),
    ),
    Goal(
        "10,000 partitions in one batch of 1 M: CPU, both running",
        "× unpartitioned",
        4.0,
        _times_own("running_many_partitions", "running_one_million"),
    ),
    Goal(
        "10,000 partitions in one batch of 1 M: CPU, both new",
        "× unpartitioned",
        4.0,
        _times_own("many_partitions", "one_million"),
    ),
    Goal(
        "10,000 partitions in one batch of 1 M: memory, peak",
        "MB",
        3000,
        _of("throughput", "many_partitions", "peak_pss_mb"),
    ),
    Goal(
        "20,000 records/s, a commit each second, with maintenance: freshness p99",
        "ms",
        1500,
        _of("maintenance", "on", "p99_ms"),
    ),
    Goal(
        "20,000 records/s with maintenance: freshness p99 of the slowest minute",
        "ms",
        1500,
        _of("maintenance", "on", "p99_worst_minute_ms"),
    ),
    Goal(
        "20,000 records/s with maintenance: from the last record until nothing is due",
        "s",
        300,
        _of("maintenance", "on", "tidy_after_s"),
    ),
    Goal(
        "20,000 records/s with maintenance: share of small files then", "", 0.1, _of("maintenance", "on", "small_share")
    ),
    Goal("20,000 records/s with maintenance: CPU of maintenance, of that of ingestion", "%", 25, _cost_of_maintenance),
    Goal("20,000 records/s to a branch, published each minute: CPU more than without", "%", 3, _cost_of_publishing),
    Goal("5,000 changes/s, main without delete files each five minutes: CPU", "× with them", 1.5, _copies),
    Goal("metadata.json after 10,000 commits", "bytes", 2_000_000, _of("metadata", "", "metadata_bytes")),
    Goal("commit time after 10,000 commits", "× the first 100", 1.5, _of("metadata", "", "ratio")),
    *(
        Goal(f"a commit through {name}", "× JDBC on SQLite", 2.0, _of("lakes", "commits", f"{key}_times"))
        for key, name in {"rest": "REST", "hive": "Hive's metastore", "glue": "Glue, with S3"}.items()
    ),
    Goal("records/s to S3, running process", "× local files", 0.8, _to_s3, at_least=True),
    Goal("a query (half of the records, two casts, one hash): CPU per record read", "× no query", 1.15, _query),
    Goal(
        "that query, half of the records with two casts and one hash, in Spark Structured Streaming",
        "× Frazil",
        2.0,
        _among("process", "stock", "query", "query", "cpu_s_per_million"),
        at_least=True,
    ),
    Goal(
        "that query, half of the records with two casts and one hash, in Flink SQL",
        "× Frazil",
        1.8,
        _among("process", "flink", "query", "query", "cpu_s_per_million"),
        at_least=True,
    ),
    Goal("one column looked up in 100,000 rows: CPU per record read", "× no look-up", 1.25, _lookup),
    Goal("routed to 20 tables: CPU", "× one table", 1.3, _route),
    Goal(
        "1,000 scattered updates into 2 M rows, plan to commit", "s", 0.9, _of("upsert", _SCATTERED_2, "took_median_s")
    ),
    Goal(
        "1,000 scattered updates into 50 M rows, plan to commit",
        "s",
        2.5,
        _of("upsert", "scattered-50000000", "took_median_s"),
    ),
    Goal("5,000 changes/s into 5 M rows: freshness p50", "ms", 1500, _of("upsert", "steady", "p50_ms")),
    Goal("5,000 changes/s into 5 M rows: freshness p99", "ms", 3000, _of("upsert", "steady", "p99_ms")),
    Goal(
        "5,000 changes/s into 5 M rows: from the last change until all are committed",
        "s",
        5,
        _of("upsert", "steady", "behind_s"),
    ),
    *(
        _read(f"5,000 changes/s into 5 M rows: full read by {name} right after the last change", f"{key}_at_once")
        for key, name in READERS.items()
    ),
    *(
        _read(f"5,000 changes/s into 5 M rows: full read by {name} after table maintenance", f"{key}_rested")
        for key, name in READERS.items()
    ),
    Goal(
        "first load of 5 M inserts: CPU",
        "× append",
        1.5,
        _among("upsert", "frazil", "load-upsert", "load-append", "cpu_s_per_million"),
    ),
    Goal(
        "CPU of MERGE INTO per micro-batch",
        "× Frazil's",
        3.0,
        _among("upsert", "stock", "steady", "steady", "cpu_s_per_million"),
        at_least=True,
    ),
    Goal("freshness p50, 10,000 records/s", "ms", 300, _fresh("p50_ms")),
    Goal("freshness p99, 10,000 records/s", "ms", 700, _fresh("p99_ms")),
    Goal("a new writer schema in mid-stream: freshness back under 2 s after", "s", 3, _of("new_schema", "", "back_s")),
    Goal("200 topics, none active", "% of one core", 5, _of("idle", "200-topics", "percent_of_core")),
    Goal("1,000 topics, none active", "% of one core", 4, _of("idle", "1000-topics", "percent_of_core")),
    Goal("1,000 topics, ten active", "% of one core", 20, _of("idle", "1000-topics", "active_percent")),
    Goal(
        "1,000 new topics with a record each: command to the first commit of all",
        "s",
        60,
        _of("new_topics", "1000-topics", "all_s"),
    ),
    Goal("200 topics at 20 records/s each", "% of one core", 20, _of("many", "200-topics-20-per-s", "percent_of_core")),
    Goal(
        "200 topics at 20 records/s each: longest delay of a commit",
        "ms",
        1000,
        _of("many", "200-topics-20-per-s", "late_max_ms"),
    ),
    Goal("a scrape of 1,000 tables", "ms", 100, _of("metrics", "1000-tables", "scrape_ms")),
    Goal("memory of driver and workers, peak", "MB", 1500, _of("throughput", "plain", "peak_pss_mb")),
    Goal("the console's page of 1,000 tables", "bytes", 300 * 1024, _of("console", "1000-tables", "page_bytes")),
    Goal(
        "the console's page of 1,000 tables: first paint in headless Chromium",
        "ms",
        1000,
        _of("console", "1000-tables", "first_paint_ms"),
    ),
    Goal(
        "the console's page of 1,000 tables, ten active: CPU of the server",
        "% of one core",
        2,
        _of("console", "1000-tables", "live_ten_active_percent"),
    ),
    Goal(
        "the console's page of 1,000 tables, ten active: CPU of headless Chromium",
        "% of one core",
        2,
        _of("console", "1000-tables", "browser_ten_active_percent"),
    ),
    Goal("start to first commit", "s", 6, _of("start", "kill-9", "start_s")),
    Goal("start to first commit after kill -9", "s", 5.5, _of("start", "kill-9", "restart_s")),
    Goal("kill -9 of the leader to the standby's first commit: median", "s", 1, _of_kills("takeover_p50_s")),
    Goal("kill -9 of the leader to the standby's first commit: longest", "s", 2, _of_kills("takeover_max_s")),
    Goal("planned hand-over: age of the oldest record without a row", "s", 1.5, _of_kills("handover_freshness_max_s")),
    Goal("a standby: CPU", "% of one core", 3, _of_kills("standby_percent_of_core")),
    Goal("a standby: memory", "MB", 1000, _of_kills("peak_pss_mb")),
    Goal(
        "100 tables over three processes, one killed: all of its tables committed again",
        "s",
        3,
        _of("spread", "100-tables", "all_again_s"),
    ),
)
