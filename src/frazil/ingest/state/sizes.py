"""Sizes of a table's records and rows, learned from its batches."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.ingest.job import OVERSIZED_BYTES
from frazil.ingest.plan import ASSUMED_RECORD_BYTES
from frazil.ingest.record_sizes import learn_row_bytes
from frazil.report.task_report import TaskReport

MANY_FILES = 500
_FEW_ROWS = 2_000


@dataclass
class Sizes:
    """Sizes and rates of the batches of this process."""

    #: The average size of the last batch's records.
    record_bytes: float = ASSUMED_RECORD_BYTES
    #: The size of the largest record of any batch; None before the first.
    largest_bytes: int | None = None
    #: The average size of a row in a data file; None before this process has written enough of them.
    row_bytes: float | None = None
    #: Whether rows of the last batch were written to very many partitions; None before the first.
    is_scattered: bool | None = None
    #: Records per second of the last batch.
    records_per_s: float = 0.0
    #: Milliseconds from the newest record of the last batch to its commit.
    freshness_ms: int | None = None

    def update(self, report: TaskReport) -> None:
        """Updates the sizes from the report of a batch that was read."""
        if report.counts.has_oversized:
            self.largest_bytes = OVERSIZED_BYTES + 1
        elif report.counts.record_count:
            self.record_bytes = report.counts.value_bytes / report.counts.record_count
            self.largest_bytes = max(self.largest_bytes or 0, report.counts.largest_bytes)
            self.row_bytes = learn_row_bytes(self.row_bytes, report)
            self.is_scattered = len(report.written.data) >= MANY_FILES and report.counts.record_count < _FEW_ROWS * len(
                report.written.data
            )
