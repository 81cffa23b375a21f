"""What each built-in maintenance action does to a table, once it is planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frazil.catalog.maintenance_port import Compaction, Rewritten, TableMaintenance
from frazil.catalog.table_metadata import normalize_path
from frazil.clock import Clock
from frazil.failpoints import hit
from frazil.maintenance.plan import ORPHANS_NOTE, Action, MaintenanceTask, Plan

_DELETES_BYTES = str(64 * 1024 * 1024)
# Without partial progress, which would report a failed write or commit as success. A group is one file: one task.
DELETES_OPTIONS = {
    "rewrite-all": "true",
    "max-concurrent-file-group-rewrites": "1",
    "max-file-group-size-bytes": _DELETES_BYTES,
    "target-file-size-bytes": _DELETES_BYTES,
}


@dataclass(frozen=True)
class Round:
    """A round of maintenance of one table: what its actions are run with."""

    #: The table's maintenance in the catalog and the store.
    table_maintenance: TableMaintenance
    #: The plan of the round.
    plan: Plan
    #: How the table is maintained.
    maintenance: MaintenanceTask
    #: The clock of the process.
    clock: Clock
    #: Whether nothing more may be done to the table, as the process ends, or the table is another process's now.
    is_stopping: Callable[[], bool] = lambda: False


def compact(action: Action, current: Round) -> Rewritten:
    """Rewrites data files."""
    compaction = action.compaction or Compaction()
    return current.table_maintenance.compact(action.table, compaction, current.maintenance.transfer)


def rewrite_deletes(action: Action, current: Round) -> Rewritten:
    """Rewrites files of position deletes."""
    return current.table_maintenance.rewrite_deletes(action.table, DELETES_OPTIONS)


def rewrite_manifests(action: Action, current: Round) -> Rewritten:
    """Merges manifests."""
    return current.table_maintenance.rewrite_manifests(action.table)


def carry(action: Action, current: Round) -> Rewritten:
    """Repeats the newest progress in the newest snapshot."""
    current.table_maintenance.carry(action.table)
    return Rewritten()


def expire(action: Action, current: Round) -> Rewritten:
    """Expires the snapshots of the action."""
    current.table_maintenance.expire(action.table, action.snapshots)
    return Rewritten()


def compute_statistics(action: Action, current: Round) -> Rewritten:
    """Counts distinct values."""
    current.table_maintenance.compute_statistics(action.table)
    return Rewritten()


def remove_orphans(action: Action, current: Round) -> Rewritten:
    """Removes files that no snapshot references."""
    plan, now_ms, table_maintenance = current.plan, current.clock.now_ms(), current.table_maintenance
    # A process that was stopped for days has files of that age, and may commit them next.
    oldest_ms = plan.files_since_ms if plan.files_since_ms is not None else now_ms
    age_ms = int(current.maintenance.spec.orphan_age_s * 1000)
    found = table_maintenance.orphans(action.table, min(oldest_ms, now_ms - age_ms))
    names = {normalize_path(path) for path in plan.pending_files}
    orphans = [path for path in found if normalize_path(path) not in names]
    hit("maintenance.orphans.found")
    if current.is_stopping():  # The listing may have taken hours, and another process may write the table by now.
        return Rewritten()
    table_maintenance.remove(action.table, orphans)
    table_maintenance.note(action.table, ORPHANS_NOTE, str(now_ms))
    return Rewritten(removed=len(orphans))
