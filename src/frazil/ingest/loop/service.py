"""The loop over all tables: request ends, plan, run, commit, back off, drain.

One thread owns every table and decides; worker pools do the work. A table that fails or stops does not affect the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property, partial

import structlog

from frazil import __version__
from frazil.errors import UnavailableError
from frazil.ingest.batches.crash_suspects import Suspects, apply_found
from frazil.ingest.batches.ended_batch import ended_batch
from frazil.ingest.batches.outcome import Committed, Outcome, Reload, Replan, Retry, Stop, outcome_of
from frazil.ingest.batches.services import RunTimeouts, Services
from frazil.ingest.batches.workers import pool_of, registry_pool, store_of
from frazil.ingest.failures import (
    FunctionFailedError,
    TableStopped,
    TaskFailedError,
    is_heap_full,
    is_jvm_gone,
    jvm_has_ended,
)
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.ending import Ending
from frazil.ingest.loop.leadership import Alone, Leadership
from frazil.ingest.loop.load import Loader
from frazil.ingest.loop.ownership import STANDBY_TURN_S, Ownership
from frazil.ingest.loop.planner import Planner
from frazil.ingest.loop.refresh import KeepWarm, Refresher
from frazil.ingest.loop.requests import Requests
from frazil.ingest.loop.table_updates import (
    backoff_s,
    forget_batch,
    note_committed,
    note_read,
    retry,
    wait_for_transaction,
)
from frazil.ingest.plan import group_batches, tables_read_with
from frazil.ingest.tables.batch_ends import BatchEnds, Cut
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Planned, Table
from frazil.ingest.tasks.isolate import Found
from frazil.plugins.driver import TABLE_KEYS
from frazil.report import TaskReport
from frazil.spec import PipelineSpec

log = structlog.get_logger("frazil")

PUBLISH_EVERY_S = 0.5
# Publishing a thousand tables takes a while: it may take this share of the time, and still shows that the loop turns.
PUBLISH_SHARE = 0.01
LONGEST_UNPUBLISHED_S = 3.0
# The same while nothing happens to any table.
IDLE_PUBLISH_SHARE = 0.003
LONGEST_IDLE_UNPUBLISHED_S = 10.0
# The longest time in which this process does not report to the others that it turns.
LONGEST_WAIT_S = 1.0
# For so long after the start, tables that were read when the JVM crashed are read after the others.
OTHERS_FIRST_S = 60.0


class Service:
    """Runs one pipeline. `publish` receives the tables after every change that `status` shows. leadership: which tables are
    this process's; all of them where it is None.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        services: Services,
        run_id: str,
        publish: Callable[[Sequence[Table]], None],
        leadership: Leadership | None = None,
    ) -> None:
        self._services = services
        self._clock = services.clock
        self._publish = publish
        self._discovery = Discovery(spec, services.source, services.catalog)
        self._loader = Loader(spec.pipeline, services, self._discovery, run_id)
        self._planner = Planner(self._discovery, services.jobs, services.clock, services.cuts)
        self._workers = services.workers
        self._suspects = Suspects(spec.file.state_dir / f"{spec.pipeline}.suspects.json")
        #: Which tables are this process's.
        self.ownership = Ownership(leadership or Alone(run_id, __version__, services.clock.now_ms()), services.clock)
        #: What operators request of single tables.
        self.requests = Requests(
            self._discovery, self._loader, services.workers, self.ownership, self._publish_tables, self._suspects.clear
        )
        self._ending = Ending(self.ownership, services.clock, self._publish_tables)
        self._refresher = Refresher(
            self._discovery, self._loader, self.ownership, self._ending, services.workers, services.clock
        )
        self._keep_warm = KeepWarm(self.ownership, self._loader, self._planner, services.workers, self._ending)
        self._has_logged_stopping = False
        #: When the tables were last published, and how long that took.
        self._published_at_s, self._published_in_s = float("-inf"), 0.0
        #: Whether anything may have changed about a table since then.
        self._has_news = True
        self._outages = 0
        #: Pools of jobs that batches wait for, with the tables of these batches.
        self._waiting: dict[str, set[str]] = {}
        self._timeouts = RunTimeouts(services.clock)

    @property
    def tables(self) -> list[Table]:
        """All tables, by name."""
        return self._discovery.in_order

    @property
    def fatal(self) -> BaseException | None:
        """The error that ends the process; None while there is none."""
        return self._ending.fatal

    def stop(self) -> None:
        """Makes the loop finish running work, commit it and return; may be called from a signal handler."""
        self._ending.is_requested = True
        self._workers.wake()

    def run(self, until_caught_up: bool = False, timeouts: RunTimeouts | None = None) -> None:
        """Runs the loop until it is stopped, or until all records that existed at the start are committed.

        Raises:
            FencedError: a later run of this pipeline writes its tables.
            SpecError: topics are selected by patterns alone, and none matches a topic.
            UnavailableError: the limit of `timeouts` is reached.
        """
        self._timeouts = timeouts or self._timeouts
        self._timeouts.reset()
        try:
            self.connect()
            while not self.is_over(until_caught_up):
                self.turn(until_caught_up)
            self.ownership.release()
        except BaseException:
            # A second Ctrl-C, for example: running work is not waited for, and its results are not used.
            self._workers.close(wait=False)
            raise
        finally:
            self.ownership.close()
        self._workers.close()
        self._publish_tables()
        if self.fatal is not None:
            raise self.fatal

    def turn(self, until_caught_up: bool = False) -> None:
        """Runs the loop once: plans and starts due batches, waits, and handles finished work."""
        if self._ending.is_requested and not self._has_logged_stopping:
            self._has_logged_stopping = True
            log.info("stopping", tables_in_flight=[table.name for table in self.tables if table.schedule.in_flight])
            self.ownership.end()
        pause_s = 0.0 if self._ending.has_begun else self._turn(until_caught_up)
        if self._ending.has_begun:
            self._wait(1.0)
        else:
            self._pause(pause_s)
        if self._clock.monotonic_s() >= self._published_at_s + self._publish_every_s:
            self._published_at_s, self._has_news = self._clock.monotonic_s(), False
            self._publish_tables()
            self._published_in_s = self._clock.monotonic_s() - self._published_at_s
        if not self._ending.has_begun:
            self._timeouts.check(self.tables, self._planner.is_caught_up)

    def _publish_tables(self) -> None:
        self._publish(self.tables)

    @property
    def _publish_every_s(self) -> float:
        share, longest_s = PUBLISH_SHARE, LONGEST_UNPUBLISHED_S
        if not self._has_news:
            share, longest_s = IDLE_PUBLISH_SHARE, LONGEST_IDLE_UNPUBLISHED_S
        return min(longest_s, max(PUBLISH_EVERY_S, self._published_in_s / share))

    def _pause(self, pause_s: float) -> None:
        """Handles the work that ends within the pause. It shortens the pause: to none where it leaves a place for work that
        has waited for one, else to so long that turns take no more than a share of the time.
        """
        began_s = self._clock.monotonic_s()
        until_s = began_s + pause_s
        while not self._ending.has_begun:
            is_shortened = self._wait(until_s - self._clock.monotonic_s())
            if is_shortened:
                until_s = min(until_s, began_s + self._planner.polling.after_work_s)
            is_over = self.ownership.has_changed or self._clock.monotonic_s() >= until_s
            has_place = any(map(self._workers.is_free, self._waiting))  # For work that has waited for one.
            if is_over or (is_shortened and has_place):
                break

    def _wait(self, timeout_s: float) -> bool:
        """Handles the work that ends within the time; returns whether some did that a turn may follow from."""
        self.ownership.offer(self.tables)
        has_news = False
        for done in self._workers.wait(min(timeout_s, LONGEST_WAIT_S)):
            has_news |= not done.then(done.future)
        self._refresher.load_next()
        has_news |= self.requests.run()
        self._has_news |= has_news
        return has_news

    def is_over(self, until_caught_up: bool = False) -> bool:
        """Whether no work is left."""
        if self._ending.has_begun:
            return self._workers.is_idle
        if not until_caught_up or not self._workers.is_idle or not self._planner.is_caught_up(self.tables):
            return False
        # Of a table without an owner more than records may be left to do.
        if not self.ownership.is_covered(self.tables):
            return False
        return not self._timeouts.awaits_topics or all(table.offsets.topics for table in self.tables)

    # ---- connecting

    def connect(self) -> None:
        """Joins the other processes, requests topics and loads every table for the first time; retries outages with
        back-off.
        """
        self.ownership.start(self._workers.wake)
        while not self._ending.is_requested:
            self.ownership.has_changed = False  # As after `update`, which comes once Kafka answers.
            try:
                self._loader.cluster_id = self._services.source.cluster_id()
                self._discovery.refresh_topics()
                self._discovery.warn_of_empty_patterns()
                if self._timeouts.is_limited:
                    self._discovery.add_named()
                self._discovery.asked_at_s = self._clock.monotonic_s()
            except UnavailableError as error:
                self._wait_after_outage(error)
                continue
            self._refresher.load_all(self._wait_for_loads)
            break
        else:  # A signal came before the services answered.
            return
        epoch = 1 + max((table.progress.writer.epoch for table in self.tables), default=0)
        self._loader.take_epoch(epoch)
        self._suspects.last_until_s = self._clock.monotonic_s() + OTHERS_FIRST_S
        log.info("connected", cluster_id=self._loader.cluster_id, tables=len(self.tables), epoch=epoch)

    def _wait_for_loads(self, timeout_s: float) -> bool:
        """Waits as `_wait` for the first load of the tables.

        Raises: UnavailableError when the limit of the run's timeouts is reached.
        """
        has_news = self._wait(timeout_s)
        if not self._ending.has_begun:
            self._timeouts.check(self.tables)
        return has_news

    def _wait_after_outage(self, error: UnavailableError) -> None:
        """Logs an outage that concerns every table, and waits, longer each time. A table that already backs off keeps
        its own reason.
        """
        self._outages += 1
        delay_s = backoff_s(self._outages)
        log.warning(
            "service_unavailable",
            reason=error.message,
            where=error.where,
            remedy=error.remedy,
            retry_in_s=round(delay_s, 1),
        )
        for table in self.tables:
            if table.status.run_state is not RunState.STOPPED and not table.schedule.failures:
                table.status.set(RunState.BACKING_OFF, error)
        self._publish_tables()
        self._timeouts.record_outage(error)
        until_s = self._clock.monotonic_s() + min(delay_s, self._timeouts.left_s)
        while not self._ending.has_begun and (left_s := until_s - self._clock.monotonic_s()) > 0:
            self._wait(left_s)
            if self.ownership.has_changed:  # Tables that are to be taken over are late already.
                break

    # ---- planning

    def _turn(self, until_caught_up: bool) -> float:
        """Plans and starts due batches; returns the seconds to wait before the next turn."""
        if self._services.has_jvm_ended() and not self._ending.has_begun:
            self._ending.end(jvm_has_ended())
            return 0.0
        now_s = self._clock.monotonic_s()
        self._has_news |= self.ownership.has_changed
        self.ownership.update(self.tables)
        try:
            self._refresher.refresh(self._free_tables(now_s), now_s)
            self._planner.request_ends(self._services.source)
            self._planner.make_cuts(self._services.source)
            self._refresher.watch(now_s, until_caught_up)
            self._refresher.measure(now_s)
            if not until_caught_up:  # A run that is about to end stays cold: no other process leaves tables to it.
                self._keep_warm.begin_due(self.tables)
            if self._outages:
                log.info("service_available_again", after_failures=self._outages)
            if until_caught_up:
                self._planner.set_goal()
            planned = self._plan_all(self._plannable(now_s), now_s)
            self._outages = 0
        except UnavailableError as error:
            self._wait_after_outage(error)
            return 0.0
        self._start(planned)
        self._has_news |= bool(planned) or self._planner.is_changed
        ended_s = self._clock.monotonic_s()
        self._planner.polling.record(ended_s, ended_s - now_s, self._planner.is_changed)
        return self._pause_s()

    def _free_tables(self, now_s: float) -> list[Table]:
        return [
            table
            for table in self.tables
            if table.schedule.is_owned
            and not table.schedule.in_flight
            and not table.schedule.is_paused
            and table.status.run_state is not RunState.STOPPED
            and (table.schedule.failures == 0 or now_s >= table.schedule.next_due_s)
        ]

    def _plannable(self, now_s: float) -> list[Table]:
        """Returns the free tables, without those whose last planned batch waits for a place that is not free yet: of a
        thousand that are due at once, few begin with each job, and planning all others again would change nothing.
        """
        self._waiting = {pool: tables for pool, tables in self._waiting.items() if not self._workers.is_free(pool)}
        waiting = set().union(*self._waiting.values())
        return self.ownership.first_of([table for table in self._free_tables(now_s) if table.name not in waiting])

    def _plan_all(self, tables: list[Table], now_s: float) -> list[Planned]:
        planned: list[Planned] = []
        busy = [table for table in tables if not self._planner.is_idle(table)]
        with self._discovery.beginnings_asked(busy):
            for table in busy:
                if not self._suspects.delays(table, self._discovery.tables.values(), self._planner.ends, now_s):
                    with self._ending.guarded(table):
                        planned += filter(None, [self._plan(table, now_s)])
        return planned

    def _plan(self, table: Table, now_s: float) -> Planned | None:
        table.catalog.was_asked = table.schema.was_asked = False
        before = table.status.run_state, table.status.reason, table.offsets.lag_records
        planned = self._planner.plan(table, now_s)
        if planned is not None:
            self._suspects.check(planned)
        elif table.catalog.is_loaded:
            self._planner.set_idle_status(table)
        self._has_news |= before != (table.status.run_state, table.status.reason, table.offsets.lag_records)
        return planned

    def _start(self, planned: list[Planned]) -> None:
        if self._ending.has_begun:
            return
        ready = [p for p in planned if p.table.schedule.is_owned and not self._finds_end_first(p)]
        planned = self._suspects.select(sorted(ready, key=lambda p: p.table.schedule.last_batch_at_s))
        alone = {p.table.name for p in planned if p.table.schedule.goes_alone or p.table.has_spark_part}
        # The first group has the table with the oldest batch, so that each table is read in turn, also one that fails.
        by_name = {p.table.name: p for p in planned}
        for store in dict.fromkeys(store_of(p.table.state) for p in planned):
            batches = (p.batch for p in planned if store_of(p.table.state) == store)
            for kind, groups in zip(("small", "catch-up"), group_batches(batches, alone), strict=True):
                # Tables that were just taken do not wait for the job that this process had begun before.
                pool = f"{'taken' if kind == 'small' and self.ownership.is_taking else kind}:{store}"
                if groups and self._workers.is_free(pool):
                    group = groups.pop(0)
                    self._submit(kind, pool, [replace(by_name[batch.table], batch=batch) for batch in group])
                if groups:
                    left = {batch.table for group in groups for batch in group}
                    self._waiting[pool] = self._waiting.get(pool, set()) | left

    @cached_property
    def _batch_ends(self) -> BatchEnds:
        services, kind = self._services, TABLE_KEYS.get("atomic")
        batch_ends: BatchEnds = kind.opener(services.source, services.reader, services.schemas)
        return batch_ends

    def _finds_end_first(self, planned: Planned) -> bool:
        """Starts the search for the end of a batch of complete transactions, unless it is known; returns whether."""
        if planned.table.spec.changes.atomic is None or planned.places is not None:
            return False
        planned.table.schedule.in_flight = True
        after = partial(self._after_batch_end, planned)
        self._workers.submit("batch-end", after, partial(self._batch_ends.find_cut, planned))
        return True

    def _submit(self, kind: str, pool: str, planned: list[Planned]) -> None:
        for p in planned:
            p.table.schedule.in_flight = True
            p.table.schedule.last_batch_at_s = p.planned_at_s
            p.table.schedule.tasks_from_s, p.table.schedule.tasks_to_s = self._clock.monotonic_s(), None
            p.table.schedule.read_with = tables_read_with(p.batch, (batch_read.batch for batch_read in planned))
            p.table.status.set(RunState.RUNNING)
            beside = sorted(p.table.schedule.read_with)
            log.debug("batch_planned", table=p.table.name, offsets=p.batch.span, pool=kind, shared_with=beside)
        self._suspects.begin(planned)
        step = partial(self._loader.pipeline.run_tasks, planned, kind)
        self._workers.submit(pool, partial(self._after_tasks, planned), step)

    def _pause_s(self) -> float:
        if not any(table.schedule.is_owned for table in self.tables):
            return STANDBY_TURN_S
        now_s = self._clock.monotonic_s()
        due_s = [t.schedule.next_due_s for t in self._free_tables(now_s) if t.schedule.next_due_s > now_s]
        return self._planner.polling.pause_s(min(due_s, default=float("inf")) - now_s)

    # ---- results

    def _after_batch_end(self, planned: Planned, future: Future[Cut | None]) -> None:
        error = future.exception()
        if error is not None:
            self._end_batch(planned, outcome_of(error))
            return
        table = planned.table
        table.schedule.in_flight, table.offsets.cut = False, future.result()
        if table.offsets.cut is None:
            wait_for_transaction(planned, self._clock.monotonic_s())
        elif not self._ending.has_begun:
            table.offsets.waiting = None
            self._start([planned.with_cut(table.offsets.cut)])

    def _after_tasks(self, planned: list[Planned], future: Future[dict[str, TaskReport]]) -> None:
        error = future.exception()
        self._note_death(error)
        for p in planned:
            # After a first batch, `finish` reads a sample of later records.
            if error is not None or not p.table.is_first:
                self._suspects.end(p.table.name)
            p.table.schedule.tasks_to_s = self._clock.monotonic_s()
            # Until a job of its own has succeeded, as any table of a failed job may be the cause.
            p.table.schedule.goes_alone = error is not None
        if isinstance(error, FunctionFailedError) and len(planned) == 1:
            place = error.where or planned[0].table.name
            self._end_batch(planned[0], Stop(TableStopped(error.message, error.remedy, place)))
            return
        may_search = len(planned) == 1 and planned[0].table.schedule.is_owned and not self._ending.has_begun
        if isinstance(error, TaskFailedError) and may_search:
            alone = planned[0]
            alone.table.status.set(RunState.BACKING_OFF, error)
            log.warning("crashing_record_search_started", table=alone.table.name, reason=error.message)
            after = partial(self._after_search, alone, error)
            self._workers.submit("search", after, partial(self._loader.pipeline.isolate, alone))
            return
        for p in planned:
            if error is not None:
                self._end_batch(p, outcome_of(error, is_shared=len(planned) > 1))
                continue
            report = future.result()[p.table.name]
            # A request to the registry would otherwise occupy a thread in which other tables commit.
            pool = registry_pool(p.table.spec) if report.schema.missing else pool_of("commit", p.table)
            self._workers.submit(pool, partial(self._after_finish, p), partial(self._loader.pipeline.finish, p, report))

    def _note_death(self, error: BaseException | None) -> None:
        """Ends the process where the error is that of an ended JVM, or of one that ends soon."""
        if error is not None and (is_jvm_gone(error) or is_heap_full(error)):
            self._suspects.record_death()
            # After a full heap records that are read until the JVM ends are not the cause.
            self._ending.end(jvm_has_ended())

    def _after_search(self, planned: Planned, error: TaskFailedError, future: Future[Found]) -> None:
        planned.table.bad_records.searches += 1
        planned.table.schedule.in_flight = False
        failure = future.exception()
        outcome = outcome_of(failure) if failure is not None else apply_found(planned, error, future.result())
        if outcome is not None:
            self._end_batch(planned, outcome)

    def _after_finish(self, planned: Planned, future: Future[Outcome]) -> None:
        error = future.exception()
        self._note_death(error)
        self._suspects.end(planned.table.name)
        self._end_batch(planned, future.result() if error is None else outcome_of(error))

    def _end_batch(self, planned: Planned, outcome: Outcome) -> None:
        """Applies the outcome of a batch to its table: the only place that distinguishes outcomes."""
        table = planned.table
        table.schedule.in_flight = False
        table.counts.batches[type(outcome).__name__] += 1
        self._services.on_batch_end(ended_batch(planned, outcome, self._clock))
        match outcome:
            case Committed():
                note_read(table, outcome, self._clock.monotonic_s())
                self._suspects.clear(table.name)
                note_committed(planned, outcome, self._planner, self._services)
            case Replan(report=report, findings=findings):
                note_read(table, outcome, self._clock.monotonic_s())
                table.schedule.next_due_s, table.schema.no_op_change = 0.0, None
                for finding in findings:
                    finding.apply(planned, report, self._clock)
                self._discovery.add_derived(table)
            case Reload(error):
                forget_batch(table)
                log.warning("commit_conflict", table=table.name, reason=error.message)
                self._refresher.load(table, error)
            case Retry():
                forget_batch(table)
                retry(table, outcome, self._clock.monotonic_s())
            case Stop(error):
                forget_batch(table)
                self._ending.stop_or_end(table, error)
