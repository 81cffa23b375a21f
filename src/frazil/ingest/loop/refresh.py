"""When topics are requested, and when tables and their schemas are loaded: as pools have places, beside the batches.

How a table is loaded is in `load.py`. Every table has at most one piece of work, its batch or its load. A process that
waits runs jobs that write nothing, so that it can take tables of other processes over at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial

import structlog

from frazil.catalog.port import TableState
from frazil.clock import Clock
from frazil.errors import ConflictError, UnavailableError
from frazil.ingest.batches.workers import Workers, pool_of, registry_pool
from frazil.ingest.failures import is_jvm_gone, jvm_has_ended
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.ending import Ending
from frazil.ingest.loop.load import Loader
from frazil.ingest.loop.ownership import Ownership
from frazil.ingest.loop.planner import LONGEST_POLL_S, Planner
from frazil.ingest.loop.table_updates import back_off, is_beaten, log_recreated
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Planned, Table
from frazil.kafka.port import TopicDescription

log = structlog.get_logger("frazil")

TOPICS_EVERY_S = 5.0
# At its start a process continues without the remaining tables once no load has ended for so long.
FIRST_LOADS_S = 5.0
# A load that is refused ends earlier, with the reason.
SLOW_LOAD_S = 15.0


class Refresher:
    """Keeps up to date what the loop knows of topics, tables and schemas. Only the loop's thread calls it."""

    def __init__(
        self,
        discovery: Discovery,
        loader: Loader,
        ownership: Ownership,
        ending: Ending,
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._discovery = discovery
        self._loader = loader
        self._ownership = ownership
        self._ending = ending
        self._workers = workers
        self._clock = clock
        #: By pool, tables that are to be loaded once the pool has a place; forgotten with each refresh.
        self._to_load: dict[str, deque[Table]] = {}
        #: When loads that run began, by table, until they end or are reported as slow.
        self._begun_s: dict[str, float] = {}

    def load_all(self, wait: Callable[[float], bool]) -> None:
        """Loads every table for the first time, except those of a service that hangs. wait: handles the work that ends
        within a time in seconds; returns whether there was some.
        """
        answered_s, left, names = float("inf"), deque[Table](), set[str]()
        while not self._ending.has_begun and self._clock.monotonic_s() < answered_s + FIRST_LOADS_S:
            if len(self._discovery.tables) > len(names):  # A table of the rest names others, once it is loaded.
                left += [table for table in self._discovery.in_order if table.name not in names]
                names.update(self._discovery.tables)
                self._ownership.update(self._discovery.in_order)
            while left and self._workers.is_free(pool_of("load", left[0])):
                self.load(left.popleft())
            if not left and self._workers.is_idle:
                break
            if wait(LONGEST_POLL_S):
                answered_s = self._clock.monotonic_s()
            self._warn_of_slow_loads()
        for table in self._discovery.in_order:
            table.catalog.was_asked = False

    def load(self, table: Table, conflict: ConflictError | None = None) -> None:
        """Starts the load of a table, while others continue. It may end the process, where a later run writes the
        table. conflict: the refused commit after which the table is loaded again. A table of another process is only read.
        """
        table.catalog.was_asked = True
        self._begun_s[table.name] = self._clock.monotonic_s()
        step = self._loader.reload if conflict else self._loader.load
        if not table.schedule.is_owned:
            step = self._loader.watch
        self._submit(pool_of("load", table), table, step, conflict)

    def refresh(self, tables: Iterable[Table], now_s: float) -> None:
        """Requests topics when it is time, and starts what is due of these tables: a comparison with their topics, a load
        of the table or of its schemas.

        Raises: UnavailableError when Kafka does not answer.
        """
        self._to_load.clear()
        self._warn_of_slow_loads()
        if now_s - self._discovery.asked_at_s >= TOPICS_EVERY_S and self._workers.is_free("topics"):
            self._discovery.asked_at_s = now_s
            self._workers.submit("topics", self._after_topics, self._discovery.find_topics)
        for table in self._loader.in_turn(filter(self._needs_refresh, tables)):
            with self._ending.guarded(table):
                if self._discovery.is_behind(table):
                    self._discovery.verify(table)
                if self._ending.has_begun:
                    break
                if not self._loader.is_due(table):
                    if self._loader.has_old_schemas(table):
                        self._submit(registry_pool(table.spec), table, self._loader.refresh_schemas)
                else:
                    self._to_load.setdefault(pool_of("load", table), deque()).append(table)
        self.load_next()

    def watch(self, now_s: float, until_caught_up: bool = False) -> None:
        """Starts loads of tables of other processes while there are places. until_caught_up: also notes where partitions
        without a record begin, which no progress has.

        Raises: UnavailableError when Kafka does not answer.
        """
        for table in self._discovery.in_order:
            is_unread = table.catalog.is_loaded and table.progress.snapshot_id is None
            is_noted = until_caught_up or (is_unread and table.spec.source.start.kind == "latest")
            if is_noted and table.catalog.is_loaded and not table.schedule.is_owned:
                with self._ending.guarded(table):  # Records that come before a takeover are later than this start.
                    self._discovery.add_first_offsets(table)
        for table in self._ownership.to_watch(self._discovery.in_order, now_s):
            if self._workers.is_free(pool_of("load", table)):
                self.load(table)

    def measure(self, now_s: float) -> None:
        """Starts measuring tables that are paused or stopped while there are places."""
        for table in filter(self._loader.must_measure, self._discovery.in_order):
            pool = pool_of("load", table)
            if self._workers.is_free(pool):
                table.catalog.asked_at_s, table.catalog.is_outdated = now_s, False
                self._workers.submit(pool, _after_measure, partial(self._loader.measure, table))

    def load_next(self) -> None:
        """Starts loads while there are places; the other tables wait until these loads end."""
        for pool, tables in self._to_load.items():
            while tables and not self._ending.has_begun and self._workers.is_free(pool):
                table = tables.popleft()
                if not table.schedule.in_flight and self._loader.is_due(table):
                    table.offsets.read_to = None
                    self.load(table)

    def _warn_of_slow_loads(self) -> None:
        """Logs each load that has not ended after `SLOW_LOAD_S`, once."""
        now_s = self._clock.monotonic_s()
        for name in [name for name, begun_s in self._begun_s.items() if now_s >= begun_s + SLOW_LOAD_S]:
            waited_s = round(now_s - self._begun_s.pop(name))
            remedy = (
                "check that the catalog and the store answer this machine: a refused load ends within seconds, a load from a"
                " silent service at its timeout"
            )
            log.warning("table_load_slow", table=name, waited_s=waited_s, remedy=remedy)

    def _needs_refresh(self, table: Table) -> bool:
        """Whether the table is to be compared with its topics, or loaded, or its schemas are."""
        return self._discovery.is_behind(table) or self._loader.is_due(table) or self._loader.has_old_schemas(table)

    def _submit(
        self, pool: str, table: Table, step: Callable[[Table], None], conflict: ConflictError | None = None
    ) -> None:
        table.schedule.in_flight = True
        self._workers.submit(pool, partial(self._after_load, table, table.state, conflict), partial(step, table))

    def _after_load(
        self, table: Table, before: TableState | None, conflict: ConflictError | None, future: Future[None]
    ) -> bool:
        """Returns whether the table is as it was: a thousand idle tables are loaded each minute, and no turn follows."""
        table.schedule.in_flight = False
        self._begun_s.pop(table.name, None)
        log_recreated(before, table)
        self._discovery.add_derived(table)
        error = future.exception()
        if isinstance(error, UnavailableError):
            back_off(table, error, self._clock.monotonic_s())
        elif error is not None:
            self._ending.stop_or_end(table, error)
        elif conflict is not None and is_beaten(table, before):
            back_off(table, conflict, self._clock.monotonic_s())
        elif not self._ending.has_begun and self._loader.lacks_schemas(table):
            self._submit(registry_pool(table.spec), table, self._loader.load_schemas)
        elif not table.schedule.is_owned:
            table.schedule.failures = 0
            table.status.set(RunState.WAITING)
        is_same = error is None and before is not None and table.state is before
        return is_same and table.name not in self._ownership.pending

    def _after_topics(self, future: Future[dict[str, TopicDescription]]) -> bool:
        """Updates the topics of all tables; where only this request fails, they continue with those that they have. Returns
        whether the topics are as they were, as those of a thousand idle tables mostly are.
        """
        error = future.exception()
        if isinstance(error, UnavailableError):
            log.warning(
                "service_unavailable",
                reason=error.message,
                where=error.where,
                remedy=error.remedy,
                retry_in_s=TOPICS_EVERY_S,
            )
            self._discovery.outage = error
            return False
        if self._discovery.are_matched(future.result()):
            return True
        self._discovery.set_topics(future.result())
        for table in self._discovery.in_order:
            schedule = table.schedule
            if schedule.is_owned and not schedule.in_flight and table.status.run_state is not RunState.STOPPED:
                with self._ending.guarded(table):
                    self._discovery.verify(table)
        return False


def _after_measure(future: Future[None]) -> bool:
    """Raises the error of a measure, unless the catalog does not answer: the size as of before is shown until then."""
    error = future.exception()
    if error is not None and not isinstance(error, UnavailableError):
        raise error
    return False


class KeepWarm:
    """Begins jobs that write nothing when they are due. Only the loop's thread calls it."""

    def __init__(
        self, ownership: Ownership, loader: Loader, planner: Planner, workers: Workers, ending: Ending
    ) -> None:
        self._ownership = ownership
        self._loader = loader
        self._planner = planner
        self._workers = workers
        self._ending = ending

    def begin_due(self, tables: Sequence[Table]) -> None:
        """Lets Spark run a job of the real shape while this process owns no table: its workers stay connected to Kafka. It
        has a pool of its own, so that the first batch after a takeover does not wait for it.
        """
        steps, ends = self._loader.steps, self._planner.ends
        if any(table.schedule.is_owned for table in tables):
            self._ownership.note_warm()
        elif planned := self._ownership.warm_up_batch(tables, ends):
            self._workers.submit("warm-up", partial(self._after_job, planned), partial(steps.try_tasks, planned))

    def _after_job(self, planned: Planned, future: Future[None]) -> None:
        error = future.exception()
        self._ownership.end_warm_up(error is None)
        if error is not None and is_jvm_gone(error):
            self._ending.end(jvm_has_ended())
        elif error is not None:
            log.warning("warm_up_failed", table=planned.table.name, reason=str(error))
