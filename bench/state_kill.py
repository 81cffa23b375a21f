"""From kill -9 to the next commit of a table that is its own state, beside a table that appends the same records.

`python -m bench.state_kill [groups] [runs] [frazil]`. Each table reads as many records as there are groups, so that one has
a row for each group and the other a row for each record. Each run then starts both in turn, lets them commit, kills them,
and measures from the start of the next process to its first commit of records that were written meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
from pathlib import Path

from bench import subjects
from bench.machine import CLOCK, now_s
from bench.place import PARTITIONS, Place, Surroundings, open_place, say
from bench.running import Command, Running
from bench.settings import Settings
from bench.states import CASES, Records
from bench.topics import delete_topics, fill, make_topics
from bench.upsert_feed import committed
from frazil.clock import new_id

_CASES = ("append", "many_groups")
_SENT, _POLL_S = 10_000, 0.005
_LOAD_S, _COMMIT_S = 3600.0, 1200.0


class _Killed:
    """One table, its topic, and how many records that has."""

    def __init__(self, place: Place, case: str, groups: int) -> None:
        self._place, self._records, self._sent = place, Records(groups), 0
        self.topic, self.folder = f"bench_state_kill_{new_id()[:8]}", place.run_folder(f"state-kill-{case}")
        make_topics(place.bootstrap, [self.topic], PARTITIONS)
        say(f"{case}: {groups} groups")
        self._send(groups)
        running = Running(self._command(case, place.settings.catch_up_interval, "--until-caught-up"))
        if code := running.wait(_LOAD_S):
            raise RuntimeError(f"{case} ended with exit={code}: {running.tail()}")
        self._run = self._command(case, place.settings.interval)

    def restart_s(self) -> float:
        """Returns the seconds from the start behind a kill to the next commit."""
        self._send(_SENT)
        first = Running(self._run)
        try:
            self._wait(first)
            first.kill_driver()
            self._send(_SENT)
        finally:
            first.kill()
        again = Running(self._run)
        try:
            took_s = self._wait(again) - again.started_s
            again.stop_well()
        finally:
            again.kill()
        return took_s

    def _command(self, case: str, interval: str, *options: str) -> Command:
        usual = self._place.settings
        pipeline = subjects.frazil_pipeline(self.folder, self._place.bootstrap, usual.heap, interval)
        settings = {**CASES[case], "maintenance": False}
        return subjects.frazil_table_command(usual.frazil, self.folder, pipeline, self.topic, settings, *options)

    def _send(self, count: int) -> None:
        first, self._sent = self._sent, self._sent + count
        fill(self._place.bootstrap, self.topic, PARTITIONS, lambda number: self._records.value(first + number), count)

    def _wait(self, running: Running) -> float:
        """Returns when the first commit of new records was visible."""
        before, deadline_s = self._sent - _SENT, now_s() + _COMMIT_S
        while sum(committed(running.command.table, self.folder.name)) <= before:
            running.check()
            if now_s() > deadline_s:
                raise RuntimeError(f"no commit within {_COMMIT_S} s: {running.tail()}")
            CLOCK.sleep(_POLL_S)
        return now_s()


def measure(place: Place, groups: int, runs: int) -> None:
    """Prints the seconds of each run, the median of each table, and their ratio."""
    tables = {case: _Killed(place, case, groups) for case in _CASES}
    around, took_s = Surroundings(place), {case: list[float]() for case in _CASES}
    for _ in range(runs):
        for case, table in tables.items():
            took_s[case].append(round(table.restart_s(), 2))
    append_s, groups_s = (statistics.median(took_s[case]) for case in _CASES)
    ratio = round(groups_s / append_s, 2)
    figures = {"groups": groups, "seconds": took_s, "append_s": append_s, "groups_s": groups_s, "times_append": ratio}
    print(json.dumps({**figures, **around.end()}), flush=True)
    for table in tables.values():
        place.discard(table.folder)
        delete_topics(place.bootstrap, [table.topic])


def main() -> None:
    """See the module."""
    given = sys.argv[1:]
    groups, runs = (int(word) for word in [*given[:2], *("10000000", "5")[len(given[:2]) :]])
    settings = Settings(frazil=Path(given[2])) if len(given) > 2 else Settings()
    with open_place(dataclasses.replace(settings, quiet_wait_s=5.0)) as place:
        measure(place, groups, runs)


if __name__ == "__main__":
    main()
