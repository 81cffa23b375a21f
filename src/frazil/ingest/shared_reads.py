"""One read of a topic for several tables, each with a range of its own. Pure.

Tables that read the same partitions share a read up to where the first of them would end, so that they begin the next one
together. Where one begins behind the other, its records are told by their offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from frazil.kafka.port import Partition
from frazil.types import Batch, OffsetRange, Offsets

# A mirror takes no more than there is memory for, where the log beside it would fill large files.
_MUCH_RECORDS = 2_000_000


def join_read(group: Sequence[Batch], batch: Batch) -> list[Batch] | None:
    """The group with `batch` in it, those that read the same partitions cut to the same ends; None where it must be read by
    itself: its end is not to be moved, there is nothing in common, or less than half of a batch would be left, and not much.
    """
    others = [one for one in group if not one.topics.isdisjoint(batch.topics)]
    if not others:
        return [*group, batch]
    if any(one.is_apart for one in (batch, *others)):
        return None
    ends = _first_ends((batch, *others))
    joined = [_up_to(one, ends) for one in (*group, batch)]
    pairs = zip(joined, (*group, batch), strict=True)
    are_enough = all(2 * cut.span >= one.span or cut.span >= _MUCH_RECORDS for cut, one in pairs)
    return joined if are_enough and all(r.span > 0 for one in joined for r in one.ranges) else None


def read_once(batches: Iterable[Batch]) -> list[OffsetRange]:
    """What the batches cover together: a range for each partition."""
    covered: dict[Partition, OffsetRange] = {}
    for r in (r for batch in batches for r in batch.ranges):
        known = covered.setdefault((r.topic, r.partition), r)
        covered[r.topic, r.partition] = replace(r, start=min(r.start, known.start), end=max(r.end, known.end))
    return list(covered.values())


def own_starts(batches: Sequence[Batch]) -> dict[str, Offsets]:
    """By table where its records begin in each partition that it reads, of those tables that do not take all that is read of
    their topics.
    """
    read = {(r.topic, r.partition): r.start for r in read_once(batches)}
    starts: dict[str, Offsets] = {}
    for batch in batches:
        own = {(r.topic, r.partition): r.start for r in batch.ranges}
        if own != {place: start for place, start in read.items() if place[0] in batch.topics}:
            starts[batch.table] = {
                topic: {partition: start for (name, partition), start in own.items() if name == topic}
                for topic in batch.topics
            }
    return starts


def tables_read_with(batch: Batch, batches: Iterable[Batch]) -> frozenset[str]:
    """The other tables that its topics are read for."""
    return frozenset(one.table for one in batches if one is not batch and not one.topics.isdisjoint(batch.topics))


def _first_ends(batches: Iterable[Batch]) -> dict[Partition, int]:
    ends: dict[Partition, int] = {}
    for r in (r for batch in batches for r in batch.ranges):
        ends[r.topic, r.partition] = min(r.end, ends.get((r.topic, r.partition), r.end))
    return ends


def _up_to(batch: Batch, ends: dict[Partition, int]) -> Batch:
    cut = (replace(r, end=min(r.end, ends.get((r.topic, r.partition), r.end))) for r in batch.ranges)
    return replace(batch, ranges=tuple(cut))
