"""When a reader could first see each snapshot: a process that asks the catalog every 5 ms and notes what is new."""

from __future__ import annotations

import json
import multiprocessing
import re
import sqlite3
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

from bench.machine import CLOCK
from bench.table import _LOCATION, Table, local_path

_CURRENT = re.compile(rb'"current-snapshot-id"\s*:\s*(-?\d+)')
_POLL_S = 0.005


class Watcher:
    """Watches one table from a process of its own until it is stopped."""

    def __init__(self, table: Table, log: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._log = log
        self._stop: Event = context.Event()
        arguments = (table.catalog, table.namespace, table.name, log, self._stop)
        self._process: BaseProcess = context.Process(target=_watch, args=arguments, daemon=True)
        self._process.start()

    def stop(self) -> dict[int, int]:
        """Each snapshot that was seen as the current one, and the millisecond of its first sight."""
        self._stop.set()
        self._process.join()
        return self.seen()

    def seen(self) -> dict[int, int]:
        """What was seen so far."""
        times: dict[int, int] = {}
        if self._log.exists():
            for line in self._log.read_text().splitlines():
                snapshot, time_ms = json.loads(line)
                times.setdefault(snapshot, time_ms)
        return times


def _watch(catalog: Path, namespace: str, name: str, log: Path, stop: Event) -> None:
    while not catalog.exists() and not stop.is_set():
        CLOCK.sleep(_POLL_S)
    connection = sqlite3.connect(f"file:{catalog}?mode=ro", uri=True, timeout=5)
    last = ""
    with log.open("a", buffering=1) as out:
        is_last = False
        while not is_last:
            # What was committed just before the stop is seen too, by the last look.
            is_last = stop.is_set()
            try:
                row = connection.execute(_LOCATION, (namespace, name)).fetchone()
            except sqlite3.OperationalError:
                row = None
            if row and row[0] != last:
                time_ms, last = CLOCK.now_ms(), row[0]
                snapshot = _current_snapshot(local_path(last))
                if snapshot is not None:
                    out.write(json.dumps([snapshot, time_ms]) + "\n")
            CLOCK.sleep(_POLL_S)
    connection.close()


def _current_snapshot(metadata: Path) -> int | None:
    """The id that the metadata file names as current; it stands before the list of snapshots, however long that is."""
    with metadata.open("rb") as source:
        found = _CURRENT.search(source.read(1 << 18))
    return int(found[1]) if found and int(found[1]) >= 0 else None
