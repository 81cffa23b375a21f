"""The live files of tables, read through Iceberg's Java API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from frazil.catalog.iceberg.java import each
from frazil.catalog.iceberg.java_errors import java_errors, unavailable
from frazil.catalog.port import StoredFile
from frazil.catalog.scans import LiveFile, Scan, after_commit, delete_file_of, is_numbered
from frazil.types import Commit

_FILES_AT_ONCE, _WITH_STATISTICS = 10_000, 500
"""The number of files described in one JSON text, without and with column metrics, which can take a hundred times as
much as everything else.
"""


class TableScans:
    """The live files of tables that this process commits to: own commits are applied in memory, everything else is
    read.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._known: dict[str, Scan] = {}

    def scan(self, table: str, java: Any) -> Scan:
        """Returns the files of the Java table as last loaded.

        Raises: UnavailableError where its metadata cannot be read.
        """
        snapshot = java.currentSnapshot()
        if snapshot is None:
            return Scan()
        known = self._known.get(table)
        if known is None or known.read_at != snapshot.snapshotId():
            known = self._known[table] = self._read(table, java, snapshot.snapshotId())
        return known

    def note(self, commit: Commit, java: Any) -> None:
        """Applies our own commit to the known files, where it came directly after them and made the newest snapshot."""
        known, snapshot = self._known.get(commit.table), java.currentSnapshot()
        if known is None or snapshot.parentId() != known.read_at:
            return
        first_row_ids = {}
        if snapshot.firstRowId() is not None:  # Format version 3.
            if not all(is_numbered(file.content) for file in known.files):
                # Upgraded from format version 2: this commit has assigned row ids to the existing files.
                del self._known[commit.table]
                return
            try:
                first_row_ids = _first_row_ids(java, snapshot) if commit.files else {}
            except java_errors():  # The commit is done; the next scan reads all files.
                del self._known[commit.table]
                return
        self._known[commit.table] = after_commit(known, commit, snapshot.snapshotId(), first_row_ids)

    def _read(self, table: str, java: Any, snapshot_id: int) -> Scan:
        described = Described(self._jvm, java)
        try:
            files = described.live_files(java.newScan().useSnapshot(snapshot_id).includeColumnStats())
        except java_errors() as error:
            raise unavailable("the table's files cannot be listed", error, table) from None
        return Scan(snapshot_id, tuple(files))


def _first_row_ids(java: Any, snapshot: Any) -> dict[str, int]:
    """Returns by path the row ids that the commit assigned to the first rows of its files."""
    return {str(file.location()): file.firstRowId() for file in each(snapshot.addedDataFiles(java.io()))}


class Described:
    """Files of one Java table as Iceberg's JSON, many files in one text: a py4j call per file would take far longer. A
    table of any size is described in several texts.
    """

    def __init__(self, jvm: Any, java: Any) -> None:
        self._iceberg = jvm.org.apache.iceberg
        self._specs = java.specs()

    def batches(self, scan: Any) -> Iterator[str]:
        """Yields the tasks of a Java table scan as JSON of the REST protocol, many tasks at a time."""
        return self._batches(scan, _FILES_AT_ONCE)

    def live_files(self, scan: Any) -> list[LiveFile]:
        """Returns the files, with their delete files, of a Java table scan that includes column metrics."""
        return [file for batch in self._batches(scan, _WITH_STATISTICS) for file in _live_files(batch)]

    def live_files_of(self, tasks: Any) -> list[LiveFile]:
        """Returns the files of a Java list of scan tasks, in order, with their delete files."""
        return [file for batch in self._parted(tasks, _WITH_STATISTICS) for file in _live_files(batch)]

    def bare_file(self, file: Any) -> LiveFile:
        """Returns a Java data file, without delete files."""
        content = str(self._iceberg.ContentFileParser.toJson(file, self._specs.get(file.specId())))
        return LiveFile(str(file.location()), file.recordCount(), content)

    def _batches(self, scan: Any, at_once: int) -> Iterator[str]:
        tasks = scan.planFiles()
        try:
            yield from self._parted(tasks, at_once)
        finally:
            tasks.close()

    def _parted(self, tasks: Any, at_once: int) -> Iterator[str]:
        batches = self._iceberg.relocated.com.google.common.collect.Iterators.partition(tasks.iterator(), at_once)
        while batches.hasNext():
            yield self._json(batches.next())

    def _json(self, tasks: Any) -> str:
        responses = self._iceberg.rest.responses
        response = responses.FetchScanTasksResponse.builder().withFileScanTasks(tasks).withSpecsById(self._specs)
        return str(responses.FetchScanTasksResponseParser.toJson(response.build()))


def _live_files(text: str) -> Iterator[LiveFile]:
    found = json.loads(text)
    deletes = [delete_file_of(json.dumps(file)) for file in found.get("delete-files", ())]
    for task in found.get("file-scan-tasks", ()):
        file, own = task["data-file"], tuple(deletes[number] for number in task.get("delete-file-references", ()))
        yield LiveFile(file["file-path"], file["record-count"], json.dumps(file), own)


def stored_files(table: str, java: Any) -> list[StoredFile]:
    """Returns the data files of the Java table's current snapshot.

    Raises: UnavailableError where its metadata cannot be read.
    """
    found = []
    try:
        for task in planned(java.newScan()):
            file, deleted = task.file(), not task.deletes().isEmpty()
            found.append(StoredFile(str(file.location()), file.recordCount(), file.fileSizeInBytes(), deleted))
    except java_errors() as error:
        raise unavailable("the table's files cannot be listed", error, table) from None
    return found


def planned(scan: Any) -> Iterator[Any]:
    """Yields the tasks of a Java table scan."""
    tasks = scan.planFiles()
    yield from each(tasks)
    tasks.close()
