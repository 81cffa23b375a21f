"""Bad records of a table: their share of recent records, the dead-letter table, and the records that crash tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from frazil.catalog.port import TableState
from frazil.report.task_report import TaskReport
from frazil.types import BadRecord

FEWEST_TO_JUDGE = 100
"""The fewest records from which a share of bad records is computed."""
_GOOD_BATCHES = 20


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
        return Tally(self.record_count + report.counts.record_count, self.bad_count + report.bad_records.count).share

    def add(self, report: TaskReport) -> None:
        """Adds the records of a committed batch."""
        self.record_count += report.counts.record_count
        self.bad_count += report.bad_records.count
        while self.record_count >= 2 * FEWEST_TO_JUDGE:
            self.record_count //= 2
            self.bad_count //= 2


@dataclass
class BadRecordState:
    """The state of bad and ignored records of one table."""

    #: The dead-letter table, as last loaded; None while batches do not read the columns of dead letters.
    dead_letters: TableState | None = None
    #: Committed batches in a row without a bad record.
    good_batches: int = 0
    #: Numbers of recent records and bad records.
    tally: Tally = field(default_factory=Tally)
    #: Records that are no change of a row, by kind, since the process started.
    ignored_records: Counter[str] = field(default_factory=Counter)
    #: Records that crash the task which reads them, until the batch with them is committed.
    crashing: frozenset[BadRecord] = frozenset()
    #: Searches for such records without a result since the last commit.
    searches: int = 0

    def note_committed(self, report: TaskReport) -> bool:
        """Counts a committed batch; returns whether batches stop reading the columns of dead letters, after many
        batches without a bad record.
        """
        self.tally.add(report)
        self.good_batches = 0 if report.bad_records.count else self.good_batches + 1
        if self.good_batches < _GOOD_BATCHES:
            return False
        self.dead_letters = None
        return True
