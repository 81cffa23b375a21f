"""Which snapshots are expired. Pure, and careful: the progress in a snapshot is stored nowhere else.

Kept are the newest snapshots of the main branch, without a gap, down to one with progress and including the newest
progress of every pipeline; snapshots that branches and tags name; and, for as long as snapshots are kept, each last
snapshot before files were removed: its files are those of all snapshots before it, so that a query on any of these can
finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from frazil.catalog.progress import key
from frazil.catalog.table_metadata import Snapshot, TableMetadata

METADATA_BUDGET_BYTES = 900_000
"""The share of the metadata that the newest snapshots may take; at most as many older ones are kept."""
FEWEST = 10
"""The number of snapshots that are kept whatever their size."""


@dataclass(frozen=True)
class Retention:
    """The retention in the pipeline file."""

    #: How long snapshots are kept.
    age_ms: int
    #: How many snapshots are kept.
    count: int


def expirable(
    metadata: TableMetadata, retention: Retention, keep_back_to: Iterable[int], now_ms: int
) -> tuple[int, ...]:
    """Returns the ids of the snapshots that can be expired, the oldest first.

    keep_back_to: snapshots that the main branch must reach without a gap: an unfinished replay has read them, or a
    pipeline has yet to begin.
    """
    line = list(metadata.ancestors())
    count = kept_count(metadata, retention.count)
    oldest_ms = now_ms - retention.age_ms
    held = _unbroken(line, count, oldest_ms, keep_back_to)
    on_main = {snapshot.id for snapshot in line}
    kept = {snapshot.id for snapshot in line[:held]} | set(metadata.refs.values()) | set(_counted(metadata))
    kept |= {snapshot.id for snapshot in _for_readers(metadata, line, held, oldest_ms)[:count]}
    branched = _of_branches(metadata)
    return tuple(
        snapshot.id
        for snapshot in sorted(metadata.snapshots.values(), key=lambda one: (one.at_ms, one.id))
        if snapshot.id not in kept
        and snapshot.id not in branched - on_main
        and (snapshot.id in on_main or snapshot.at_ms < oldest_ms or not _is_elsewhere(snapshot, line))
    )


def before_first_commit(metadata: TableMetadata, pipeline: str) -> tuple[int, ...]:
    """Returns the first snapshot of a table that the pipeline has created and committed nothing to; it must be kept.
    Without it, such a table could not be distinguished from one whose progress has expired.
    """
    line = list(metadata.ancestors())
    if key(pipeline, "created") not in metadata.properties or any(pipeline in one.progress for one in line):
        return ()
    return tuple(one.id for one in line[-1:] if one.parent is None)


def needs_carrying(metadata: TableMetadata, retention: Retention) -> bool:
    """Returns whether the newest progress of some pipeline is so old that it retains more snapshots than should be
    kept.
    """
    return len(metadata.snapshots) > 1 and progress_depth(metadata.ancestors()) > kept_count(metadata, retention.count)


def progress_depth(line: Iterable[Snapshot]) -> int:
    """Returns how many of the newest snapshots contain the newest progress of every pipeline: 1 where the last one
    contains all of it, 0 without progress. line: the main branch, the newest snapshot first.
    """
    newest: dict[str, int] = {}
    for place, snapshot in enumerate(line, 1):
        for pipeline in snapshot.progress:
            newest.setdefault(pipeline, place)
    return max(newest.values(), default=0)


def _counted(metadata: TableMetadata) -> list[int]:
    """Returns the newest snapshot with statistics; Iceberg lists them in no order."""
    there = [metadata.snapshots[one] for one in metadata.statistics if one in metadata.snapshots]
    return [max(there, key=lambda one: (one.at_ms, one.id)).id] if there else []


def kept_count(metadata: TableMetadata, wanted: int) -> int:
    """Returns how many snapshots are kept where `wanted` are asked for: fewer where their metadata would be too large."""
    each_bytes = metadata.metadata_bytes / max(1, len(metadata.snapshots))
    return max(min(FEWEST, wanted), min(wanted, int(METADATA_BUDGET_BYTES / max(1.0, each_bytes))))


def _unbroken(line: Sequence[Snapshot], count: int, oldest_ms: int, keep_back_to: Iterable[int]) -> int:
    """Returns how many of the newest snapshots are kept without a gap."""
    young = next((n for n, snapshot in enumerate(line) if snapshot.at_ms < oldest_ms), len(line))
    places = {snapshot.id: n for n, snapshot in enumerate(line)}
    # Where one of these snapshots no longer exists, everything is kept.
    asked = [places.get(snapshot, len(line) - 1) + 1 for snapshot in keep_back_to]
    held = max(1, min(young, count), progress_depth(line), *asked)
    # A table that is rolled back to the oldest kept snapshot must still have progress.
    return next((n for n in range(held, len(line) + 1) if line[n - 1].progress), held)


def _for_readers(metadata: TableMetadata, line: Sequence[Snapshot], held: int, oldest_ms: int) -> list[Snapshot]:
    """Returns the last snapshots before files were removed, the newest first: those about to leave the unbroken part of
    the main branch, and those that left it before.
    """
    leaving = [before for after, before in pairwise(line[max(0, held - 1) :]) if after.removes_files]
    on_main = {snapshot.id for snapshot in line}
    left = [s for s in metadata.snapshots.values() if s.id not in on_main and not _is_elsewhere(s, line)]
    return sorted((s for s in [*leaving, *left] if s.at_ms >= oldest_ms), key=lambda one: one.at_ms, reverse=True)


def _is_elsewhere(snapshot: Snapshot, line: Sequence[Snapshot]) -> bool:
    """Returns whether a snapshot that is not on the main branch never was, or was rolled back, as far as its time shows."""
    return snapshot.is_staged or (bool(line) and snapshot.at_ms > line[-1].at_ms)


def _of_branches(metadata: TableMetadata) -> set[int]:
    found: set[int] = set()
    for head in metadata.refs.values():
        at: int | None = head
        while at is not None and at in metadata.snapshots and at not in found:
            found.add(at)
            at = metadata.snapshots[at].parent
    return found
