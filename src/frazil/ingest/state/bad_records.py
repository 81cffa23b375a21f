"""Bad records of a table: how many there are, where their dead letters go, and which of them end tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from frazil.catalog.port import TableState
from frazil.report.task_report import TaskReport
from frazil.types import BadRecord

FEWEST_TO_JUDGE = 100
"""So many records it takes to say that too many of them are bad."""
_GOOD_BATCHES = 20


@dataclass
class Tally:
    """How many of the last records were bad: halved now and then, so that what is long ago counts less and less."""

    record_count: int = 0
    bad_count: int = 0

    @property
    def share(self) -> float:
        """The share of bad records; 0 while there are too few to tell."""
        return self.bad_count / self.record_count if self.record_count >= FEWEST_TO_JUDGE else 0.0

    def share_with(self, report: TaskReport) -> float:
        """The same, those of `report` included."""
        return Tally(self.record_count + report.counts.record_count, self.bad_count + report.bad_records.count).share

    def add(self, report: TaskReport) -> None:
        """Counts a batch that was committed."""
        self.record_count += report.counts.record_count
        self.bad_count += report.bad_records.count
        while self.record_count >= 2 * FEWEST_TO_JUDGE:
            self.record_count //= 2
            self.bad_count //= 2


@dataclass
class BadRecordState:
    """What is known of records that make no row."""

    #: The dead-letter table, as last loaded; None while batches do not carry what dead letters need.
    dead_letters: TableState | None = None
    #: Committed batches in a row without a bad record.
    good_batches: int = 0
    tally: Tally = field(default_factory=Tally)
    #: Records that are no change of a row, by kind, since the process began.
    ignored_records: Counter[str] = field(default_factory=Counter)
    #: Records that end the task which reads them, until the batch with them is committed.
    crashing: frozenset[BadRecord] = frozenset()
    #: How often such records were searched for without finding one, since the last commit.
    searches: int = 0

    def note_committed(self, report: TaskReport) -> bool:
        """Counts a committed batch. True when so many of them had no bad record that batches need no longer carry what dead
        letters need.
        """
        self.tally.add(report)
        self.good_batches = 0 if report.bad_records.count else self.good_batches + 1
        if self.good_batches < _GOOD_BATCHES:
            return False
        self.dead_letters = None
        return True
