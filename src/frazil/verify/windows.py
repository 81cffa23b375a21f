"""Which of a table's snapshots are compared with which records, and which of them are chosen. Pure.

A window is one commit of this run with the ranges that it has read, and the snapshots of other writers since the commit
before it. Earlier runs may have had other settings, so their commits are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from frazil.catalog.progress import from_summary
from frazil.types import OffsetRange, Offsets

MOST_OFFSETS = 1_000_000
"""The most offsets of a table that are read again at a time."""
_OWN = "frazil."


@dataclass(frozen=True)
class Snapshot:
    """One snapshot of the main branch."""

    snapshot_id: int
    #: None for the first one of the table.
    parent_id: int | None
    #: The id of the schema that the table had; None where the writer has not recorded it.
    schema_id: int | None
    #: `append`, `overwrite`, `delete` or `replace`.
    operation: str
    summary: Mapping[str, str]


@dataclass(frozen=True)
class Window:
    """Snapshots, and the records that became what they changed."""

    #: The snapshots whose changes count, the oldest first.
    snapshots: tuple[int, ...]
    ranges: tuple[OffsetRange, ...] = ()
    #: The schema id of the commit; None where the window has none.
    schema_id: int | None = None
    #: Whether another writer has changed something.
    is_disturbed: bool = False
    #: The number of records that the commit has read.
    record_count: int = 0

    @property
    def span(self) -> int:
        """The number of offsets."""
        return sum(one.span for one in self.ranges)


@dataclass(frozen=True)
class Past:
    """How far a table has been looked at."""

    #: The last snapshot.
    snapshot_id: int | None = None
    #: The progress there; None where it is unknown.
    offsets: Offsets | None = None


def find_windows(
    pipeline: str, run_id: str, snapshots: Sequence[Snapshot], past: Past, starts_at_zero: bool
) -> tuple[list[Window], Past]:
    """Returns the windows of the snapshots after `past`, the oldest first, and how far that is.

    snapshots: the oldest first. starts_at_zero: whether a partition without progress is read from its first offset.
    """
    before, others, found = past.offsets, list[int](), list[Window]()
    if snapshots and snapshots[0].parent_id != past.snapshot_id:
        before = None  # Snapshots between have been expired, or the table was rolled back.
    elif past.snapshot_id is None:
        before = {}
    for snapshot in snapshots:
        progress = from_summary(pipeline, snapshot.summary)
        if progress is None:
            if _is_of_others(snapshot) and before is not None:
                others.append(snapshot.snapshot_id)
            continue
        ranges = None if before is None else _ranges(before, progress.offsets, starts_at_zero)
        if ranges is not None and progress.run_id == run_id and (others or (ranges and progress.balance)):
            ids = (*others, snapshot.snapshot_id)
            # Without a balance the commit moved the progress and read nothing; without ranges it repeats a balance.
            read = (ranges, progress.balance.read) if ranges and progress.balance is not None else ((), 0)
            found.append(Window(ids, read[0], snapshot.schema_id, bool(others), read[1]))
        before, others = progress.offsets, []
    if others:
        found.append(Window(tuple(others), is_disturbed=True))
    return found, Past(snapshots[-1].snapshot_id if snapshots else past.snapshot_id, before)


def choose(
    windows: Iterable[Window], sample: float, shuffled: Callable[[list[Window]], list[Window]]
) -> tuple[Window, ...]:
    """Returns all windows that another writer has disturbed, and of the others a share of the offsets by chance, at least
    one window; no more than MOST_OFFSETS in all.
    """
    every = list(windows)
    wanted = sample * sum(one.span for one in every)
    chosen, span = list[Window](), 0
    for one in sorted(shuffled(every), key=lambda one: not one.is_disturbed):
        is_enough = bool(chosen) and span >= wanted
        if span + one.span <= MOST_OFFSETS and (one.is_disturbed or not is_enough):
            chosen.append(one)
            span += one.span
    return tuple(chosen)


def _is_of_others(snapshot: Snapshot) -> bool:
    """Whether a snapshot may have changed rows, and no pipeline has made it: not maintenance, not replayed dead letters."""
    return snapshot.operation != "replace" and not any(name.startswith(_OWN) for name in snapshot.summary)


def _ranges(before: Offsets, after: Offsets, starts_at_zero: bool) -> tuple[OffsetRange, ...] | None:
    """Returns the ranges that a commit has read; None where a partition began at an unknown offset, or went back."""
    found = []
    for topic, ends in sorted(after.items()):
        for partition, end in sorted(ends.items()):
            start = before.get(topic, {}).get(partition, 0 if starts_at_zero else None)
            if start is None or start > end:
                return None
            if start < end:
                found.append(OffsetRange(topic, partition, start, end))
    return tuple(found)
