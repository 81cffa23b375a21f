"""What publishing costs: the same feed to a branch with and without `publish` each minute.

CPU is that of the process tree after the warm-up. `copies`, in `upsert`, tells what it costs to give main data files alone.
"""

from __future__ import annotations

import json
from typing import Any

from bench import subjects
from bench.feeding import feed_steadily
from bench.place import PARTITIONS, Place, Run, Surroundings, say
from bench.running import Running
from bench.throughput import memory
from bench.topics import Feed, delete_topics, make_topics
from frazil.clock import new_id

_BRANCH: dict[str, Any] = {"branch": "ingest"}


def measure(place: Place) -> None:
    """A branch without and with a publish each minute, for as many seconds as ingestion without maintenance is measured."""
    for variant, table_settings in (("off", _BRANCH), ("on", {**_BRANCH, "publish": {"every": "1m"}})):
        with place.attempt(f"publish {variant}"):
            run = _fed(place, variant, table_settings)
            say(f"publish {variant}: {json.dumps(run)}")
            place.write_result("publish", "frazil", variant, [run])


def _fed(place: Place, variant: str, table_settings: dict[str, Any]) -> Run:
    settings = place.settings
    folder, topic = place.run_folder(f"publish-{variant}"), f"bench_publish_{new_id()[:8]}"
    make_topics(place.bootstrap, [topic], PARTITIONS)
    around = Surroundings(place)
    seconds = settings.maintenance_off_seconds
    feed = Feed(
        place.bootstrap, [topic], PARTITIONS, settings.maintenance_rate, settings.maintenance_warm_seconds, seconds
    )
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, "1s")
    running = Running(subjects.frazil_table_command(settings.frazil, folder, pipeline, topic, table_settings))
    try:
        fed, cores = feed_steadily(running, feed, around)
        beside = around.end()
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    delete_topics(place.bootstrap, [topic])
    return {"records": fed.measured, "seconds": seconds, "cores": cores, **beside, **memory(running)}
