"""The commits of table maintenance: recognised in the table where their answer was lost, cleaned up only where they are not
in it.

Iceberg's actions commit by themselves, and remove the files they wrote when that is refused, also where it is their own
first attempt that refuses them (see `sending`). So they work on a transaction that is never committed, where nothing can be
in their way, and what they would have committed is committed here.
"""

from __future__ import annotations

from typing import Any

from frazil.catalog.history import MAINTENANCE_ID, is_recorded
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.java import Collector, each, remove
from frazil.catalog.iceberg.java_errors import is_conflict, java_errors
from frazil.catalog.iceberg.validators import HistoryValidator, MaintenanceValidator, RewriteValidator, said
from frazil.catalog.progress import key
from frazil.clock import new_id


def send_once(
    catalog: IcebergCatalog, update: Any, java: Any, since: int, validator: RewriteValidator | None = None
) -> bool | None:
    """Whether an update of `java`, made for the table as it was at the snapshot `since`, is in the table; None where that
    cannot be told any more. Raises one of `java_errors` where it may yet land. What the attempts wrote is removed only where
    none of them is in the table.

    validator: asked too, on every attempt.
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
        landed = is_recorded(said(catalog.pipeline, (MAINTENANCE_ID,), ancestors), MAINTENANCE_ID, own, since)
        if landed:
            return True
        if not is_conflict(error):
            raise
        if landed is None:
            return None
        remove(java, left.words)
        return False
    remove(java, left.words)
    return True


def replace_deletes(catalog: IcebergCatalog, java: Any, staged: Any) -> bool | None:
    """Commits what the snapshot `staged` of a transaction has done to the delete files of `java`; see `send_once`. Where it
    is not in the table, what the transaction wrote is gone.
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
    """The same for manifests. done: what Iceberg's action says it has done."""
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
