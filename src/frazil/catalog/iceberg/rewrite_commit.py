"""Commits of table maintenance, each in the table at most once.

They replace delete files and manifests, and data files by compacted ones with the deletes that were added meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.commits import send_once
from frazil.catalog.iceberg.data_files import DataFiles, Described
from frazil.catalog.iceberg.java import each, head_of, maintenance_workers, newest_snapshot, remove, summary_of
from frazil.catalog.iceberg.validators import RewriteValidator
from frazil.catalog.maintenance_port import Transfer
from frazil.catalog.scans import LiveFile, Scan
from frazil.failpoints import hit
from frazil.types import Commit, DataFile, DeleteFile, Progress, RowDelta

_TRIES = 8


def replace_deletes(catalog: IcebergCatalog, table: str, java: Any, staged: Any) -> bool:
    """Commits the changes that the snapshot `staged` of a transaction makes to the delete files of `java`, the Java table;
    see `send_once`. Where the table does not contain the commit, the transaction's files are deleted.
    """
    base, io = head_of(java, catalog.branch_of(table)), java.io()
    if staged.snapshotId() == base.snapshotId():
        return True
    update = java.newRewrite().validateFromSnapshot(base.snapshotId())
    for file in each(staged.removedDeleteFiles(io)):
        update.deleteFile(file)
    added = list(each(staged.addedDeleteFiles(io)))
    for file in added:
        update.addFile(file, file.dataSequenceNumber())
    manifests = _manifests(staged, io) - _manifests(base, io)
    return _send_staged(catalog, table, java, staged, update, [str(file.location()) for file in added], manifests)


def replace_manifests(catalog: IcebergCatalog, table: str, java: Any, staged: Any, done: Any) -> bool:
    """Commits the manifests of the snapshot `staged` of a transaction to the main branch, as `replace_deletes`. done: the
    result of Iceberg's action.
    """
    base = java.currentSnapshot()
    if staged.snapshotId() == base.snapshotId():
        return True
    update, added = java.rewriteManifests(), list(each(done.addedManifests()))
    for manifest in each(done.rewrittenManifests()):
        update.deleteManifest(manifest)
    for manifest in added:
        update.addManifest(manifest)
    return _send_staged(catalog, table, java, staged, update, [str(manifest.path()) for manifest in added])


def _send_staged(
    catalog: IcebergCatalog,
    table: str,
    java: Any,
    staged: Any,
    update: Any,
    added: Sequence[str],
    manifests: Iterable[str] = (),
) -> bool:
    """Commits `update` as `send_once`, and deletes what the transaction has written besides: its own list of manifests
    and `manifests`, and the files `added` where the table does not contain them.
    """
    branch = catalog.branch_of(table)
    since, refresh = int(head_of(java, branch).snapshotId()), catalog.refresher(table, java)
    landed = send_once(catalog.pipeline, update, java, since, refresh, branch=branch)
    remove(java, {str(staged.manifestListLocation()), *manifests})
    if not landed:
        remove(java, added)
    return landed


def _manifests(snapshot: Any, io: Any) -> set[str]:
    return {str(manifest.path()) for manifest in each(snapshot.allManifests(io))}


@dataclass(frozen=True)
class _Rewrite:
    """A compaction to be committed."""

    #: Iceberg's groups, which are written.
    groups: Sequence[Any]
    #: Their files as they were read; empty where the table has no deletes and none can be transferred.
    read: tuple[LiveFile, ...]
    #: The files that replace them; empty likewise.
    new: tuple[LiveFile, ...]


@dataclass(frozen=True)
class _TableView:
    """The deletes of the table at one snapshot."""

    #: The snapshot.
    snapshot_id: int
    #: Delete files that are removed together with their data files.
    gone: tuple[DeleteFile, ...]
    #: Delete files of the new files.
    come: tuple[DeleteFile, ...] = ()
    #: Whether these are all: no equality delete applies to the new files.
    is_complete: bool = False


class RewriteCommit:
    """Commits compactions of files of `table` that were read at the snapshot `at`, or at the newest one of `java`, which
    belongs to the caller.
    """

    def __init__(
        self, catalog: IcebergCatalog, table: str, java: Any, transfer: Transfer | None, at: Any | None = None
    ) -> None:
        self._catalog = catalog
        self._jvm = catalog.gateway.jvm
        self._files = DataFiles(catalog.gateway)
        self._table = table
        self._java = java
        self._transfer = transfer
        self._refresh = catalog.refresher(table, java)
        self._branch = catalog.branch_of(table)
        head = at or newest_snapshot(java, table, self._branch)
        self._read_at, self._number = int(head.snapshotId()), head.sequenceNumber()
        self._has_deletes = summary_of(head).get("total-delete-files") != "0"
        self._file_count = int(summary_of(head).get("total-data-files") or 0)

    def commit(self, groups: Sequence[Any], is_shared: bool = False) -> bool:
        """Replaces the files of these groups, which are written. Returns False after a conflicting commit; the new
        files are deleted then, unless another branch has them too (is_shared).

        Deletes that were added to a file do not prevent the commit where they can be transferred: they are searched,
        delete files for the new files are written, and Iceberg refuses the commit only for later deletes. The first
        search runs while batches are committed; if one is committed before the compaction, this process's batches of
        the table wait for another search, which finds most of its data in memory, and for the commit.

        Raises: one of `lost_answers`, or UnavailableError, where the outcome is unknown; the new files stay then.
        """
        rewrite = self._described(groups)
        view = self._first_view(rewrite)
        for _ in range(_TRIES):
            if view is None:
                break
            with self._catalog.lock(self._table):
                if self._transfer is not None and self._now() != view.snapshot_id:
                    remove(self._java, (delete.path for delete in view.come))
                    view = self._view(rewrite, self._scan())
                if view is not None and self._try(rewrite, view):
                    return True
            if view is not None:
                remove(self._java, (delete.path for delete in view.come))
                view = self._first_view(rewrite) if self._transfer is not None else None
        if not is_shared:
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
        self._refresh()
        return int(newest_snapshot(self._java, self._table, self._branch).snapshotId())

    def _scan(self) -> Scan:
        return self._catalog.scans.scan(self._table, self._java)

    def _first_view(self, rewrite: _Rewrite) -> _TableView | None:
        if self._transfer is None:
            return _TableView(self._read_at, _scoped(rewrite.read))
        with self._catalog.lock(self._table):
            self._now()
            scan = self._scan()
        return self._view(rewrite, scan)

    def _view(self, rewrite: _Rewrite, scan: Scan) -> _TableView | None:
        """Returns the deletes at this snapshot; None where a file was removed, or deleted rows cannot be identified."""
        assert self._transfer is not None
        assert scan.read_at is not None
        if scan.read_at == self._read_at:
            return _TableView(self._read_at, _scoped(rewrite.read), is_complete=_is_complete(rewrite.read))
        live = {file.path: file for file in scan.files}
        now = [live[file.path] for file in rewrite.read if file.path in live]
        moved = self._transfer(rewrite.read, now, rewrite.new) if len(now) == len(rewrite.read) else None
        return _TableView(scan.read_at, _scoped(now), tuple(moved), _is_complete(now)) if moved is not None else None

    def _try(self, rewrite: _Rewrite, view: _TableView) -> bool:
        """Returns whether the commit is in the table, as `send_once`."""
        update = self._java.newRewrite().validateFromSnapshot(view.snapshot_id).dataSequenceNumber(self._number)
        update.scanManifestsWith(maintenance_workers(self._catalog.gateway))
        is_all = sum(int(group.inputFileNum()) for group in rewrite.groups) >= self._file_count
        self._replace(update, rewrite.groups, view)
        validator = RewriteValidator(self._read_at, is_all)
        landed = send_once(
            self._catalog.pipeline, update, self._java, self._read_at, self._refresh, validator, self._branch
        )
        if landed:
            hit("maintenance.compact.landed")
            self._note_rewrite(rewrite, view)
        return landed

    def _replace(self, update: Any, groups: Sequence[Any], view: _TableView) -> Any:
        sets = self._jvm.org.apache.iceberg.util
        old, new, none = sets.DataFileSet.create(), sets.DataFileSet.create(), sets.DeleteFileSet.create()
        for group in groups:
            old.addAll(group.rewrittenFiles())
            new.addAll(group.addedFiles())
        update.rewriteFiles(old, none, new, none)
        self._files.apply((delete.content for delete in view.gone), self._java, update, "RewriteFiles.deleteFile")
        self._files.apply((delete.content for delete in view.come), self._java, update, "RewriteFiles.addFile")
        return update

    def _note_rewrite(self, rewrite: _Rewrite, view: _TableView) -> None:
        """Saves the next batch from listing all files."""
        if not view.is_complete:
            return
        new, old = ([DataFile(f.path, f.record_count, 0, f.content) for f in fs] for fs in (rewrite.new, rewrite.read))
        delta = RowDelta(view.snapshot_id, view.come, view.gone, tuple(old))
        commit = Commit(self._table, tuple(new), Progress(), Progress(), delta)
        self._catalog.note_rewrite(commit, self._java)


def _scoped(files: Iterable[LiveFile]) -> tuple[DeleteFile, ...]:
    """Returns the delete files that apply to one rewritten file only. Iceberg itself would keep position deletes of
    format version 2 until no older data file is in the table, which may be never.
    """
    return tuple(delete for file in files for delete in file.deletes if delete.is_of_one_file)


def _is_complete(files: Iterable[LiveFile]) -> bool:
    return all(delete.is_of_one_file for file in files for delete in file.deletes)
