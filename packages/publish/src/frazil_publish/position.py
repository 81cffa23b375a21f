"""What readers of a table see, and what they would see next. Pure, from the table's metadata.

The branch runs ahead of main, and main follows it: main's snapshot is an ancestor of the branch's. Where it is not, main may
follow all the same if this pipeline itself has put it there and the branch has read at least as far: snapshots between the
two were expired, or the branch was set back and has read its records again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from frazil.catalog.maintenance_port import MOVE_ID
from frazil.catalog.progress import REPLAY_ID, from_summary, key
from frazil.catalog.table_metadata import TableMetadata
from frazil.ops.publishing import PUBLISHED, PUBLISHED_AT, PUBLISHED_FROM, number
from frazil.types import MAIN, Offsets, Progress


@dataclass(frozen=True)
class Position:
    """The snapshots of a table with a branch."""

    branch: str
    #: The snapshot that readers see; None before the first one.
    published_id: int | None
    #: The newest snapshot of the branch; None where the branch does not exist, or the table has no snapshot.
    candidate_id: int | None
    #: The newest progress up to each of the two.
    published: Progress
    candidate: Progress
    #: Whether main may follow the branch.
    is_ahead: bool
    #: Whether somebody else has set main back since this pipeline has moved it.
    is_set_back: bool
    #: This pipeline's own properties of the table.
    marks: Mapping[str, str]

    @property
    def is_published(self) -> bool:
        """Whether readers see all that the branch has."""
        return self.candidate_id in (None, self.published_id, self.source_id)

    @property
    def source_id(self) -> int | None:
        """The snapshot of the branch whose rows main has in a snapshot of its own; None where main has the branch's."""
        is_own = self.marks.get(PUBLISHED) == str(self.published_id)
        return number(self.marks.get(PUBLISHED_FROM)) if is_own else None

    @property
    def published_ms(self) -> int | None:
        """When main was moved; None where this pipeline has not moved it to where it is."""
        is_own = self.marks.get(PUBLISHED) == str(self.published_id)
        return number(self.marks.get(PUBLISHED_AT)) if is_own else None

    @property
    def findings(self) -> Mapping[str, int]:
        """By the names of what stages find, how many records since what is published."""
        before = self.published.totals.findings
        counts = {name: number - before.get(name, 0) for name, number in self.candidate.totals.findings.items()}
        return {name: number for name, number in counts.items() if number > 0}


def find_position(metadata: TableMetadata, pipeline: str, at: int | None = None) -> Position:
    """Returns the snapshots of the table's branch and of main. at: the snapshot of the branch that would be published; None:
    the newest one.
    """
    if metadata.branch.name == MAIN:
        published_id, candidate_id = metadata.head, None
    else:
        main = metadata.refs.get(MAIN)
        published_id, candidate_id = main.snapshot if main is not None else None, at or metadata.head
    prefix = key(pipeline, "")
    marks = {name.removeprefix(prefix): text for name, text in metadata.properties.items() if name.startswith(prefix)}
    published, candidate = (progress_at(metadata, pipeline, number) for number in (published_id, candidate_id))
    is_own = published_id is not None and marks.get(PUBLISHED) == str(published_id)
    is_ahead = leads_to(metadata, published_id, candidate_id) or (
        is_own and _has_read(published.offsets, candidate.offsets)
    )
    moved_id = number(marks.get(PUBLISHED))
    is_set_back = published_id not in (None, moved_id) and (
        any(snapshot.id == published_id for snapshot in metadata.line(moved_id))
        or _is_copy(metadata, published_id, prefix)
    )
    return Position(
        metadata.branch.name, published_id, candidate_id, published, candidate, is_ahead, is_set_back, marks
    )


def progress_at(metadata: TableMetadata, pipeline: str, snapshot_id: int | None) -> Progress:
    """Returns the newest progress of the pipeline in a snapshot and its ancestors; empty without progress."""
    for snapshot in metadata.line(snapshot_id):
        progress = from_summary(pipeline, snapshot.summary, snapshot.id, snapshot.at_ms)
        if progress is not None:
            return progress
    return Progress()


def find_at(metadata: TableMetadata, pipeline: str, offsets: Offsets) -> int | None:
    """Returns the newest snapshot of the branch whose progress is at these offsets, as far as it has the partitions; of a
    branch that has no progress, as nothing was read yet, the newest one. None without one.
    """
    newest: int | None = None
    has_progress = False
    for snapshot in metadata.ancestors():
        newest = newest or snapshot.id
        progress = from_summary(pipeline, snapshot.summary, snapshot.id, snapshot.at_ms)
        if progress is not None and _is_at(progress.offsets, offsets):
            return newest
        has_progress = has_progress or progress is not None
        newest = newest if progress is None else None
    return None if has_progress else newest


def _is_at(before: Offsets, offsets: Offsets) -> bool:
    return all(
        before.get(topic, {}).get(partition, offset) == offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    )


def is_on_branch(metadata: TableMetadata, snapshot_id: int) -> bool:
    """Returns whether the branch has the snapshot, as far as its snapshots are not expired."""
    return any(snapshot.id == snapshot_id for snapshot in metadata.ancestors())


def find_unread(metadata: TableMetadata, position: Position, pipeline: str) -> int | None:
    """Returns the newest snapshot of the branch since main whose rows are in no records that are read again after the branch
    is discarded: another writer's, or one of replayed dead letters; None without one.
    """
    on_main = {snapshot.id for snapshot in metadata.line(position.published_id)}
    for snapshot in takewhile(lambda snapshot: snapshot.id not in on_main, metadata.ancestors()):
        is_read = pipeline in snapshot.progress or snapshot.is_maintenance or snapshot.operation == "replace"
        if not is_read or key(pipeline, REPLAY_ID) in snapshot.summary:
            return snapshot.id
    return None


def _is_copy(metadata: TableMetadata, snapshot_id: int | None, prefix: str) -> bool:
    """Returns whether a snapshot is one that publishing has made for main alone."""
    snapshot = None if snapshot_id is None else metadata.snapshots.get(snapshot_id)
    return snapshot is not None and f"{prefix}{MOVE_ID}" in snapshot.summary


def leads_to(metadata: TableMetadata, first: int | None, last: int | None) -> bool:
    """Returns whether the snapshot `last` is `first` or descends from it; None: the table before its first snapshot."""
    return first is None or any(snapshot.id == first for snapshot in metadata.line(last))


def _has_read(before: Offsets, after: Offsets) -> bool:
    """Returns whether each partition is read at least as far in `after`; False where `before` has no progress."""
    return bool(before) and all(
        after.get(topic, {}).get(partition, -1) >= offset
        for topic, partitions in before.items()
        for partition, offset in partitions.items()
    )
