"""Freshness of a minute's counts: from the moment a record was produced to the moment a reader could see a count with it.

`python -m bench.minutes [records per second] [seconds] [frazil]`. A table counts the records of each of 1,000 keys by the
minute; a commit's offsets say which records its counts have.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy

from bench import subjects
from bench.machine import CLOCK
from bench.place import Place, Surroundings, open_place, say
from bench.running import Running
from bench.settings import Settings
from bench.topics import delete_topics
from bench.upsert_feed import Changes, Sights, committed

_KEYS, _WARM_S, _SLOTS_PER_S = 1000, 10, 10
_FIRST_COMMIT_S, _TAIL_S = 120.0, 60.0
_TABLE = {
    "columns": {"id": "long", "v": "long", "s": "string", "ts": "long"},
    "select": "select id, window.start as minute, count(*) as n, sum(v) as total from records"
    " group by id, window(timestamp_micros(ts), '1 minute')",
    "late": "1h",
    "maintenance": False,
}


def measure(place: Place, rate: int, seconds: int) -> None:
    """Prints the percentiles of the ages of all records after the warm-up."""
    changes, folder = Changes(place, _KEYS), place.run_folder("minutes")
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, place.settings.heap, place.settings.interval)
    around = Surroundings(place)
    command = subjects.frazil_table_command(place.settings.frazil, folder, pipeline, changes.topic, _TABLE)
    _feed(changes, rate, 1)
    running = Running(command)
    try:
        _wait_until_counted(running, changes, folder.name, _FIRST_COMMIT_S)
        say(f"feeding {rate} records a second")
        _feed(changes, rate, _WARM_S)
        _wait_until_counted(running, changes, folder.name, _TAIL_S)
        sights = Sights(command.table, folder.name, changes)
        _feed(changes, rate, seconds)
        _wait_until_counted(running, changes, folder.name, _TAIL_S)
        p50_ms, p99_ms = sights.stop()
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    figures = {"case": "minutes", "rate_per_s": rate, "seconds": seconds, "p50_ms": p50_ms, "p99_ms": p99_ms}
    print(json.dumps({**figures, **around.end()}), flush=True)
    place.discard(folder)
    delete_topics(place.bootstrap, [changes.topic])


def _feed(changes: Changes, rate: int, seconds: int) -> None:
    rng, began_s = numpy.random.default_rng(1), CLOCK.monotonic_s()
    for slot in range(seconds * _SLOTS_PER_S):
        for key in rng.integers(0, _KEYS, rate // _SLOTS_PER_S).tolist():
            changes.put(key, slot)
        CLOCK.sleep(max(0.0, began_s + (slot + 1) / _SLOTS_PER_S - CLOCK.monotonic_s()))
    changes.flush()


def _wait_until_counted(running: Running, changes: Changes, pipeline: str, timeout_s: float) -> None:
    until_s = CLOCK.monotonic_s() + timeout_s
    while committed(running.command.table, pipeline) != changes.ends:
        running.check()
        if CLOCK.monotonic_s() > until_s:
            raise RuntimeError(f"not all records are counted after {timeout_s} s: {running.tail()}")
        CLOCK.sleep(0.05)


def main() -> None:
    """See the module."""
    given = sys.argv[1:]
    rate, seconds = (int(text) for text in (*given[:2], *("10000", "60")[len(given[:2]) :]))
    settings = Settings(frazil=Path(given[2])) if len(given) > 2 else Settings()
    with open_place(dataclasses.replace(settings, quiet_wait_s=5.0)) as place:
        measure(place, rate, seconds)


if __name__ == "__main__":
    main()
