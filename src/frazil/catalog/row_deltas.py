"""Commits of rows that come and go, put together for Iceberg's Java API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil.catalog.data_files import DataFiles
from frazil.types import DataFile, RowDelta


def row_delta(java: Any, files: Sequence[DataFile], delta: RowDelta, data_files: DataFiles) -> Any:
    """A RowDelta of the Java table that is not committed yet: `files` come, what `delta` names goes, with all of Iceberg's
    own checks that nobody has changed what they go from. data_files: how files get to Java.
    """
    update = java.newRowDelta().validateDeletedFiles()
    if delta.read_at is not None:
        update.validateFromSnapshot(delta.read_at)
    update.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
    if delta.touched:
        update.validateDataFilesExist(data_files.texts(delta.touched))
    data_files.tell((file.content for file in files), java, update, "RowDelta.addRows")
    data_files.tell((file.content for file in delta.removed), java, update, "RowDelta.removeRows")
    data_files.tell((delete.content for delete in delta.deletes), java, update, "RowDelta.addDeletes")
    data_files.tell((delete.content for delete in delta.replaced), java, update, "RowDelta.removeDeletes")
    return update
