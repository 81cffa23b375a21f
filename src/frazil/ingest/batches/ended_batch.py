"""What is kept of a batch at its end for traces and lineage: times, numbers and names.

Never its files, keys or records, which may be large.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil.clock import Clock
from frazil.errors import FrazilError, RecordError
from frazil.ingest.batches.outcome import Committed, Outcome, Reload, Replan, Retry, Stop
from frazil.ingest.failures import TaskFailedError
from frazil.ingest.tables.table import Planned, Table
from frazil.report import TaskTime


@dataclass(frozen=True)
class Interval:
    """From one moment to another, in milliseconds since the epoch."""

    began_ms: float
    ended_ms: float


@dataclass(frozen=True)
class Numbers:
    """What the tasks of a batch read and wrote."""

    #: Records that were read for the table.
    records: int
    #: Bytes of their values.
    value_bytes: int
    #: Rows, or changes of an upsert table, that were written.
    rows: int
    #: Data files that were written, and their bytes.
    files: int
    file_bytes: int
    #: Bad records.
    bad_records: int


@dataclass(frozen=True)
class EndedBatch:
    """A batch that has ended, however it did."""

    #: The table, which the loop's thread continues to change.
    table: Table
    #: The topics that were read.
    topics: tuple[str, ...]
    #: `Committed`, `Replan`, `Reload`, `Retry` or `Stop`.
    outcome: str
    #: From the plan to the end.
    whole: Interval
    #: From the submission of the tasks to their end; None where they did not end.
    reading: Interval | None
    #: The commit; None where there was none.
    commit: Interval | None
    #: The times of the tasks; none where one of them failed.
    tasks: tuple[TaskTime, ...]
    #: None where a task failed.
    numbers: Numbers | None
    #: The id of the commit, which the summary of its snapshot has; empty where nothing was committed.
    commit_id: str
    #: What was wrong; None where the batch ended well, or is only planned again.
    error: BaseException | None


def words_of(error: BaseException) -> str:
    """Returns what other services are sent of an error: no message that may quote a record."""
    if isinstance(error, RecordError):
        return f"a record cannot become a row ({error.where})"
    if not isinstance(error, FrazilError) or isinstance(error, TaskFailedError):
        return type(error).__name__
    return error.message


def ended_batch(planned: Planned, outcome: Outcome, clock: Clock) -> EndedBatch:
    """Returns what is kept of a batch that ends now."""
    schedule = planned.table.schedule
    now_s, now_ms = clock.monotonic_s(), clock.now_ms()

    def interval(from_s: float, to_s: float) -> Interval:
        return Interval(now_ms - (now_s - from_s) * 1000, now_ms - (now_s - to_s) * 1000)

    has_tasks = schedule.tasks_to_s is not None and schedule.tasks_from_s >= planned.planned_at_s
    report = outcome.report if isinstance(outcome, Committed | Replan) else None
    files = outcome.files if isinstance(outcome, Committed) else report.written.data if report is not None else ()
    return EndedBatch(
        planned.table,
        tuple(sorted(planned.batch.topics)),
        type(outcome).__name__,
        whole=interval(planned.planned_at_s, now_s),
        reading=interval(schedule.tasks_from_s, schedule.tasks_to_s or now_s) if has_tasks else None,
        commit=interval(now_s - outcome.took_s, now_s) if isinstance(outcome, Committed) else None,
        tasks=report.times if report is not None else (),
        numbers=None
        if report is None
        else Numbers(
            report.counts.record_count,
            report.counts.value_bytes,
            report.counts.row_count,
            len(files),
            sum(file.size_bytes for file in files),
            report.bad_records.count,
        ),
        commit_id=outcome.state.progress.commit_id if isinstance(outcome, Committed) else "",
        error=outcome.error if isinstance(outcome, Reload | Retry | Stop) else None,
    )
