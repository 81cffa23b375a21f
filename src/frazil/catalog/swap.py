"""The commit by which rewritten files take the place of others, with what was deleted in those meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.catalog.data_files import DataFiles
from frazil.catalog.iceberg import IcebergCatalog
from frazil.catalog.java import each
from frazil.catalog.maintenance_commits import send_once
from frazil.catalog.maintenance_port import Transfer
from frazil.catalog.scans import LiveFile, Scan
from frazil.catalog.sending import remove
from frazil.catalog.table_scans import Described
from frazil.catalog.validators import RewriteValidator
from frazil.failpoints import hit
from frazil.types import Commit, DataFile, DeleteFile, Progress, RowDelta

_TRIES = 8


@dataclass(frozen=True)
class _Rewrite:
    """What is to be committed. groups: Iceberg's, which are written. read: their files as they were read; new: those that
    take their place. Both are empty where nothing is deleted in the table and nothing could be transferred.
    """

    groups: Sequence[Any]
    read: tuple[LiveFile, ...]
    new: tuple[LiveFile, ...]


@dataclass(frozen=True)
class _Look:
    """The table at the snapshot `at`. gone: delete files that go with the files they speak of; come: those of new files.
    is_whole: whether these are all, and no equality delete counts for the new files as it did for the old ones.
    """

    at: int
    gone: tuple[DeleteFile, ...]
    come: tuple[DeleteFile, ...] = ()
    is_whole: bool = False


class Swap:
    """Commits for files of `table` that were read at the newest snapshot of `java`, which is the caller's own."""

    def __init__(self, catalog: IcebergCatalog, table: str, java: Any, transfer: Transfer | None) -> None:
        self._catalog = catalog
        self._jvm = catalog.gateway.jvm
        self._files = DataFiles(catalog.gateway)
        self._table = table
        self._java = java
        self._transfer = transfer
        head = java.currentSnapshot()
        self._read_at, self._number = int(head.snapshotId()), head.sequenceNumber()
        self._has_deletes = head.summary().get("total-delete-files") != "0"
        self._file_count = int(head.summary().get("total-data-files") or 0)

    def commit(self, groups: Sequence[Any]) -> bool:
        """Replaces the files of these groups, which are written; False where another commit was in the way, and what was
        written is removed. Raises one of `java_errors` where the outcome is not known: then it stays.

        Deletes that have come for a file are no obstacle where they can be transferred: they are looked for, those of the
        new files are written, and Iceberg refuses the commit for what comes after that look alone. The first look is taken
        while batches go on; should one of them land before the commit, this process's batches of the table wait for
        another look, which finds most of what it needs in memory, and the commit.
        """
        rewrite = self._described(groups)
        look = self._first_look(rewrite)
        for _ in range(_TRIES):
            if look is None:
                break
            with self._catalog.turn(self._table):
                if self._transfer is not None and self._now() != look.at:
                    remove(self._java, (delete.path for delete in look.come))
                    look = self._look(rewrite, self._scan())
                landed = self._try(rewrite, look) if look is not None else False
            if landed is not False:
                return bool(landed)
            if look is not None:
                remove(self._java, (delete.path for delete in look.come))
                look = self._first_look(rewrite) if self._transfer is not None else None
        remove(self._java, (str(file.location()) for group in groups for file in each(group.addedFiles())))
        return False

    def _described(self, groups: Sequence[Any]) -> _Rewrite:
        if not self._has_deletes and self._transfer is None:
            return _Rewrite(groups, (), ())
        described = Described(self._jvm, self._java)
        read = tuple(file for group in groups for file in described.live_files_of(group.fileScanTasks()))
        new = tuple(described.bare_file(file) for group in groups for file in each(group.addedFiles()))
        return _Rewrite(groups, read, new)

    def _now(self) -> int:
        self._java.refresh()
        return int(self._java.currentSnapshot().snapshotId())

    def _scan(self) -> Scan:
        return self._catalog.scan_of(self._table, self._java)

    def _first_look(self, rewrite: _Rewrite) -> _Look | None:
        if self._transfer is None:
            return _Look(self._read_at, _scoped(rewrite.read))
        with self._catalog.turn(self._table):
            self._now()
            scan = self._scan()
        return self._look(rewrite, scan)

    def _look(self, rewrite: _Rewrite, scan: Scan) -> _Look | None:
        """None where a file is gone, or rows that were deleted cannot be told apart."""
        assert self._transfer is not None
        assert scan.read_at is not None
        if scan.read_at == self._read_at:
            return _Look(self._read_at, _scoped(rewrite.read), is_whole=_is_whole(rewrite.read))
        live = {file.path: file for file in scan.files}
        now = [live[file.path] for file in rewrite.read if file.path in live]
        moved = self._transfer(rewrite.read, now, rewrite.new) if len(now) == len(rewrite.read) else None
        return _Look(scan.read_at, _scoped(now), tuple(moved), _is_whole(now)) if moved is not None else None

    def _try(self, rewrite: _Rewrite, look: _Look) -> bool | None:
        """Whether it has landed; None where that cannot be told any more."""
        update = self._java.newRewrite().validateFromSnapshot(look.at).dataSequenceNumber(self._number)
        is_all = sum(int(group.inputFileNum()) for group in rewrite.groups) >= self._file_count
        self._replace(update, rewrite.groups, look)
        landed = send_once(self._catalog, update, self._java, self._read_at, RewriteValidator(self._read_at, is_all))
        if landed:
            hit("maintenance.compact.landed")
            self._tell(rewrite, look)
        return landed

    def _replace(self, update: Any, groups: Sequence[Any], look: _Look) -> Any:
        sets = self._jvm.org.apache.iceberg.util
        old, new, none = sets.DataFileSet.create(), sets.DataFileSet.create(), sets.DeleteFileSet.create()
        for group in groups:
            old.addAll(group.rewrittenFiles())
            new.addAll(group.addedFiles())
        update.rewriteFiles(old, none, new, none)
        self._files.tell((delete.content for delete in look.gone), self._java, update, "RewriteFiles.deleteFile")
        self._files.tell((delete.content for delete in look.come), self._java, update, "RewriteFiles.addFile")
        return update

    def _tell(self, rewrite: _Rewrite, look: _Look) -> None:
        """Spares the next batch the listing of all files."""
        if not look.is_whole:
            return
        new, old = ([DataFile(f.path, f.record_count, 0, f.content) for f in fs] for fs in (rewrite.new, rewrite.read))
        delta = RowDelta(look.at, look.come, look.gone, tuple(old))
        commit = Commit(self._table, tuple(new), Progress(), Progress(), delta)
        self._catalog.note_rewrite(commit, self._java)


def _scoped(files: Iterable[LiveFile]) -> tuple[DeleteFile, ...]:
    """Delete files that speak of one rewritten file alone. Iceberg itself would leave position deletes of format 2 in the
    table until no older data file is in it, which may be never.
    """
    return tuple(delete for file in files for delete in file.deletes if delete.is_of_one_file)


def _is_whole(files: Iterable[LiveFile]) -> bool:
    return all(delete.is_of_one_file for file in files for delete in file.deletes)
