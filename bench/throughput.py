"""Throughput, CPU and memory: every subject reads the same topic from its beginning into a new table.

The figure of merit is CPU seconds per million records of the subject's whole process tree, from the moment its first
batch starts to the moment its last commit is visible; the same from the process's start stands beside it. The variants
`running` read a longer topic in batches of equal size and count from the first commit on: what a pipeline costs once its
process is warm.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path

from bench import subjects
from bench.arithmetic import value_at
from bench.place import Place, Run, Surroundings, say
from bench.running import Command, Running

_TIMEOUT_S = 600
_EXTRA_TRIES = 2
# `batch_planned`, the moment from which CPU is counted, is a line for debugging.
_LOG = ("--log-level", "debug")
STOCK_CODECS: dict[str, dict[str, str]] = {"zstd-3": {}, "zstd-1": {"write.parquet.compression-level": "1"}}
STOCK_JVM = "-XX:+UseParallelGC"


def measure(place: Place) -> None:
    """Frazil and stock Spark, each variant; the Kafka Connect sink brings its own harness."""
    for variant in place.settings.variants:
        metadata = variant.endswith("metadata")
        if "frazil" in place.settings.subjects:
            with place.attempt(f"throughput of frazil, {variant}"):
                _measure_frazil(place, variant, metadata)
        # Both codecs only where the ratio counts: the whole set has to end within 25 minutes.
        codecs = [] if variant == "running_metadata" else list(STOCK_CODECS)[: 1 if metadata else None]
        for codec in codecs if "stock" in place.settings.subjects else []:
            with place.attempt(f"throughput of stock spark, {variant}, {codec}"):
                _measure_stock(place, variant, codec, metadata)


def _measure_frazil(place: Place, variant: str, metadata: bool) -> None:
    topic, shown = place.json_topic(_records(place, variant)), {}  # type: str, dict[str, object]

    def one() -> Run:
        folder = place.run_folder(f"throughput-{variant}")
        pipeline = subjects.frazil_pipeline(
            folder, place.bootstrap, place.settings.heap, place.settings.catch_up_interval
        )
        command = subjects.frazil_table_command(
            place.settings.frazil, folder, pipeline, topic, metadata, "--until-caught-up", *_LOG
        )
        shown.update(pipeline=_without_folder((folder / "pipeline.yaml").read_text(), folder))
        return _one_run(place, command, variant)

    place.write_result("throughput", "frazil", variant, quietly(place, "frazil", variant, one), **shown)


def _measure_stock(place: Place, variant: str, codec: str, metadata: bool) -> None:
    topic, shown = place.json_topic(_records(place, variant)), {}  # type: str, dict[str, object]
    source = {"maxOffsetsPerTrigger": str(place.settings.records)}

    def one() -> Run:
        folder = place.run_folder(f"throughput-stock-{variant}")
        job = {
            **stock_job(place, topic, metadata),
            "trigger": "available",
            "properties": STOCK_CODECS[codec],
            "source": source,
        }
        command = subjects.stock_command(folder, job)
        shown.update(job=job)
        return _one_run(place, command, variant)

    label = f"{variant}-{codec}"
    place.write_result("throughput", "stock", label, quietly(place, "stock", label, one), **shown)


def _records(place: Place, variant: str) -> int:
    """How many records the topic of a variant has: one batch, or for a running process some more."""
    return place.settings.records * (1 + place.settings.running_batches * variant.startswith("running"))


def stock_job(place: Place, topic: str, metadata: bool) -> dict[str, object]:
    """What every job of stock Spark says."""
    return {
        "bootstrap": place.bootstrap,
        "topic": topic,
        "metadata": metadata,
        "heap": place.settings.heap,
        "jvm_options": STOCK_JVM,
    }


def quietly(place: Place, subject: str, label: str, one: Callable[[], Run]) -> list[Run]:
    """The runs that were asked for; one that other processes disturbed is repeated, at most twice in all."""
    runs: list[Run] = []
    wanted = place.settings.runs_of(subject)
    while len(runs) < wanted + _EXTRA_TRIES and sum(not run["noisy"] for run in runs) < wanted:
        runs.append(one())
        say(f"{subject} {label}: {json.dumps(runs[-1])}")
    return runs


def _one_run(place: Place, command: Command, variant: str) -> Run:
    total = _records(place, variant)
    warm = total - place.settings.records
    around = Surroundings(place)
    running = Running(command)
    try:
        warm_s = running.wait_for_rows(place.settings.records, _TIMEOUT_S)
        committed_s = running.wait_for_rows(total, _TIMEOUT_S)
        last_cpu = running.sampler.sample()
        roles = running.sampler.tree.cpu_by_role()
        code = running.wait(_TIMEOUT_S)
    except BaseException:
        running.kill()
        raise
    beside = around.end(total)
    if code:
        raise RuntimeError(f"{command.subject} ended with exit={code}: {running.tail()}")
    begun_s = warm_s if warm else _begun_s(running)
    records = warm or total
    cpu_s = last_cpu - value_at(running.sampler.cpu, begun_s)
    run: Run = {
        "records_per_s": round(records / (committed_s - begun_s)),
        "wall_s": round(committed_s - begun_s, 2),
        "startup_s": round(_begun_s(running) - running.started_s, 2),
        "cpu_s_per_million": round(cpu_s / records * 1e6, 3),
        "cpu_s_per_million_with_start": round(running.sampler.cpu[-1][1] / total * 1e6, 3),
        **{f"cpu_s_{role}": round(seconds, 2) for role, seconds in sorted(roles.items())},
        **memory(running),
        **_verified(place, command, variant, total),
        **beside,
    }
    place.discard(command.folder)
    return run


def _begun_s(running: Running) -> float:
    """When the first batch was about to start: offsets are known, Spark is up, no record has been read.

    Frazil plans while its session is still coming up: the later of the two counts.
    """
    planned = running.first_planned_s()
    if planned is not None:
        return max(planned, running.session_ready_s() or planned)
    progress = running.command.folder / "progress.json"
    if progress.exists():
        return _first_trigger_s(progress)
    raise RuntimeError(f"{running.command.subject} did not say when its first batch started: {running.tail()}")


def _first_trigger_s(progress: Path) -> float:
    first = json.loads(progress.read_text())[0]
    started = datetime.datetime.fromisoformat(first["timestamp"].replace("Z", "+00:00")).timestamp()
    asked_ms: float = first["durationMs"].get("latestOffset", 0)
    return started + asked_ms / 1000


def memory(running: Running) -> Run:
    """The tree's peak memory: summed per process, and with shared pages counted once."""
    return {
        "peak_rss_mb": round(running.sampler.peak_rss_bytes / 1e6),
        "peak_pss_mb": round(running.sampler.peak_pss_bytes / 1e6) or None,
    }


def _verified(place: Place, command: Command, variant: str, records: int) -> Run:
    """Compares the table with what was produced; a run that does not agree has no figure."""
    expected, found = place.pool.totals(records), command.table.totals()
    if found != expected:
        raise RuntimeError(f"{command.subject}: the table holds {found}, produced was {expected}")
    if variant.endswith("metadata") and (positions := command.table.positions()) != expected.rows:
        raise RuntimeError(f"{command.subject}: {positions} different positions for {expected.rows} records")
    return {
        "rows": found.rows,
        "snapshots": len(command.table.snapshots()),
        "files": len(command.table.files()),
        "size_mb": round(command.table.size_bytes() / 1e6, 1),
    }


def _without_folder(text: str, folder: Path) -> str:
    return text.replace(str(folder), "RUN")
