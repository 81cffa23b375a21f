"""Standby: from kill -9 of the leader under load to the first commit of the standby, a planned hand-over and how fresh the
table is meanwhile, and what a standby costs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import subjects
from bench.machine import CLOCK, now_s
from bench.place import PARTITIONS, Place, Run, Surroundings, say
from bench.running import Command, Running
from bench.table import Table
from bench.throughput import memory
from bench.topics import Feed, Feeder, delete_topics, make_topics
from frazil.clock import new_id

_LONGEST_S = 3600.0
_TIMEOUT_S = 120.0
_POLL_S = 0.05
_COST_S = 50.0
_WATCH_S = 0.02
_AFTER_S = 3.0
_SETTLE_S = 15.0
_OWN: dict[str, object] = {"ha": {}, "http": False}


def measure(place: Place) -> None:
    """Kills one leader after another while records arrive; each time another process is started and becomes warm first."""
    if "frazil" in place.settings.subjects:
        with place.attempt("standby"):
            _, run = _one_run(place, place.settings.interval)
            say(f"frazil: {json.dumps(run)}")
            place.write_result("standby", "frazil", "kill-9", [run])


def recoveries(place: Place, interval: str) -> list[Run]:
    """Returns the seconds from each kill -9 of a leader to the first commit of its standby. interval: of commits."""
    takeovers, run = _one_run(place, interval)
    return [{"recovered_s": round(one.committed_s, 2), "noisy": run["noisy"]} for one in takeovers]


def _one_run(place: Place, interval: str) -> tuple[list[Takeover], Run]:
    settings, folder, topic = place.settings, place.run_folder("standby"), f"bench_standby_{new_id()[:8]}"
    make_topics(place.bootstrap, [topic], PARTITIONS)
    around = Surroundings(place)
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, interval) | _OWN
    command = subjects.frazil_table_command(settings.frazil, folder, pipeline, topic, {})
    feeder = Feeder(Feed(place.bootstrap, [topic], PARTITIONS, settings.standby_rate, 0.0, _LONGEST_S))
    leader = Running(command)
    started = [leader]
    try:
        leader.wait_for_rows(1, _TIMEOUT_S)
        standby = _warm(command, started)
        cost = _cost(standby)
        takeovers: list[Takeover] = []
        ends_s = now_s() + settings.standby_seconds
        while len(takeovers) < settings.standby_kills and now_s() < ends_s:
            takeovers.append(_killed(leader, standby))
            leader, standby = standby, _warm(command, started)
        with _watched(command.table) as seen:
            stopped_s = now_s()
            leader.stop_well()
            handover_s = _first_commit_s(standby) - stopped_s
            CLOCK.sleep(_AFTER_S)
        fed = feeder.stop()
        standby.wait_for_rows(fed.measured, _TIMEOUT_S)
        standby.stop_well()
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
    figures = {
        "kills": len(takeovers),
        **_figures("taken", [one.taken_s for one in takeovers]),
        **_figures("takeover", [one.committed_s for one in takeovers]),
        "handover_s": round(handover_s, 2),
        "handover_freshness_max_s": round(_oldest_s(seen, fed.start_ms / 1000, settings.standby_rate), 2),
    }
    return takeovers, {"rate_per_s": settings.standby_rate, **figures, **cost, **beside}


@dataclass(frozen=True)
class Takeover:
    """Seconds from kill -9 of the leader until the standby had done something."""

    #: Until the tables were its own.
    taken_s: float
    #: Until its first commit.
    committed_s: float


def _killed(leader: Running, standby: Running) -> Takeover:
    """Kills the leader, and waits for the standby's first commit."""
    before_s, killed_s = standby.sampler.sample(), now_s()
    leader.kill_driver()
    committed_s = _first_commit_s(standby) - killed_s
    found = Takeover(standby.events["tables_taken"] - killed_s, committed_s)
    cpu_s = standby.sampler.sample() - before_s
    say(f"taken after {found.taken_s:.2f} s, committed after {found.committed_s:.2f} s and {cpu_s:.2f} s of CPU")
    return found


def _figures(name: str, values_s: list[float]) -> dict[str, float]:
    """The middle and the greatest of the values."""
    ordered = sorted(values_s)
    return {f"{name}_p50_s": round(ordered[len(ordered) // 2], 2), f"{name}_max_s": round(ordered[-1], 2)}


@contextmanager
def _watched(table: Table) -> Iterator[list[tuple[float, int]]]:
    """Notes the rows of the table's commits, each with its moment, until the block ends."""
    seen, ended = list[tuple[float, int]](), threading.Event()

    def watch() -> None:
        while not ended.wait(_WATCH_S):
            rows = table.committed()
            seen.append((now_s(), rows))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _oldest_s(seen: list[tuple[float, int]], start_s: float, rate: int) -> float:
    """The greatest age that the oldest record without a row had: record n was produced n / rate after the start."""
    return max(at_s - start_s - rows / rate for at_s, rows in seen)


def _warm(command: Command, started: list[Running]) -> Running:
    """Starts another process; returns some seconds after it could take over."""
    started.append(running := Running(command))
    deadline_s = CLOCK.monotonic_s() + _TIMEOUT_S
    while not _is_warm(command.folder, running.started_s):
        running.check()
        if CLOCK.monotonic_s() > deadline_s:
            raise RuntimeError(f"not warm within {_TIMEOUT_S:.0f} s: {running.tail()}")
        CLOCK.sleep(_POLL_S)
    CLOCK.sleep(_SETTLE_S)
    return running


def leadership(folder: Path) -> dict[str, Any]:
    """What the leader has last published; empty where nothing can be read."""
    try:
        [file] = (folder / "frazil-data" / "state").glob(f"{folder.name}.json")
        found: dict[str, Any] = json.loads(file.read_text())["leadership"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found


def _is_warm(folder: Path, started_s: float) -> bool:
    """Whether the process that was started then could take over."""
    members = leadership(folder).get("members", ())
    return any(one["warm"] and one["started_at_ms"] >= started_s * 1000 for one in members)


def _cost(standby: Running) -> Run:
    """CPU and memory of a standby while the leader commits."""
    began, began_s = standby.sampler.sample(), CLOCK.monotonic_s()
    CLOCK.sleep(_COST_S)
    used_s, wall_s = standby.sampler.sample() - began, CLOCK.monotonic_s() - began_s
    return {"standby_percent_of_core": round(100 * used_s / wall_s, 2), **memory(standby)}


def _first_commit_s(running: Running) -> float:
    """When the process logged its first commit."""
    deadline_s = CLOCK.monotonic_s() + _TIMEOUT_S
    while "batch_committed" not in running.events:
        running.check()
        if CLOCK.monotonic_s() > deadline_s:
            raise RuntimeError(f"no commit within {_TIMEOUT_S:.0f} s: {running.tail()}")
        CLOCK.sleep(_POLL_S)
    return running.events["batch_committed"]
