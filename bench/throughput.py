"""Throughput, CPU and memory: every subject reads the same topic from its beginning into a new table.

The figure of merit is CPU seconds per million records of the subject's whole process tree, from the moment its first
batch starts to the moment its last commit is visible; the same from the process's start stands beside it. The variants
`running`, and all that read other formats, read a longer topic in batches of equal size and count from the first big
commit on: what a pipeline costs once its process is warm.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path

from bench import subjects
from bench.arithmetic import records_of, rows_of, value_at
from bench.loads import Load, format_load, json_load
from bench.place import Place, Run, Surroundings, say
from bench.registry import Registry
from bench.running import Command, Running
from bench.settings import FORMAT_VARIANTS, LAYOUT_VARIANTS
from bench.topics import delete_topics

_TIMEOUT_S = 600
_EXTRA_TRIES = 2
# `batch_planned`, the moment from which CPU is counted, is a line for debugging.
DEBUG_LOG = ("--log-level", "debug")
STOCK_CODECS: dict[str, dict[str, str]] = {"zstd-3": {}, "zstd-1": {"write.parquet.compression-level": "1"}}
STOCK_JVM = "-XX:+UseParallelGC"


def measure(place: Place) -> None:
    """Frazil and stock Spark, each variant; the Kafka Connect sink brings its own harness."""
    for variant in place.settings.variants:
        if variant in FORMAT_VARIANTS:
            _measure_format(place, variant)
            continue
        metadata = variant.endswith("metadata")
        if "frazil" in place.settings.subjects:
            with place.attempt(f"throughput of frazil, {variant}"):
                _measure_frazil(place, variant, json_load(place, variant))
        # Both codecs only where the ratio counts: the whole set has to end within 45 minutes.
        is_own = variant == "running_metadata" or variant in LAYOUT_VARIANTS
        codecs = [] if is_own else list(STOCK_CODECS)[: 1 if metadata else None]
        for codec in codecs if "stock" in place.settings.subjects else []:
            with place.attempt(f"throughput of stock spark, {variant}, {codec}"):
                _measure_stock(place, variant, codec, metadata)


def _measure_format(place: Place, variant: str) -> None:
    """The topic is there for this variant alone: the disk does not hold all of them."""
    if "frazil" not in place.settings.subjects:
        return
    with place.attempt(f"throughput of frazil, {variant}"), Registry() as registry:
        load = format_load(place, registry, variant)
        try:
            _measure_frazil(place, variant, load)
        finally:
            delete_topics(place.bootstrap, [load.topic])


def _measure_frazil(place: Place, variant: str, load: Load) -> None:
    shown: dict[str, object] = {}

    def one() -> Run:
        folder = place.run_folder(f"throughput-{variant}")
        pipeline = subjects.frazil_pipeline(
            folder, place.bootstrap, place.settings.heap, place.settings.catch_up_interval
        )
        command = subjects.frazil_table_command(
            place.settings.frazil,
            folder,
            {**pipeline, **load.pipeline},
            load.topic,
            load.table,
            "--until-caught-up",
            *DEBUG_LOG,
        )
        shown.update(pipeline=_without_folder((folder / "pipeline.yaml").read_text(), folder))
        return one_run(place, command, load)

    place.write_result("throughput", "frazil", variant, quietly(place, "frazil", variant, one), **shown)


def _measure_stock(place: Place, variant: str, codec: str, metadata: bool) -> None:
    load, shown = json_load(place, variant), {}  # type: Load, dict[str, object]
    source = {"maxOffsetsPerTrigger": str(place.settings.records)}

    def one() -> Run:
        folder = place.run_folder(f"throughput-stock-{variant}")
        job = {
            **stock_job(place, load.topic, metadata),
            "trigger": "available",
            "properties": STOCK_CODECS[codec],
            "source": source,
        }
        command = subjects.stock_command(folder, job)
        shown.update(job=job)
        return one_run(place, command, load)

    label = f"{variant}-{codec}"
    place.write_result("throughput", "stock", label, quietly(place, "stock", label, one), **shown)


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


def one_run(place: Place, command: Command, load: Load, *, ends: bool = True) -> Run:
    """The command from its start to its end, its table compared with what the load has. ends: by itself, else by SIGTERM."""
    around = Surroundings(place)
    running = Running(command)
    dead_letters = command.table.dead_letters()
    try:
        warm_s = running.wait_for_rows(rows_of(load.warm, load.rows, load.total), _TIMEOUT_S)
        warm = records_of(command.table.committed(), load.rows, load.total) if load.warm else 0
        committed_s = running.wait_for_rows(load.rows, _TIMEOUT_S)
        if load.dead_letters:
            committed_s = running.wait_for_rows(load.dead_letters, _TIMEOUT_S, table=dead_letters)
        last_cpu = running.sampler.sample()
        roles = running.sampler.tree.cpu_by_role()
        code = running.wait(_TIMEOUT_S) if ends else running.stop()
    except BaseException:
        running.kill()
        raise
    beside = around.end(load.total)
    if code:
        raise RuntimeError(f"{command.subject} ended with exit={code}: {running.tail()}")
    # A topic that the first commit has whole is too small to be warm for: all of it counts.
    is_warm = 0 < warm < load.total
    since_s, records = (warm_s, load.total - warm) if is_warm else (begun_s(running), load.total)
    cpu_s = last_cpu - value_at(running.sampler.cpu, since_s)
    run: Run = {
        "records_per_s": round(records / (committed_s - since_s)),
        "wall_s": round(committed_s - since_s, 2),
        "startup_s": round(begun_s(running) - running.started_s, 2),
        "cpu_s_per_million": round(cpu_s / records * 1e6, 3),
        "counted_records": records,
        "cpu_s_per_million_with_start": round(running.sampler.cpu[-1][1] / load.total * 1e6, 3),
        **{f"cpu_s_{role}": round(seconds, 2) for role, seconds in sorted(roles.items())},
        **memory(running),
        **_verified(command, load),
        **beside,
    }
    place.discard(command.folder)
    return run


def begun_s(running: Running) -> float:
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


def _verified(command: Command, load: Load) -> Run:
    """Compares the table with what was produced; a run that does not agree has no figure."""
    if (found := load.found(command.table)) != load.expected:
        raise RuntimeError(f"{command.subject}: the table holds {found}, produced was {load.expected}")
    if "metadata" in load.table and (positions := command.table.positions()) != load.rows:
        raise RuntimeError(f"{command.subject}: {positions} different positions for {load.rows} records")
    dead_letters = command.table.dead_letters()
    committed, places = dead_letters.committed(), dead_letters.positions("partition", "offset")
    if (committed, places) != (load.dead_letters, load.dead_letters):
        raise RuntimeError(
            f"{command.subject}: {committed} dead letters of {places} records, produced were {load.dead_letters} bad ones"
        )
    return {
        "rows": load.rows,
        "dead_letters": load.dead_letters,
        "snapshots": len(command.table.snapshots()),
        "files": len(command.table.files()),
        "size_mb": round(command.table.size_bytes() / 1e6, 1),
    }


def _without_folder(text: str, folder: Path) -> str:
    return text.replace(str(folder), "RUN")
