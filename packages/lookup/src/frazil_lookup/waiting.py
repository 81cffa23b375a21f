"""Replays records that wait for their row of a reference table.

They are replayed when the table has another version, and when their wait is over as if the lookup had no `wait`. Nothing but
these two kinds of commits is remembered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from frazil.catalog.port import Catalog
from frazil.clock import Clock
from frazil.dead_letters.files import Held, HeldRecords, Selection, are_waiting
from frazil.dead_letters.record import HELD_AT
from frazil.error_classes import ErrorClass
from frazil.errors import FrazilError, unforeseen
from frazil.ingest.failures import TableStopped, describe_error
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ops.running import RunningPipeline
from frazil.spec.models import TableSpec
from frazil.spec.steps import without_waits
from frazil_deadletters.replay import Replayer
from frazil_lookup.references import References

log = structlog.get_logger("frazil")

_NAP_S = 0.5
_PAUSE_SHARE = 0.1
"""Replays of a table take at most this share of the time."""
_LONGEST_PAUSE_S = 30.0
_BLOCKED_US = 30_000_000


@dataclass(frozen=True)
class _Expired(Selection):
    """A selection of the records that wait for the row of one of the lookups `path` since `held_at` or longer. It has those
    that a newer change of their row has held back too, which do not name a lookup.
    """

    error_class: str | None = ErrorClass.LOOKUP_WAITING
    path: tuple[str, ...] = ()
    held_at: int = 0

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """See Selection."""
        held_us = rows[HELD_AT].cast(pa.int64())
        is_over = pc.fill_null(pc.less_equal(held_us, pa.scalar(self.held_at, pa.int64())), True)
        is_of_lookup = pc.is_in(pc.fill_null(rows["path"], ""), pa.array(["", *self.path]))
        return pc.and_(are_waiting(rows), pc.and_(is_over, is_of_lookup))


@dataclass(frozen=True)
class _Wait:
    """A time after which the waits of some lookups are over."""

    us: int
    #: The lookups that wait no longer then, and the table as it would be without their `wait`.
    names: tuple[str, ...]
    table: Table


class WaitingTable:
    """The records of one table that wait, and their replays. services: as of `Replayer`."""

    def __init__(self, spec: TableSpec, catalog: Catalog, replayer: Replayer, clock: Clock) -> None:
        self.spec, self._table = spec, Table(spec)
        self._catalog, self._replayer, self._clock = catalog, replayer, clock
        # The longest first: a record that misses rows of several lookups waits for all of them from the time when it
        # was read.
        waits = []
        lengths = {lookup.name: int((lookup.wait_s or 0.0) * 1e6) for lookup in spec.query.waits}
        for length_us in sorted(set(lengths.values()), reverse=True):
            names = tuple(name for name, us in lengths.items() if us <= length_us)
            waits.append(_Wait(length_us, names, Table(without_waits(spec, names))))
        self._waits = waits
        self._references, self._held = References(catalog), HeldRecords(catalog)
        #: The versions of the reference tables for which all records of these files still wait.
        self._tried: tuple[Mapping[str, Any], frozenset[str]] = {}, frozenset()
        #: By length of a wait, the files with records whose wait is over without an effect, and up to when it was over.
        self._blocked: dict[int, tuple[frozenset[str], int]] = {}
        #: How many records wait.
        self.count = 0

    def replay_due(self) -> bool:
        """Replays the records that may have their row now, and those whose wait is over; returns whether there were some.

        Raises: as Replayer.replay and HeldRecords.read.
        """
        held = self._look()
        if not held.count:
            return False
        has_replayed, now_us = False, self._clock.now_ms() * 1000
        for wait in self._waits:
            has_replayed |= self._end(wait, held, now_us - wait.us)
        self._references.refresh(self._table, {})
        versions = self._table.schema.reference_versions
        if (versions, held.files) != self._tried:
            if self._replay(self._table, Selection(error_class=ErrorClass.LOOKUP_WAITING)):
                has_replayed = True
            elif not has_replayed:
                self._tried = versions, held.files
        if has_replayed:
            self._look()
        return has_replayed

    def _end(self, wait: _Wait, held: Held, until_us: int) -> bool:
        """Ends the wait of the records that are held since `until_us` or longer; returns whether there were some."""
        since_us = [held.since_us[name] for name in ("", *wait.names) if name in held.since_us]
        files, blocked_us = self._blocked.get(wait.us, (frozenset(), 0))
        is_blocked = files == held.files and until_us < blocked_us + _BLOCKED_US
        if min(since_us, default=until_us + 1) > until_us or is_blocked:
            return False
        if self._replay(wait.table, _Expired(path=wait.names, held_at=until_us)):
            return True
        # They wait for a further lookup, or newer dead letters change the same rows.
        self._blocked[wait.us] = held.files, until_us
        return False

    def _look(self) -> Held:
        held = self._held.read(self._catalog.load(self._table.dead_letter_table_name))
        self.count = held.count
        return held

    def _replay(self, table: Table, selection: Selection) -> bool:
        """Returns whether records wait no longer."""
        before = self.count
        done = self._replayer.replay(table, selection, is_of_waiting=True)
        held = self._look()
        if not done.replayed and held.count == before:
            return False
        log.info("waiting_records_replayed", table=table.name, rows=done.replayed, waiting=held.count)
        return True


@dataclass
class _Turn:
    """When the records of a table are looked at next."""

    #: None before the first time.
    waiting: WaitingTable | None = None
    due_s: float = 0.0
    #: What went wrong the last time.
    failure: str = ""


class WaitSchedule:
    """Replays the records that wait, beside ingestion. The first `note` with such a table starts the thread, `stop` ends it.

    open_services: opens the catalog and what replays, for the thread alone.
    """

    def __init__(
        self,
        open_services: Callable[[], tuple[Catalog, Replayer]],
        clock: Clock,
        on_replay: Callable[[str], None] = lambda _: None,
        has_thread: bool = True,
    ) -> None:
        """on_replay: called with the name of a table after a replay. has_thread: False for a run that only catches up, and
        replays at its end.
        """
        self._open, self._clock, self._on_replay, self._has_thread = open_services, clock, on_replay, has_thread
        self._services: tuple[Catalog, Replayer] | None = None
        self._tables: list[Table] = []
        self._turns: dict[str, _Turn] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="waiting", daemon=True)

    def note(self, tables: Iterable[Table]) -> None:
        """Takes the tables of the process, and gives them the numbers of their records that wait; returns at once. Only the
        loop's thread calls it.
        """
        self._tables = [table for table in tables if table.spec.query.waits]
        for table in self._tables:
            turn = self._turns.get(table.name)
            if turn is not None and turn.waiting is not None:
                table.catalog.waiting_count = turn.waiting.count
        if self._has_thread and self._thread.ident is None and self._tables:
            self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Begins no further replay, and waits for the current one. A replay that is left is finished by the next run."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def run_last(self) -> None:
        """Replays what is due at the end of a run that has only caught up."""
        if not self._has_thread:
            self.run_due()

    def run_due(self) -> None:
        """Replays the records of each table that is due."""
        for table in self._tables:
            is_here = table.schedule.is_owned and table.status.run_state is not RunState.STOPPED
            if is_here and not table.schedule.is_paused and table.state is not None and not self._stopping.is_set():
                self._take_turn(table)

    def _loop(self) -> None:
        while not self._stopping.wait(_NAP_S):
            self.run_due()

    def _take_turn(self, table: Table) -> None:
        began_s = self._clock.monotonic_s()
        turn = self._turns.setdefault(table.name, _Turn())
        if began_s < turn.due_s:
            return
        failure, remedy = "", ""
        try:
            self._services = self._services or self._open()
            if turn.waiting is None or turn.waiting.spec is not table.spec:
                turn.waiting = WaitingTable(table.spec, *self._services, self._clock)
            if turn.waiting.replay_due():
                self._on_replay(table.name)
        except (FrazilError, TableStopped) as error:
            failure, remedy, _ = describe_error(error)
        except OSError as error:
            failure = f"the store does not read or write a file: {error}"
        except Exception as error:  # Records are ingested, and those of other tables replayed, whatever is wrong here.
            if not self._stopping.is_set():
                log.error(
                    "unexpected_error", table=table.name, error=f"{type(error).__name__}: {error}", exc_info=error
                )
            failure = unforeseen(error, table.name).message
        ended_s = self._clock.monotonic_s()
        pause_s = _LONGEST_PAUSE_S if failure else min(_LONGEST_PAUSE_S, (ended_s - began_s) / _PAUSE_SHARE)
        turn.due_s = ended_s + pause_s
        if failure and failure != turn.failure and not self._stopping.is_set():
            log.warning("waiting_records_failed", table=table.name, reason=failure, remedy=remedy)
        turn.failure = failure


def open_waits(running: RunningPipeline, is_ending: bool) -> WaitSchedule:
    """Returns what replays the records of a pipeline that wait. is_ending: whether the run only catches up."""

    def open_services() -> tuple[Catalog, Replayer]:
        services = running.services
        return services.catalog, Replayer(services.catalog, services.schemas, services.topics, services.queries)

    return WaitSchedule(open_services, running.clock, running.reload, not is_ending)
