"""When a table is read next, with which others, and how its last attempts ended. Times: the monotonic clock, in
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil.ingest.plan import MAX_BATCH_RECORDS

_QUICK_S = 5.0


@dataclass
class Schedule:
    """The schedule of a table in the service's loop."""

    #: Whether a batch or a load of the table is running; nothing else is started for it until then.
    in_flight: bool = False
    #: Whether the next batch gets a job of its own, because a job that it shared has failed.
    goes_alone: bool = False
    #: Consecutive failures.
    failures: int = 0
    #: Consecutive refused commits during which no other writer made progress either.
    conflicts: int = 0
    #: When the next batch is due.
    next_due_s: float = 0.0
    #: Seconds between two commits, which table maintenance may lengthen; None before the first commit.
    interval_s: float | None = None
    #: When the last batch was planned.
    last_batch_at_s: float = 0.0
    #: When the last batch ended.
    batch_done_at_s: float = 0.0
    #: Other tables of the last batch's shared read, while the table may wait for them.
    read_with: frozenset[str] = frozenset()
    #: The largest number of records in a batch, after more of them together took more memory or time than a task may;
    #: None without such a limit.
    most_records: int | None = None

    def read_less(self, records: int) -> bool:
        """Limits batches to a quarter of `records`, after a task failed with all of them and with none of them alone.
        Returns False where there was only one record.
        """
        if records <= 1:
            return False
        self.most_records = max(1, records // 4)
        return True

    def read_more(self, took_s: float) -> None:
        """Doubles the limit after a commit that took only seconds, and removes it once it has no effect."""
        if self.most_records is not None and took_s < _QUICK_S:
            self.most_records *= 2
            if self.most_records >= MAX_BATCH_RECORDS:
                self.most_records = None
