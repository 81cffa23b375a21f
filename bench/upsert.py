"""Upserts: the first load against append, a steady stream of changes, and scattered updates of a large table.

Run as `python -m bench upsert scattered`. Every number comes from outside: the log's `took_s` from plan to commit, CPU of
the process tree, snapshots as a reader of the catalog sees them. Every table is compared with what its changes come to.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import numpy
from pyiceberg.table import StaticTable

from bench import reads, subjects
from bench.arithmetic import value_at
from bench.machine import CLOCK, now_s
from bench.place import Place, Run, Surroundings, say
from bench.rewrite import COMPACTED, NAME, READS_FILE
from bench.running import Command, Running
from bench.table import Table, local_path
from bench.throughput import DEBUG_LOG, STOCK_JVM, begun_s, memory
from bench.topics import delete_topics
from bench.upsert_feed import Changes, Sights, committed, mirror_of

_TOOK = re.compile(rb"batch_committed.* records=(\d+).*took_s=([0-9.]+)")
_ANSI = re.compile(rb"\x1b\[[0-9;]*m")
_COLUMNS = {"id": "long", "v": "long", "s": "string", "ts": "long"}
_UPSERT: Mapping[str, object] = {
    "mode": "upsert",
    "key": {"format": "json"},
    "key_columns": ["id"],
    "columns": _COLUMNS,
}
_APPEND: Mapping[str, object] = {"columns": _COLUMNS}
_ROUNDS, _NOT_COUNTED = 10, 2
_SCATTERED = 1000
_LONG_S = 3600.0


def measure(place: Place) -> None:
    """The load and the stream, which goes on with the load's topic."""
    settings = place.settings
    changes = Changes(place, settings.upsert_keys + 2 * settings.upsert_rate * settings.upsert_seconds)
    say(f"filling {changes.topic}")
    changes.insert(settings.upsert_keys)
    if "frazil" in settings.subjects:
        with place.attempt("first load"):
            variants = {"append": _APPEND, "upsert": _UPSERT}
            pairs = [[_load(place, changes, table) for table in variants.values()] for _ in range(settings.runs)]
            for variant, runs in zip(variants, zip(*pairs, strict=True), strict=True):
                place.write_result("upsert", "frazil", f"load-{variant}", list(runs))
        with place.attempt("steady changes"):
            place.write_result("upsert", "frazil", "steady", [_steady(place, changes)])
    if "stock" in settings.subjects:
        with place.attempt("steady changes, merge into"):
            place.write_result("upsert", "stock", "steady", [_merged(place, changes)])
    delete_topics(place.bootstrap, [changes.topic])


def measure_scattered(place: Place) -> None:
    """Scattered updates of a table of `upsert_rows`, which take as long as it takes to fill that."""
    with place.attempt("scattered updates"):
        place.write_result("upsert", "frazil", f"scattered-{place.settings.upsert_rows}", [_scattered(place)])


def _command(place: Place, changes: Changes, table: Mapping[str, object], *options: str) -> Command:
    folder, settings = place.run_folder("upsert"), place.settings
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.upsert_interval)
    return subjects.frazil_table_command(settings.frazil, folder, pipeline, changes.topic, table, *options, *DEBUG_LOG)


def _load(place: Place, changes: Changes, table: Mapping[str, object]) -> Run:
    """CPU of the first load by a new process, counted as throughput is: from the first plan on."""
    count = sum(changes.ends)
    around = Surroundings(place)
    running = Running(_command(place, changes, table, "--until-caught-up"))
    if running.wait(_LONG_S):
        raise RuntimeError(running.tail())
    series = running.sampler.cpu
    cpu_s = series[-1][1] - value_at(series, begun_s(running))
    run: Run = {"records": count, "cpu_s_per_million": round(cpu_s / count * 1e6, 3), **around.end(count)}
    run |= {"cpu_s_per_million_with_start": round(series[-1][1] / count * 1e6, 3), **memory(running)}
    return _verified(place, running, changes, run)


