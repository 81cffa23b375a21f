"""The loop over all tables: request ends, plan, run, commit, back off, drain.

One thread owns every table and decides; worker pools do the work. A table that fails or stops does not affect the
others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog

from frazil.catalog.port import TableState
from frazil.errors import (
    ConflictError,
    FencedError,
    FrazilError,
    RecordError,
    SpecError,
    UnavailableError,
    unforeseen,
)
from frazil.ingest.crash_suspects import Suspects
from frazil.ingest.discovery import Discovery, tolerate_empty_patterns
from frazil.ingest.failures import TableStopped, TaskFailedError, is_heap_full, is_jvm_gone, jvm_has_ended
from frazil.ingest.isolate import Found
from frazil.ingest.load import Loader
from frazil.ingest.log import (
    add_refusals,
    backoff_s,
    count_ignored,
    log_committed,
    log_isolated,
    log_recreated,
    not_isolated,
    update_interval,
    wait_for_transaction,
)
from frazil.ingest.outcome import Committed, Outcome, Reload, Replan, Retry, Stop, outcome_of
from frazil.ingest.plan import group_batches, lag_records, pace_s, tables_read_with
from frazil.ingest.planner import LONGEST_POLL_S, Planner, Polling, no_leader, no_topic
from frazil.ingest.primary_key_updates import record_applied_early
from frazil.ingest.services import RunTimeouts, Services
from frazil.ingest.state import RunState
from frazil.ingest.table import Planned, Table
from frazil.ingest.transactions.lookahead import Boundaries
from frazil.ingest.transactions.runs import Cut
from frazil.ingest.workers import (
    Done,
    FindBatchEnd,
    ListTopics,
    LoadTable,
    SearchCrashingRecords,
    pool_of,
    registry_pool,
    store_of,
)
from frazil.kafka.port import TopicDescription
from frazil.report import TaskReport
from frazil.schema.evolve import NameConflict
from frazil.spec import PipelineSpec
from frazil.types import add_names

log = structlog.get_logger("frazil")

TOPICS_EVERY_S = 5.0
# At its start a process continues without the remaining tables once no load has ended for so long.
FIRST_LOADS_S = 5.0
PUBLISH_EVERY_S = 0.5
# After so many refused commits without progress of another writer a table backs off; before, it is planned again at once.
CONFLICTS_AT_ONCE = 3
# A table stops after so many searches for the record with which its task fails.
MOST_SEARCHES = 10
# For so long after the start, tables that were read when the JVM crashed are read after the others.
OTHERS_FIRST_S = 60.0


class Service:
    """Runs one pipeline. `publish` receives the tables after every change that `status` shows."""

    def __init__(
        self, spec: PipelineSpec, services: Services, run_id: str, publish: Callable[[Sequence[Table]], None]
    ) -> None:
        self._spec = spec
        self._services = services
        self._clock = services.clock
        self._publish = publish
        self._discovery = Discovery(spec, services.source, services.catalog)
        self._loader = Loader(spec.pipeline, services, self._discovery, run_id)
        self._planner = Planner(self._discovery, services.jobs)
        self._boundaries = Boundaries(services.source, services.reader, services.schemas)
        self._workers = services.workers
        self._is_stopping = False
        self._has_logged_stopping = False
        self._topics_at_s = float("-inf")
        self._published_at_s = float("-inf")
        self._outages = 0
        self._topics_outage: UnavailableError | None = None
        self._leaderless: set[str] = set()
        self._polling = Polling()
        self._timeouts = RunTimeouts(services.clock)
        self._has_asked_registry: set[str] = set()
        self._has_loaded: set[str] = set()
        self._waiting_first = False
        self._fatal: BaseException | None = None
        self._suspects = Suspects(spec.state_dir / f"{spec.pipeline}.suspects.json")
        self._reading: dict[str, Planned] = {}
        self._connected_at_s = float("-inf")

    @property
    def tables(self) -> list[Table]:
        """All tables, by name."""
        return [self._discovery.tables[name] for name in sorted(self._discovery.tables)]

    def stop(self) -> None:
        """Makes the loop finish running work, commit it and return; may be called from a signal handler."""
        self._is_stopping = True
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
        except BaseException:
            # A second Ctrl-C, for example: running work is not waited for, and its results are not used.
            self._workers.close(wait=False)
            raise
        self._workers.close()
        self._publish(self.tables)
        if self._fatal is not None:
            raise self._fatal

    def turn(self, until_caught_up: bool = False) -> None:
        """Runs the loop once: plans and starts due batches, waits, and handles finished work."""
        self._log_stopping_once()
        pause_s = 0.0 if self._is_ending else self._turn(until_caught_up)
        self._settle(self._workers.wait(pause_s if not self._is_ending else 1.0))
        self._publish_if_due()
        if not self._is_ending:
            self._timeouts.check(self.tables)

    def _log_stopping_once(self) -> None:
        if self._is_stopping and not self._has_logged_stopping:
            self._has_logged_stopping = True
            log.info("stopping", tables_in_flight=[table.name for table in self.tables if table.schedule.in_flight])

    @property
    def fatal(self) -> BaseException | None:
        """The error that ends the process; None while there is none."""
        return self._fatal

    @property
    def _is_ending(self) -> bool:
        """Whether no more work is started, and running work is finished."""
        return self._is_stopping or self._fatal is not None

    def is_over(self, until_caught_up: bool = False) -> bool:
        """Whether no work is left."""
        if self._is_ending:
            return self._workers.is_idle
        if not until_caught_up or not self._workers.is_idle or not self._planner.is_caught_up(self.tables):
            return False
        return not self._timeouts.awaits_topics or all(table.offsets.topics for table in self.tables)

    # ---- connecting

    def connect(self) -> None:
        """Requests topics and loads every table for the first time; retries outages with back-off."""
        while not self._is_stopping:
            try:
                self._loader.cluster_id = self._services.source.cluster_id()
                self._discovery.refresh_topics()
                for error in tolerate_empty_patterns(self._spec, self._services.source):
                    log.warning(
                        "pattern_matches_no_topic", reason=error.message, where=error.where, remedy=error.remedy
                    )
                if self._timeouts.is_limited:
                    self._discovery.add_named()
                self._topics_at_s = self._clock.monotonic_s()
                self._load_all()
                break
            except UnavailableError as error:
                self._wait_after_outage(error)
        epoch = 1 + max((table.progress.epoch for table in self.tables), default=0)
        self._loader.take_epoch(epoch)
        self._connected_at_s = self._clock.monotonic_s()
        log.info("connected", cluster_id=self._loader.cluster_id, tables=len(self.tables), epoch=epoch)

    def _wait_after_outage(self, error: UnavailableError) -> None:
        """Logs an outage that concerns every table, and waits, longer each time. A table that already backs off keeps
        its own reason.
        """
        self._outages += 1
        delay_s = backoff_s(self._outages)
        log.warning("service_unavailable", reason=error.message, where=error.where, retry_in_s=round(delay_s, 1))
        for table in self.tables:
            if table.status.run_state is not RunState.STOPPED and not table.schedule.failures:
                table.status.set(RunState.BACKING_OFF, error)
        self._publish(self.tables)
        self._timeouts.record_outage(error)
        until_s = self._clock.monotonic_s() + min(delay_s, self._timeouts.left_s)
        while not self._is_ending and (left_s := until_s - self._clock.monotonic_s()) > 0:
            self._settle(self._workers.wait(left_s))

    def _load_all(self) -> None:
        """Loads every table for the first time, except those of a service that hangs."""
        answered_s, left = float("inf"), deque(self.tables)
        while not self._is_ending and self._clock.monotonic_s() < answered_s + FIRST_LOADS_S:
            while left and self._workers.is_free(pool_of("load", left[0])):
                self._load(left.popleft())
            if not left and self._workers.is_idle:
                break
            finished = self._workers.wait(LONGEST_POLL_S)
            self._settle(finished)
            answered_s = self._clock.monotonic_s() if finished else answered_s
        self._has_loaded.clear()

    def _load(self, table: Table, conflict: ConflictError | None = None) -> None:
        """Starts the load of a table, while others continue. It may end the process, where a later run writes the
        table.
        """
        self._has_loaded.add(table.name)
        step = partial(self._loader.reload if conflict else self._loader.load, table)
        self._submit_load(pool_of("load", table), LoadTable(table, table.state, conflict), step)

    def _ask_registry(self, table: Table, step: Callable[[], None]) -> None:
        """Starts a request to the registry for a table, while others continue."""
        self._has_asked_registry.add(table.name)
        self._submit_load(registry_pool(table.spec), LoadTable(table, table.state), step)

    def _submit_load(self, pool: str, loading: LoadTable, step: Callable[[], None]) -> None:
        loading.table.schedule.in_flight = True
        self._workers.submit(pool, loading, step)

    def _after_load(self, loading: LoadTable, future: Future[None]) -> None:
        table = loading.table
        table.schedule.in_flight = False
        log_recreated(loading.before, table)
        error = future.exception()
        if isinstance(error, UnavailableError):
            self._back_off(table, error)
        elif error is not None:
            self._stop_or_end(table, error)
        elif loading.conflict is not None and self._is_beaten(table, loading.before):
            self._back_off(table, loading.conflict)
        elif not self._is_ending and self._loader.lacks_schemas(table):
            self._ask_registry(table, partial(self._loader.load_schemas, table))

    def _is_beaten(self, table: Table, before: TableState | None) -> bool:
        """Counts a refused commit; returns whether several were refused in a row during which no other writer made
        progress.
        """
        is_same = table.progress.commit_id == (before.progress.commit_id if before else "")
        table.schedule.conflicts = table.schedule.conflicts + 1 if is_same else 0
        return table.schedule.conflicts > CONFLICTS_AT_ONCE

    def _guard(self, table: Table, step: Callable[[], None]) -> bool:
        """Runs a step for a table, and stops the table when it fails; returns whether it succeeded.

        Raises: UnavailableError, which concerns every table.
        """
        try:
            step()
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  (an error of one table does not stop the others)
            self._stop_or_end(table, error)
            return False
        return True

    # ---- planning

    def _turn(self, until_caught_up: bool) -> float:
        """Plans and starts due batches; returns the seconds to wait before the next turn."""
        now_s = self._clock.monotonic_s()
        try:
            self._refresh(now_s)
            began_s = self._clock.monotonic_s()
            self._ask_for_ends()
            self._polling.record(self._clock.monotonic_s() - began_s)
            if self._outages:
                log.info("service_available_again", after_failures=self._outages)
            if until_caught_up:
                self._planner.set_goal()
            free = [table for table in self._free_tables(now_s) if not self._waits_for_others(table, now_s)]
            planned = [p for p in (self._plan(table, now_s) for table in free) if p]
            self._outages = 0
        except UnavailableError as error:
            self._wait_after_outage(error)
            return 0.0
        self._start(planned)
        return self._pause_s()

    def _free_tables(self, now_s: float) -> list[Table]:
        return [
            table
            for table in self.tables
            if not table.schedule.in_flight
            and table.status.run_state is not RunState.STOPPED
            and (table.schedule.failures == 0 or now_s >= table.schedule.next_due_s)
        ]

    def _refresh(self, now_s: float) -> None:
        if now_s - self._topics_at_s >= TOPICS_EVERY_S and self._workers.is_free("topics"):
            self._topics_at_s = now_s
            self._workers.submit("topics", ListTopics(), self._discovery.find_topics)
        # Tables to load and tables to refresh alternate in coming first: neither may occupy a slow catalog.
        self._waiting_first = first = not self._waiting_first
        for table in sorted(
            self._free_tables(now_s), key=lambda one: (one.catalog.is_loaded is first, one.catalog.asked_at_s)
        ):
            if self._discovery.is_behind(table) and not self._guard(table, partial(self._discovery.verify, table)):
                continue
            if self._is_ending:
                break
            if not self._is_load_due(table):
                self._refresh_schemas(table)
            elif self._workers.is_free(pool_of("load", table)):
                table.offsets.read_to = None
                self._load(table)

    def _is_load_due(self, table: Table) -> bool:
        """Whether the table is to be loaded; not twice before it is checked for a due batch."""
        return self._loader.is_due(table) and not (table.catalog.is_loaded and table.name in self._has_loaded)

    def _after_topics(self, future: Future[dict[str, TopicDescription]]) -> None:
        """Updates the topics of all tables. When only this request fails, tables continue with the topics that they
        have.
        """
        error = future.exception()
        if isinstance(error, UnavailableError):
            log.warning("service_unavailable", reason=error.message, where=error.where, retry_in_s=TOPICS_EVERY_S)
            self._topics_outage = error
            return
        self._topics_outage = None
        self._discovery.set_topics(future.result())
        for table in self.tables:
            if not table.schedule.in_flight and table.status.run_state is not RunState.STOPPED:
                self._guard(table, partial(self._discovery.verify, table))

    def _refresh_schemas(self, table: Table) -> None:
        """Starts a request for schemas that are a minute old; not twice before the table is checked for a due batch."""
        if (
            not table.schedule.in_flight
            and table.name not in self._has_asked_registry
            and self._loader.has_old_schemas(table)
        ):
            self._ask_registry(table, partial(self._loader.refresh_schemas, table))

    def _ask_for_ends(self) -> None:
        active = [t for t in self.tables if t.status.run_state is not RunState.STOPPED]
        asked = {p for table in active for p in table.partitions()}
        ends = self._services.source.ends(asked)
        if asked and not ends and self._topics_outage is not None:
            raise self._topics_outage  # Neither ends nor topics are returned: Kafka itself is unavailable.
        self._planner.set_ends(asked, ends)

    def _plan(self, table: Table, now_s: float) -> Planned | None:
        self._has_asked_registry.discard(table.name)
        self._has_loaded.discard(table.name)
        planned: list[Planned | None] = []
        if not self._guard(table, lambda: planned.append(self._plan_unsuspected(table, now_s))):
            return None
        if planned == [None] and table.catalog.is_loaded:
            self._set_idle_status(table)
        return planned[0]

    def _plan_unsuspected(self, table: Table, now_s: float) -> Planned | None:
        """Returns the table's next batch.

        Raises: TableStopped for a batch that has crashed the JVM whenever it was read.
        """
        planned = self._planner.plan(table, now_s)
        if planned is not None:
            self._suspects.check(planned)
        return planned

    def _waits_for_others(self, table: Table, now_s: float) -> bool:
        """Whether the table must wait because of tables that were read when the JVM crashed: these are read alone, and
        after the others have been read to their ends or for a while.
        """
        if not self._suspects:
            return False
        others = [
            one
            for one in self.tables
            if one.name not in self._suspects and one.status.run_state is not RunState.STOPPED
        ]
        is_reading = bool(self._reading)
        if table.name not in self._suspects:
            return any(name in self._suspects for name in self._reading)
        is_early = now_s < self._connected_at_s + OTHERS_FIRST_S
        has_lag = any(one.unplaced() or lag_records(one.position(), self._planner.ends) for one in others)
        return is_reading or (is_early and has_lag)

    def _set_idle_status(self, table: Table) -> None:
        silent = self._planner.silent_of(table)
        is_over = table.offsets.read_to is not None or table.name in self._leaderless
        self._leaderless.discard(table.name)
        if not table.offsets.topics:
            table.status.set(RunState.BACKING_OFF, no_topic(table))
        elif silent:
            self._leaderless.add(table.name)
            table.status.set(RunState.BACKING_OFF, no_leader(silent[0]))
        elif is_over and table.status.run_state is not RunState.WAITING:
            table.status.set(RunState.WAITING)

    def _start(self, planned: list[Planned]) -> None:
        if self._is_ending:
            return
        ready = [p for p in planned if not self._finds_end_first(p)]
        planned = sorted(ready, key=lambda p: p.table.schedule.last_batch_at_s)
        suspects = [p for p in planned if p.table.name in self._suspects]
        if suspects:
            planned = [min(suspects, key=lambda p: self._suspects.deaths(p.table.name))]
        alone = {p.table.name for p in planned if p.table.schedule.goes_alone}
        # The first group has the table with the oldest batch, so that each table is read in turn, also one that fails.
        by_name = {p.table.name: p for p in planned}
        for store in dict.fromkeys(store_of(p.table.state) for p in planned):
            batches = (p.batch for p in planned if store_of(p.table.state) == store)
            for kind, groups in zip(("small", "catch-up"), group_batches(batches, alone), strict=True):
                if groups and self._workers.is_free(f"{kind}:{store}"):
                    self._submit(kind, store, [replace(by_name[batch.table], batch=batch) for batch in groups[0]])

    def _finds_end_first(self, planned: Planned) -> bool:
        """Starts the search for the end of a batch of complete transactions, unless it is known; returns whether it
        did.
        """
        if planned.table.spec.atomic is None or planned.places is not None:
            return False
        planned.table.schedule.in_flight = True
        self._workers.submit("batch-end", FindBatchEnd(planned), partial(self._boundaries.find_cut, planned))
        return True

    def _submit(self, kind: str, store: str, planned: list[Planned]) -> None:
        pipeline = self._loader.pipeline
        for p in planned:
            p.table.schedule.in_flight = True
            p.table.schedule.last_batch_at_s = p.planned_at_s
            p.table.schedule.read_with = tables_read_with(p.batch, (one.batch for one in planned))
            p.table.status.set(RunState.RUNNING)
            beside = sorted(p.table.schedule.read_with)
            log.debug("batch_planned", table=p.table.name, offsets=p.batch.span, pool=kind, shared_with=beside)
        self._reading |= {p.table.name: p for p in planned}
        self._workers.submit(f"{kind}:{store}", planned, lambda: pipeline.run_tasks(planned, kind))

    def _pause_s(self) -> float:
        now_s = self._clock.monotonic_s()
        next_due_s = min(
            (t.schedule.next_due_s for t in self._free_tables(now_s) if t.schedule.next_due_s > now_s),
            default=float("inf"),
        )
        return self._polling.pause_s(next_due_s - now_s)

    # ---- results

    def _settle(self, finished: list[Done]) -> None:
        for done in finished:
            if isinstance(done.about, list):
                self._after_tasks(done.about, done.future)
            elif isinstance(done.about, Planned):
                self._after_finish(done.about, done.future)
            elif isinstance(done.about, FindBatchEnd):
                self._after_batch_end(done.about.planned, done.future)
            elif isinstance(done.about, SearchCrashingRecords):
                self._after_search(done.about, done.future)
            elif isinstance(done.about, LoadTable):
                self._after_load(done.about, done.future)
            elif isinstance(done.about, ListTopics):
                self._after_topics(done.future)

    def _after_batch_end(self, planned: Planned, future: Future[Cut | None]) -> None:
        error = future.exception()
        if error is not None:
            self._end_batch(planned, outcome_of(error))
            return
        table = planned.table
        table.schedule.in_flight, table.offsets.cut = False, future.result()
        if table.offsets.cut is None:
            wait_for_transaction(planned, self._clock.monotonic_s())
        elif not self._is_ending:
            table.offsets.waiting = None
            self._start([planned.with_cut(table.offsets.cut)])

    def _after_tasks(self, planned: list[Planned], future: Future[dict[str, TaskReport]]) -> None:
        error = future.exception()
        if error is not None and (is_jvm_gone(error) or is_heap_full(error)):
            self._after_death()
        for p in planned:
            if (
                error is not None or not p.table.is_first
            ):  # After a first batch, `finish` reads a sample of later records.
                self._reading.pop(p.table.name, None)
        if isinstance(error, TaskFailedError) and len(planned) == 1 and not self._is_ending:
            planned[0].table.schedule.goes_alone = True
            self._search(SearchCrashingRecords(planned[0], error))
            return
        if error is not None:
            for p in planned:
                p.table.schedule.goes_alone = (
                    True  # Until a job of its own has succeeded, as any table of this job may be the cause.
                )
                self._end_batch(p, outcome_of(error))
            return
        pipeline = self._loader.pipeline
        for p in planned:
            p.table.schedule.goes_alone = False
            report = future.result()[p.table.name]
            # A request to the registry would otherwise occupy a thread in which other tables commit.
            pool = registry_pool(p.table.spec) if report.schema.missing else pool_of("commit", p.table)
            self._workers.submit(pool, p, partial(pipeline.finish, p, report))

    def _after_death(self) -> None:
        self._suspects.record_death(self._reading)
        self._reading = {}  # All tables of the crash are recorded at once.
        # After a full heap the JVM ends soon, and records that are read until then are not the cause.
        self._end(jvm_has_ended())

    def _search(self, search: SearchCrashingRecords) -> None:
        """Starts the search for the records that crash a task which has failed alone."""
        search.planned.table.status.set(RunState.BACKING_OFF, search.error)
        log.warning("crashing_record_search_started", table=search.planned.table.name, reason=search.error.message)
        self._workers.submit("search", search, partial(self._loader.pipeline.isolate, search.planned))

    def _after_search(self, search: SearchCrashingRecords, future: Future[Found]) -> None:
        table = search.planned.table
        table.bad_records.searches += 1
        if future.exception() is not None or not self._apply_found(search, future.result()):
            self._end_batch(search.planned, outcome_of(future.exception() or search.error))

    def _apply_found(self, search: SearchCrashingRecords, found: Found) -> bool:
        """Applies the result of a search to the table; returns whether the batch needs no other outcome: it is planned
        again without crashing records or with fewer records, or the table has stopped.
        """
        table = search.planned.table
        table.schedule.in_flight = False
        if found.records:
            table.bad_records.crashing |= frozenset(found.records)
            table.schedule.next_due_s, table.bad_records.searches = 0.0, 0
            log_isolated(table, found.records)
        elif found.together and table.schedule.read_less(search.planned.batch.span):
            table.schedule.next_due_s, table.bad_records.searches = 0.0, 0
            log.warning(
                "batch_size_reduced",
                table=table.name,
                records=table.schedule.most_records,
                reason=found.together[0].reason,
            )
            return True
        elif found.together or table.bad_records.searches >= MOST_SEARCHES:
            self._stop_table(table, not_isolated(search.planned.batch, found, search.error))
        return bool(found.records) or table.status.run_state is RunState.STOPPED

    def _after_finish(self, planned: Planned, future: Future[Outcome]) -> None:
        error = future.exception()
        if error is not None and (is_jvm_gone(error) or is_heap_full(error)):
            self._after_death()
        self._reading.pop(planned.table.name, None)
        self._end_batch(planned, future.result() if error is None else outcome_of(error))

    def _end_batch(self, planned: Planned, outcome: Outcome) -> None:
        """Applies the outcome of a batch to its table: the only place that distinguishes outcomes."""
        table = planned.table
        table.schedule.in_flight = False
        match outcome:
            case Committed():
                self._update_from_report(planned, outcome)
                self._committed(planned, outcome)
            case Replan():
                self._update_from_report(planned, outcome)
                table.schedule.next_due_s, table.schema.no_op_change = 0.0, None
                for finding in outcome.findings:
                    finding.apply(planned, outcome.report, self._clock)
            case Reload(error):
                self._forget_batch(table)
                log.warning("commit_conflict", table=table.name, reason=error.message)
                self._load(table, error)
            case Retry(error):
                self._forget_batch(table)
                self._back_off(table, error)
            case Stop(error):
                self._forget_batch(table)
                self._stop_or_end(table, error)

    def _update_from_report(self, planned: Planned, outcome: Committed | Replan) -> None:
        """Updates the table from the report of a batch that was read, whether it is committed or planned again."""
        table, report = planned.table, outcome.report
        table.schedule.failures = 0
        table.state = outcome.state
        table.schema.dropped = add_names(table.schema.dropped, report.schema.dropped)
        add_refusals(table, report)
        table.sizes.update(report)
        table.catalog.loaded_at_s = table.schedule.batch_done_at_s = self._clock.monotonic_s()

    def _forget_batch(self, table: Table) -> None:
        """Makes the next plan start from the table's progress, after a batch without result."""
        table.offsets.needs_check = True
        table.offsets.read_to = None

    def _committed(self, planned: Planned, outcome: Committed) -> None:
        table, report, now_s = planned.table, outcome.report, planned.table.schedule.batch_done_at_s
        took_s = now_s - planned.planned_at_s
        table.schedule.next_due_s = self._planner.due_s(
            table, planned.planned_at_s + pace_s(update_interval(table, self._services.pace))
        )
        table.schedule.conflicts, table.offsets.skipped = 0, {}
        table.schema.has_new_schemas = False
        table.end_batch()
        table.schedule.read_more(took_s)
        self._suspects.clear(table.name)
        record_applied_early(table, report, self._clock.now_ms())
        table.note_committed(report)
        count_ignored(table, report)
        table.offsets.lag_records = lag_records(table.position(), self._planner.ends)
        table.status.set(RunState.RUNNING if table.offsets.lag_records else RunState.WAITING, None)
        table.sizes.records_per_s = report.counts.record_count / max(took_s, 1e-3)
        with suppress(UnavailableError):  # The commit is done; its numbers can wait for the next.
            table.catalog.size = self._services.catalog.size(table.name)
            if report.written.dead_letter_count:
                table.catalog.dead_letter_count = self._services.catalog.size(table.dead_letter_table_name).row_count
        table.key_updates.resolved = outcome.resolved
        latest = [ms for partitions in report.counts.latest_ms.values() for ms in partitions.values()]
        table.sizes.freshness_ms = max(0, self._clock.now_ms() - max(latest)) if latest else None
        log_committed(table, outcome, took_s)

    def _stop_or_end(self, table: Table, error: BaseException) -> None:
        """Stops the table after an error that another attempt would repeat, or ends the process where it concerns every
        table.
        """
        if isinstance(error, FencedError):
            # The loaded state is the other run's, and may have pending dead letters: it must not be used.
            table.catalog.is_loaded = False
            self._end(error)
        elif isinstance(error, ConflictError):
            self._back_off(table, error)
        elif isinstance(error, NameConflict):
            self._stop_table(table, TableStopped(str(error), "rename one of the columns", table.name))
        elif isinstance(error, (RecordError, TableStopped, SpecError)):
            self._stop_table(table, error)
        elif is_jvm_gone(error):
            self._end(jvm_has_ended())
        else:
            log.error("unexpected_error", table=table.name, error=f"{type(error).__name__}: {error}", exc_info=error)
            self._stop_table(table, unforeseen(error, table.name))

    def _end(self, error: FrazilError) -> None:
        if self._fatal is None:
            self._fatal = error
            log.error("process_ending", reason=error.message, where=error.where)

    def _stop_table(self, table: Table, error: FrazilError | TableStopped) -> None:
        table.status.set(RunState.STOPPED, error)
        log.error(
            "table_stopped",
            table=table.name,
            reason=table.status.reason,
            where=table.status.where,
            remedy=table.status.remedy,
        )
        self._publish(self.tables)

    def _back_off(self, table: Table, error: FrazilError) -> None:
        table.schedule.failures += 1
        # The table is loaded before the next attempt: a commit with unknown outcome may exist, credentials may be renewed.
        table.catalog.is_loaded = False
        delay_s = backoff_s(table.schedule.failures)
        table.schedule.next_due_s = self._clock.monotonic_s() + delay_s
        table.status.set(RunState.BACKING_OFF, error)
        log.warning(
            "table_backing_off",
            table=table.name,
            reason=table.status.reason,
            where=table.status.where,
            retry_in_s=round(delay_s, 1),
        )

    def _publish_if_due(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._published_at_s >= PUBLISH_EVERY_S:
            self._published_at_s = now_s
            self._publish(self.tables)
