"""Which snapshots are expired. Pure, and careful: the progress in a snapshot is stored nowhere else.

Kept are the newest snapshots of the main branch, without a gap, down to one with progress and including the newest
progress of every pipeline; snapshots that branches and tags keep; and, for as long as snapshots are kept, each last
snapshot before files were removed: its files are those of all snapshots before it, so that a query on any of these can
finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from frazil.catalog.progress import key
from frazil.catalog.table_metadata import Ref, Snapshot, TableMetadata
from frazil.types import MAIN

METADATA_BUDGET_BYTES = 900_000
"""The share of the metadata that the newest snapshots may take; at most as many older ones are kept."""
COUNTED_MS = 86_400_000
"""How long the newest snapshot with statistics is kept at least: it shows when distinct values were last counted."""
FEWEST = 10
"""The number of snapshots that are kept whatever their size."""


@dataclass(frozen=True)
class Retention:
    """The retention in the pipeline file, and of the table's own properties."""

    #: How long snapshots are kept.
    age_ms: int
    #: How many snapshots are kept.
    count: int
    #: How long the table's own properties keep snapshots, however many these are.
    own_age_ms: int = 0
    #: How many snapshots the table's own properties keep, however large and old these are.
    own_count: int = 0


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
    own_count = max(_young(line, now_ms - retention.own_age_ms) if retention.own_age_ms else 0, retention.own_count)
    held = _unbroken(line, max(own_count, min(count, _young(line, oldest_ms))), keep_back_to)
    on_main = {snapshot.id for snapshot in line}
    kept = {snapshot.id for snapshot in line[:held]} | set(
        _counted(metadata, now_ms - max(COUNTED_MS, retention.age_ms))
    )
    kept |= {snapshot_id for ref in metadata.refs.values() for snapshot_id in _of_ref(metadata, ref, on_main, now_ms)}
    kept |= {snapshot.id for snapshot in _of_main(metadata)}
    kept |= {snapshot.id for snapshot in _for_readers(metadata, line, held, oldest_ms)[:count]}
    return tuple(
        snapshot.id
        for snapshot in sorted(metadata.snapshots.values(), key=lambda candidate: (candidate.at_ms, candidate.id))
        if snapshot.id not in kept
        and (snapshot.id in on_main or snapshot.at_ms < oldest_ms or not _is_elsewhere(snapshot, line))
    )


def before_first_commit(metadata: TableMetadata, pipeline: str) -> tuple[int, ...]:
    """Returns the first snapshot of a table that the pipeline has created and committed nothing to; it must be kept.
    Without it, such a table could not be distinguished from one whose progress has expired.
    """
    line = list(metadata.ancestors())
    if key(pipeline, "created") not in metadata.properties or any(pipeline in ancestor.progress for ancestor in line):
        return ()
    return tuple(oldest.id for oldest in line[-1:] if oldest.parent is None)


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


def _counted(metadata: TableMetadata, oldest_ms: int) -> list[int]:
    """Returns the newest snapshot with statistics, unless it is older than this; Iceberg lists them in no order."""
    with_statistics = [
        metadata.snapshots[snapshot_id] for snapshot_id in metadata.statistics if snapshot_id in metadata.snapshots
    ]
    newest = max(with_statistics, key=lambda snapshot: (snapshot.at_ms, snapshot.id), default=None)
    return [newest.id] if newest is not None and newest.at_ms >= oldest_ms else []


def kept_count(metadata: TableMetadata, wanted: int) -> int:
    """Returns how many snapshots are kept where `wanted` are asked for: fewer where their metadata would be too large."""
    each_bytes = metadata.sizes.metadata / max(1, len(metadata.snapshots))
    return max(min(FEWEST, wanted), min(wanted, int(METADATA_BUDGET_BYTES / max(1.0, each_bytes))))


def _young(line: Sequence[Snapshot], oldest_ms: int) -> int:
    """Returns how many of the newest snapshots are not older than this."""
    return next((n for n, snapshot in enumerate(line) if snapshot.at_ms < oldest_ms), len(line))


def _unbroken(line: Sequence[Snapshot], count: int, keep_back_to: Iterable[int]) -> int:
    """Returns how many of the newest snapshots, and at least `count`, are kept without a gap."""
    places = {snapshot.id: n for n, snapshot in enumerate(line)}
    # Where one of these snapshots no longer exists, everything is kept.
    asked = [places.get(snapshot, len(line) - 1) + 1 for snapshot in keep_back_to]
    held = max(1, count, progress_depth(line), *asked)
    # A table that is rolled back to the oldest kept snapshot must still have progress.
    return next((n for n in range(held, len(line) + 1) if line[n - 1].progress), held)


def _for_readers(metadata: TableMetadata, line: Sequence[Snapshot], held: int, oldest_ms: int) -> list[Snapshot]:
    """Returns the last snapshots before files were removed, the newest first: those about to leave the unbroken part of
    the main branch, and those that left it before.
    """
    leaving = [before for after, before in pairwise(line[max(0, held - 1) :]) if after.removes_files]
    on_main = {snapshot.id for snapshot in line}
    left = [s for s in metadata.snapshots.values() if s.id not in on_main and not _is_elsewhere(s, line)]
    return sorted(
        (s for s in [*leaving, *left] if s.at_ms >= oldest_ms), key=lambda snapshot: snapshot.at_ms, reverse=True
    )


def _is_elsewhere(snapshot: Snapshot, line: Sequence[Snapshot]) -> bool:
    """Returns whether a snapshot that is not on the main branch never was, or was rolled back, as far as its time shows."""
    return snapshot.is_staged or (bool(line) and snapshot.at_ms > line[-1].at_ms)


def _of_ref(metadata: TableMetadata, ref: Ref, on_main: Set[int], now_ms: int) -> Iterator[int]:
    """Yields the snapshots that a branch or tag keeps, as in Iceberg's own expiry: none once its time is over. A branch
    without a retention of its own keeps all that only it has.
    """
    snapshot, place = metadata.snapshots.get(ref.snapshot), 0
    if snapshot is None or _is_older(snapshot, ref.max_age_ms, now_ms):
        return
    while snapshot is not None and _is_kept(snapshot, place, ref, snapshot.id in on_main, now_ms):
        yield snapshot.id
        snapshot, place = metadata.snapshots.get(snapshot.parent) if snapshot.parent is not None else None, place + 1


def _of_main(metadata: TableMetadata) -> list[Snapshot]:
    """Returns what main has of a table whose commits go to another branch, back to the newest progress of every pipeline:
    without it nobody knows up to when main is complete, and from where a discarded branch is read again.
    """
    main = metadata.refs.get(MAIN)
    line = [] if main is None else list(metadata.line(main.snapshot))
    return line[: progress_depth(line)]


def _is_kept(snapshot: Snapshot, place: int, ref: Ref, is_on_main: bool, now_ms: int) -> bool:
    """Returns whether a branch or tag keeps the snapshot, of those that lead to its own the one at this place."""
    if not ref.is_branch or place < ref.min_snapshots:
        return ref.is_branch or place == 0
    if ref.max_snapshot_age_ms is None:
        return not is_on_main
    return not _is_older(snapshot, ref.max_snapshot_age_ms, now_ms)


def _is_older(snapshot: Snapshot, age_ms: int | None, now_ms: int) -> bool:
    return age_ms is not None and now_ms - snapshot.at_ms > age_ms
