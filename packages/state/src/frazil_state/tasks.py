"""What tasks ask of tables that are their own state: the port `TaskRows` of `frazil.upsert.task_kinds`."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.stages.changes import Changes, ReadRecords
from frazil.types import Place
from frazil.upsert.task_kinds import CollectedChanges, CollectedIds, TaskRows
from frazil.write.target import TableTarget
from frazil_state.dedupe.id_rows import IdRows
from frazil_state.history.event_rows import EventRows
from frazil_state.history.records import take_times
from frazil_state.merge.functions import refuse_unmergeable
from frazil_state.merge.part_rows import PartRows


class MergedRecords(TaskRows):
    """Tables with `merge`: the records of a key are one part."""

    def refuse(self, target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
        """See TaskRows."""
        return refuse_unmergeable(target, read, changes)

    def collect(self, target: TableTarget, topics: Sequence[str], _: set[Place] | None) -> CollectedChanges:
        """See TaskRows."""
        return PartRows(target, topics)


class HistoryRecords(TaskRows):
    """Tables with `mode: history`: every change has its time."""

    def refuse(self, target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
        """See TaskRows."""
        return take_times(target, read, changes)

    def collect(self, target: TableTarget, topics: Sequence[str], _: set[Place] | None) -> CollectedChanges:
        """See TaskRows."""
        return EventRows(target, topics)


class DedupedRecords(TaskRows):
    """Append tables with `dedupe`: rows are written, and their ids reported."""

    def collect_ids(self, target: TableTarget, topics: Sequence[str]) -> CollectedIds | None:
        """See TaskRows."""
        return IdRows(target, topics)
