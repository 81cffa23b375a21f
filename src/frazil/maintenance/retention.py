"""Which snapshots go: pure, and careful, for what a snapshot says of progress exists nowhere else.

Kept are, of the main branch, the newest few down to one with progress, the newest progress of every pipeline among them,
without a gap; what branches and tags name; and, for as long as snapshots are kept, each last one before files were removed:
its files are those of all the snapshots before it, so a query that began on any of them can go on to its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from frazil.catalog.progress import key
from frazil.catalog.table_metadata import Snapshot, TableMetadata

METADATA_BUDGET_BYTES = 900_000
"""What the newest snapshots may take of the metadata; as many older ones are kept at most."""
FEWEST = 10
"""So many snapshots are kept whatever they weigh."""


@dataclass(frozen=True)
class Retention:
    """What the file asks for: how long, and how many."""

    age_ms: int
    count: int


def expirable(
    metadata: TableMetadata, retention: Retention, keep_back_to: Iterable[int], now_ms: int
) -> tuple[int, ...]:
    """The snapshots that can go, oldest first.

    keep_back_to: snapshots that the main branch must reach without a gap, for a retry that is not finished has read them, or
    a pipeline has yet to begin.
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
    """What a table must be kept back to that the pipeline has made and committed nothing to: to its first snapshot. Without
    it nobody could tell such a table from one whose progress has expired.
    """
    line = list(metadata.ancestors())
    if key(pipeline, "created") not in metadata.properties or any(pipeline in one.progress for one in line):
        return ()
    return tuple(one.id for one in line[-1:] if one.parent is None)


def needs_carrying(metadata: TableMetadata, retention: Retention) -> bool:
    """Whether the newest progress of some pipeline lies so far back that it holds more snapshots than should be kept."""
    return len(metadata.snapshots) > 1 and progress_depth(metadata) > kept_count(metadata, retention.count)


def progress_depth(metadata: TableMetadata) -> int:
    """How many of the newest snapshots hold the newest progress of every pipeline: 1 where the last one has all of it, 0
    where there is none.
    """
    return _progress_depth(list(metadata.ancestors()))


def _counted(metadata: TableMetadata) -> list[int]:
    """The newest snapshot with statistics: where Iceberg has them, they are in no order."""
    there = [metadata.snapshots[one] for one in metadata.statistics if one in metadata.snapshots]
    return [max(there, key=lambda one: (one.at_ms, one.id)).id] if there else []


def kept_count(metadata: TableMetadata, wanted: int) -> int:
    """How many snapshots are kept where `wanted` are asked for: fewer where their metadata would be too much."""
    each_bytes = metadata.metadata_bytes / max(1, len(metadata.snapshots))
    return max(min(FEWEST, wanted), min(wanted, int(METADATA_BUDGET_BYTES / max(1.0, each_bytes))))


def _unbroken(line: Sequence[Snapshot], count: int, oldest_ms: int, keep_back_to: Iterable[int]) -> int:
    """How many of the newest stay."""
    young = next((n for n, snapshot in enumerate(line) if snapshot.at_ms < oldest_ms), len(line))
    places = {snapshot.id: n for n, snapshot in enumerate(line)}
    # Where one of these is no longer there, nobody knows how far back is far enough.
    asked = [places.get(snapshot, len(line) - 1) + 1 for snapshot in keep_back_to]
    held = max(1, min(young, count), _progress_depth(line), *asked)
    # A table that is rolled back to the oldest of them must still find progress.
    return next((n for n in range(held, len(line) + 1) if line[n - 1].progress), held)


def _progress_depth(line: Sequence[Snapshot]) -> int:
    """How far back the newest progress of every pipeline is."""
    newest: dict[str, int] = {}
    for place, snapshot in enumerate(line, 1):
        for pipeline in snapshot.progress:
            newest.setdefault(pipeline, place)
    return max(newest.values(), default=0)


def _for_readers(metadata: TableMetadata, line: Sequence[Snapshot], held: int, oldest_ms: int) -> list[Snapshot]:
    """The last snapshots before files were removed, newest first: those that are about to leave the unbroken part of the
    main branch, and those that have left it before.
    """
    leaving = [before for after, before in pairwise(line[max(0, held - 1) :]) if after.removes_files]
    on_main = {snapshot.id for snapshot in line}
    left = [s for s in metadata.snapshots.values() if s.id not in on_main and not _is_elsewhere(s, line)]
    return sorted((s for s in [*leaving, *left] if s.at_ms >= oldest_ms), key=lambda one: one.at_ms, reverse=True)


def _is_elsewhere(snapshot: Snapshot, line: Sequence[Snapshot]) -> bool:
    """Whether a snapshot that is not on the main branch never was or was rolled back, as far as one can tell."""
    return snapshot.is_staged or (bool(line) and snapshot.at_ms > line[-1].at_ms)


def _of_branches(metadata: TableMetadata) -> set[int]:
    found: set[int] = set()
    for head in metadata.refs.values():
        at: int | None = head
        while at is not None and at in metadata.snapshots and at not in found:
            found.add(at)
            at = metadata.snapshots[at].parent
    return found