def measure_copies(place: Place) -> None:
    """A stream of changes to the branch of a large table, which is published every five minutes with and without delete
    files.
    """
    settings = place.settings
    for mode in ("merge_on_read", "copy_on_write"):
        with place.attempt(f"published by {mode}"):
            changes = Changes(place, settings.upsert_keys + settings.upsert_rate * settings.upsert_seconds)
            changes.insert(settings.upsert_keys)
            published = {**_UPSERT, "branch": "ingest", "publish": {"every": "5m"}, "delete_mode": mode}
            running = Running(_command(place, changes, published))
            try:
                _wait(running, changes)
                around = Surroundings(place)
                run = _streamed(place, running, changes, settings.upsert_seconds, lambda: _wait(running, changes))  # noqa: B023
                run |= {**around.end(), **memory(running)}
                run["publishes"] = running.log.read_text(errors="replace").count("table_published")
                running.stop_well()
            except BaseException:
                running.kill()
                raise
            place.write_result("copies", "frazil", mode, [run])
            delete_topics(place.bootstrap, [changes.topic])


def _scattered(place: Place) -> Run:
    """From plan to commit of batches of 1,000 updates of keys all over the table."""
    rows = place.settings.upsert_rows
    changes = Changes(place, rows)
    say(f"filling {changes.topic}")
    changes.insert(rows)
    running, rng = Running(_command(place, changes, _UPSERT)), numpy.random.default_rng(2)
    try:
        _wait(running, changes)
        around = Surroundings(place)
        for version in range(1, _ROUNDS + 1):
            for key in rng.choice(rows, _SCATTERED, replace=False).tolist():
                changes.put(key, version)
            changes.flush()
            _wait(running, changes)
            CLOCK.sleep(1.0)
        beside = around.end()
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    took = [seconds for records, seconds in _batches(running.log) if records == _SCATTERED][_NOT_COUNTED:]
    run: Run = {"rows": rows, "batches": len(took), "took_median_s": median(took), "took_max_s": max(took), **beside}
    run = _verified(place, running, changes, {**run, **memory(running)})
    delete_topics(place.bootstrap, [changes.topic])
    return run


def _steady(place: Place, changes: Changes) -> Run:
    """Freshness of a stream of changes (80 % updates, 10 % inserts, 10 % deletes), and what a full read costs afterwards."""
    settings = place.settings
    running = Running(_command(place, changes, _UPSERT))
    table = running.command.table
    try:
        _wait(running, changes)
        around, sights = Surroundings(place), Sights(table, running.command.folder.name, changes)
        run = _streamed(place, running, changes, settings.upsert_seconds, lambda: _wait(running, changes))
        p50, p99 = sights.stop()
        beside = around.end()
        # Read later, when nothing else runs; its files stay as long as its snapshot does.
        at_once = shutil.copy(local_path(table.location()), running.command.folder / "at-once.metadata.json")
        rested_s = _rested(running, table, settings.upsert_rest_s)
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    run |= {"p50_ms": p50, "p99_ms": p99, **beside, **memory(running), **_reads(place, table, f"file://{at_once}")}
    run["rested_s"] = rested_s
    return _verified(place, running, changes, run)


def _merged(place: Place, changes: Changes) -> Run:
    """The CPU of stock Spark's `MERGE INTO` for a stretch of the same stream."""
    settings, folder, ends = place.settings, place.run_folder("upsert-merge"), changes.ends
    job: dict[str, object] = {
        "bootstrap": place.bootstrap,
        "topic": changes.topic,
        "heap": settings.heap,
        "jvm_options": STOCK_JVM,
    }
    job |= {"ends": ends, "conf": {"spark.sql.shuffle.partitions": "4"}}
    running = Running(subjects.stock_command(folder, job, "bench.merge"))
    try:
        _until(running, (folder / "loaded").exists)
        around = Surroundings(place)
        merged = _merged_to(folder / "checkpoint", changes)
        run = _streamed(place, running, changes, settings.merge_seconds, lambda: _until(running, merged))
        beside = around.end()
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    return _verified(place, running, changes, {**run, **beside, **memory(running)})


def _streamed(place: Place, running: Running, changes: Changes, seconds: int, wait: Callable[[], None]) -> Run:
    """A stretch of the stream; CPU until all of it is committed."""
    rate, before, began_s = place.settings.upsert_rate, sum(changes.ends), now_s()
    cpu_s = running.sampler.sample()
    changes.stream(rate, seconds, seed=3)
    fed_s = now_s()
    wait()
    count, cpu_s = sum(changes.ends) - before, running.sampler.sample() - cpu_s
    return {
        "rate_per_s": rate,
        "changes": count,
        "behind_s": round(now_s() - fed_s, 1),
        "cores": round(cpu_s / (now_s() - began_s), 3),
        "cpu_s_per_million": round(cpu_s / count * 1e6, 2),
    }


