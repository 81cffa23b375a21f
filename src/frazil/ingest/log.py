"""What the outcome of a batch makes of its table, and what the log says of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import structlog

from frazil.catalog.port import TableState
from frazil.clock import jitter
from frazil.errors import FrazilError
from frazil.ingest.batch import Planned
from frazil.ingest.failures import TableStopped
from frazil.ingest.isolate import Found
from frazil.ingest.outcome import Committed
from frazil.ingest.plan import slowed_s
from frazil.ingest.services import Pace
from frazil.ingest.state.status import RunState
from frazil.ingest.table import Table
from frazil.ingest.transactions.runs import Waiting
from frazil.report.task_report import TaskReport
from frazil.schema.rejected_changes import refused_changes
from frazil.types import BadRecord, Batch, add_names

log = structlog.get_logger("frazil")

# While a transaction is not whole: how soon Debezium's topic of transactions is asked again, later and later.
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 5.0
INCOMPLETE_TRANSACTION = "the newest transaction is not known to be complete yet"
FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0
# So many doublings are beyond the longest; without a limit a number that outgrows its type would end a long outage.
_MOST_DOUBLINGS = 16


def wait_for_transaction(planned: Planned, now_s: float) -> None:
    """The table waits for the rest of a transaction."""
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
    table.status.set(RunState.WAITING, None)
    table.status.reason = INCOMPLETE_TRANSACTION


def log_recreated(before: TableState | None, table: Table) -> None:
    """Says that another table has the name of the one that was known."""
    if before is not None and table.state is not None and table.state.uuid != before.uuid:
        log.warning("table_recreated", table=table.name, offsets=table.progress.offsets)


def log_isolated(table: Table, records: Iterable[BadRecord]) -> None:
    """Says which records end the task that reads them."""
    for one in records:
        place = {"topic": one.topic, "partition": one.partition, "offset": one.offset}
        log.warning("crashing_record_found", table=table.name, **place, reason=one.reason)


def not_isolated(batch: Batch, found: Found, error: FrazilError) -> TableStopped:
    """Why a table stops whose task fails, where no single record can be found that it fails for."""
    first = found.together[0] if found.together else None
    cause = first.reason if first else error.message
    reason = f"records crash the task that reads them, and no single record does: {cause}"
    remedy = (
        "inspect the records of this range; to continue behind them write `start` with the offset of each partition"
        " and give the table a new name"
    )
    return TableStopped(reason, remedy, batch.place)


def log_committed(table: Table, outcome: Committed, took_s: float) -> None:
    """A batch is in the table. took_s: since it was planned."""
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
    """How far apart its commits are from now on, in seconds: as the file says, unless table care cannot keep up with commits
    that take rows away.
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
    """Says once which changes of the table are refused, whichever schemas ask for them, and what to do."""
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
    """Counts records that are no change of a row; of each kind the first time is said."""
    for kind in sorted(report.counts.ignored_records.keys() - table.bad_records.ignored_records.keys()):
        log.info("records_ignored", table=table.name, kind=kind, records=report.counts.ignored_records[kind])
    table.bad_records.ignored_records.update(report.counts.ignored_records)


def backoff_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return jitter(min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(failures - 1, _MOST_DOUBLINGS)))
