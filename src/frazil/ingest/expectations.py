"""What follows where records do not meet the expectations of a table: it stops, or the log names the first of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from frazil.errors import RecordError
from frazil.report import ExpectationReport, TaskReport
from frazil.spec import TableSpec
from frazil.types import add_counts

log = structlog.get_logger("frazil")

_LOG_EVERY_S = 60.0
STOP_REMEDY = (
    "correct the condition, or write `else: dead_letter`, which keeps such records aside, or `drop` or `warn`; then start"
    " `frazil run` again"
)


def stop_at_expectation(spec: TableSpec, report: TaskReport) -> RecordError:
    """Returns the error of a batch with records that must not be there by an expectation; it names the first."""
    stopping = [one.name for one in spec.expect if one.action == "stop" and one.name in report.unmet.counts]
    first = [(report.unmet.first[name], report.unmet.counts[name]) for name in stopping]
    record, count = min(first, key=lambda one: (one[0].topic, one[0].partition, one[0].offset))
    more = f" (and {count - 1} more in this batch)" if count > 1 else ""
    return RecordError(
        f"{record.reason}{more}",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        remedy=STOP_REMEDY,
    )


@dataclass
class ExpectationState:
    """The records that did not meet an expectation, as far as the log has them."""

    #: When each expectation was last logged, on the monotonic clock in seconds.
    logged_at_s: dict[str, float] = field(default_factory=dict)
    #: The records since then.
    unlogged: ExpectationReport = field(default_factory=ExpectationReport)

    def note_committed(self, spec: TableSpec, report: TaskReport, now_s: float) -> None:
        """Counts a committed batch, and logs each expectation that is not met, at most once a minute."""
        if not report.unmet.counts:
            return
        counts = add_counts(self.unlogged.counts, report.unmet.counts)
        first = {**report.unmet.first, **self.unlogged.first}
        for one in spec.expect:
            if one.name in counts and now_s - self.logged_at_s.get(one.name, -_LOG_EVERY_S) >= _LOG_EVERY_S:
                record, self.logged_at_s[one.name] = first.pop(one.name), now_s
                log.warning(
                    "expectation_not_met",
                    table=spec.name,
                    expectation=one.name,
                    action=one.action,
                    records=counts.pop(one.name),
                    first=record.reason,
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                )
        self.unlogged = ExpectationReport(counts, first)
