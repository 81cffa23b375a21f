"""The commits of table maintenance: recognised in the table where their response was lost, cleaned up only where they
are not in the table.

Iceberg's actions commit by themselves, and delete the files they wrote when the commit is refused, even where their own
first attempt is the reason (see `java.send`). They therefore work on a transaction that is never committed and meets no
conflict, and its result is committed here.
"""

from __future__ import annotations

from typing import Any

from frazil.catalog.history import MAINTENANCE_ID, is_recorded
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.java import Collector, each, remove
from frazil.catalog.iceberg.java_errors import is_conflict, java_errors
from frazil.catalog.iceberg.validators import HistoryValidator, MaintenanceValidator, RewriteValidator, logged_snapshots
from frazil.catalog.progress import key
from frazil.clock import new_id


def send_once(
    catalog: IcebergCatalog, update: Any, java: Any, since: int, validator: RewriteValidator | None = None
) -> bool | None:
    """Commits an update of `java`, made for the table as of the snapshot `since`; returns whether the table contains
    it, None where that cannot be found out any more. Files that the attempts wrote are deleted only where none of them
    succeeded. validator: called on every attempt too.

    Raises: one of `java_errors` where the commit may still succeed.
    """
    own, left = new_id(), Collector()
    once = HistoryValidator(
        catalog.pipeline, MAINTENANCE_ID, lambda history: is_recorded(history, MAINTENANCE_ID, own, since) is False
    )
    update.set(key(catalog.pipeline, MAINTENANCE_ID), own).deleteWith(left)
    update.validateWith(MaintenanceValidator(once, validator))
    try:
        update.commit()
    except java_errors() as error:
        java.refresh()
        ancestors = catalog.gateway.jvm.org.apache.iceberg.util.SnapshotUtil.currentAncestors(java)
        landed = is_recorded(
            logged_snapshots(catalog.pipeline, (MAINTENANCE_ID,), ancestors), MAINTENANCE_ID, own, since
        )
        if landed:
            return True
        if not is_conflict(error):
            raise
        if landed is None:
            return None
        remove(java, left.paths)
        return False
    remove(java, left.paths)
    return True


def replace_deletes(catalog: IcebergCatalog, java: Any, staged: Any) -> bool | None:
    """Commits the changes that the snapshot `staged` of a transaction makes to the delete files of `java`; see
    `send_once`. Where the table does not contain the commit, the transaction's files are deleted.
    """
    base, io = java.currentSnapshot(), java.io()
    if staged.snapshotId() == base.snapshotId():
        return True
    update = java.newRewrite().validateFromSnapshot(base.snapshotId())
    for file in each(staged.removedDeleteFiles(io)):
        update.deleteFile(file)
    added = list(each(staged.addedDeleteFiles(io)))
    for file in added:
        update.addFile(file, file.dataSequenceNumber())
    manifests = _manifests(staged, io) - _manifests(base, io)
    landed = send_once(catalog, update, java, int(base.snapshotId()))
    remove(java, {str(staged.manifestListLocation()), *manifests})
    if landed is False:
        remove(java, (str(file.location()) for file in added))
    return landed


def replace_manifests(catalog: IcebergCatalog, java: Any, staged: Any, done: Any) -> bool | None:
    """Commits the manifests of the snapshot `staged` of a transaction, as `replace_deletes`. done: the result of
    Iceberg's action.
    """
    base = java.currentSnapshot()
    if staged.snapshotId() == base.snapshotId():
        return True
    update, added = java.rewriteManifests(), list(each(done.addedManifests()))
    for manifest in each(done.rewrittenManifests()):
        update.deleteManifest(manifest)
    for manifest in added:
        update.addManifest(manifest)
    landed = send_once(catalog, update, java, int(base.snapshotId()))
    remove(java, [str(staged.manifestListLocation())])
    if landed is False:
        remove(java, (str(manifest.path()) for manifest in added))
    return landed


def _manifests(snapshot: Any, io: Any) -> set[str]:
    return {str(manifest.path()) for manifest in each(snapshot.allManifests(io))}
