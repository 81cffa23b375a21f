"""Tables that are their own state beside a table that appends the same records: `merge`, `dedupe` and `mode: history`.

`python -m bench.states [case,…] [warm records] [measured records] [groups] [frazil]` prints a line for each case: those of
CASES, `stock`, the aggregate of `groups` in Structured Streaming with RocksDB's state and `MERGE INTO`, and `flink`, the
same in Flink SQL. The warm records are read by a process of their own, so that the groups, ids and versions are there. What
another process then needs for the measured records, from its first batch to its last commit, is CPU of the whole process
tree. `times_append` is the ratio to the case `append` of the same invocation.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from bench import subjects
from bench.arithmetic import value_at
from bench.machine import now_s
from bench.place import PARTITIONS, Place, Surroundings, open_place, say
from bench.running import Command, Running
from bench.settings import Settings
from bench.table import Table
from bench.throughput import DEBUG_LOG, STOCK_JVM, begun_s
from bench.topics import fill, make_topics
from bench.upsert_feed import committed
from frazil.clock import new_id

_COLUMNS = {"e": "string", "g": "long", "h": "long", "k": "long", "n": "long", "at": "long", "s": "string"}
_MERGE = {"n": "sum", "at": "max", "records": "count"}
_UPSERT: Mapping[str, object] = {"columns": _COLUMNS, "mode": "upsert"}
CASES: Mapping[str, Mapping[str, object]] = {
    "append": {"columns": _COLUMNS},
    "groups": {**_UPSERT, "key_columns": ["g"], "merge": _MERGE},
    "query": {
        "columns": _COLUMNS,
        "select": "select g, count(*) as records, sum(n) as n, max(at) as at from records group by g",
    },
    "windows": {
        "columns": _COLUMNS,
        "select": "select g, window.start as begin, count(*) as records, sum(n) as n from records"
        " group by g, window(timestamp_millis(at), '1 hour')",
        "late": "1h",
    },
    "sessions": {
        "columns": _COLUMNS,
        "select": "select g, session_window.start as begin, session_window.end as until, count(*) as records, sum(n) as n"
        " from records group by g, session_window(timestamp_millis(at), '1 minute')",
        "late": "1h",
    },
    "many_groups": {**_UPSERT, "key_columns": ["h"], "merge": _MERGE},
    "upsert": {**_UPSERT, "key_columns": ["h"]},
    "dedupe": {"columns": _COLUMNS, "dedupe": {"by": ["e"]}, "format_version": 3},
    "history": {"columns": _COLUMNS, "mode": "history", "key_columns": ["k"], "track": ["s"]},
}
"""By case the settings of its table. `groups`: 10,000; `query`: the same by GROUP BY; `windows`: the
same in each hour of 3,600,000 records; `sessions`: one session for each of them; `many_groups`: as many as are asked
for, of which 100,000 change in each million records; `upsert`: the latest record of each of these; `dedupe`: one record
in a hundred is there twice; `history`: 100,000 rows, of which each fifth record makes a version.
"""
_CHANGED, _TIMEOUT_S = 100_000, 3600.0


@dataclasses.dataclass(frozen=True)
class Records:
    """The records of the topic. groups: of `many_groups`, a multiple of 100,000."""

    groups: int

    def value(self, number: int) -> bytes:
        """One record."""
        stride = self.groups // _CHANGED
        group = number % _CHANGED * stride + number // 1_000_000 % stride if number >= self.groups else number
        event = number - 49 * PARTITIONS if number % 100 == 99 and number > 1000 else number
        return b'{"e":"%016x-%012x","g":%d,"h":%d,"k":%d,"n":%d,"at":%d,"s":"state %d"}' % (
            event * 0x9E3779B97F4A7C15 % 2**64, event, number % 10_000, group, number % _CHANGED, number % 1000, number,
            number // (5 * _CHANGED),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Feed:
    """The topic, and how many records are warm and measured."""

    topic: str
    records: Records
    warm: int
    measured: int


def measure(place: Place, cases: list[str], warm: int, measured: int, groups: int) -> None:
    """Prints what each case costs."""
    cpu: dict[str, float] = {}
    for case in cases:
        feed = _Feed(f"bench_states_{new_id()[:8]}", Records(groups), warm, measured)
        make_topics(place.bootstrap, [feed.topic], PARTITIONS)
        say(f"{case}: filling {feed.topic}")
        fill(place.bootstrap, feed.topic, PARTITIONS, feed.records.value, warm)
        around = Surroundings(place)
        folder = place.run_folder(f"states-{case}")
        used_s = _used_s(place, feed, folder, case)
        cpu[case] = used_s / measured * 1e6
        figures: dict[str, object] = {"case": case, "cpu_s_per_million": round(cpu[case], 2)}
        if "append" in cpu:
            figures["times_append"] = round(cpu[case] / cpu["append"], 2)
        print(json.dumps({**figures, **around.end()}), flush=True)
        place.discard(folder)


def _used_s(place: Place, feed: _Feed, folder: Path, case: str) -> float:
    """Reads the warm records, then the measured ones; returns the CPU of the latter in seconds."""
    if case == "flink":
        return _used_by_flink_s(place, feed, folder)
    command = _stock(place, feed, folder) if case == "stock" else _frazil(place, feed, folder, CASES[case])
    _read(command)
    # The records go on where the warm ones ended.
    fill(place.bootstrap, feed.topic, PARTITIONS, lambda number: feed.records.value(feed.warm + number), feed.measured)
    running = _read(command)
    if case != "stock":
        table = Table(subjects.catalog_file(folder), subjects.NAMESPACE, subjects.TABLE)
        if sum(committed(table, folder.name)) != feed.warm + feed.measured:
            raise RuntimeError(f"{case} has read {committed(table, folder.name)}")
    return value_at(running.sampler.cpu, now_s()) - value_at(running.sampler.cpu, begun_s(running))


def _used_by_flink_s(place: Place, feed: _Feed, folder: Path) -> float:
    """Returns the CPU of as many records as are measured in Flink SQL, in seconds. Its state ends with its process, which
    therefore reads all records.
    """
    fill(place.bootstrap, feed.topic, PARTITIONS, lambda number: feed.records.value(feed.warm + number), feed.measured)
    job = {
        "bootstrap": place.bootstrap,
        "topic": feed.topic,
        "heap": place.settings.heap,
        "records": _COLUMNS,
        "columns": "g bigint, n bigint, `at` bigint, records bigint, primary key (g) not enforced",
        "select": "select g, sum(n), max(`at`), count(*) from records group by g",
        "options": {"write.upsert.enabled": "true"},
    }
    running = _read(subjects.stock_command(folder, job, "bench.flink"))
    used_s = value_at(running.sampler.cpu, now_s()) - value_at(running.sampler.cpu, begun_s(running))
    return used_s * feed.measured / (feed.warm + feed.measured)


def _read(command: Command) -> Running:
    """Runs the command to its end."""
    running = Running(command)
    code = running.wait(_TIMEOUT_S)
    if code:
        raise RuntimeError(f"{command.subject} ended with exit={code}: {running.tail()}")
    return running


def _frazil(place: Place, feed: _Feed, folder: Path, settings: Mapping[str, object]) -> Command:
    usual = place.settings
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, usual.heap, usual.catch_up_interval)
    return subjects.frazil_table_command(
        usual.frazil, folder, pipeline, feed.topic, settings, "--until-caught-up", *DEBUG_LOG
    )


def _stock(place: Place, feed: _Feed, folder: Path) -> Command:
    job = {
        "bootstrap": place.bootstrap,
        "topic": feed.topic,
        "heap": place.settings.heap,
        "jvm_options": STOCK_JVM,
        "per_batch": 4_000_000,
    }
    return subjects.stock_command(folder, job, "bench.stock_state")


def main() -> None:
    """See the module."""
    given = sys.argv[1:]
    usual = (",".join(CASES), "4000000", "4000000", "1000000")
    cases, *numbers = [*given[:4], *usual[len(given) :]]
    warm, measured, groups = map(int, numbers)
    settings = Settings(frazil=Path(given[4])) if len(given) > 4 else Settings()
    with open_place(dataclasses.replace(settings, quiet_wait_s=5.0)) as place:
        measure(place, cases.split(","), warm, measured, groups)


if __name__ == "__main__":
    main()
