"""Upserts: the first load against append, scattered updates of a large table, and a steady stream of changes.

Run as `python -m bench upsert`. Every number comes from outside: the log's `took_s` from plan to commit, CPU of the process
tree, snapshots as a reader of the catalog sees them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from bench import subjects
from bench.arithmetic import first_seen_ms
from bench.machine import CLOCK, now_s
from bench.place import PARTITIONS, Place, Run, Surroundings, say
from bench.running import Running
from bench.table import Table
from bench.topics import delete_topics, make_topics
from bench.watch import Watcher
from frazil.clock import new_id

_TOOK = re.compile(rb"batch_committed.*records=(\d+).*took_s=([0-9.]+)")
_ANSI = re.compile(rb"\x1b\[[0-9;]*m")
_UPSERT: dict[str, object] = {
    "mode": "upsert",
    "key": {"format": "json"},
    "key_columns": ["id"],
    "columns": {"id": "long", "v": "long", "s": "string", "ts": "long"},
}
_APPEND: dict[str, object] = {"columns": _UPSERT["columns"]}
_ROUNDS = 8
_SCATTERED = 1000
_LONG_S = 3600.0


def measure(place: Place) -> None:
    """All three; see the module."""
    settings = place.settings
    if "frazil" not in settings.subjects:
        return
    with place.attempt("first load"):
        for variant, table in (("append", _APPEND), ("upsert", _UPSERT)):
            place.write_result("upsert", "frazil", f"load-{variant}", [_load(place, table)])
    with place.attempt("scattered updates"):
        place.write_result("upsert", "frazil", f"scattered-{settings.upsert_rows}", [_scattered(place)])
    with place.attempt("steady changes"):
        place.write_result("upsert", "frazil", "steady", [_steady(place)])


class _Changes:
    """A topic of changes whose keys stay in their partitions; remembers when each record was produced."""

    def __init__(self, place: Place) -> None:
        self.topic = f"bench_upsert_{new_id()[:8]}"
        self.told: list[list[int]] = [[] for _ in range(PARTITIONS)]
        make_topics(place.bootstrap, [self.topic], PARTITIONS)
        self._producer = Producer(
            {
                "bootstrap.servers": place.bootstrap,
                "linger.ms": 5,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 4,
            }
        )

    def put(self, key: int, version: int, is_delete: bool = False) -> None:
        """One change, now."""
        now_us, partition = int(now_s() * 1e6), key % PARTITIONS
        value = None if is_delete else b'{"id":%d,"v":%d,"s":"customer %d","ts":%d}' % (key, version, key, now_us)
        while True:
            try:
                self._producer.produce(self.topic, value, key=b"%d" % key, partition=partition)
                break
            except BufferError:
                self._producer.poll(0.1)
        self.told[partition].append(now_us // 1000)

    def flush(self) -> None:
        """All of them are with the broker."""
        if self._producer.flush(300):
            raise RuntimeError("the broker did not take all changes")

    def poll(self) -> None:
        """Lets the client work."""
        self._producer.poll(0)

    @property
    def ends(self) -> list[int]:
        """The next offset of each partition."""
        return [len(told) for told in self.told]


def _start(place: Place, changes: _Changes, table: dict[str, object], *options: str) -> tuple[Running, Path]:
    folder = place.run_folder("upsert")
    settings = place.settings
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.interval)
    return Running(
        subjects.frazil_table_command(settings.frazil, folder, pipeline, changes.topic, table, *options)
    ), folder


def _load(place: Place, table: dict[str, object]) -> Run:
    """CPU of the first load of `upsert_keys` inserts by a new process."""
    changes, count = _Changes(place), place.settings.upsert_keys
    _insert(changes, count)
    around = Surroundings(place)
    running, folder = _start(place, changes, table, "--until-caught-up")
    if running.wait(_LONG_S):
        raise RuntimeError(running.tail())
    run: Run = {"records": count, "cpu_s": round(running.sampler.sample(), 2), **around.end(count)}
    _finish(place, changes, folder)
    say(json.dumps(run))
    return run


def _insert(changes: _Changes, count: int) -> None:
    keys = numpy.random.default_rng(1).permutation(count)
    for number, key in enumerate(keys.tolist()):
        changes.put(key, 0)
        if number % 10_000 == 0:
            changes.poll()
    changes.flush()


def _scattered(place: Place) -> Run:
    """From plan to commit of batches of 1,000 updates of keys all over the table."""
    changes, rows = _Changes(place), place.settings.upsert_rows
    _insert(changes, rows)
    running, folder = _start(place, changes, _UPSERT)
    chance = numpy.random.default_rng(2)
    try:
        _wait(running, changes)
        around = Surroundings(place)
        for version in range(1, _ROUNDS + 1):
            for key in chance.choice(rows, _SCATTERED, replace=False).tolist():
                changes.put(key, version)
            changes.flush()
            _wait(running, changes)
            CLOCK.sleep(1.0)
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    took = [seconds for records, seconds in _batches(running.log) if records == _SCATTERED][2:]
    run: Run = {"rows": rows, "batches": len(took), "took_median_s": float(numpy.median(took)), **around.end()}
    run |= {"took_max_s": max(took)}
    _finish(place, changes, folder)
    say(json.dumps(run))
    return run


def _steady(place: Place) -> Run:
    """Freshness of a stream of changes (80 % updates, 10 % inserts, 10 % deletes), and what a full read costs afterwards."""
    settings, changes = place.settings, _Changes(place)
    _insert(changes, settings.upsert_keys)
    running, folder = _start(place, changes, _UPSERT)
    try:
        _wait(running, changes)
        before = changes.ends
        around, watcher = Surroundings(place), Watcher(running.command.table, folder / "seen.log")
        try:
            cpu = running.sampler.sample()
            _stream(changes, settings.upsert_rate, settings.upsert_seconds, settings.upsert_keys, running)
            cores = (running.sampler.sample() - cpu) / settings.upsert_seconds
            beside = around.end()
            _wait(running, changes)
        finally:
            seen = watcher.stop()
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    ages = numpy.concatenate(list(_ages(running.command.table, folder.name, changes, before, seen)))
    p50, p99 = (round(float(value), 1) for value in numpy.percentile(ages, [50, 99]))
    run: Run = {"rate_per_s": settings.upsert_rate, "cores": round(cores, 3), "p50_ms": p50, "p99_ms": p99, **beside}
    run |= {"full_read_s": _full_read_s(running.command.table)}
    _finish(place, changes, folder)
    say(json.dumps(run))
    return run


def _stream(changes: _Changes, rate: int, seconds: int, keys: int, running: Running) -> None:
    chance, began_s = numpy.random.default_rng(3), CLOCK.monotonic_s()
    for second in range(seconds * 10):
        kinds = chance.random(rate // 10)
        chosen = chance.integers(0, keys, rate // 10)
        for number, (kind, key) in enumerate(zip(kinds.tolist(), chosen.tolist(), strict=True)):
            new = keys + second * rate + number
            changes.put(new if kind < 0.1 else key, second, is_delete=kind > 0.9)
        changes.poll()
        running.check()
        CLOCK.sleep(max(0.0, began_s + (second + 1) / 10 - CLOCK.monotonic_s()))
    changes.flush()


def _documents(table: Table) -> list[dict[str, Any]]:
    """The snapshots of the newest metadata file, oldest first."""
    path = table.location()
    document = json.loads(Path(path.removeprefix("file:")).read_text()) if path else {}
    return sorted(document.get("snapshots", []), key=lambda one: int(one["sequence-number"]))


def _offsets(snapshot: dict[str, Any], pipeline: str) -> list[int]:
    text = snapshot["summary"].get(f"frazil.{pipeline}.offsets")
    found: dict[str, int] = next(iter(json.loads(text).values())) if text else {}
    return [found.get(str(partition), 0) for partition in range(PARTITIONS)]


def _wait(running: Running, changes: _Changes) -> None:
    """Until all that was told is committed."""
    pipeline = running.command.folder.name
    deadline = CLOCK.monotonic_s() + _LONG_S
    while True:
        running.check()
        snapshots = _documents(running.command.table)
        if snapshots and _offsets(snapshots[-1], pipeline) >= changes.ends:
            return
        if CLOCK.monotonic_s() > deadline:
            raise RuntimeError(running.tail())
        CLOCK.sleep(0.1)


def _ages(
    table: Table, pipeline: str, changes: _Changes, before: list[int], seen: dict[int, int]
) -> Iterator[numpy.ndarray]:
    """How old each change was when a reader could first see it."""
    snapshots = _documents(table)
    visible = first_seen_ms([one["snapshot-id"] for one in snapshots], seen)
    read = before
    for snapshot in snapshots:
        ends = _offsets(snapshot, pipeline)
        at = visible.get(snapshot["snapshot-id"])
        for partition, told in enumerate(changes.told):
            if at is not None and ends[partition] > read[partition]:
                yield at - numpy.asarray(told[read[partition] : ends[partition]])
        read = [max(one, other) for one, other in zip(read, ends, strict=True)]


def _full_read_s(table: Table) -> float:
    """How long PyIceberg takes to read the whole table, deletes taken off."""
    began_s = CLOCK.monotonic_s()
    StaticTable.from_metadata(table.location()).scan().to_arrow()
    return round(CLOCK.monotonic_s() - began_s, 2)


def _batches(log: Path) -> list[tuple[int, float]]:
    """Records and seconds of every committed batch, as the log says."""
    lines = (_ANSI.sub(b"", line) for line in log.read_bytes().splitlines())
    return [(int(found[1]), float(found[2])) for line in lines if (found := _TOOK.search(line))]


def _finish(place: Place, changes: _Changes, folder: Path) -> None:
    place.discard(folder)
    delete_topics(place.bootstrap, [changes.topic])
