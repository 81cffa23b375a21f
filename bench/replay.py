"""What `frazil replay` costs: rows of a table back to a topic, as JSON, with keys, and with Connect's schema."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from bench import subjects
from bench.loads import json_load
from bench.place import Place, Run, Surroundings, say
from bench.records import SCHEMA
from bench.topics import delete_topics, make_topics
from frazil.clock import SystemClock, new_id

_PARTITIONS = 4
_FORMS = {"json": (), "keyed": ("--key", "id"), "json-schema": ("--format", "json-schema")}
_CLOCK = SystemClock()


def measure(place: Place) -> None:
    """Each form in turn, from one table."""
    if "frazil" not in place.settings.subjects:
        return
    with place.attempt("what a replay costs"):
        load, folder = json_load(place, "plain"), place.run_folder("replay")
        settings = place.settings
        pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.catch_up_interval)
        table = {"columns": SCHEMA}
        command = subjects.frazil_table_command(
            settings.frazil, folder, pipeline, load.topic, table, "--until-caught-up"
        )
        subprocess.run(command.arguments, cwd=folder, check=True, capture_output=True)
        for name, options in _FORMS.items():
            runs = [_one_run(place, folder, load.total, options) for _ in range(settings.runs_of("frazil"))]
            say(f"{name}: {json.dumps(runs)}")
            place.write_result("replay", "frazil", name, runs)
        place.discard(folder)


def _one_run(place: Place, folder: Path, rows: int, options: tuple[str, ...]) -> Run:
    """The command from its start to its end, the start of its JVM included."""
    topic = f"bench_replay_{new_id()[:8]}"
    make_topics(place.bootstrap, [topic], _PARTITIONS)
    words = [str(place.settings.frazil), "replay", f"{subjects.NAMESPACE}.{subjects.TABLE}", "--to", topic, *options]
    around = Surroundings(place)
    begun_s = _CLOCK.monotonic_s()
    done = subprocess.run(
        [*words, "-f", "pipeline.yaml", "--output", "json"], cwd=folder, check=True, capture_output=True, text=True
    )
    wall_s = _CLOCK.monotonic_s() - begun_s
    beside = around.end(rows)
    document: dict[str, Any] = json.loads(done.stdout)
    if document["records"] != rows:
        raise RuntimeError(f"{document['records']} records of {rows} rows")
    delete_topics(place.bootstrap, [topic])
    return {"records_per_s": round(rows / wall_s), "wall_s": round(wall_s, 2), **beside}
