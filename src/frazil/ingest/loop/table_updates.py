"""What the end of a batch or of a load changes about its table, with the log events of these changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from functools import partial

import structlog

from frazil.catalog.port import TableState
from frazil.cdc.envelope import IGNORED, NO_DOCUMENT
from frazil.clock import jitter
from frazil.errors import FrazilError, UnavailableError
from frazil.ingest.batches.change_findings import note_applied
from frazil.ingest.batches.outcome import WITHOUT_DOCUMENT, Committed, Replan, Retry
from frazil.ingest.batches.services import Services
from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.planner import Planner
from frazil.ingest.plan import lag_records, pace_s, slowed_s, stored_row_bytes
from frazil.ingest.tables.batch_ends import Waiting
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Planned, Table
from frazil.report import TaskReport
from frazil.schema.conflicts import refused_changes
from frazil.types import add_names

log = structlog.get_logger("frazil")

# After so many refused commits without progress of another writer a table backs off; before, it is planned again at once.
CONFLICTS_AT_ONCE = 3
# Pauses between reads of Debezium's topic of transactions while a transaction is incomplete; each is twice the last.
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 5.0
INCOMPLETE_TRANSACTION = "the newest transaction is not known to be complete yet"
FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0
# More doublings exceed the longest back-off, and would overflow a float in a long outage.
_MOST_DOUBLINGS = 16


def note_read(table: Table, outcome: Committed | Replan, now_s: float) -> None:
    """Updates the table from the report of a batch that was read, whether it is committed or planned again."""
    report = outcome.report
    table.schedule.failures = 0
    table.state = outcome.state
    table.schema.dropped = add_names(table.schema.dropped, report.schema.dropped)
    _add_refusals(table, report)
    table.sizes.update(report, stored_row_bytes(table.catalog.size))
    table.catalog.loaded_at_s = table.schedule.batch_done_at_s = now_s


def note_committed(planned: Planned, outcome: Committed, planner: Planner, services: Services) -> None:
    """Updates the table after the commit of its batch."""
    table, report = planned.table, outcome.report
    took_s = table.schedule.batch_done_at_s - planned.planned_at_s
    pause_s = pace_s(_update_interval(table, services))
    table.schedule.next_due_s = planner.due_s(table, planned.planned_at_s + pause_s)
    table.schedule.conflicts, table.offsets.skipped = 0, {}
    table.schema.has_new_schemas = False
    table.end_batch()
    table.schedule.read_more(took_s)
    note_applied(table, report, services.clock.now_ms())
    table.note_committed(report)
    _count_ignored(table, report)
    for watch in table.watches:
        watch.note_committed(table.spec, report, services.clock.monotonic_s())
    planner.measure(table)
    has_more = lag_records(table.position(), planner.ends) > 0
    table.status.set(RunState.RUNNING if has_more else RunState.WAITING, None)
    table.sizes.records_per_s = report.read_count / max(took_s, 1e-3)
    with suppress(UnavailableError):  # The commit is done; its numbers can wait for the next.
        table.catalog.size = services.catalog.size(table.name)
        if report.written.dead_letter_count:
            table.catalog.dead_letter_count = services.catalog.size(table.dead_letter_table_name).row_count
    table.changes.resolved = outcome.resolved
    latest = [ms for partitions in report.counts.latest_ms.values() for ms in partitions.values()]
    table.sizes.freshness_ms = max(0, services.clock.now_ms() - max(latest)) if latest else None
    _count_committed(table, outcome, took_s)
    _log_committed(table, outcome, took_s)


def _count_committed(table: Table, outcome: Committed, took_s: float) -> None:
    counts = table.counts
    deleted = outcome.resolved.deleted if outcome.resolved is not None else 0
    counts.add(outcome.report, outcome.files, table.spec.bad_records.on_bad_record == "skip", deleted)
    counts.batch_s.observe(took_s)
    counts.commit_s.observe(outcome.took_s)
    if table.sizes.freshness_ms is not None:
        counts.freshness_s.observe(table.sizes.freshness_ms / 1000)


def pause_table(table: Table) -> None:
    """Lets no further batch of the table begin; a running one is finished and committed."""
    if not table.schedule.is_paused:
        table.schedule.is_paused = True
        log.info("table_paused", table=table.name)


def await_resume(table: Table) -> None:
    """Makes a table that an operator has reset wait for `frazil resume`; what had stopped it is over."""
    table.schedule.is_paused = True
    table.status.set(RunState.WAITING)


def resume_table(table: Table) -> None:
    """Continues a paused table, and a stopped one from its progress in the table, as after a restart."""
    is_stopped = table.status.run_state is RunState.STOPPED
    if table.schedule.is_paused or is_stopped:
        log.info("table_resumed", table=table.name)
    table.schedule.is_paused, table.schedule.next_due_s = False, 0.0
    if is_stopped:
        table.forget_batches()
        forget_batch(table)
        table.catalog.is_loaded = False
        table.schedule.failures = table.schedule.conflicts = 0
        table.status.set(RunState.WAITING)


def forget_batch(table: Table) -> None:
    """Makes the next plan start from the table's progress, after a batch without result."""
    table.offsets.needs_check = True
    table.offsets.read_to = None


def retry(table: Table, outcome: Retry, now_s: float) -> None:
    """Makes the table wait before the next attempt; or plans it again at once, after a job that it shared with others: any
    of them may have been the cause.
    """
    if outcome.is_shared:
        table.schedule.next_due_s = 0.0
        log.info("shared_job_failed", table=table.name, reason=outcome.error.message)
    else:
        back_off(table, outcome.error, now_s)


