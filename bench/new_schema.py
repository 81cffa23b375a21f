"""A new schema in mid-stream: from one record to the next the producer has a field more. For how long is the table behind?

Each record carries its own time, and a process beside notes when every snapshot could first be seen. The table is behind
while the newest record that a reader sees is 2 s old or older; counted is from the first record of the new schema.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy
import pyarrow.parquet as pq

from bench import subjects
from bench.arithmetic import back_under_s, first_seen_ms
from bench.encoded import ADDED, TimedAvro, avro_schema
from bench.feeding import feed_steadily
from bench.freshness import WITHOUT_MAINTENANCE
from bench.place import PARTITIONS, Place, Run, Surroundings, say
from bench.registry import Registry
from bench.running import Running
from bench.table import Table
from bench.throughput import memory
from bench.topics import Fed, Feed, Feeder, delete_topics, make_topics
from bench.watch import Watcher
from frazil.clock import new_id

_FIRST_COMMIT_S = 120
_TAIL_S = 60
_BEHIND_MS = 2000
# What comes this long after the table had caught up was not the schema's doing.
_HOLD_MS = 10_000


def measure(place: Place) -> None:
    """Each run starts Frazil on Avro at a steady rate; after a third of the time the schema changes."""
    if "frazil" in place.settings.subjects:
        with place.attempt("new_schema"):
            runs = []
            for _ in range(place.settings.runs):
                with Registry() as registry:
                    runs.append(_one_run(place, registry))
                say(f"frazil: {json.dumps(runs[-1])}")
            place.write_result("new_schema", "frazil", place.settings.interval, runs)


def _one_run(place: Place, registry: Registry) -> Run:
    folder, topic = place.run_folder("new-schema"), f"bench_schema_{new_id()[:8]}"
    settings, seconds = place.settings, place.settings.schema_seconds
    old, new = (registry.register(f"{topic}-value", "AVRO", avro_schema(is_new)) for is_new in (False, True))
    value = TimedAvro(old, new, settings.rate * seconds // 3)
    make_topics(place.bootstrap, [topic], PARTITIONS)
    feed = Feed(place.bootstrap, [topic], PARTITIONS, settings.rate, settings.warm_seconds, seconds, value)
    around = Surroundings(place)
    before = Feeder(dataclasses.replace(feed, warm_seconds=1.0, seconds=0.0)).finish().warm
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.interval)
    pipeline["registry"] = {"url": registry.url}
    table = {"value": {"format": "avro"}, **WITHOUT_MAINTENANCE}
    running = Running(subjects.frazil_table_command(settings.frazil, folder, pipeline, topic, table))
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
    measured = _measured(running.command.table, seen, fed, value.changes_at)
    place.discard(folder)
    delete_topics(place.bootstrap, [topic])
    return {"rate_per_s": settings.rate, **measured, "cores": cores, **memory(running), **beside}


def _measured(table: Table, seen: dict[int, int], fed: Fed, changes_at: int) -> Run:
    """Checks the measured records, and how long the table was behind."""
    snapshots = table.snapshots()
    visible = first_seen_ms([snapshot.id for snapshot in snapshots], seen)
    parts = [(visible[snapshot], *_columns(path)) for snapshot, path in table.files()]
    sights = [(visible_ms, round(float(times.max()))) for visible_ms, _, times, _ in parts]
    ids, times, added = (numpy.concatenate([part[place] for part in parts]) for place in (1, 2, 3))
    is_new = ids >= changes_at
    found = (int((ids > 0).sum()), int(is_new.sum()), int(added[is_new].sum()), int(added[~is_new].sum()))
    expected = (fed.measured, fed.measured - changes_at + 1, int(ids[is_new].sum()), 0)
    if found != expected:
        raise RuntimeError(f"the table holds {found} (rows, with the new field, its sums), produced was {expected}")
    changed_ms = round(float(times[is_new].min()))
    back_s = back_under_s(sights, changed_ms, fed.end_ms, _BEHIND_MS, _HOLD_MS)
    if back_s is None:
        raise RuntimeError(f"the table was still behind at the end, {fed.end_ms - changed_ms} ms after the new schema")
    ages = numpy.concatenate([part[0] - part[2][part[1] > 0] for part in parts])
    new_seen_ms = min(visible_ms for visible_ms, numbers, _, _ in parts if (numbers >= changes_at).any())
    return {
        "back_s": round(back_s, 2),
        "first_new_row_s": round((new_seen_ms - changed_ms) / 1000, 2),
        "p50_ms": round(float(numpy.median(ages)), 1),
        "max_ms": round(float(ages.max()), 1),
        "measured_records": fed.measured,
        "files": len(parts),
        "producer_worst_late_ms": fed.worst_late_ms,
    }


def _columns(path: Path) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """A file's ids, times in milliseconds, and added numbers (0 where there are none)."""
    rows = pq.read_table(path, partitioning=None)
    ids = rows["id"].to_numpy()
    added = rows[ADDED].fill_null(0).to_numpy() if ADDED in rows.column_names else numpy.zeros_like(ids)
    return ids, rows["ts"].to_numpy() / 1000, added
