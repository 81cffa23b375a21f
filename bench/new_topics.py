"""Many new topics at once: how long does it take until each has its table, with its first rows?"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from bench.machine import CLOCK, now_s
from bench.many_topics import many_topics, wait_for_rows
from bench.place import Place, Run, say
from bench.running import Running
from bench.subjects import catalog_file
from bench.throughput import memory

_POLL_S = 0.5
_LONGEST_S = 900.0
# Only a table with a commit has a metadata file before its newest. One question for all tables: reading each of them would
# take a core from what is measured.
_COMMITTED = "select count(*) from iceberg_tables where previous_metadata_location is not null"


def measure(place: Place) -> None:
    """From the command to the first commit of the first and of the last table, and the CPU of Frazil's tree until then."""
    if "frazil" in place.settings.subjects:
        with place.attempt("new_topics"):
            run = _one_run(place)
            say(f"frazil: {json.dumps(run)}")
            place.write_result("new_topics", "frazil", f"{place.settings.new_tables}-topics", [run])


def _one_run(place: Place) -> Run:
    settings = place.settings
    with many_topics(place, "new", settings.new_tables, settings.catch_up_interval) as many:
        running, catalog, topics = many.running, catalog_file(many.folder), len(many.names)
        first_s = _wait_for_commits(running, catalog, 1)
        all_s = _wait_for_commits(running, catalog, topics)
        wait_for_rows(running, many.tables, [1] * topics, _LONGEST_S)
        cpu_s = running.sampler.sample()
        beside = many.around.end()
    return {
        "topics": topics,
        "first_s": round(first_s - running.started_s, 1),
        "all_s": round(all_s - running.started_s, 1),
        "cpu_s": round(cpu_s, 1),
        **memory(running),
        **beside,
    }


def _wait_for_commits(running: Running, catalog: Path, tables: int) -> float:
    """Waits until so many tables have a commit; the moment at which they had."""
    deadline_s = CLOCK.monotonic_s() + _LONGEST_S
    while (found := _committed(catalog)) < tables:
        running.check()
        if CLOCK.monotonic_s() > deadline_s:
            raise RuntimeError(f"{found} of {tables} tables have a commit after {_LONGEST_S} s: {running.tail()}")
        CLOCK.sleep(_POLL_S)
    return now_s()


def _committed(catalog: Path) -> int:
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{catalog}?mode=ro", uri=True)) as opened:
        return int(opened.execute(_COMMITTED).fetchone()[0])
    return 0
