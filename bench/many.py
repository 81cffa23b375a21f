"""Many trickling topics: each table's commits must come on time, and all of them together may take little of a core."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy

from bench.arithmetic import lateness_ms
from bench.feeding import feed_steadily
from bench.many_topics import many_topics, wait_for_rows
from bench.place import Place, Run, say
from bench.table import Table
from bench.throughput import memory
from bench.topics import Fed, Feed

_READY_S = 300.0
_ON_TIME_MS = 1000


def measure(place: Place) -> None:
    """CPU of Frazil's tree and the gaps between the commits of every table."""
    if "frazil" in place.settings.subjects:
        with place.attempt("many"):
            run = _one_run(place)
            say(f"frazil: {json.dumps(run)}")
            variant = f"{place.settings.tables}-topics-{place.settings.table_rate}-per-s"
            place.write_result("many", "frazil", variant, [run])


def _one_run(place: Place) -> Run:
    settings = place.settings
    interval_s = settings.many_interval_s
    with many_topics(place, "many", settings.tables, f"{interval_s}s") as many:
        running, names, tables = many.running, many.names, many.tables
        wait_for_rows(running, tables, [1] * len(names), _READY_S)
        feed = Feed(place.bootstrap, names, 1, settings.table_rate * len(names), interval_s, settings.many_seconds)
        fed, cores = feed_steadily(running, feed, many.around)
        beside = many.around.end()
        each = [1 + count for count in _records_each(fed, len(names))]
        wait_for_rows(running, tables, each, 2 * interval_s + 30)
        run = _gaps(tables, interval_s * 1000, fed)
    return {"topics": len(names), "percent_of_core": round(100 * cores, 1), **run, **memory(running), **beside}


def _records_each(fed: Fed, topics: int) -> list[int]:
    """How many records each topic got: the warm-up and the measured part each begin at the first topic."""
    return [
        sum(total // topics + (number < total % topics) for total in (fed.warm, fed.measured))
        for number in range(topics)
    ]


def _gaps(tables: Sequence[Table], interval_ms: int, fed: Fed) -> Run:
    late: list[int] = []
    commits = 0
    for table in tables:
        times = [snapshot.time_ms for snapshot in table.snapshots()]
        commits += sum(fed.start_ms <= time <= fed.end_ms for time in times)
        late += lateness_ms(times, interval_ms, fed.start_ms, fed.end_ms)
    return {
        "commits": commits,
        "gaps": len(late),
        "late_p50_ms": round(float(numpy.percentile(late, 50))),
        "late_p99_ms": round(float(numpy.percentile(late, 99))),
        "late_max_ms": max(late),
        "on_time_share": round(sum(one <= _ON_TIME_MS for one in late) / len(late), 4),
    }
