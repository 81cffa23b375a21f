"""The Kafka Connect Iceberg sink, measured by its own benchmark where that is present, unmodified, on our broker.

Its folder is read only: all that it fetches and writes goes to the cache. Its numbers are renamed to ours, no more.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.place import JSON_TOPIC, Place, Run, say
from bench.tree import Tree

_NEEDS = ("confluent_kafka", "pyiceberg", "pyarrow", "duckdb", "numpy")
_RATE, _COMMIT_MS, _HEAP = 2000, 1000, "2g"
_TIMEOUT_S = 900
_THROUGHPUT = {
    "rps_committed": "records_per_s",
    "rps_steady": "records_per_s_steady",
    "wall_s": "wall_s",
    "startup_s": "startup_s",
    "cpu_s_per_M": "cpu_s_per_million",
    "cpu_s_per_M_with_jvm_start": "cpu_s_per_million_with_start",
    "broker_cpu_s_per_M": "broker_cpu_s_per_million",
    "peak_rss_mb": "peak_rss_mb",
    "rows": "rows",
    "snapshots": "snapshots",
    "files": "files",
    "mb": "size_mb",
    "quiet_before": "quiet_before_cores",
    "speed_before": "speed_before_mb_per_s",
    "other_cores": "other_cores",
    "noisy": "noisy",
}
_FRESHNESS = {
    "rate": "rate_per_s",
    "secs": "seconds",
    "p50_ms": "p50_ms",
    "p95_ms": "p95_ms",
    "p99_ms": "p99_ms",
    "max_ms": "max_ms",
    "seen": "measured_records",
    "snapshots": "commits",
    "commit_gap_median_ms": "commit_gap_median_ms",
    "commit_gap_max_ms": "commit_gap_max_ms",
    "connect_cores": "cores",
    "producer_late_ms": "producer_worst_late_ms",
    "quiet_before": "quiet_before_cores",
    "other_cores": "other_cores",
}


def measure(place: Place) -> None:
    """Throughput over the big topic and freshness at the rate that the sink's own page uses."""
    if "connect" not in place.settings.subjects:
        return
    script = place.settings.connect_folder / "bench.sh"
    if not script.exists():
        say("kafka connect: skipped, its benchmark is not here; name its folder in FRAZIL_PEER_BENCH or --peer")
        return
    work = place.settings.cache / "kafka-connect"
    environment = _environment(place, work)
    if not (work / "build" / "PollStamp.class").exists():
        say("kafka connect: fetching its jars")
        _drive(script, "fetch", environment, work)
    with place.attempt("throughput of kafka connect"):
        _throughput(place, script, environment, work)
    with place.attempt("freshness of kafka connect"):
        _freshness(place, script, environment, work)


def _environment(place: Place, work: Path) -> dict[str, str]:
    environment = {
        **os.environ,
        "WORK": str(work),
        "BOOTSTRAP": place.bootstrap,
        "BROKER_PID": str(place.broker_pid or ""),
        "HEAP": place.settings.heap or _HEAP,
        "QUIET_CORES": str(place.settings.quiet_cores),
    }
    if all(importlib.util.find_spec(name) for name in _NEEDS):
        environment["PY"] = sys.executable
    return environment


def _throughput(place: Place, script: Path, environment: Mapping[str, str], work: Path) -> None:
    """The first batch of a new process; and, from a topic that is longer, what the process costs once that is behind it."""
    few = place.settings.records
    many = few * (1 + place.settings.running_batches)
    new, settings = _runs(place, script, environment, work, few)
    place.write_result("throughput", "connect", "plain", new, peer_settings=settings)
    longer, settings = _runs(place, script, environment, work, many)
    running = after_first(longer, many, float(median(_cpu(run) for run in new)), few)
    place.write_result("throughput", "connect", "running", running, peer_settings=settings)


def _runs(
    place: Place, script: Path, environment: Mapping[str, str], work: Path, records: int
) -> tuple[list[Run], dict[str, Any]]:
    topic, results = place.topic(JSON_TOPIC, place.pool, records), place.run_folder("connect") / "throughput.json"
    more = {"TOPIC": topic, "RECORDS": str(records), "RUNS": str(place.settings.peer_runs), "RESULTS": str(results)}
    _drive(script, "throughput", {**environment, **more}, work)
    answer = json.loads(results.read_text())
    runs = [renamed(run, _THROUGHPUT) for run in answer["runs"] + answer["noisy_runs"]]
    wrong = [run["rows"] for run in runs if run["rows"] != records]
    if wrong:
        raise RuntimeError(f"the sink's table holds rows={wrong}, produced were {records}")
    return runs, answer["settings"]


def _cpu(run: Run) -> float:
    value = run["cpu_s_per_million"]
    assert isinstance(value, float | int)
    return float(value)


def after_first(runs: Sequence[Run], records: int, first_cpu: float, first: int) -> list[Run]:
    """The runs over `records` without their first ones, which cost what a run over `first` alone has cost; CPU seconds per
    million. Records per second are the sink's own steady ones.
    """
    rest = records - first
    return [
        {
            **run,
            "cpu_s_per_million": round((_cpu(run) * records - first_cpu * first) / rest, 3),
            "records_per_s": run["records_per_s_steady"],
            "counted_records": rest,
        }
        for run in runs
    ]


def _freshness(place: Place, script: Path, environment: Mapping[str, str], work: Path) -> None:
    more = {
        "RATE": str(_RATE),
        "SECONDS_": str(place.settings.peer_seconds),
        "COMMITS": str(_COMMIT_MS),
        "RUNS": "1",
    }
    _drive(script, "freshness", {**environment, **more}, work)
    newest = max((work / "results").glob("freshness-*.json"), key=lambda path: path.stat().st_mtime)
    answer = json.loads(newest.read_text())
    runs = [renamed(run, _FRESHNESS) for run in answer["runs"]]
    place.write_result("freshness", "connect", f"{_COMMIT_MS}ms", runs, peer_settings=answer["settings"])


def renamed(run: Mapping[str, Any], names: Mapping[str, str]) -> Run:
    """A run of the sink's benchmark in our words."""
    return {ours: run[theirs] for theirs, ours in names.items() if theirs in run}


def _drive(script: Path, command: str, environment: Mapping[str, str], work: Path) -> None:
    """Runs one command of the sink's benchmark to its end; its output is kept, and shown when it fails."""
    work.mkdir(parents=True, exist_ok=True)
    log = work / f"{command}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", str(script), command],
            cwd=work,
            env=dict(environment),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        tree = Tree(process.pid)
        try:
            code = process.wait(_TIMEOUT_S)
        except BaseException:
            tree.kill()
            raise
    if code:
        raise RuntimeError(f"the sink's benchmark failed at command={command}: {log.read_text()[-2000:]}")
