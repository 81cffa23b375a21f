"""Freshness: from the moment a record was produced to the moment a reader of the catalog could see its snapshot.

Each record carries its own time. A process beside asks the catalog every 5 ms which metadata file is current; then
every data file is read again and each of its records gets the first sight of the snapshot that added the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
import pyarrow.parquet as pq

from bench import subjects
from bench.arithmetic import first_seen_ms
from bench.feeding import feed_steadily
from bench.place import PARTITIONS, Place, Run, Surroundings, say
from bench.running import Command, Running
from bench.table import Table
from bench.throughput import memory, stock_job
from bench.topics import Fed, Feed, Feeder, delete_topics, make_topics
from bench.watch import Watcher
from frazil.clock import new_id

# Ages are read from the files that the commits added: none may be rewritten, no snapshot may expire. `maintenance` measures
# freshness beside table maintenance.
WITHOUT_MAINTENANCE = {"maintenance": False}
_FIRST_COMMIT_S = 120
_TAIL_S = 60
_QUANTILES = [0.0, *range(1, 100), 99.9, 100.0]


def measure(place: Place) -> None:
    """Frazil and stock Spark at the same rate; the Kafka Connect sink brings its own harness."""
    settings = place.settings

    def frazil(folder: Path, topic: str) -> Command:
        pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.interval)
        return subjects.frazil_table_command(settings.frazil, folder, pipeline, topic, WITHOUT_MAINTENANCE)

    def stock(folder: Path, topic: str) -> Command:
        return subjects.stock_command(folder, {**stock_job(place, topic, False), "trigger": settings.stock_trigger})

    for subject, command in (("frazil", frazil), ("stock", stock)):
        if subject in settings.subjects:
            with place.attempt(f"freshness of {subject}"):
                run = _one_run(place, subject, command)
                say(f"{subject}: {json.dumps({name: value for name, value in run.items() if name != 'quantiles_ms'})}")
                variant = settings.interval if subject == "frazil" else settings.stock_trigger.replace(" ", "-")
                place.write_result("freshness", subject, variant, [run])


def _one_run(place: Place, subject: str, command: Callable[[Path, str], Command]) -> Run:
    folder, topic = place.run_folder(f"freshness-{subject}"), f"bench_fresh_{new_id()[:8]}"
    settings, seconds = place.settings, place.settings.seconds_of(subject)
    make_topics(place.bootstrap, [topic], PARTITIONS)
    around = Surroundings(place)
    feed = Feed(place.bootstrap, [topic], PARTITIONS, settings.rate, settings.warm_seconds, seconds)
    before = first_records(feed)
    running = Running(command(folder, topic))
    watcher = Watcher(running.command.table, folder / "seen.log")
    try:
        running.wait_for_rows(before, _FIRST_COMMIT_S)
        fed, cores = feed_steadily(running, feed, around)
        beside = around.end()
        running.wait_for_rows(before + fed.warm + fed.measured, _TAIL_S)
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    finally:
        seen = watcher.stop()
    run: Run = {"rate_per_s": settings.rate, "seconds": seconds, "cores": cores, **memory(running), **beside}
    run |= ages_of(running.command.table, seen, fed)
    place.discard(folder)
    delete_topics(place.bootstrap, [topic])
    return run


def first_records(feed: Feed) -> int:
    """One second of records that are not measured, so that the first commit does not have to wait for the feed."""
    feeder = Feeder(Feed(feed.bootstrap, feed.topics, feed.partitions, feed.rate, 1.0, 0.0))
    return feeder.finish().warm


def ages_of(table: Table, seen: dict[int, int], fed: Fed) -> Run:
    """The percentiles of the age of every measured record when it could first be read."""
    snapshots = table.snapshots()
    visible = first_seen_ms([snapshot.id for snapshot in snapshots], seen)
    ages = numpy.concatenate([_ages_in(path, visible[snapshot]) for snapshot, path in table.files()])
    if len(ages) != fed.measured:
        raise RuntimeError(f"the table holds {len(ages)} measured records, produced were {fed.measured}")
    times = [visible[one.id] for one in snapshots if fed.start_ms <= visible[one.id] <= fed.end_ms]
    p50, p95, p99 = (round(float(value), 1) for value in numpy.percentile(ages, [50, 95, 99]))
    return {
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "max_ms": float(ages.max()),
        "measured_records": len(ages),
        "commits": len(times),
        **_gaps(times),
        "files": len(table.files()),
        "producer_worst_late_ms": fed.worst_late_ms,
        "quantiles_ms": [round(float(value)) for value in numpy.percentile(ages, _QUANTILES)],
    }


def _ages_in(path: Path, visible_ms: int) -> numpy.ndarray:
    rows = pq.read_table(path, columns=["id", "ts"], partitioning=None)
    ages = visible_ms - rows["ts"].to_numpy() / 1000
    return numpy.asarray(ages[rows["id"].to_numpy() > 0])


def _gaps(times_ms: Sequence[int]) -> Run:
    gaps = numpy.diff(numpy.asarray(times_ms))
    return (
        {"commit_gap_median_ms": float(numpy.median(gaps)), "commit_gap_max_ms": float(gaps.max())} if len(gaps) else {}
    )
