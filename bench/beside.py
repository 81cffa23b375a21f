"""A current-state table and a changelog table of one topic: what the two cost together, loading and then keeping up.

`python -m bench.beside [records] [changes per second] [seconds] [frazil]` prints a line for each table alone and for both;
about six minutes. CPU is that of the whole process tree, as for the other benchmarks; `frazil` is the command to measure.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import subjects
from bench.arithmetic import value_at
from bench.machine import CLOCK, now_s
from bench.place import Place, Surroundings, open_place, say
from bench.running import Running
from bench.settings import Settings
from bench.table import Table
from bench.throughput import DEBUG_LOG, begun_s
from bench.upsert_feed import Changes, committed, mirror_of

_SOURCE = (
    b'{"version":"3.6.0.Final","connector":"postgresql","name":"shop","ts_ms":1795249134853,"snapshot":"false","db":"shop",'
    b'"sequence":"[\\"26719680\\",\\"26720120\\"]","ts_us":1795249134853075,"ts_ns":1795249134853075000,"schema":"public",'
    b'"table":"orders","txId":756,"lsn":26720120,"xmin":null,"origin":null,"origin_lsn":null}'
)
_COLUMNS = {"id": "long", "v": "long", "s": "string", "amount": "string", "note": "string"}
_OF_TOPIC: Mapping[str, object] = {"envelope": "debezium", "columns": _COLUMNS}
_TABLES: Mapping[str, Mapping[str, object]] = {
    "mirror": {**_OF_TOPIC, "mode": "upsert", "key_columns": ["id"]},
    "history": {**_OF_TOPIC, "changelog": True, "metadata": ["partition", "offset"]},
}
_LONGEST_S = 900.0


class Wrapped(Changes):
    """The changes as Debezium writes them, in JSON without a schema."""

    def put(self, key: int, version: int, is_delete: bool = False) -> None:
        """See Changes."""
        now_us, partition = int(now_s() * 1e6), key % len(self.told)
        row = b'{"id":%d,"v":%d,"s":"customer %d","amount":"12.%02d","note":"some text %d"}' % (
            key, version, key, version % 100, key % 1000,
        )  # fmt: skip
        before, after, op = (b'{"id":%d}' % key, b"null", b"d") if is_delete else (b"null", row, b"u")
        value = b'{"before":%s,"after":%s,"source":%s,"transaction":null,"op":"%s","ts_ms":%d}' % (
            before, after, _SOURCE, op, now_us // 1000,
        )  # fmt: skip
        self.send(partition, b'{"id":%d}' % key, value)
        self.note(key, partition, now_us, -1 if is_delete else version)


def measure(place: Place, records: int, rate: int, seconds: int) -> None:
    """Prints what each of them costs, and both."""
    changes = Wrapped(place, records + rate * seconds * 4)
    say(f"filling {changes.topic}")
    changes.insert(records)
    for names in (["mirror"], ["history"], ["mirror", "history"]):
        print(json.dumps({"tables": names, **_one(place, changes, names, rate, seconds)}), flush=True)


def _one(place: Place, changes: Changes, names: list[str], rate: int, seconds: int) -> dict[str, object]:
    folder, settings = place.run_folder("beside"), place.settings
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.upsert_interval)
    tables = {f"{subjects.NAMESPACE}.{name}": {"topic": changes.topic, **_TABLES[name]} for name in names}
    around = Surroundings(place)
    running = Running(subjects.frazil_command(settings.frazil, folder, {**pipeline, "tables": tables}, *DEBUG_LOG))
    found = [Table(subjects.catalog_file(folder), subjects.NAMESPACE, name) for name in names]

    def is_done() -> bool:
        running.check()
        return all(committed(table, folder.name) >= changes.ends for table in found)

    try:
        count = sum(changes.ends)
        _until(is_done)
        loaded_s = running.sampler.sample() - value_at(running.sampler.cpu, begun_s(running))
        load: dict[str, object] = {"records": count, "load_cpu_s_per_million": round(loaded_s / count * 1e6, 2)}
        before_s, began_s = running.sampler.sample(), now_s()
        changes.stream(rate, seconds, seed=3)
        _until(is_done)
        cores = (running.sampler.sample() - before_s) / (now_s() - began_s)
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    for table in found:
        if table.name == "mirror" and mirror_of(table) != changes.mirror:
            raise RuntimeError(
                f"the current-state table holds {mirror_of(table)}, the changes come to {changes.mirror}"
            )
        if table.name == "history" and table.committed() != sum(changes.ends):
            raise RuntimeError(f"the changelog table holds {table.committed()} rows of {sum(changes.ends)} changes")
    place.discard(folder)
    return {**load, "steady_rate_per_s": rate, "steady_cores": round(cores, 3), **around.end()}


def _until(is_done: Callable[[], bool]) -> None:
    deadline_s = CLOCK.monotonic_s() + _LONGEST_S
    while not is_done():
        if CLOCK.monotonic_s() > deadline_s:
            raise RuntimeError("not done in time")
        CLOCK.sleep(0.1)


def main() -> None:
    """See the module."""
    given = sys.argv[1:]
    usual = ("1000000", "1000", "60")
    records, rate, seconds = (int(word) for word in [*given[:3], *usual[len(given) :]])
    settings = Settings(frazil=Path(given[3])) if len(given) > 3 else Settings()
    with open_place(dataclasses.replace(settings, quiet_wait_s=5.0)) as place:
        measure(place, records, rate, seconds)


if __name__ == "__main__":
    main()
