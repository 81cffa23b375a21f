"""What groups cost beside an append of the same records, on the ports in memory: `python -m bench.groups`.

Processor time of tasks and commits in one process, without Kafka and Spark, in turn in one run; results on the terminal
only.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
from pathlib import Path

import structlog

from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.queries import SparkQueries
from frazil.runtime.light_jvm import LightJvm
from frazil.spec import load_spec
from frazil_testing.twins import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepWorkers, live_rows

_COLUMNS = "columns: {user: long, amount: long, ts: timestamptz}"
_GROUPS = "select user, count(*) as n, sum(amount) as total, max(ts) as newest from records group by user"
_MINUTES = (
    "select user % 100 as bucket, window.start as minute, count(*) as n, sum(amount) as total from records"
    " group by user % 100, window(ts, '1 minute')"
)


def _settings(variant: str) -> str:
    select = {"append": "", "groups": f", select: {json.dumps(_GROUPS)}"}.get(variant)
    return _COLUMNS + (f", select: {json.dumps(_MINUTES)}, late: 10m" if select is None else select)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(variant: str, source: MemorySource, queries: SparkQueries, records: int) -> float:
    """Returns the processor time in seconds for a million records. The table is compared with their number."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        head = 'pipeline: p\nkafka: {bootstrap.servers: "localhost:9092"}\n'
        path.write_text(f"{head}tables:\n  n.t: {{topic: a, {_settings(variant)}}}\n")
        catalog, clock = MemoryCatalog(Path(folder), "p"), FakeClock()
        services = Services(
            source,
            catalog,
            MemoryJobs(source, tasks=2, queries=queries),
            clock,
            StepWorkers(clock),
            queries=queries,
            reader=source,
        )
        began_s = _cpu_s()
        service = Service(load_spec(path, {}), services, "run", lambda _: None)
        service.connect()
        while not service.is_over(until_caught_up=True):
            service.turn(until_caught_up=True)
        used_s = _cpu_s() - began_s
        rows = live_rows(catalog, "n.t")
        counted = len(rows) if variant == "append" else sum(row["n"] for row in rows)
        if counted != records:
            raise RuntimeError(f"{variant}: the table has {counted} of {records} records")
        return used_s / records * 1e6


def main() -> None:
    """Prints the processor time of each variant, and the ratio to the append."""
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    source = MemorySource()
    source.create("a", 2)
    for number in range(options.records):
        second = number * 600 // options.records
        user, at = number * 7919 % options.groups, f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
        value = b'{"user": %d, "amount": %d, "ts": "%s"}' % (user, number % 1000, at.encode())
        source.produce("a", number % 2, value, 1_800_000_000_000)
    jvm = LightJvm({}, needs_spark_jars=True)
    gateway = jvm.gateway
    queries = SparkQueries(lambda: gateway.jvm)
    used: dict[str, list[float]] = {"append": [], "groups": [], "minutes": []}
    for variant in used:  # What is imported and compiled once.
        measure(variant, source, queries, options.records)
    for _ in range(options.runs):
        for variant, seconds in used.items():
            seconds.append(measure(variant, source, queries, options.records))
    jvm.close()
    append_s = statistics.median(used["append"])
    for variant, seconds in used.items():
        median_s = statistics.median(seconds)
        print(f"{variant}: {median_s:.2f} CPU s per million records, {median_s / append_s:.2f} x append")


if __name__ == "__main__":
    main()
