"""What tasks ask of the kind of a table: the latest row of a key, merged rows, history, or rows without duplicates.

Others in tasks ask here, and name none of these kinds; in the driver it is `upsert.kinds`.
"""

from __future__ import annotations

from collections.abc import Sequence

from frazil.stages.changes import Changes, ReadRecords
from frazil.types import Place
from frazil.upsert.change_rows import ChangeRows
from frazil.upsert.dedupe.id_rows import IdRows
from frazil.upsert.history.event_rows import EventRows
from frazil.upsert.history.records import take_times
from frazil.upsert.merge.functions import refuse_unmergeable
from frazil.upsert.merge.part_rows import PartRows
from frazil.write.target import TableTarget


def refuse_unfit(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes with the records refused that are fit for a row, and not for the kind of the table: whose values
    cannot be merged, or that have no time for their version.
    """
    return take_times(target, read, refuse_unmergeable(target, read, changes))


def collect_changes(
    target: TableTarget, topics: Sequence[str], lost: set[Place] | None = None
) -> ChangeRows | PartRows | EventRows:
    """Returns what collects the changes of a table in one task. lost: takes the places of records whose missing values exist
    nowhere.
    """
    if target.changes is not None and target.changes.history is not None:
        return EventRows(target, topics)
    is_merging = target.changes is not None and target.changes.counts_every_row
    return PartRows(target, topics) if is_merging else ChangeRows(target, topics, lost)


def collect_ids(target: TableTarget, topics: Sequence[str]) -> IdRows | None:
    """Returns what collects the ids of a table without duplicates in one task; None for another table."""
    return IdRows(target, topics) if target.dedupe is not None else None
