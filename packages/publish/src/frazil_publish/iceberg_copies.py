"""Snapshots without delete files, for readers that do not apply them: the data files with deletes are written again.

The new snapshot follows the one whose rows it has, and only main gets it. The branch, which has newer commits by then, gets
the same data files by a commit of its own, as of any compaction, so that each deleted row is left out once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.compaction import written_groups
from frazil.catalog.iceberg.java import each, remove, summary_of
from frazil.catalog.iceberg.maintenance import IcebergMaintenance, explained
from frazil.catalog.iceberg.rewrite_commit import RewriteCommit
from frazil.catalog.maintenance_port import Compaction, Copy, MergeOf, Transfer
from frazil.errors import ConflictError, InvariantError
from frazil.failpoints import hit

if TYPE_CHECKING:
    from collections.abc import Iterator

_LARGEST = str(2**62)
_WITH_DELETES = Compaction(
    {
        "delete-file-threshold": "1",
        "min-file-size-bytes": "0",
        "max-file-size-bytes": _LARGEST,
        "min-input-files": _LARGEST[:9],
    }
)
"""Chooses data files with deletes, and no others."""


@dataclass(frozen=True)
class IcebergCopy:
    """The data files of a snapshot that had deletes, written again without the deleted rows."""

    table: str
    #: The snapshot, as a Java snapshot.
    snapshot: Any
    #: Iceberg's groups of files with what replaces them.
    groups: tuple[Any, ...]
    #: Every delete file of the snapshot.
    deletes: tuple[Any, ...]

    @property
    def snapshot_id(self) -> int:
        """See Copy."""
        return int(self.snapshot.snapshotId())


class IcebergCopies:
    """Implements the port `Copies` for tables of `catalog`, whose locks exclude batches of this process. maintenance: of
    the same catalog, for its Spark session.
    """

    def __init__(self, catalog: IcebergCatalog, maintenance: IcebergMaintenance, merge_of: MergeOf | None) -> None:
        self._catalog = catalog
        self._jvm = catalog.gateway.jvm
        self._maintenance = maintenance
        self._merge_of = merge_of

    def write(self, table: str, snapshot_id: int, stages: tuple[Any, ...] = ()) -> Copy | None:
        """See Copies."""
        with explained("data files without deletes cannot be written", table):
            java = self._catalog.java_table(table)
            snapshot = java.snapshot(snapshot_id)
            if snapshot is None:
                raise ConflictError("the snapshot was expired in the meantime", where=table)
            deletes = tuple(self._deletes(java, snapshot))
            if not deletes:
                return None
            groups: list[Any] = []
            try:
                spark, compaction = self._maintenance.activated(), replace(_WITH_DELETES, stages=stages)
                for lot in written_groups(spark, self._catalog, java, table, compaction, self._merge_of, snapshot_id):
                    groups += lot
            except BaseException:
                self._remove(java, groups)
                raise
            hit("publish.copied")
            return IcebergCopy(table, snapshot, tuple(groups), deletes)

    def follow(self, copy: Copy, transfer: Transfer | None) -> None:
        """See Copies."""
        assert isinstance(copy, IcebergCopy)
        if not copy.groups:
            return
        with explained("the branch cannot get the data files of main", copy.table):
            java = self._catalog.java_table(copy.table)
            RewriteCommit(self._catalog, copy.table, java, transfer, copy.snapshot).commit(copy.groups, is_shared=True)

    def abandon(self, copy: Copy) -> None:
        """See Copies."""
        assert isinstance(copy, IcebergCopy)
        with explained("files cannot be removed", copy.table):
            self._remove(self._catalog.java_table(copy.table), copy.groups)

    def _remove(self, java: Any, groups: Any) -> None:
        remove(java, (str(file.location()) for group in groups for file in each(group.addedFiles())))

    def _deletes(self, java: Any, snapshot: Any) -> Iterator[Any]:
        """Yields every delete file of the snapshot, those without a data file included."""
        if summary_of(snapshot).get("total-delete-files") == "0":
            return
        io, files = java.io(), self._jvm.org.apache.iceberg.ManifestFiles
        for manifest in each(snapshot.deleteManifests(io)):
            reader = files.readDeleteManifest(manifest, io, java.specs())
            try:
                for file in each(reader):
                    yield file.copy()
            finally:
                reader.close()


def staged_copy(jvm: Any, java: Any, copy: IcebergCopy, entry: tuple[str, str]) -> tuple[Any, Any]:
    """Returns the metadata of the Java table, which was just loaded, before and after main has gone to the copy of a
    snapshot: a new snapshot that follows it, and has no delete files. entry: of its summary. Nothing is committed.
    """
    transaction = java.newTransaction()
    base = java.operations().current()
    transaction.manageSnapshots().setCurrentSnapshot(copy.snapshot_id).commit()
    sets = jvm.org.apache.iceberg.util
    old, new = sets.DataFileSet.create(), sets.DataFileSet.create()
    deletes, none = sets.DeleteFileSet.create(), sets.DeleteFileSet.create()
    for group in copy.groups:
        old.addAll(group.rewrittenFiles())
        new.addAll(group.addedFiles())
    for file in copy.deletes:
        deletes.add(file)
    update = transaction.newRewrite().validateFromSnapshot(copy.snapshot_id)
    if copy.groups:
        update = update.dataSequenceNumber(copy.snapshot.sequenceNumber())
    update.rewriteFiles(old, deletes, new, none).set(*entry).commit()
    updated = transaction.table().operations().current()
    if summary_of(updated.currentSnapshot()).get("total-delete-files") != "0":
        raise InvariantError(f"a snapshot without deletes has delete files: table=`{copy.table}`")
    return base, updated


def forget(java: Any, updated: Any) -> None:
    """Deletes the manifests of a staged snapshot that was not committed."""
    snapshot = updated.currentSnapshot()
    manifests = (m for m in each(snapshot.allManifests(java.io())) if m.snapshotId() == snapshot.snapshotId())
    remove(java, {str(snapshot.manifestListLocation()), *(str(manifest.path()) for manifest in manifests)})
