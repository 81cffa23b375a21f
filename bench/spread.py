"""Spread: three processes divide the tables of a pipeline, and the one that divided them is killed under load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import subjects
from bench.machine import CLOCK, now_s
from bench.place import Place, Run, Surroundings, say
from bench.running import Command, Running
from bench.standby import leadership
from bench.table import Table
from bench.throughput import memory
from bench.topics import Feed, Feeder, delete_topics, make_topics
from frazil.clock import new_id

_LONGEST_S = 3600.0
_TIMEOUT_S = 600.0
_POLL_S = 0.2
_PROCESSES = 3
_STEADY_S = 30.0


def measure(place: Place) -> None:
    """Kills the leader of three processes; how long until each of its tables is committed again, by one of the others."""
    if "frazil" in place.settings.subjects:
        with place.attempt("spread"):
            run = _one_run(place)
            say(f"frazil: {json.dumps(run)}")
            place.write_result("spread", "frazil", f"{place.settings.spread_tables}-tables", [run])


def _one_run(place: Place) -> Run:
    settings, folder, prefix = place.settings, place.run_folder("spread"), f"bench_spread_{new_id()[:8]}"
    names = [f"{prefix}_{number}" for number in range(settings.spread_tables)]
    make_topics(place.bootstrap, names, 1)
    around = Surroundings(place)
    document = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.spread_interval)
    tables = {f"{subjects.NAMESPACE}.{name}": {"topic": name} for name in names}
    more = {"ha": {"mode": "spread"}, "http": False, "maintenance": False, "tables": tables}
    command = subjects.frazil_command(settings.frazil, folder, {**document, **more})
    feeder = Feeder(Feed(place.bootstrap, names, 1, settings.spread_rate * len(names), 0.0, _LONGEST_S))
    started: list[Running] = []
    try:
        for count in range(1, _PROCESSES + 1):
            started.append(Running(command))
            _wait_until_divided(command, started, len(names), count)
        CLOCK.sleep(_STEADY_S)
        owners = leadership(folder)["owners"]
        victim, *others = started
        lost = [table for table, owner in owners.items() if owner == leadership(folder)["leader"]]
        killed_s = now_s()
        victim.kill_driver()
        again_s = _committed_again_s(command, lost, killed_s, others)
        fed = feeder.stop()
        held = _wait_for_all(command, names, fed.measured, others)
        for running in others:
            running.stop_well()
    except BaseException:
        feeder.kill()
        raise
    finally:
        for one in started:
            one.kill()
    if held != fed.measured:
        raise RuntimeError(f"the tables' commits hold {held} rows, produced were {fed.measured}")
    beside = around.end()
    place.discard(folder)
    delete_topics(place.bootstrap, names)
    figures = {"tables": len(names), "lost": len(lost), "all_again_s": round(again_s, 2)}
    return {**figures, **memory(others[0]), **beside}


def _wait_until_divided(command: Command, started: list[Running], tables: int, processes: int) -> None:
    """Waits until each of so many processes owns about its share of the tables."""

    def is_divided() -> bool:
        owners: dict[str, Any] = leadership(command.folder).get("owners") or {}
        shares = [list(owners.values()).count(name) for name in set(owners.values())]
        return len(owners) == tables and len(shares) == processes and min(shares) >= tables / processes / 2

    deadline_s = CLOCK.monotonic_s() + _TIMEOUT_S
    while not is_divided():
        for running in started:
            running.check()
        if CLOCK.monotonic_s() > deadline_s:
            raise RuntimeError(f"not divided within {_TIMEOUT_S:.0f} s: {started[0].tail()}")
        CLOCK.sleep(_POLL_S)


def _committed_again_s(command: Command, lost: list[str], killed_s: float, others: list[Running]) -> float:
    """Until the last of the tables has a commit that was made after the kill, by the catalog's time."""
    left = {name: _table(command.table.catalog, name) for name in lost}
    latest_ms = 0
    deadline_s = CLOCK.monotonic_s() + _TIMEOUT_S
    while left:
        for name, table in list(left.items()):
            later = [one.time_ms for one in table.snapshots() if one.time_ms > killed_s * 1000]
            if later:
                latest_ms = max(latest_ms, min(later))
                del left[name]
        for running in others:
            running.check()
        if CLOCK.monotonic_s() > deadline_s:
            raise RuntimeError(f"not committed within {_TIMEOUT_S:.0f} s: {', '.join(left)}")
        CLOCK.sleep(_POLL_S)
    return latest_ms / 1000 - killed_s


def _wait_for_all(command: Command, names: list[str], rows: int, others: list[Running]) -> int:
    """Waits until the tables together have so many rows; returns how many they have."""
    tables = [_table(command.table.catalog, f"{subjects.NAMESPACE}.{name}") for name in names]
    deadline_s = CLOCK.monotonic_s() + _TIMEOUT_S
    while (held := sum(table.committed() for table in tables)) < rows and CLOCK.monotonic_s() < deadline_s:
        for running in others:
            running.check()
        CLOCK.sleep(_POLL_S)
    return held


def _table(catalog: Path, name: str) -> Table:
    namespace, _, table = name.partition(".")
    return Table(catalog, namespace, table)