def back_off(table: Table, error: FrazilError, now_s: float) -> None:
    """Makes the table wait before the next attempt, longer after each failure."""
    table.schedule.failures += 1
    # The table is loaded before the next attempt: a commit with unknown outcome may exist, credentials may be renewed.
    table.catalog.is_loaded = False
    delay_s = backoff_s(table.schedule.failures)
    table.schedule.next_due_s = now_s + delay_s
    table.status.set(RunState.BACKING_OFF, error)
    status = table.status
    log.warning(
        "table_backing_off",
        table=table.name,
        reason=status.reason,
        where=status.where,
        remedy=status.remedy,
        retry_in_s=round(delay_s, 1),
    )


def is_beaten(table: Table, before: TableState | None) -> bool:
    """Counts a refused commit; returns whether several were refused in a row during which no other writer made
    progress. before: the table before it was loaded again.
    """
    is_same = table.progress.commit_id == (before.progress.commit_id if before else "")
    table.schedule.conflicts = table.schedule.conflicts + 1 if is_same else 0
    return table.schedule.conflicts > CONFLICTS_AT_ONCE


def stop_table(table: Table, error: FrazilError | TableStopped) -> None:
    """Stops the table, until the process is started again."""
    table.status.set(RunState.STOPPED, error)
    table.counts.stops[type(error).__name__] += 1
    status = table.status
    log.error("table_stopped", table=table.name, reason=status.reason, where=status.where, remedy=status.remedy)


def backoff_s(failures: int) -> float:
    """Returns the seconds to wait after `failures` consecutive failures."""
    return jitter(min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(failures - 1, _MOST_DOUBLINGS)))


def wait_for_transaction(planned: Planned, now_s: float) -> None:
    """Sets the table to waiting for the rest of a transaction."""
    table, spec = planned.table, planned.table.spec.changes.atomic
    if table.offsets.waiting is None:
        log.info("transaction_incomplete", table=table.name, lag_records=table.offsets.lag_records)
    ends = {partition: planned.ends.get(partition, -1) for partition in table.partitions()}
    pause_s = float("inf")
    if spec is not None and spec.transaction_topic is not None:
        is_same = table.offsets.waiting is not None and table.offsets.waiting.ends == ends
        pause_s = (
            min(LONGEST_WAIT_S, 2 * table.offsets.waiting.pause_s)
            if table.offsets.waiting and is_same
            else FIRST_WAIT_S
        )
    table.offsets.waiting = Waiting(planned.position, ends, now_s + pause_s, pause_s)
    table.status.wait_for(INCOMPLETE_TRANSACTION)


def log_recreated(before: TableState | None, table: Table) -> None:
    """Logs that a table was deleted and recreated under its name."""
    if before is not None and table.state is not None and table.state.uuid != before.uuid:
        log.warning("table_recreated", table=table.name, offsets=table.progress.offsets)


def _log_committed(table: Table, outcome: Committed, took_s: float) -> None:
    """Logs the commit of a batch. took_s: seconds since the batch was planned."""
    report = outcome.report
    if outcome.resolved is not None and outcome.resolved.tries > 1:
        log.info("lookup_repeated", table=table.name, retries=outcome.resolved.tries - 1)
    log.info(
        "batch_committed",
        table=table.name,
        records=report.counts.record_count,
        files=len(outcome.files),
        bad=report.bad_records.count,
        lag_records=table.offsets.lag_records,
        took_s=round(took_s, 3),
    )


def _update_interval(table: Table, services: Services) -> float:
    """Sets and returns the seconds between two commits of the table: those of the pipeline file, or more while table
    maintenance is too slow for commits that delete rows.
    """
    own_s = table.spec.commit.interval_s
    slowed_by = services.slowed_by(table.name) if table.spec.changes.mode == "upsert" else 1.0
    interval_s = slowed_s(own_s, slowed_by)
    if interval_s == own_s != (table.schedule.interval_s or own_s):
        log.info("commit_interval_restored", table=table.name, interval_s=interval_s)
    elif interval_s != (table.schedule.interval_s or own_s):
        log.warning("commit_interval_raised", table=table.name, interval_s=interval_s)
    table.schedule.interval_s = interval_s
    return interval_s


def _add_refusals(table: Table, report: TaskReport) -> None:
    """Adds refused schema changes to the table; logs each once, whichever schemas request it, with the remedy."""
    noted = add_names(table.schema.refusals, report.schema.refusals)
    if noted == table.schema.refusals:
        return
    known_changes = {refused.change for refused in refused_changes(table.schema.refusals)}
    for refused in refused_changes(noted):
        if refused.change not in known_changes:
            log.warning(
                "schema_change_refused",
                table=table.name,
                schema_evolution=table.spec.shape.schema_evolution,
                **asdict(refused),
            )
            table.counts.schema_changes["refused"] += 1
    table.schema.refusals = noted


def _count_ignored(table: Table, report: TaskReport) -> None:
    """Counts records that are no change of a row, and logs the first batch with each kind of them."""
    for kind in sorted(report.counts.ignored_records.keys() - table.bad_records.ignored_records.keys()):
        note = log.info
        if kind == IGNORED[NO_DOCUMENT]:
            note = partial(log.warning, reason=f"an update {WITHOUT_DOCUMENT}")
        note("records_ignored", table=table.name, kind=kind, records=report.counts.ignored_records[kind])
    table.bad_records.ignored_records.update(report.counts.ignored_records)
