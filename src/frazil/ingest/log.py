"""Log events about tables and batches, with the fields of the table that decide whether an event is logged again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import structlog

from frazil.catalog.port import TableState
from frazil.clock import jitter
from frazil.errors import FrazilError
from frazil.ingest.failures import TableStopped
from frazil.ingest.isolate import Found
from frazil.ingest.outcome import Committed
from frazil.ingest.plan import slowed_s
from frazil.ingest.services import Pace
from frazil.ingest.table import Planned, Table
from frazil.ingest.transactions.runs import Waiting
from frazil.report import TaskReport
from frazil.schema.rejected_changes import refused_changes
from frazil.types import BadRecord, Batch, add_names

log = structlog.get_logger("frazil")

# Pauses between reads of Debezium's topic of transactions while a transaction is incomplete; each is twice the last.
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 5.0
INCOMPLETE_TRANSACTION = "the newest transaction is not known to be complete yet"
FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0
# More doublings exceed the longest back-off, and would overflow a float in a long outage.
_MOST_DOUBLINGS = 16


def wait_for_transaction(planned: Planned, now_s: float) -> None:
    """Sets the table to waiting for the rest of a transaction."""
    table, spec = planned.table, planned.table.spec.atomic
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


def log_isolated(table: Table, records: Iterable[BadRecord]) -> None:
    """Logs the records that crash the task which reads them."""
    for one in records:
        place = {"topic": one.topic, "partition": one.partition, "offset": one.offset}
        log.warning("crashing_record_found", table=table.name, **place, reason=one.reason)


def not_isolated(batch: Batch, found: Found, error: FrazilError) -> TableStopped:
    """Returns the error of a table whose task fails, where no single record fails alone."""
    first = found.together[0] if found.together else None
    cause = first.reason if first else error.message
    reason = f"records crash the task that reads them, and no single record does: {cause}"
    remedy = (
        "inspect the records of this range; to continue behind them write `start` with the offset of each partition"
        " and give the table a new name"
    )
    return TableStopped(reason, remedy, batch.place)


def log_committed(table: Table, outcome: Committed, took_s: float) -> None:
    """Logs the commit of a batch. took_s: seconds since the batch was planned."""
    report = outcome.report
    if outcome.resolved is not None and outcome.resolved.tries > 1:
        log.info("lookup_repeated", table=table.name, retries=outcome.resolved.tries - 1)
    log.info(
        "batch_committed",
        table=table.name,
        records=report.counts.record_count,
        files=len(report.written.data),
        bad=report.bad_records.count,
        lag_records=table.offsets.lag_records,
        took_s=round(took_s, 3),
    )


def update_interval(table: Table, pace: Pace) -> float:
    """Sets and returns the seconds between two commits of the table: those of the pipeline file, or more while table
    maintenance is too slow for commits that delete rows.
    """
    own_s = table.spec.commit.interval_s
    slowed_by = pace.slowed_by(table.name) if table.spec.mode == "upsert" else 1.0
    interval_s = slowed_s(own_s, slowed_by)
    if interval_s == own_s != (table.schedule.interval_s or own_s):
        log.info("commit_interval_restored", table=table.name, interval_s=interval_s)
    elif interval_s != (table.schedule.interval_s or own_s):
        log.warning("commit_interval_raised", table=table.name, interval_s=interval_s)
    table.schedule.interval_s = interval_s
    return interval_s


def add_refusals(table: Table, report: TaskReport) -> None:
    """Adds refused schema changes to the table, and logs each change once, whichever schemas request it, with the
    remedy.
    """
    noted = add_names(table.schema.refusals, report.schema.refusals)
    if noted == table.schema.refusals:
        return
    known = {refused.change for refused in refused_changes(table.schema.refusals)}
    for refused in refused_changes(noted):
        if refused.change not in known:
            log.warning(
                "schema_change_refused",
                table=table.name,
                schema_evolution=table.spec.schema_evolution,
                **asdict(refused),
            )
    table.schema.refusals = noted


def count_ignored(table: Table, report: TaskReport) -> None:
    """Counts records that are no change of a row, and logs the first batch with each kind of them."""
    for kind in sorted(report.counts.ignored_records.keys() - table.bad_records.ignored_records.keys()):
        log.info("records_ignored", table=table.name, kind=kind, records=report.counts.ignored_records[kind])
    table.bad_records.ignored_records.update(report.counts.ignored_records)


def backoff_s(failures: int) -> float:
    """Returns the seconds to wait after `failures` consecutive failures."""
    return jitter(min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(failures - 1, _MOST_DOUBLINGS)))


DELETES_OLD = "write.metadata.delete-after-commit.enabled"
"""Iceberg's property; nothing removes the old metadata files of a table without it."""


def keeps_old_metadata(state: TableState | None) -> str:
    """Returns a warning for a table without Iceberg's property about old metadata files; empty for other tables."""
    if state is None or DELETES_OLD in state.properties:
        return ""
    return (
        "every commit leaves a metadata file behind, 86,400 a day with a commit a second, until table maintenance"
        f" removes it as an orphan. `ALTER TABLE {state.name} SET TBLPROPERTIES ('{DELETES_OLD}' = 'true')`: then each"
        " commit removes the oldest one"
    )
