"""Tables as table maintenance sees them, made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from frazil.catalog.table_metadata import MetadataSizes, Snapshot, StoredData, TableMetadata
from frazil.maintenance.plan import ORPHANS_NOTE, Action, Plan

MIB = 1024 * 1024
TARGET = 128 * MIB
NOTED = {ORPHANS_NOTE: 10_000}


def compaction(found: Plan) -> Action | None:
    """What of a plan puts files together."""
    return next((action for action in found.actions if action.kind == "compact"), None)


def table(snapshots: Sequence[Snapshot] = (), sizes: Mapping[str, Sequence[int]] | None = None) -> TableMetadata:
    """A table whose newest snapshot is the last of `snapshots`; sizes: of its files, by partition."""
    files = [StoredData(size, 100, partition) for partition, many in (sizes or {}).items() for size in many]
    return TableMetadata(
        name="t.a",
        uuid="u",
        location="/t/a",
        format_version=2,
        sizes=MetadataSizes(1000 * max(1, len(snapshots))),
        properties={},
        snapshots={snapshot.id: snapshot for snapshot in snapshots},
        head=snapshots[-1].id if snapshots else None,
        files=tuple(files),
    )


def line(count: int, every_ms: int = 1000, pipelines: Sequence[str] = ("p",)) -> list[Snapshot]:
    """Snapshots 1 to `count`, one after another, each with progress of one pipeline in turn."""
    return [
        Snapshot(n, n - 1 or None, n * every_ms, progress={pipelines[n % len(pipelines)]: f"c{n}"} if pipelines else {})
        for n in range(1, count + 1)
    ]


def without_progress(snapshot: Snapshot, removes_files: bool = False) -> Snapshot:
    """The same as another writer's."""
    operation = "replace" if removes_files else "append"
    return replace(snapshot, progress={}, operation=operation, removes_files=removes_files)
