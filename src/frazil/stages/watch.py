"""What the driver remembers of the batches of a table, for a stage that may refuse them."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.errors import FrazilError
from frazil.report import TaskReport
from frazil.spec.models import TableSpec

FEWEST_TO_JUDGE = 100
"""The fewest records from which a share of bad records is computed."""


@dataclass
class Tally:
    """Recent numbers of records and bad records. Both are halved from time to time, so that older records count less."""

    #: Records, recent ones with more weight.
    record_count: int = 0
    #: Bad records among them.
    bad_count: int = 0

    @property
    def share(self) -> float:
        """The share of bad records; 0 for fewer than `FEWEST_TO_JUDGE` records."""
        return self.bad_count / self.record_count if self.record_count >= FEWEST_TO_JUDGE else 0.0

    def share_with(self, report: TaskReport) -> float:
        """Returns the share of bad records with those of `report` included."""
        return self.share_after(report.counts.record_count, report.bad_records.faulty_count)

    def share_after(self, record_count: int, bad_count: int) -> float:
        """Returns the share of bad records with so many more records."""
        return Tally(self.record_count + record_count, self.bad_count + bad_count).share

    def add(self, record_count: int, bad_count: int) -> None:
        """Adds the records of a committed batch."""
        self.record_count += record_count
        self.bad_count += bad_count
        while self.record_count >= 2 * FEWEST_TO_JUDGE:
            self.record_count //= 2
            self.bad_count //= 2


class StageWatch:
    """What is remembered for one kind of stage."""

    def add_findings(self, _spec: TableSpec, report: TaskReport, /) -> TaskReport:
        """Returns the report of a batch with what the stage finds in it as a whole."""
        return report

    def refuse_read(self, _spec: TableSpec, _report: TaskReport, /) -> FrazilError | None:
        """Returns the error of a batch that was read, and has a record that must not be there; None without one."""
        return None

    def refuse_commit(self, _spec: TableSpec, _report: TaskReport, /) -> FrazilError | None:
        """Returns the error of a batch that is to be committed and must not be, as a whole; None where it may be."""
        return None

    def note_committed(self, _spec: TableSpec, _report: TaskReport, _now_s: float, /) -> None:
        """Takes notes of a committed batch. _now_s: on the monotonic clock."""
