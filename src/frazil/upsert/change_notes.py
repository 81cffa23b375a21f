"""What changes need of other changes: the door to the rooms that know it.

Tasks note it in their reports (`report.ChangeReport`). A change that is applied late, alone, cannot have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from frazil.errors import RecordError
from frazil.report import ChangeReport, TaskReport
from frazil.schema.arrow import Bools
from frazil.stages.changes import Changes
from frazil.types import Progress
from frazil.upsert.emptied import emptying_in, error_of
from frazil.upsert.key_updates.parts import KeyUpdateNotes, are_parts, key_update_notes
from frazil.upsert.records.tombstones import still_last

AGAIN = "produce the record to the topic again, or reset the table"
"""The remedy for a change that cannot be applied late."""


def error_in(changes: ChangeReport) -> RecordError | None:
    """Returns the error that stops the table; None where nothing does."""
    return error_of(emptying_in(changes))


def not_alone(changes: Changes) -> Iterator[tuple[Bools, str]]:
    """Yields which changes cannot be applied late and without others, bool `(n_changes,)`, why, and what to do."""
    why = "a truncate deletes all rows, and it is unknown which rows are newer"
    yield ~changes.have_keys, f"{why}: delete the older rows with another engine, or reset the table"
    yield are_parts(changes), f"the record changes several rows, or is a part of a primary-key update: {AGAIN}"


def progress_after(progress: Progress, before: Progress, report: TaskReport) -> Progress:
    """Returns the progress of a batch with what it keeps of its changes. before: the progress before the batch."""
    emptied = max(before.order.emptied, emptying_in(report.changes).emptied)
    last_deletes = still_last(before, report, progress.offsets)
    return replace(progress, order=replace(progress.order, emptied=emptied, last_deletes=last_deletes))


def dependence(changes: ChangeReport) -> str:
    """Returns why the rows depend on more than their records; empty where they do not."""
    if key_update_notes(changes) != KeyUpdateNotes():
        return "keys of rows were changed"
    if emptying_in(changes).has_some:
        return "the table was truncated"
    if any(touched_keys.buffered for touched_keys in changes.touched):
        return "changes keep values of the rows that they replace"
    return ""
