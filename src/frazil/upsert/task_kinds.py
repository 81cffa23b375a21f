"""What tasks ask of a kind of table: that with the latest row of a key, and the kinds of packages.

Others in tasks ask here, and name none of the kinds; in the driver it is `upsert.kinds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from frazil.plugins.tables import TABLE_KINDS
from frazil.report import Touched
from frazil.schema.arrow import Records
from frazil.stages.changes import Changes, ReadRecords
from frazil.types import DataFile, Place
from frazil.upsert.change_rows import ChangeRows
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter


class CollectedChanges(Protocol):
    """Collects the changes of one table, as `change_rows.ChangeRows`."""

    def take(self, topic: str, rows: pa.Table, changes: Changes, records: Records) -> None:
        """Adds changes of one topic."""

    def finish(self, writer: FileWriter) -> tuple[str, str, int]:
        """Returns the changes and the buffered rows, each serialized as text, and the number of changes taken."""


class CollectedIds(Protocol):
    """Collects what identifies the rows of one append table."""

    def take(self, topic: str, rows: pa.Table, records: Records) -> pa.Table:
        """Notes rows of one topic; returns those to be written. rows: in the schema of the files. records: partition and
        offset of each row's record.
        """

    def finish(self, files: Sequence[DataFile]) -> tuple[Touched, ...]:
        """Returns the ids for the report. files: those that have the rows."""


class TaskRows:
    """What tasks ask of a kind of table. As it is, that of tables with the latest row of a key, and of those whose rows are
    appended.
    """

    def refuse(self, target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:  # noqa: ARG002  (for packages)
        """See `refuse_unfit`."""
        return changes

    def collect(self, target: TableTarget, topics: Sequence[str], lost: set[Place] | None) -> CollectedChanges:
        """See `collect_changes`."""
        return ChangeRows(target, topics, lost)

    def collect_ids(self, target: TableTarget, topics: Sequence[str]) -> CollectedIds | None:  # noqa: ARG002  (for packages)
        """See `collect_ids`."""
        return None


_LATEST = TaskRows()


def _kind_of(target: TableTarget) -> TaskRows:
    kind: TaskRows = TABLE_KINDS.get(target.kind).in_task if target.kind else _LATEST
    return kind


def refuse_unfit(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes with the records refused that are fit for a row, and not for the kind of the table: whose values
    cannot be merged, or that have no time for their version.
    """
    return _kind_of(target).refuse(target, read, changes)


def collect_changes(target: TableTarget, topics: Sequence[str], lost: set[Place] | None = None) -> CollectedChanges:
    """Returns what collects the changes of a table in one task. lost: takes the places of records whose missing values exist
    nowhere.
    """
    return _kind_of(target).collect(target, topics, lost)


def collect_ids(target: TableTarget, topics: Sequence[str]) -> CollectedIds | None:
    """Returns what collects the ids of a table without duplicates in one task; None for another table."""
    return _kind_of(target).collect_ids(target, topics)
