"""Records that are fit for a row, and not for the kind of their table: merged rows, or versions."""

from __future__ import annotations

from frazil.stages.changes import Changes, ReadRecords
from frazil.upsert.history.records import take_times
from frazil.upsert.merge.records import refuse_unmergeable
from frazil.write.target import TableTarget


def refuse_unfit(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes with the records refused whose values cannot be merged, or that have no time for their version."""
    return take_times(target, read, refuse_unmergeable(target, read, changes))
