"""When a table is read next, with which others, and how its last tries went. Times: the monotonic clock, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.ingest.plan import MAX_BATCH_RECORDS

_QUICK_S = 5.0


@dataclass
class Schedule:
    """A table's turn in the loop."""

    #: Whether a batch or a load of the table is under way; nothing else is begun for it then.
    in_flight: bool = False
    #: Whether the next batch gets a job of its own, since one that it shared has failed.
    goes_alone: bool = False
    #: Failures in a row.
    failures: int = 0
    #: Refused commits in a row without any progress.
    conflicts: int = 0
    next_due_s: float = 0.0
    #: Between the last commit and the next, which table maintenance may lengthen; None before the first.
    interval_s: float | None = None
    #: When the last batch was planned, and when it was over.
    last_batch_at_s: float = 0.0
    batch_done_at_s: float = 0.0
    #: Tables that the last batch was read for too, as long as they may be waited for.
    company: frozenset[str] = frozenset()
    #: Records of a batch at most, since more of them together took more memory or time than a task may; None for no limit.
    most_records: int | None = None

    def read_less(self, records: int) -> bool:
        """After a task failed of so many records, and of none of them alone: batches of a quarter. False where one record
        was all there was.
        """
        if records <= 1:
            return False
        self.most_records = max(1, records // 4)
        return True

    def read_more(self, took_s: float) -> None:
        """After a commit: twice as much again, while a batch takes seconds only."""
        if self.most_records is not None and took_s < _QUICK_S:
            self.most_records *= 2
            if self.most_records >= MAX_BATCH_RECORDS:
                self.most_records = None