def _wait(running: Running, changes: Changes) -> None:
    """Until all that was told is committed."""
    pipeline = running.command.folder.name
    _until(running, lambda: committed(running.command.table, pipeline) >= changes.ends)


def _merged_to(checkpoint: Path, changes: Changes) -> Callable[[], bool]:
    """Whether the newest micro-batch that is done reaches the end of what was told."""

    def is_done() -> bool:
        commits = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
        if not commits:
            return False
        found = json.loads((checkpoint / "offsets" / str(max(commits))).read_text().splitlines()[-1])[changes.topic]
        return all(found.get(str(number), 0) >= end for number, end in enumerate(changes.ends))

    return is_done


def _until(running: Running, is_done: Callable[[], bool]) -> None:
    deadline = CLOCK.monotonic_s() + _LONG_S
    while not is_done():
        running.check()
        if CLOCK.monotonic_s() > deadline:
            raise RuntimeError(running.tail())
        CLOCK.sleep(0.1)


def _reads(place: Place, table: Table, at_once: str) -> Run:
    """Seconds of a full read, deletes taken off, beside that of the same rows written anew, by several readers.

    at_once: the metadata file of the table as it was right after its last change.
    """
    locations, folder = {"at_once": at_once, "full": table.location()}, table.catalog.parent
    job = {"heap": place.settings.heap, "jvm_options": STOCK_JVM, "locations": locations}
    rewriting = Running(subjects.stock_command(folder, job, "bench.rewrite"))
    if rewriting.wait(_LONG_S):
        raise RuntimeError(rewriting.tail())
    anew = {name: Table(table.catalog, table.namespace, name).location() for name in (NAME, COMPACTED)}
    locations |= anew
    took = {"spark": json.loads((folder / READS_FILE).read_text()), **reads.seconds(locations)}
    run: Run = {"rewritten_read_s": round(took["pyiceberg"][NAME], 2)}
    for reader, found in took.items():
        run[f"{reader}_at_once"] = round(found["at_once"] / found[NAME], 3)
        run[f"{reader}_rested"] = round(found["full"] / found[NAME], 3)
        run[f"{reader}_at_once_compacted"] = round(found["at_once"] / found[COMPACTED], 3)
        run[f"{reader}_rested_compacted"] = round(found["full"] / found[COMPACTED], 3)
    return {
        **run,
        "deleted_share_at_once": round(_deleted_share(at_once), 3),
        "data_files_at_once": _data_files(at_once),
        "data_files": _data_files(table.location()),
        "data_files_anew": _data_files(anew[NAME]),
        "data_files_compacted": _data_files(anew[COMPACTED]),
    }


def _data_files(location: str) -> int:
    return int(StaticTable.from_metadata(location).inspect.data_files().num_rows)


def _deleted_share(location: str) -> float:
    """Of the rows in data files, those that vectors delete."""
    snapshot = StaticTable.from_metadata(location).current_snapshot()
    summary = snapshot.summary if snapshot is not None else None
    if summary is None:
        return 0.0
    return int(summary["total-position-deletes"] or 0) / max(1, int(summary["total-records"] or 0))


def _rested(running: Running, table: Table, most_s: float) -> float:
    """Leaves the pipeline alone until no row of the table is deleted by a file of its own, or for `most_s`; how long."""
    began_s = CLOCK.monotonic_s()
    while CLOCK.monotonic_s() < began_s + most_s:
        running.check()
        snapshot = StaticTable.from_metadata(table.location()).current_snapshot()
        if snapshot is None or snapshot.summary is None or snapshot.summary["total-delete-files"] == "0":
            break
        CLOCK.sleep(1.0)
    return round(CLOCK.monotonic_s() - began_s, 1)


def _batches(log: Path) -> list[tuple[int, float]]:
    """Records and seconds of every committed batch, as the log says."""
    lines = (_ANSI.sub(b"", line) for line in log.read_bytes().splitlines())
    return [(int(found[1]), float(found[2])) for line in lines if (found := _TOOK.search(line))]


def _verified(place: Place, running: Running, changes: Changes, run: Run) -> Run:
    """Compares the table with what its changes come to; a run that does not agree has no figure."""
    if (found := mirror_of(running.command.table)) != changes.mirror:
        raise RuntimeError(f"{running.command.subject}: the table holds {found}, the changes come to {changes.mirror}")
    say(json.dumps(run))
    place.discard(running.command.folder)
    return run
