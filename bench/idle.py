"""Idle cost: many topics, each with its table, nothing arriving, and then a few records for ten of them. How much of one
core does that take?
"""

from __future__ import annotations

import json

from bench.feeding import feed_steadily
from bench.machine import CLOCK
from bench.many_topics import many_topics, wait_for_rows
from bench.place import Place, Run, say
from bench.throughput import memory
from bench.topics import Feed

_SETTLE_S = 90.0
"""A minute after its first commit each table is loaded once more."""
_READY_S = 300.0
_ACTIVE, _ACTIVE_RATE, _ACTIVE_WARM_S = 10, 200, 10.0
"""Topics that get records after the idle minute, and the records per second of all of them together."""


def measure(place: Place) -> None:
    """CPU of Frazil's tree over a minute in which none of its topics gets a record, and a minute in which ten do."""
    if "frazil" in place.settings.subjects:
        with place.attempt("idle"):
            run = _one_run(place)
            say(f"frazil: {json.dumps(run)}")
            place.write_result("idle", "frazil", f"{place.settings.tables}-topics", [run])


def _one_run(place: Place) -> Run:
    settings = place.settings
    with many_topics(place, "idle", settings.tables, settings.catch_up_interval) as many:
        running = many.running
        ready_s = wait_for_rows(running, many.tables, [1] * len(many.names), _READY_S)
        CLOCK.sleep(_SETTLE_S)
        many.around.start()
        began, began_s = running.sampler.sample(), CLOCK.monotonic_s()
        while CLOCK.monotonic_s() < began_s + settings.idle_seconds:
            running.check()
            CLOCK.sleep(0.5)
        used = running.sampler.sample() - began
        wall = CLOCK.monotonic_s() - began_s
        beside = many.around.end()
        names = many.names[:: len(many.names) // _ACTIVE]
        feed = Feed(place.bootstrap, names, 1, _ACTIVE_RATE, _ACTIVE_WARM_S, float(settings.idle_seconds))
        _, active = feed_steadily(running, feed, many.around)
        many.around.end()
    percent = round(100 * used / wall, 2)
    found = {"percent_of_core": percent, "active_percent": round(100 * active, 1), "ready_s": ready_s}
    return {"topics": len(many.names), **found, **memory(running), **beside}
