"""Takes tables over and releases them, as leadership has it (`leadership`), and keeps the tables of other processes warm.

A table that another process owns is read and never written: its progress as of a few seconds ago, its schemas, the ends of
its topics. Once Spark has run a job of the real shape too, a takeover is: load the table, plan, run, commit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

import structlog

from frazil.clock import Clock
from frazil.errors import ConflictError, SpecError
from frazil.ingest.loop.leadership import Leadership, LeadershipState
from frazil.ingest.loop.table_updates import forget_batch
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Planned, Table
from frazil.kafka.port import Partition
from frazil.types import Batch, OffsetRange, by_topic

log = structlog.get_logger("frazil")

STANDBY_TURN_S = 1.0
"""The pause of the loop while this process owns no table; a change of leadership ends it at once."""
# A load takes 3 to 10 ms of a core: tables are loaded so rarely that a standby stays below 3 % of one.
_WATCH_EVERY_S = 5.0
_WATCHED_PER_S = 3.0
_OFFER_EVERY_S = 0.2
_RATES_EVERY_S = 10.0
# Java compiles code that has run often: a twelfth job takes half the processor time of a second one.
WARM_JOBS, _MOST_WARM_JOBS = 3, 12
_WARM_AGAIN_S = 30.0
# Spark ends Python workers that have had no task for a minute.
_KEEP_WARM_S = 50.0
# Tables that were taken together are loaded by then, unless the catalog is slow; and their first batches have ended.
_GATHER_S, _FIRST_S = 0.5, 2.0
_WARM_RECORDS, _KEEP_WARM_RECORDS = 1000, 100
HANGING_S = 5.0
"""How long the load of a table may take before a process counts as warm without it."""
_MOST_NAMED = 10


class Ownership:
    """Which tables this process works on. The service calls it in its own thread."""

    def __init__(self, leadership: Leadership, clock: Clock) -> None:
        self._leadership = leadership
        self._is_alone = leadership.state.elect == "none"
        self._clock = clock
        #: Whether what `owns` answers may have changed since the last update.
        self.has_changed = False
        self._offered_at_s = float("-inf")
        #: The jobs of `warm_up_batch` that have ended well, whether one is running, and when the next is due.
        self._warm_jobs, self._is_warming, self._warm_due_s = 0, False, float("-inf")
        self._failed_warm_jobs = 0
        self._is_warm = False
        #: When the Kafka client of a partition was last used for nothing, and when the next ones are.
        self._known: set[str] = set()
        #: Tables that this process no longer owns and whose batch is still in hand; None where nothing is to be released.
        self._leaving: set[str] | None = None
        #: Tables that are taken once their load has ended.
        self.pending: set[str] = set()
        #: Tables that were taken together, whether their first batches have begun, and how long others wait for them.
        self._taken: list[Table] = []
        self._have_begun = False
        self._gather_until_s = self._first_until_s = float("-inf")
        self._requests: list[Future[None]] = []
        self._rates = Rates()

    @property
    def state(self) -> LeadershipState:
        """Who works on which tables."""
        return self._leadership.state

    def start(self, wake: Callable[[], None]) -> None:
        """Joins the other processes. wake: ends a wait of the service's thread."""

        def note_change() -> None:
            self.has_changed = True
            wake()

        self._leadership.start(note_change)

    def release(self) -> None:
        """Lets other processes take the tables at once, as no batch is in hand any more."""
        self._leadership.release()

    def close(self) -> None:
        """Leaves the other processes."""
        self._leadership.close()

    # ---- taking and leaving

    def update(self, tables: Sequence[Table]) -> None:
        """Takes over the tables that this process is to work on now, and leaves those that another one is."""
        if not self._is_alone or len(tables) != len(self._known):  # The tables of a lone process stay its own.
            self._update(tables)

    def _update(self, tables: Sequence[Table]) -> None:
        self.has_changed = False
        owned = {table.name for table in tables if self._leadership.owns(table.name)}
        for table in tables:
            if table.name not in self._known:
                table.schedule.is_owned = table.name in owned
        self._known = {table.name for table in tables}
        lost = [table for table in tables if table.schedule.is_owned and table.name not in owned]
        # A load that has begun for a standby would count as one for the owner: it is waited for.
        won = [t for t in tables if t.name in owned and not t.schedule.is_owned and not t.schedule.in_flight]
        for table in lost:
            self._leave(table)
        for table in won:
            _take(table)
        if lost:
            log.info("tables_released", **_named(lost), leader=self.state.leader, reason=self.state.reason)
        if won:
            now_s = self._clock.monotonic_s()
            self._taken, self._have_begun = [*self._taken, *won], False
            self._gather_until_s, self._first_until_s = now_s + _GATHER_S, now_s + _FIRST_S
            log.info("tables_taken", **_named(won), reason=self.state.reason)
        if self.pending - owned:  # Given and taken back during its load: it is released too.
            self._leaving = self._leaving or set()
        self.pending = {table.name for table in tables if table.name in owned and not table.schedule.is_owned}
        self._release(tables)

    def is_covered(self, tables: Sequence[Table]) -> bool:
        """Whether each table has been taken by this process, or by another one that is linked with it."""
        state = self.state
        if state.elect == "none":
            return True
        others = {member.name for member in state.members} - {state.name}
        owners = dict.fromkeys((table.name for table in tables), state.leader) if state.owners is None else state.owners
        return all(
            table.catalog.is_loaded if table.schedule.is_owned else owners.get(table.name) in others
            for table in tables
            if table.status.run_state is not RunState.STOPPED
        )

    def first_of(self, free: list[Table]) -> list[Table]:
        """Returns those of the free tables that may begin a batch. Tables that were just taken are late already: none begins
        until they are loaded, for half a second at most, so that one job reads all of them, and no other does until their
        first batches have ended, for two seconds at most.
        """
        now_s, taken = self._clock.monotonic_s(), self._taken
        if not taken or now_s >= self._first_until_s:
            self._taken = []
            return free
        was_begun, self._have_begun = (
            self._have_begun,
            now_s >= self._gather_until_s or not any(map(_is_loading, taken)),
        )
        if not self._have_begun:
            return []
        self._taken = [table for table in taken if not table.schedule.batch_done_at_s and not table.schedule.failures]
        if was_begun and not any(table.schedule.in_flight for table in self._taken):
            self._taken = []
            return free
        names = {table.name for table in self._taken}
        return [table for table in free if table.name in names]

    @property
    def is_taking(self) -> bool:
        """Whether the batches that begin now are the first ones of tables that were just taken."""
        return self._have_begun and bool(self._taken)

    def become_standby(self, table: Table) -> bool:
        """Leaves a table that a later run has written; returns False where this process has nobody to stand by for."""
        if table.schedule.is_owned:
            if not self._leadership.fenced(table.name):
                return False
            self._leave(table)
            log.warning("fenced_to_standby", table=table.name, leader=self.state.leader)
        return True

    def stand_down(self, answer: Future[None]) -> None:
        """Requests that another process takes all tables. answer: completed once this process has released them.

        Raises: SpecError without an election; ConflictError where no other process could take over.
        """
        state = self.state
        if state.elect == "none":
            raise SpecError(
                "no process stands by: `ha.elect` is none", remedy="set `ha: {elect: kafka}`, and start two processes"
            )
        if not any(member.is_warm for member in state.members if member.name != state.name):
            raise ConflictError(
                "no other process could take over now", remedy="start one, and wait until `frazil status` shows it warm"
            )
        self._requests.append(answer)
        self._leadership.stand_down("an operator has requested it")

    def end(self) -> None:
        """Requests that another process takes all tables, as this one is about to end."""
        self._leadership.stand_down("the process is ending", is_final=True)

    def _leave(self, table: Table) -> None:
        self._leaving = (self._leaving or set()) | {table.name}
        table.schedule.is_owned = False
        if not table.schedule.in_flight:
            table.status.set(RunState.WAITING)

    def _release(self, tables: Iterable[Table]) -> None:
        """Releases the tables that this process has left, each once no batch of it is in hand: one that hangs delays no
        other.
        """
        if self._leaving is not None:
            in_hand = {t.name for t in tables if t.name in self._leaving and t.schedule.in_flight}
            if not in_hand or in_hand != self._leaving:
                self._leadership.release(in_hand)
            self._leaving = in_hand or None
        if self._requests and self._leaving is None and not any(table.schedule.is_owned for table in tables):
            for request in self._requests:
                request.set_result(None)
            self._requests.clear()

    # ---- being warm

    def offer(self, tables: Sequence[Table]) -> None:
        """Reports this process to the others, if there may be any, a few times a second."""
        now_s = self._clock.monotonic_s()
        if not self._is_alone and now_s - self._offered_at_s >= _OFFER_EVERY_S:
            self._offered_at_s = now_s
            self._leadership.offer(self._rates.of(tables, now_s), self.is_warm(tables))

    def is_warm(self, tables: Sequence[Table]) -> bool:
        """Whether this process could take over at once. It remains so: tables that it takes are not loaded for a moment, in
        which a leader that divides tables must not take them back.
        """
        if not self._is_warm:
            self._is_warm = self._warm_jobs >= WARM_JOBS and self._are_known(tables)
        return self._is_warm

    def _are_known(self, tables: Iterable[Table]) -> bool:
        """Whether each table is loaded, but for those whose load fails or hangs, for which no process can do more."""
        hanging_s = self._clock.monotonic_s() - HANGING_S
        return all(
            _are_loaded([table])
            or table.schedule.failures
            or (table.schedule.in_flight and table.catalog.asked_at_s <= hanging_s)
            for table in tables
        )

    def to_watch(self, tables: Sequence[Table], now_s: float) -> list[Table]:
        """Returns the tables of other processes that are to be loaded now, a few of many at a time."""
        every_s = max(_WATCH_EVERY_S, len(tables) / _WATCHED_PER_S)
        due = [
            table
            for table in tables
            if not (table.schedule.is_owned or table.schedule.in_flight)
            and table.status.run_state is not RunState.STOPPED
            and now_s - table.catalog.asked_at_s >= every_s
            and (table.schedule.failures == 0 or now_s >= table.schedule.next_due_s)
        ]
        due.sort(key=lambda table: table.catalog.asked_at_s)
        return due[: max(1, math.ceil(len(tables) / every_s))]

    def warm_up_batch(self, tables: Sequence[Table], ends: Mapping[Partition, int]) -> Planned | None:
        """Returns the newest records of a table, for a job of the real shape that writes nothing; None where none is due.
        A process that owns tables needs no such job. `end_warm_up` is called when the job has ended: until then none is due.
        """
        now_s = self._clock.monotonic_s()
        if self._is_warming or now_s < self._warm_due_s or not self._are_known(tables):
            return None
        usable = (t for t in tables if not t.spec.has_query and t.status.run_state is not RunState.STOPPED)
        count = _WARM_RECORDS if self._warm_jobs < _MOST_WARM_JOBS else _KEEP_WARM_RECORDS
        candidates = [p for t in usable if t.catalog.is_loaded and (p := _newest(t, ends, count, now_s))]
        # After a job that has failed another table is read: the records of the first may be the cause.
        planned = candidates[self._failed_warm_jobs % len(candidates)] if candidates else None
        self._is_warming = planned is not None
        if planned is None:  # Without records no more can be done now.
            self._warm_jobs, self._warm_due_s = max(WARM_JOBS, self._warm_jobs), now_s + _WARM_AGAIN_S
        return planned

    def end_warm_up(self, is_done: bool) -> None:
        """Notes that the job of `warm_up_batch` has ended. is_done: whether it was well; otherwise another one follows."""
        self._is_warming = False
        self._warm_jobs += is_done
        self._failed_warm_jobs += not is_done
        pause_s = 0.0 if self._warm_jobs < _MOST_WARM_JOBS else _KEEP_WARM_S
        self._warm_due_s = self._clock.monotonic_s() + (pause_s if is_done else _WARM_AGAIN_S)

    def note_warm(self) -> None:
        """Notes that Spark has just run jobs."""
        self._warm_jobs, self._warm_due_s = _MOST_WARM_JOBS, self._clock.monotonic_s() + _KEEP_WARM_S


