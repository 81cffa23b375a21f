"""Idle cost: many topics, each with its table, nothing arriving. How much of one core does waiting take?"""

from __future__ import annotations

import json

from bench.machine import CLOCK
from bench.many_topics import make_many_topics, start_pipeline, tables_of, wait_for_rows
from bench.place import Place, Run, Surroundings, say
from bench.throughput import memory
from bench.topics import delete_topics

_SETTLE_S = 90.0
"""A minute after its first commit each table is loaded once more."""
_READY_S = 300.0


def measure(place: Place) -> None:
    """CPU of Frazil's tree over a minute in which none of its topics gets a record."""
    if "frazil" in place.settings.subjects:
        with place.attempt("idle"):
            run = _one_run(place)
            say(f"frazil: {json.dumps(run)}")
            place.write_result("idle", "frazil", f"{place.settings.tables}-topics", [run])


def _one_run(place: Place) -> Run:
    settings, folder = place.settings, place.run_folder("idle")
    names = make_many_topics(place, "idle", settings.tables)
    around = Surroundings(place)
    running = start_pipeline(place, folder, names, settings.catch_up_interval)
    try:
        ready_s = wait_for_rows(running, tables_of(folder, names), [1] * len(names), _READY_S)
        CLOCK.sleep(_SETTLE_S)
        around.start()
        began, began_s = running.sampler.sample(), CLOCK.monotonic_s()
        while CLOCK.monotonic_s() < began_s + settings.idle_seconds:
            running.check()
            CLOCK.sleep(0.5)
        used = running.sampler.sample() - began
        wall = CLOCK.monotonic_s() - began_s
        beside = around.end()
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    place.discard(folder)
    delete_topics(place.bootstrap, names)
    percent = round(100 * used / wall, 2)
    return {"topics": len(names), "percent_of_core": percent, "ready_s": ready_s, **memory(running), **beside}
