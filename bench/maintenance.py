"""Table maintenance beside ingestion: the same feed with maintenance on and off, freshness throughout, files and CPU at
the end.

Care rewrites files and expires snapshots, so ages are not taken from the files: each snapshot says up to which record
timestamp each partition was read, a steady feed lies evenly between two such, and the moment of sight is watched.

What maintenance costs is told by CPU seconds per million records: without maintenance until the last of them is
committed, with maintenance until the files are as they should be, which is minutes later.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy
from pyiceberg.table import StaticTable

from bench import subjects
from bench.arithmetic import value_at
from bench.feeding import feed_steadily
from bench.machine import CLOCK, now_s
from bench.place import PARTITIONS, Place, Run, Surroundings, say
from bench.running import Running
from bench.table import Table, local_path
from bench.throughput import memory
from bench.topics import Fed, Feed, delete_topics, make_topics
from frazil.clock import new_id
from frazil.maintenance.health import SMALL_SHARE_OF_TARGET

_TAIL_S = 60
_TIDY_S = 300
_TARGET_BYTES = 128 * 1024 * 1024
_GOOD_P50_BYTES = 64 * 1024 * 1024
_GOOD_SHARE = 0.1
_POLL_S = 0.05
_MINUTE_MS = 60_000

Marks = dict[str, dict[str, int]]


def measure(place: Place) -> None:
    """Without maintenance and with it; the difference in CPU is what maintenance costs."""
    settings = place.settings
    seconds = {"off": settings.maintenance_off_seconds, "on": settings.maintenance_seconds}
    for variant, table_settings in (("off", {"maintenance": False}), ("on", {})):
        with place.attempt(f"maintenance {variant}"):
            run = _one_run(place, variant, table_settings, seconds[variant])
            say(f"maintenance {variant}: {json.dumps(run)}")
            place.write_result("maintenance", "frazil", variant, [run])


def _one_run(place: Place, variant: str, table_settings: dict[str, Any], seconds: int) -> Run:
    """The warm-up is long: the process starts in it, and runs until its code is compiled."""
    settings = place.settings
    folder, topic = place.run_folder(f"maintenance-{variant}"), f"bench_care_{new_id()[:8]}"
    make_topics(place.bootstrap, [topic], PARTITIONS)
    around = Surroundings(place)
    feed = Feed(
        place.bootstrap, [topic], PARTITIONS, settings.maintenance_rate, settings.maintenance_warm_seconds, seconds
    )
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, "1s")
    command = subjects.frazil_table_command(settings.frazil, folder, pipeline, topic, table_settings)
    running = Running(command)
    sights = _Sights(command.table)
    try:
        fed, cores = feed_steadily(running, feed, around)
        beside = around.end()
        done_s = running.wait_for_rows(fed.warm + fed.measured, _TAIL_S)
        ages = sights.stop(fed)
        tidy: Run = {}
        if variant == "on":
            done_s = _wait_until_tidy(running)
            tidy = {"tidy_after_s": round(done_s - fed.end_ms / 1000, 1)}
        running.sampler.sample()
        cpu = _cpu(running.sampler.cpu, fed, done_s)
        running.stop_well()
    except BaseException:
        running.kill()
        sights.end()
        raise
    run: Run = {"rate_per_s": settings.maintenance_rate, "seconds": seconds, "cores": cores, **cpu}
    run |= {**memory(running), **beside, **ages, **tidy, **_files(_sizes(command.table))}
    place.discard(folder)
    delete_topics(place.bootstrap, [topic])
    return run


def _cpu(series: Sequence[tuple[float, float]], fed: Fed, done_s: float) -> Run:
    """From the first measured record on, for the process that read them and whatever it has started."""
    minutes = [*(begin for begin, _ in minutes_of(fed.start_ms, fed.end_ms)), fed.end_ms]
    marks = [value_at(series, time_ms / 1000) for time_ms in minutes]
    used_s = value_at(series, done_s) - marks[0]
    return {
        "cpu_s_per_million": round(used_s / fed.measured * 1e6, 3),
        "cpu_s_by_minute": [round(after - before, 2) for before, after in itertools.pairwise(marks)],
    }


class _Sights:
    """When each snapshot was first seen, and the ages of the records that it brought."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._stretches: list[tuple[int, int, int]] = []
        self._seen: set[int] = set()
        self._before: Marks = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Watches no longer."""
        self._stopping.set()
        self._thread.join()

    def stop(self, fed: Fed) -> Run:
        """The ages of the measured records in milliseconds, of all and of each minute: those of the warm-up waited for the
        process to start.
        """
        self.end()
        by_minute = [self._ages(*minute) for minute in minutes_of(fed.start_ms, fed.end_ms)]
        p99s = [_quantile(ages, 0.99) for ages in by_minute]
        ages = numpy.concatenate(by_minute)
        return {
            "p50_ms": _quantile(ages, 0.5),
            "p99_ms": _quantile(ages, 0.99),
            "p99_worst_minute_ms": max(p99s),
            "p99_by_minute_ms": p99s,
        }

    def _ages(self, start_ms: int, end_ms: int) -> numpy.ndarray[Any, Any]:
        found = [ages_of(stretch, start_ms, end_ms) for stretch in self._stretches]
        ages = numpy.concatenate([numpy.array([]), *found])
        if not len(ages):
            raise RuntimeError("no record of a measured minute was ever seen")
        return ages

    def _watch(self) -> None:
        last = ""
        while not self._stopping.wait(_POLL_S):
            location = self._table.location()
            if location and location != last:
                now_ms, last = CLOCK.now_ms(), location
                self._take(location, now_ms)

    def _take(self, location: str, now_ms: int) -> None:
        try:
            document = json.loads(local_path(location).read_text())
        except OSError:
            return  # It was replaced twenty times meanwhile.
        for snapshot in document.get("snapshots", ()):
            if snapshot["snapshot-id"] in self._seen:
                continue
            self._seen.add(snapshot["snapshot-id"])
            marks = _marks(snapshot["summary"])
            self._stretches += _stretches(self._before, marks, now_ms)
            self._before = {**self._before, **marks}


def _marks(summary: dict[str, str]) -> Marks:
    text = next((value for name, value in summary.items() if name.endswith(".watermarks")), "{}")
    found: Marks = json.loads(text)
    return found


def _stretches(before: Marks, now: Marks, seen_ms: int) -> list[tuple[int, int, int]]:
    """From when to when the records of each partition are that came between two marks, and when they were seen."""
    return [
        (before[topic][partition] + 1, mark, seen_ms)
        for topic, partitions in now.items()
        for partition, mark in partitions.items()
        if partition in before.get(topic, {})
    ]


def ages_of(stretch: tuple[int, int, int], start_ms: int, end_ms: int) -> numpy.ndarray[Any, Any]:
    """A sample for each millisecond of a steady feed's stretch that lies in a span of time, both of them inclusive."""
    first_ms, last_ms, seen_ms = stretch
    return seen_ms - numpy.arange(max(first_ms, start_ms), min(last_ms, end_ms) + 1)