class Rates:
    """The records per second of each table, over the last seconds."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}
        self._since_s = float("-inf")
        self._rates: Mapping[str, float | None] = {}

    def of(self, tables: Sequence[Table], now_s: float) -> Mapping[str, float | None]:
        """Returns the rate of every table; None for one that this process has not owned for a while."""
        took_s = now_s - self._since_s
        if took_s >= _RATES_EVERY_S:
            counted = {table.name: table.counts.records for table in tables if table.schedule.is_owned}
            rates = {
                name: (count - self._counted[name]) / took_s for name, count in counted.items() if name in self._counted
            }
            self._counted, self._since_s = counted, now_s
            self._rates = {table.name: rates.get(table.name) for table in tables}
        elif len(self._rates) != len(tables):  # Tables are only ever added.
            self._rates = {table.name: self._rates.get(table.name) for table in tables}
        return self._rates


def _take(table: Table) -> None:
    """Makes the table this process's own, as after a start: its first load takes an epoch behind the last owner's. A table
    that has no progress begins where it would have at the start of this process, with `start: latest` as well.
    """
    first, first_ids = table.offsets.first, table.offsets.first_ids
    table.forget_batches()
    if table.progress.snapshot_id is None:
        table.offsets.first, table.offsets.first_ids = first, first_ids
    forget_batch(table)
    table.schedule.is_owned, table.schedule.is_paused = True, False
    table.schedule.failures = table.schedule.conflicts = 0
    table.schedule.next_due_s = table.schedule.last_batch_at_s = table.schedule.batch_done_at_s = 0.0
    table.catalog.is_loaded, table.catalog.loaded_at_s = False, 0.0
    table.status.set(RunState.WAITING)


def _is_loading(table: Table) -> bool:
    is_new = table.schedule.is_owned and not table.schedule.last_batch_at_s and not table.schedule.failures
    return is_new and (table.schedule.in_flight or not _are_loaded([table]))


def _are_loaded(tables: Iterable[Table]) -> bool:
    return all(table.catalog.is_loaded or table.status.run_state is RunState.STOPPED for table in tables)


def _named(tables: Sequence[Table]) -> dict[str, object]:
    """Returns the number of tables, and the names of the first."""
    return {"count": len(tables), "tables": [table.name for table in tables[:_MOST_NAMED]]}


def _newest(table: Table, ends: Mapping[Partition, int], count: int, now_s: float) -> Planned | None:
    """Returns a batch of about `count` newest records of a table, from all its partitions, as each has a Kafka client of its
    own; None where they have no records.
    """
    known_ends = {place: end for place in table.partitions() if (end := ends.get(place, 0)) > 0}
    if not known_ends:
        return None
    each = max(1, count // len(known_ends))
    starts = {place: max(0, end - each) for place, end in known_ends.items()}
    ranges = tuple(OffsetRange(*place, starts[place], end) for place, end in known_ends.items())
    batch = Batch(table.name, ranges, is_apart=True)
    return Planned(table, batch, by_topic(starts), dict(ends), dict(ends), now_s)
