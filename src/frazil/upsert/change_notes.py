"""What the notes of tasks on changes (`report.ChangeReport`) mean for their batch: the door to the rooms that write them."""

from __future__ import annotations

from dataclasses import replace

from frazil.errors import RecordError
from frazil.report import ChangeReport, TaskReport
from frazil.types import Progress
from frazil.upsert.key_updates.parts import KeyUpdateNotes, key_update_notes
from frazil.upsert.records.tombstones import still_last
from frazil.upsert.truncates import error_of, truncates_in


def error_in(changes: ChangeReport) -> RecordError | None:
    """Returns the error that stops the table; None where nothing does."""
    return error_of(truncates_in(changes))


def progress_after(progress: Progress, before: Progress, report: TaskReport) -> Progress:
    """Returns the progress of a batch with what it keeps of its changes. before: the progress before the batch."""
    emptied = max(before.emptied, truncates_in(report.changes).emptied)
    return replace(progress, emptied=emptied, last_deletes=still_last(before, report, progress.offsets))


def dependence(changes: ChangeReport) -> str:
    """Returns why the rows depend on more than their records; empty where they do not."""
    if key_update_notes(changes) != KeyUpdateNotes():
        return "keys of rows were changed"
    if truncates_in(changes).has_some:
        return "the table was truncated"
    if any(touched_keys.buffered for touched_keys in changes.touched):
        return "changes keep values of the rows that they replace"
    return ""
