"""The changes of one table in one task: what they need of other tasks and batches, and the rows of the latest."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from frazil.report import ChangeReport, Touched
from frazil.schema.arrow import Records
from frazil.stages.changes import Changes
from frazil.types import DataFile, Place
from frazil.upsert.change_notes import TaskNotes
from frazil.upsert.change_rows import only
from frazil.upsert.late_records import LateRecords
from frazil.upsert.records.first_tombstones import FirstTombstones
from frazil.upsert.records.tombstones import LastDeletes, secret_of
from frazil.upsert.task_kinds import collect_changes, collect_ids
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter


class TaskChanges:
    """Collects the changes of a table. A table whose rows are appended has some notes, and no rows here."""

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        #: The last deletes of the partitions that the task reads.
        self.last_deletes = LastDeletes(target.known.last_deletes, secret_of(target))
        self._first_tombstones = FirstTombstones(target, topics)
        lost: set[Place] = set()
        self._rows = collect_changes(target, topics, lost)
        self._notes = TaskNotes(target, lost)
        #: The records that are late.
        self.late = LateRecords(target)
        self._ids = collect_ids(target, topics)
        self._touched: tuple[Touched, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether no row of the batch may be committed, as it must be read again or the table stops."""
        return self._notes.is_refused

    def mark(self, topic: str, records: Records) -> Records:
        """Returns the records, marked where they follow a delete of an earlier read."""
        return self.last_deletes.mark_following_deletes(topic, records)

    def note(self, topic: str, changes: Changes, records: Records) -> None:
        """Notes what the changes of these records need. Each record is passed once."""
        self._notes.take(topic, changes, records)
        self.last_deletes.take(topic, changes.last_deletes, records)

    def without_repeated(self, topic: str, rows: pa.Table, records: Records) -> pa.Table:
        """Returns the rows to be written of a table without duplicates, and all rows of another. records: partition and
        offset of each row's record.
        """
        return rows if self._ids is None else self._ids.take(topic, rows, records)

    def take(self, topic: str, stretch: Records, rows: pa.Table, changes: Changes, records: Records) -> None:
        """Adds changes. stretch: the records that were read. rows, records: as for `ChangeRows.take`."""
        rows, changes, records = self._first_tombstones.take_out(topic, stretch, rows, changes, records)
        if changes.ops.size:
            are_left = self._notes.separate(topic, changes, records)
            self._rows.take(topic, *only(are_left, rows, changes, records))

    def close(self) -> None:
        """Decides whether the rows may be written, after the last record."""
        self._notes.close()

    def write(self, writer: FileWriter | None) -> list[DataFile]:
        """Writes the rows and ends the files. writer: None where no record became a row."""
        keys, buffered, count = ("", "", 0) if writer is None else self._rows.finish(writer)
        data = writer.finish() if writer is not None else []
        if keys:
            self._touched = (Touched(keys, buffered, tuple(file.path for file in data), count),)
        self._touched += self._first_tombstones.kept()
        if self._ids is not None:
            self._touched = self._ids.finish(data)
        return data

    def report(self) -> ChangeReport:
        """Returns the changes as the driver needs them."""
        notes = {**self.late.notes(), **self._notes.notes()}
        return ChangeReport(self._touched, self.last_deletes.read_deletes(), notes)
