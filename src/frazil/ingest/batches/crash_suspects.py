"""What follows a crash, of a task or of the JVM (decision 27).

Tables that were read when the JVM crashed are stored across restarts, read alone, and after the others: what ends the JVM
would do so at every start before other tables are read. Of records the JVM has those fields alone for which Spark evaluates
an expression, on which it may overflow its stack.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import TypeAdapter

from frazil.errors import FrazilError
from frazil.ingest.batches.outcome import Retry, Stop
from frazil.ingest.failures import TableStopped, TaskFailedError
from frazil.ingest.plan import lag_records
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Planned, Table
from frazil.ingest.tasks.isolate import Found
from frazil.kafka.port import Partition
from frazil.types import Batch, OffsetRange

log = structlog.get_logger("frazil")

MOST_DEATHS = 2
"""The number of JVM crashes, while a table is read alone from the same offsets, after which the table stops."""
# A table stops after so many searches for the record with which its task fails.
MOST_SEARCHES = 10


@dataclass(frozen=True)
class _Suspect:
    """A table that was read when the JVM crashed."""

    #: Crashes of the JVM while the table was read alone.
    deaths: int
    #: The offsets that were read at the last crash.
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True)
class _Stored:
    """A suspect in the file."""

    deaths: int
    #: Topic, partition, start and end of each range.
    ranges: list[tuple[str, int, int, int]]


class Suspects:
    """The suspects of a pipeline, stored in a file that exists only while there are suspects."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)
        self._reading: dict[str, Planned] = {}
        #: Until then suspects are read after the other tables, on the monotonic clock in seconds.
        self.last_until_s = float("-inf")

    def begin(self, planned: Iterable[Planned]) -> None:
        """Notes that the batches are read from now on."""
        self._reading |= {p.table.name: p for p in planned}

    def end(self, table: str) -> None:
        """Notes that the table's batch is not read any more."""
        self._reading.pop(table, None)

    def delays(self, table: Table, tables: Iterable[Table], ends: Mapping[Partition, int], now_s: float) -> bool:
        """Whether the table must wait because of suspects: these are read alone, and after the others have been read to
        their ends, or until `last_until_s`.
        """
        if table.name not in self._known:
            return not self._known.keys().isdisjoint(self._reading)
        if self._reading:
            return True
        others = (
            other
            for other in tables
            if other.name not in self._known and other.status.run_state is not RunState.STOPPED
        )
        return now_s < self.last_until_s and any(
            other.unplaced() or lag_records(other.position(), ends) for other in others
        )

    def select(self, planned: list[Planned]) -> list[Planned]:
        """Returns the batches that may be read together: of suspects one, that with the fewest crashes."""
        suspects = [p for p in planned if p.table.name in self._known]
        return [min(suspects, key=lambda p: self._known[p.table.name].deaths)] if suspects else planned

    def record_death(self) -> None:
        """Stores the tables that were read when the JVM crashed. A table that was read alone is the likely cause."""
        is_alone = len(self._reading) == 1
        for name, planned in self._reading.items():
            before = self._known.get(name)
            is_again = before is not None and _starts(before.ranges) == _starts(planned.batch.ranges)
            deaths = before.deaths if before is not None and is_again else 0
            self._known[name] = _Suspect(deaths + is_alone, planned.batch.ranges)
        if self._reading:
            self._write()
        self._reading = {}  # All tables of the crash are recorded at once.

    def clear(self, table: str) -> None:
        """Removes a table that has been read, or that is to be tried once more."""
        if self._known.pop(table, None) is not None:
            self._write()

    def check(self, planned: Planned) -> None:
        """Raises TableStopped for a batch that has crashed the JVM whenever it was read."""
        suspect = self._known.get(planned.table.name)
        if suspect is None or suspect.deaths < MOST_DEATHS or _starts(suspect.ranges) != _starts(planned.batch.ranges):
            return
        raise TableStopped(
            f"the JVM has ended {suspect.deaths} times while it read these records, and nothing else",
            f"find the reason in its log, then run `frazil resume {planned.table.name}`; or inspect the records of"
            " this range: to continue behind them write `start` with the offset of each partition and give the table a new"
            " name",
            Batch(planned.table.name, suspect.ranges).place,
        )

    def _write(self) -> None:
        with suppress(OSError):  # Without it the next start reads in the usual order.
            if not self._known:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._path.with_suffix(".new")
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(
                    {
                        name: {
                            "deaths": suspect.deaths,
                            "ranges": [[r.topic, r.partition, r.start, r.end] for r in suspect.ranges],
                        }
                        for name, suspect in self._known.items()
                    },
                    file,
                )
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)


def _starts(ranges: Iterable[OffsetRange]) -> set[tuple[str, int, int]]:
    return {(r.topic, r.partition, r.start) for r in ranges}


def _read(path: Path) -> dict[str, _Suspect]:
    """Returns the suspects that an earlier process has stored; none where the file cannot be read."""
    with suppress(OSError, ValueError):  # Pydantic's error is one.
        text = path.read_bytes()  # Before the adapter, which takes longer than all else here: there is seldom a file.
        stored = TypeAdapter(dict[str, _Stored]).validate_json(text)
        return {
            name: _Suspect(suspect.deaths, tuple(OffsetRange(*r) for r in suspect.ranges))
            for name, suspect in stored.items()
        }
    return {}


def apply_found(planned: Planned, error: TaskFailedError, found: Found) -> Stop | Retry | None:
    """Applies the result of a search for the records that crash a task. Returns the outcome of the batch, or None where
    it is planned again: without crashing records, or with fewer records.
    """
    table = planned.table
    if found.records:
        table.bad_records.crashing |= frozenset(found.records)
        for record in found.records:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.warning("crashing_record_found", table=table.name, **place, reason=record.reason)
    elif found.together and table.schedule.read_less(planned.batch.span):
        most, reason = table.schedule.most_records, found.together[0].reason
        log.warning("batch_size_reduced", table=table.name, records=most, reason=reason)
    elif found.together or table.bad_records.searches >= MOST_SEARCHES:
        return Stop(_not_isolated(planned.batch, found, error))
    else:
        return Retry(error)
    table.schedule.next_due_s, table.bad_records.searches = 0.0, 0
    return None


def _not_isolated(batch: Batch, result: Found, error: FrazilError) -> TableStopped:
    """Returns the error of a table whose task fails, where no single record fails alone."""
    first = result.together[0] if result.together else None
    cause = first.reason if first else error.message
    reason = f"records crash the task that reads them, and no single record does: {cause}"
    remedy = (
        "inspect the records of this range; to continue behind them write `start` with the offset of each partition"
        " and give the table a new name"
    )
    return TableStopped(reason, remedy, batch.place)
