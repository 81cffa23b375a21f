"""The Kafka Connect Iceberg sink, measured by its own benchmark where that is present, unmodified, on our broker.

Its folder is read only: all that it fetches and writes goes to the cache. Its numbers are renamed to ours, no more.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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
    if "connect" not in place.settings.subjects or (harness := _harness(place)) is None:
        return
    with place.attempt("throughput of kafka connect"):
        _throughput(place, harness)
    with place.attempt("freshness of kafka connect"):
        runs, settings = _freshness(place, harness, 1, {})
        place.write_result("freshness", "connect", f"{_COMMIT_MS}ms", runs, peer_settings=settings)


def figures(place: Place) -> Iterator[tuple[str, list[Run], str]]:
    """Yields what `bench.figures` measures of every subject: the measurement's name, its runs, the sink's setting."""
    if (harness := _harness(place)) is None:
        return
    with place.attempt("load of kafka connect"):
        _, longer, _ = _new_and_running(place, harness)
        yield "load", longer, ""
    with place.attempt("freshness of kafka connect"):
        more = {"RATE": str(place.settings.rate), "WARM_S": str(place.settings.warm_seconds)}
        runs, _ = _freshness(place, harness, place.settings.peer_runs, more)
        yield "fresh", runs, "commit each second"


def recovery(place: Place) -> list[Run]:
    """Kills the sink once in each run, at a random moment after its first commit; the seconds to its next commit."""
    if (harness := _harness(place)) is None:
        return []
    more = {"RUNS": str(place.settings.peer_runs), "KILLS": "1", "RECORDS": "0"}
    # Most of the time is a timeout of consumer groups: other processes make no difference.
    runs = _answer(harness, "kill", {**more, "QUIET_CORES": str(os.cpu_count())})["runs"]
    return [{"recovered_s": run["restart_to_next_commit_s"]} for run in runs]


@dataclasses.dataclass(frozen=True)
class _Harness:
    """The sink's own benchmark: its script, its environment, and the folder that it writes to."""

    script: Path
    environment: Mapping[str, str]
    work: Path


def _harness(place: Place) -> _Harness | None:
    """Returns the benchmark with its jars fetched, or None where it is not present."""
    script = place.settings.connect_folder / "bench.sh"
    if not script.exists():
        say("kafka connect: skipped, its benchmark is not here; name its folder in FRAZIL_PEER_BENCH or --peer")
        return None
    work = place.settings.cache / "kafka-connect"
    harness = _Harness(script, _environment(place, work), work)
    if not (work / "build" / "PollStamp.class").exists():
        say("kafka connect: fetching its jars")
        _drive(harness, "fetch", {})
    return harness


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


def _throughput(place: Place, harness: _Harness) -> None:
    new, running, settings = _new_and_running(place, harness)
    place.write_result("throughput", "connect", "plain", new, peer_settings=settings)
    place.write_result("throughput", "connect", "running", running, peer_settings=settings)


def _new_and_running(place: Place, harness: _Harness) -> tuple[list[Run], list[Run], dict[str, Any]]:
    """The first batch of a new process; from a longer topic, what the process costs once that is behind it; settings."""
    few = place.settings.records
    many = few * (1 + place.settings.running_batches)
    new, _ = _runs(place, harness, few)
    longer, settings = _runs(place, harness, many)
    return new, after_first(longer, many, float(median(_cpu(run) for run in new)), few), settings


def _runs(place: Place, harness: _Harness, records: int) -> tuple[list[Run], dict[str, Any]]:
    topic, results = place.topic(JSON_TOPIC, place.pool, records), place.run_folder("connect") / "throughput.json"
    more = {"TOPIC": topic, "RECORDS": str(records), "RUNS": str(place.settings.peer_runs), "RESULTS": str(results)}
    _drive(harness, "throughput", more)
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


def _freshness(place: Place, harness: _Harness, runs: int, more: Mapping[str, str]) -> tuple[list[Run], dict[str, Any]]:
    settings = {
        "RATE": str(_RATE),
        "SECONDS_": str(place.settings.peer_seconds),
        "COMMITS": str(_COMMIT_MS),
        "RUNS": str(runs),
    }
    answer = _answer(harness, "freshness", {**settings, **more})
    return [renamed(run, _FRESHNESS) for run in answer["runs"]], answer["settings"]


def _answer(harness: _Harness, command: str, more: Mapping[str, str]) -> dict[str, Any]:
    """Runs one command; what it wrote into its newest file of results."""
    _drive(harness, command, more)
    newest = max((harness.work / "results").glob(f"{command}-*.json"), key=lambda path: path.stat().st_mtime)
    answer: dict[str, Any] = json.loads(newest.read_text())
    return answer


def renamed(run: Mapping[str, Any], names: Mapping[str, str]) -> Run:
    """A run of the sink's benchmark in our words."""
    return {ours: run[theirs] for theirs, ours in names.items() if theirs in run}


def _drive(harness: _Harness, command: str, more: Mapping[str, str]) -> None:
    """Runs one command of the sink's benchmark to its end; its output is kept, and shown when it fails."""
    work = harness.work
    work.mkdir(parents=True, exist_ok=True)
    log = work / f"{command}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", str(harness.script), command],
            cwd=work,
            env={**harness.environment, **more},
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
