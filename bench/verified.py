"""What `frazil verify` costs on a table that a pipeline has filled: `python -m bench.verified [records] [levels]`.

Two tables are judged, one with a fourth of the records, so that each level's cost shows whether it grows as they do. CPU is
that of the whole process tree from start to end, memory its peak. `base` is the cost of a start: what a level needs for no
record, by the line through both.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from bench import subjects
from bench.machine import now_s
from bench.place import PARTITIONS, Place, Surroundings, open_place, say
from bench.records import SCHEMA, make_pool
from bench.running import Command, Running
from bench.settings import Settings
from bench.throughput import memory
from bench.topics import fill, make_topics
from frazil.clock import new_id

_LEVELS = ("default", "rows", "independent", "ledger")
_TIMEOUT_S = 3600.0
_METADATA = {"partition": "_kafka_partition", "offset": "_offset"}


def measure(place: Place, records: int, levels: list[str]) -> None:
    """Prints a line for each level and table, and one for the pace of each level."""
    used: dict[str, list[tuple[int, float]]] = {level: [] for level in levels}
    for count in (records // 4, records):
        command = _filled(place, count)
        for level in levels:
            cpu_s, figures = _judged(place, command, level)
            used[level].append((count, cpu_s))
            say(json.dumps({"level": level, "records": count, "cpu_s": round(cpu_s, 2), **figures}))
        place.discard(command.folder)
    for level, ((few, less_s), (many, more_s)) in used.items():
        each_s = (more_s - less_s) / (many - few)
        pace = {"records_per_cpu_s": round(1 / max(each_s, 1e-9)), "base_cpu_s": round(less_s - each_s * few, 2)}
        print(json.dumps({"level": level, **pace}), flush=True)


def _filled(place: Place, count: int) -> Command:
    """Makes the table by a pipeline of its own."""
    topic, folder = f"bench_verified_{new_id()[:8]}", place.run_folder(f"verified-{count}")
    make_topics(place.bootstrap, [topic], PARTITIONS)
    pool = make_pool()
    fill(place.bootstrap, topic, PARTITIONS, pool.value, count)
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, place.settings.heap, place.settings.catch_up_interval)
    table = {"columns": SCHEMA, "metadata": _METADATA}
    command = subjects.frazil_table_command(place.settings.frazil, folder, pipeline, topic, table, "--until-caught-up")
    _ended(command)
    return command


def _judged(place: Place, command: Command, level: str) -> tuple[float, dict[str, object]]:
    """Returns the CPU-seconds of a level, and its other figures."""
    file = Path(command.folder) / "pipeline.yaml"
    words = [] if level == "default" else [f"--{level}"]
    arguments = [str(place.settings.frazil), "verify", "-f", str(file), *words]
    around = Surroundings(place)
    running = _ended(dataclasses.replace(command, arguments=arguments))
    wall_s = now_s() - running.started_s
    return running.sampler.cpu[-1][1], {"wall_s": round(wall_s, 1), **memory(running), **around.end()}


def _ended(command: Command) -> Running:
    running = Running(command)
    if code := running.wait(_TIMEOUT_S):
        raise RuntimeError(f"{command.arguments[1]} ended with exit={code}: {running.tail()}")
    return running


def main() -> None:
    """See the module."""
    records, levels, *_ = [*sys.argv[1:], *("4000000", ",".join(_LEVELS))[len(sys.argv) - 1 :]]
    with open_place(Settings(quiet_wait_s=5.0)) as place:
        measure(place, int(records), levels.split(","))


if __name__ == "__main__":
    main()
