"""Problems, and how people read them, durations, sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frazil.printable import plural
from frazil.types import OffsetRange

NOTHING = "–"
_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class Problem:
    """A problem of the pipeline or of a table."""

    message: str
    remedy: str = ""
    where: str = ""


def problem_document(problem: Problem | None) -> dict[str, str]:
    """Returns the JSON of a table's problem; empty texts without one."""
    problem = problem or Problem("")
    return {"reason": problem.message, "remedy": problem.remedy, "where": problem.where}


def behind(lag_records: int | None) -> str:
    """Returns how far a table is behind, for a sentence: `3 records behind`."""
    return "its lag is not known" if lag_records is None else f"{plural(lag_records, 'record')} behind"


OPEN_TRANSACTION_REMEDY = (
    "wait until its producer commits or aborts it, or Kafka does after `transaction.timeout.ms`; if it stays, find and"
    " end it with `kafka-transactions.sh find-hanging` and `abort`"
)


def held_back(open_transactions: Sequence[OffsetRange]) -> Problem | None:
    """Returns what keeps records from being read though they are in Kafka; None where nothing does."""
    if not open_transactions:
        return None
    first, *others = open_transactions
    records = sum(offsets.span for offsets in open_transactions)
    verb = "waits" if records == 1 else "wait"
    reason = f"{plural(records, 'record')} {verb} behind an open transaction since offset {first.start}"
    if others:
        reason += f", and behind others in {plural(len(others), 'more partition')}"
    return Problem(reason, OPEN_TRANSACTION_REMEDY, f"topic {first.topic}, partition {first.partition}")


def duration(seconds: float | None) -> str:
    """Returns a duration in the largest unit in which it is at least one: `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`."""
    if seconds is None:
        return NOTHING
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 9.95 or seconds == 0 else f"{seconds:.1f} s"


def ago(then_ms: int | None, now_ms: int) -> str:
    """Returns how long ago a time was: `3 s ago`; `now` within a second, also for a clock slightly ahead of ours."""
    if then_ms is None:
        return NOTHING
    seconds = (now_ms - then_ms) // 1000
    if seconds < 1:
        return "now"
    return f"{seconds} s ago" if seconds < 60 else f"{duration(seconds)} ago"


def size(bytes_: float | None) -> str:
    """Returns a size: `512 B`, `1.4 MiB`, `23 GiB`."""
    if bytes_ is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if bytes_ < 1024 or unit == "TiB":
            break
        bytes_ /= 1024
    return f"{bytes_:.1f} {unit}" if unit != "B" and bytes_ < 9.95 else f"{bytes_:.0f} {unit}"


def count(number: float | None) -> str:
    """Returns a number with separators: `1,234`."""
    return NOTHING if number is None else f"{number:,.0f}"
