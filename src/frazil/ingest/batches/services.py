"""The ports and settings that the service is built from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from frazil.catalog.port import Catalog
from frazil.clock import Clock
from frazil.errors import UnavailableError, without_retry
from frazil.ingest.batches.ended_batch import EndedBatch
from frazil.ingest.batches.job import JobRunner
from frazil.ingest.batches.workers import ThreadWorkers, Workers
from frazil.ingest.tables.cuts import Cuts
from frazil.ingest.tables.queries import Queries
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Outbox, RecordReader, Source


@dataclass(frozen=True)
class Services:
    """The ports that the service works with; each has a twin in memory (in the package frazil-testing)."""

    #: Topics and offsets.
    source: Source
    #: Tables.
    catalog: Catalog
    #: Runs Spark jobs.
    jobs: JobRunner
    #: The clock.
    clock: Clock
    #: The worker pools.
    workers: Workers = field(default_factory=ThreadWorkers)
    #: Registry schemas; None where the pipeline file names no registry.
    schemas: Schemas | None = None
    #: Produces dead letters to topics; None where no table has such a topic.
    outbox: Outbox | None = None
    #: Reads records in the driver, for tables with `atomic: transaction`.
    reader: RecordReader | None = None
    #: Analyses the queries of tables; None where no table has one.
    queries: Queries | None = None
    #: The catalog with the reference tables of lookups; None where it is `catalog`.
    referenced: Catalog | None = None
    #: Returns the factor by which table maintenance lengthens a table's commit interval, where a commit of changes may
    #: undo the work that it is about to do; 1.0 for the usual interval. Takes no time.
    slowed_by: Callable[[str], float] = lambda _: 1.0
    #: Where batches of tables that readers get together end; None: no tables are such.
    cuts: Cuts | None = None
    #: Receives every batch at its end, in the loop's thread: it takes no time and raises nothing.
    on_batch_end: Callable[[EndedBatch], None] = lambda _: None
    #: Runs the code of a commit and changes no table, so that the first commit is as quick as later ones.
    rehearse: Callable[[], None] = lambda: None
    #: Frees memory of work that is over, where no batch is expected soon.
    release_memory: Callable[[], None] = lambda: None
    #: Whether the JVM has ended. Without records to read nothing else would notice it.
    has_jvm_ended: Callable[[], bool] = lambda: False


class RunTimeouts:
    """Counts the seconds in which the run has only waited. A running batch is no wait, unless its table's last attempt
    has failed, and neither are commits of other processes; so a long catch-up is never interrupted. The first load of a
    table is a wait, until it ends.
    """

    def __init__(self, clock: Clock, limit_s: float | None = None, awaits_topics: bool = False) -> None:
        """Starts to count. limit_s: the longest wait; None for no limit."""
        self._clock = clock
        self._limit_s = limit_s
        self._since_s = clock.monotonic_s()
        self._outage: UnavailableError | None = None
        #: The newest snapshot of each table of other processes, as far as it is known.
        self._of_others: dict[str, int | None] = {}
        #: The tables that were loaded; None before the first check.
        self._loaded: set[str] | None = None
        #: Whether a table without a topic is waited for; otherwise the run ends without it.
        self.awaits_topics = awaits_topics

    @property
    def is_limited(self) -> bool:
        """Whether the wait has a limit."""
        return self._limit_s is not None

    def reset(self) -> None:
        """Starts to count from zero, as the run has made progress."""
        self._since_s, self._outage = self._clock.monotonic_s(), None

    @property
    def left_s(self) -> float:
        """The longest pause before the limit is reached, in seconds."""
        if self._limit_s is None:
            return float("inf")
        return max(0.0, self._since_s + self._limit_s - self._clock.monotonic_s())

    def record_outage(self, error: UnavailableError) -> None:
        """Stores the outage that all tables wait for.

        Raises: UnavailableError when the limit is reached.
        """
        self._outage = error
        if not self.left_s:
            raise self._abandoned(error)

    def check(self, tables: Iterable[Table], is_caught_up: Callable[[Iterable[Table]], bool] = lambda _: False) -> None:
        """Raises UnavailableError, which names the missing service or topic, when tables have waited for too long.
        is_caught_up: whether these tables have reached the goal: what they still do is no progress of the run.
        """
        if self._limit_s is None:
            return
        tables = list(tables)
        others = {
            table.name: None if is_caught_up([table]) else table.progress.snapshot_id
            for table in tables
            if not table.schedule.is_owned
        }
        loaded = {table.name for table in tables if table.catalog.loaded_at_s}
        is_another_loaded = self._loaded is not None and not loaded <= self._loaded
        self._loaded = loaded
        if others != self._of_others or is_another_loaded:
            self._of_others = others
            self.reset()
        if any(_is_at_work(table) and not is_caught_up([table]) for table in tables):
            self.reset()
            return
        waiting = [table for table in tables if _is_waited_for(table)]
        if not waiting:
            # A further attempt of a batch that has failed is no progress before it succeeds.
            if not any(table.schedule.in_flight and table.schedule.failures for table in tables):
                self.reset()
        elif not self.left_s:
            raise self._abandoned(self._outage) if self._outage is not None else self._tables_wait(waiting)

    def _tables_wait(self, waiting: list[Table]) -> UnavailableError:
        first = min(waiting, key=lambda table: (not table.status.reason, table.name))
        others = f" (and {len(waiting) - 1} more tables wait)" if len(waiting) > 1 else ""
        reason, remedy = first.status.reason, first.status.remedy
        if not reason and _is_first_load(first):
            reason = "the catalog or the store has not answered its load"
            remedy = "check that both answer this machine at their addresses in the pipeline file"
        elif not reason:
            reason = "the process that works on it has not committed the records that existed at the start"
            remedy = "look at that process with `frazil status`"
        outage = UnavailableError(f"table {first.name}: {reason}{others}", remedy=remedy, where=first.status.where)
        return self._abandoned(outage)

    def _abandoned(self, error: UnavailableError) -> UnavailableError:
        """Returns the error with the remedy for a run that ends, instead of a retry."""
        remedy = without_retry(error.remedy)
        again = "then run the command again, or give it longer with --timeout"
        return UnavailableError(
            f"not caught up after waiting for {_duration(self._limit_s or 0.0)}: {error.message}",
            remedy=f"{remedy}; {again}" if remedy else again,
            where=error.where,
        )


def _is_at_work(table: Table) -> bool:
    """Whether something is done for the table, and nothing has failed since it last went well."""
    schedule = table.schedule
    return schedule.is_owned and schedule.in_flight and not schedule.failures and not _is_first_load(table)


def _is_first_load(table: Table) -> bool:
    """Whether the table is being loaded and has not been loaded before: it may wait for a service."""
    return table.schedule.in_flight and not table.catalog.loaded_at_s


def _is_waited_for(table: Table) -> bool:
    """Whether the table backs off, is loaded for the first time, or is worked on by another process."""
    is_of_another = not table.schedule.is_owned and table.status.run_state is not RunState.STOPPED
    return table.status.run_state is RunState.BACKING_OFF or _is_first_load(table) or is_of_another


def _duration(seconds: float) -> str:
    if seconds >= 60 and seconds % 60 == 0:
        return f"{seconds / 60:g}m"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
