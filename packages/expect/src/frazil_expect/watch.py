"""What follows unmet expectations of a table: it stops, or the log has the first such record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import structlog

from frazil.errors import FrazilError, RecordError, SpecError
from frazil.printable import plural
from frazil.report import TaskReport
from frazil.spec.models import TableSpec
from frazil.stages.expect_settings import ExpectationSpec
from frazil.stages.watch import StageWatch, Tally
from frazil.types import BadRecord, add_counts

log = structlog.get_logger("frazil")

_LOG_EVERY_S = 60.0
STOP_REMEDY = (
    "correct the condition, or write another `else`: `dead_letter` keeps such records aside, `drop` leaves them out,"
    " `warn` only counts them"
)
BATCH_REMEDY = "correct the condition, or write `else: warn`"


@dataclass
class ExpectWatch(StageWatch):
    """The recent records of a table by its expectations, and what the log has of them."""

    #: By expectation with a share, the numbers of recent records and of those that do not meet it.
    tallies: dict[str, Tally] = field(default_factory=dict)
    #: When each expectation was last logged, on the monotonic clock in seconds.
    logged_at_s: dict[str, float] = field(default_factory=dict)
    #: By expectation, the number of records since then.
    unlogged: Counter[str] = field(default_factory=Counter)

    def add_findings(self, spec: TableSpec, report: TaskReport) -> TaskReport:
        """Returns the report of a batch with the expectations of whole commits that it does not meet."""
        few = {
            expectation.name: 1
            for expectation in spec.expectations.expect
            if expectation.min_rows is not None
            and report.counts.record_count
            and report.counts.row_count < expectation.min_rows
        }
        findings = report.findings
        return replace(report, findings=replace(findings, counts=add_counts(findings.counts, few))) if few else report

    def unmet(self, spec: TableSpec, report: TaskReport) -> list[ExpectationSpec]:
        """Returns the expectations that a batch does not meet; one with a share where more of the recent records do not."""
        return [
            expectation
            for expectation in spec.expectations.expect
            if expectation.name in report.findings.counts and self._is_above(expectation, report)
        ]

    def _is_above(self, expectation: ExpectationSpec, report: TaskReport) -> bool:
        if expectation.at_most is None:
            return True
        tally = self.tallies.get(expectation.name, Tally())
        return (
            tally.share_after(report.counts.written_count, report.findings.counts[expectation.name])
            > expectation.at_most
        )

    def refuse_read(self, spec: TableSpec, report: TaskReport) -> FrazilError | None:
        """See StageWatch."""
        return self._stop(spec, report, is_of_batch=False)

    def refuse_commit(self, spec: TableSpec, report: TaskReport) -> FrazilError | None:
        """See StageWatch."""
        return self._stop(spec, report, is_of_batch=True)

    def _stop(self, spec: TableSpec, report: TaskReport, is_of_batch: bool) -> FrazilError | None:
        stopping = [
            expectation
            for expectation in self.unmet(spec, report)
            if expectation.action == "stop" and expectation.is_of_batch == is_of_batch
        ]
        return _error_of(spec, stopping[0], report) if stopping else None

    def note_committed(self, spec: TableSpec, report: TaskReport, now_s: float) -> None:
        """Counts a committed batch, and logs each expectation that is not met, at most once a minute."""
        for expectation in self.unmet(spec, report):
            self.unlogged[expectation.name] += report.findings.counts[expectation.name]
            if now_s - self.logged_at_s.get(expectation.name, -_LOG_EVERY_S) >= _LOG_EVERY_S:
                self.logged_at_s[expectation.name] = now_s
                _log(
                    spec, expectation, self.unlogged.pop(expectation.name), report.findings.first.get(expectation.name)
                )
        for expectation in spec.expectations.expect:
            if expectation.at_most is not None:
                tally = self.tallies.setdefault(expectation.name, Tally())
                tally.add(report.counts.written_count, report.findings.counts.get(expectation.name, 0))


def _error_of(spec: TableSpec, expectation: ExpectationSpec, report: TaskReport) -> FrazilError:
    count, first = report.findings.counts[expectation.name], report.findings.first.get(expectation.name)
    if first is None:
        rows = plural(report.counts.row_count, "row")
        reason = f"the batch has {rows}, and {expectation.name} expects at least {expectation.min_rows}"
        return SpecError(reason, remedy=BATCH_REMEDY, where=spec.name)
    more = f" (and {count - 1} more in this batch)" if count > 1 else ""
    reason = f"{first.reason}{more}"
    if expectation.at_most is not None:
        reason = f"more than {100 * expectation.at_most:g}% of recent records do not meet {expectation.name}: {reason}"
    return RecordError(
        reason,
        topic=first.topic,
        partition=first.partition,
        offset=first.offset,
        remedy=STOP_REMEDY if expectation.at_most is None else BATCH_REMEDY,
    )


def _log(spec: TableSpec, expectation: ExpectationSpec, count: int, first: BadRecord | None) -> None:
    place = {"topic": first.topic, "partition": first.partition, "offset": first.offset} if first is not None else {}
    log.warning(
        "expectation_not_met",
        table=spec.name,
        expectation=expectation.name,
        action=expectation.action,
        count=count,
        reason=first.reason
        if first is not None
        else f"a commit has fewer than {plural(expectation.min_rows or 0, 'row')}",
        **place,
    )
