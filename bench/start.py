"""Start: from the command to the first commit that a reader can see, on a warm cache; and the same after kill -9."""

from __future__ import annotations

import json

from bench import subjects
from bench.machine import CLOCK
from bench.place import PARTITIONS, Place, Run, Surroundings, say
from bench.running import Running
from bench.topics import Feed, Feeder, delete_topics, make_topics
from frazil.clock import new_id

_RATE = 1000
_LONGEST_S = 300.0
_TIMEOUT_S = 120.0
_POLL_S = 0.005


def measure(place: Place) -> None:
    """Each run starts Frazil on a topic that is being written to, kills it, and starts it again at once."""
    if "frazil" in place.settings.subjects:
        with place.attempt("start"):
            runs = []
            for _ in range(place.settings.runs):
                runs.append(_one_run(place))
                say(f"frazil: {json.dumps(runs[-1])}")
            place.write_result("start", "frazil", "kill-9", runs)


def _one_run(place: Place) -> Run:
    folder, topic = place.run_folder("start"), f"bench_start_{new_id()[:8]}"
    make_topics(place.bootstrap, [topic], PARTITIONS)
    around = Surroundings(place)
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, place.settings.heap, place.settings.interval)
    command = subjects.frazil_table_command(place.settings.frazil, folder, pipeline, topic, {})
    feeder = Feeder(Feed(place.bootstrap, [topic], PARTITIONS, _RATE, 0.0, _LONGEST_S))
    started = [first := Running(command)]
    try:
        start_s = first.wait_for_rows(1, _TIMEOUT_S, _POLL_S) - first.started_s
        CLOCK.sleep(2.0)
        first.kill_driver()
        started.append(again := Running(command))
        restart_s = first_new_commit_s(again) - again.started_s
        fed = feeder.stop()
        again.wait_for_rows(fed.measured, _TIMEOUT_S)
        again.stop_well()
    except BaseException:
        feeder.kill()
        raise
    finally:
        for one in started:
            one.kill()
    beside = around.end()
    table = command.table.committed()
    if table != fed.measured:
        raise RuntimeError(f"the table's commits hold {table} rows, produced were {fed.measured}")
    place.discard(folder)
    delete_topics(place.bootstrap, [topic])
    return {"start_s": round(start_s, 2), "restart_s": round(restart_s, 2), **beside}


def first_new_commit_s(running: Running) -> float:
    """When the restarted process's first commit was visible.

    What the killed one had already sent to the catalog may still arrive; that is over long before a new one can commit.
    """
    CLOCK.sleep(1.0)
    return running.wait_for_rows(running.command.table.committed() + 1, _TIMEOUT_S, _POLL_S)
