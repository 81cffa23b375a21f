"""Tables that were read when the JVM crashed: stored across restarts, read alone, and after the others (decision 27).

A record that exceeds the JVM's memory ends the whole process, and would do so at every start before other tables are
read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.ingest.failures import TableStopped
from frazil.ingest.table import Planned
from frazil.types import OffsetRange

MOST_DEATHS = 2
"""The number of JVM crashes, while a table is read alone from the same offsets, after which the table stops."""


@dataclass(frozen=True)
class _Suspect:
    """A table that was read when the JVM crashed."""

    #: Crashes of the JVM while the table was read alone.
    deaths: int
    #: The offsets that were read at the last crash.
    ranges: tuple[OffsetRange, ...]


class Suspects:
    """The suspects of a pipeline, stored in a file that exists only while there are suspects."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)

    def __contains__(self, table: str) -> bool:
        return table in self._known

    def __bool__(self) -> bool:
        return bool(self._known)

    def deaths(self, table: str) -> int:
        """Returns the number of crashes of the JVM while the table was read alone."""
        return self._known[table].deaths if table in self._known else 0

    def record_death(self, reading: Mapping[str, Planned]) -> None:
        """Stores the tables that were read when the JVM crashed. A table that was read alone is the likely cause."""
        is_alone = len(reading) == 1
        for name, planned in reading.items():
            before = self._known.get(name)
            is_again = before is not None and _starts(before.ranges) == _starts(planned.batch.ranges)
            deaths = before.deaths if before is not None and is_again else 0
            self._known[name] = _Suspect(deaths + is_alone, planned.batch.ranges)
        if reading:
            self._write()

    def clear(self, table: str) -> None:
        """Removes a table that has been read."""
        if self._known.pop(table, None) is not None:
            self._write()

    def check(self, planned: Planned) -> None:
        """Raises TableStopped for a batch that has crashed the JVM whenever it was read."""
        known = self._known.get(planned.table.name)
        if known is None or known.deaths < MOST_DEATHS or _starts(known.ranges) != _starts(planned.batch.ranges):
            return
        ranges = [f"topic {r.topic}, partition {r.partition}, offsets {r.start} to {r.end - 1}" for r in known.ranges]
        raise TableStopped(
            f"the JVM has ended {known.deaths} times while it read these records, and nothing else",
            "give `spark.driver.memory` more under `spark: {conf: …}` and delete the file named here, or delete the records"
            f" with kafka-delete-records and set `on_data_loss: skip`; the file: {self._path}",
            "; ".join(ranges),
        )

    def _write(self) -> None:
        if not self._known:
            self._path.unlink(missing_ok=True)
            return
        with suppress(OSError):  # Without it the next start reads in the usual order.
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._path.with_suffix(".new")
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({name: _document(one) for name, one in self._known.items()}, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)


def _starts(ranges: Iterable[OffsetRange]) -> set[tuple[str, int, int]]:
    return {(r.topic, r.partition, r.start) for r in ranges}


def _document(one: _Suspect) -> dict[str, Any]:
    return {"deaths": one.deaths, "ranges": [[r.topic, r.partition, r.start, r.end] for r in one.ranges]}


def _read(path: Path) -> dict[str, _Suspect]:
    """Returns the suspects that an earlier process has stored; none where the file cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: _Suspect(one["deaths"], tuple(OffsetRange(*r) for r in one["ranges"]))
            for name, one in document.items()
        }
    return {}
