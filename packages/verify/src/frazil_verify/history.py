"""The snapshots of a table, as its metadata has them: those of its branch, and those that a roll-back has left behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.java import each, java_errors, unavailable
from frazil.catalog.progress import from_summary
from frazil.types import Progress


@dataclass(frozen=True)
class Snapshot:
    """One snapshot."""

    snapshot_id: int
    #: None for the first one of the table.
    parent_id: int | None
    #: When it was committed, in milliseconds since the epoch.
    at_ms: int
    #: `append`, `overwrite`, `delete` or `replace`.
    operation: str
    summary: Mapping[str, str] = field(repr=False)

    def number(self, key: str) -> int:
        """Returns a number of Iceberg's own in the summary; 0 without one."""
        return int(self.summary.get(key, 0))


@dataclass(frozen=True)
class History:
    """The snapshots of a table that have not expired."""

    #: Those of the branch, the oldest first.
    snapshots: tuple[Snapshot, ...] = ()
    #: Those that no branch and no tag leads to any more, the oldest first.
    left_behind: tuple[Snapshot, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether older snapshots of the branch have expired."""
        return bool(self.snapshots) and self.snapshots[0].parent_id is not None

    def up_to(self, snapshot_id: int | None) -> History:
        """Returns the branch up to one of its snapshots."""
        ids = [snapshot.snapshot_id for snapshot in self.snapshots]
        return History(self.snapshots[: ids.index(snapshot_id) + 1] if snapshot_id in ids else self.snapshots)

    def progress(self, pipeline: str) -> list[tuple[Snapshot, Progress | None]]:
        """Returns the snapshots of the branch, each with the progress that a pipeline has recorded in it."""
        return [
            (snapshot, from_summary(pipeline, snapshot.summary, snapshot.snapshot_id, snapshot.at_ms))
            for snapshot in self.snapshots
        ]


def read_history(catalog: IcebergCatalog, table: str) -> History:
    """Returns the history of a loaded table.

    Raises: UnavailableError where the metadata cannot be read.
    """
    java = catalog.java_table(table)
    try:
        chain = [_parsed(json.loads(text)) for text in catalog.snapshot_texts(table)]
        parser = catalog.gateway.jvm.org.apache.iceberg.SnapshotParser
        every = [_parsed(json.loads(parser.toJson(snapshot))) for snapshot in each(java.snapshots())]
        heads = [int(reference.snapshotId()) for reference in java.refs().values()]
    except java_errors() as error:
        raise unavailable("the snapshots cannot be read", error, table) from None
    reachable = _reachable(every, [*heads, *(snapshot.snapshot_id for snapshot in chain[:1])])
    left_behind = sorted(
        (snapshot for snapshot in every if snapshot.snapshot_id not in reachable), key=lambda snapshot: snapshot.at_ms
    )
    return History(tuple(chain[::-1]), tuple(left_behind))


def _reachable(snapshots: Iterable[Snapshot], heads: Iterable[int]) -> set[int]:
    parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in snapshots}
    reachable = set[int]()
    for head in heads:
        place: int | None = head
        while place is not None and place not in reachable:
            reachable.add(place)
            place = parents.get(place)
    return reachable


def _parsed(document: Mapping[str, Any]) -> Snapshot:
    summary = document.get("summary", {})
    return Snapshot(
        document["snapshot-id"],
        document.get("parent-snapshot-id"),
        document["timestamp-ms"],
        summary.get("operation", ""),
        summary,
    )