def minutes_of(start_ms: int, end_ms: int) -> list[tuple[int, int]]:
    """The minutes of a span of time, first and last millisecond of each; the last one may be longer or shorter."""
    count = max(1, round((end_ms - start_ms) / _MINUTE_MS))
    begins = [start_ms + number * _MINUTE_MS for number in range(count)]
    return list(zip(begins, [*(begin - 1 for begin in begins[1:]), end_ms], strict=True))


def _quantile(ages: numpy.ndarray[Any, Any], share: float) -> int:
    return round(float(numpy.quantile(ages, share)))


def _sizes(table: Table) -> list[int]:
    found: list[int] = StaticTable.from_metadata(table.location()).inspect.files()["file_size_in_bytes"].to_pylist()
    return found


def _files(sizes: list[int]) -> dict[str, float]:
    return {"files": len(sizes), "p50_file_bytes": int(median(sizes)), "small_share": round(_small_share(sizes), 3)}


def _small_share(sizes: list[int]) -> float:
    """As `frazil status` has it: a small file that is the only one is what is left over when the others are full."""
    small = [size for size in sizes if size < SMALL_SHARE_OF_TARGET * _TARGET_BYTES]
    return len(small) / len(sizes) if len(small) > 1 else 0.0


def is_tidy(sizes: list[int]) -> bool:
    """Whether the files of a table without partitions are as they should be: one, or a median of 64 MiB at least and no more
    than a tenth small.
    """
    return len(sizes) < 2 or (median(sizes) >= _GOOD_P50_BYTES and _small_share(sizes) <= _GOOD_SHARE)


def _wait_until_tidy(running: Running) -> float:
    """When the files were as they should be, or five minutes were over."""
    deadline = CLOCK.monotonic_s() + _TIDY_S
    while CLOCK.monotonic_s() < deadline and not is_tidy(_sizes(running.command.table)):
        running.check()
        CLOCK.sleep(1.0)
    return now_s()
