"""One read of a topic for several tables, each with a range of its own. Pure.

Tables that read the same partitions share a read up to the first of their ends, so that they begin the next one
together. Where one table begins behind the other, its records are selected by their offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from frazil.kafka.port import Partition
from frazil.types import Batch, OffsetRange, Offsets

# An upsert table reads no more than fits into memory, while an append table beside it could fill large files.
_MUCH_RECORDS = 2_000_000


def join_read(group: Sequence[Batch], batch: Batch) -> list[Batch] | None:
    """Returns the group with `batch`, with batches of the same partitions cut to the same ends. Returns None where the
    batch must be read alone: its end must not be moved, it shares no topic, or too few records of a batch would be
    left.
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
    """Returns the ranges that cover all batches, one for each partition."""
    covered: dict[Partition, OffsetRange] = {}
    for r in (r for batch in batches for r in batch.ranges):
        known = covered.setdefault((r.topic, r.partition), r)
        covered[r.topic, r.partition] = replace(r, start=min(r.start, known.start), end=max(r.end, known.end))
    return list(covered.values())


def own_starts(batches: Sequence[Batch]) -> dict[str, Offsets]:
    """Returns the offsets at which the records of a table begin, by table, topic and partition, for tables that do not
    use all records of their topics' read.
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
    """Returns the other tables that the batch's topics are read for."""
    return frozenset(one.table for one in batches if one is not batch and not one.topics.isdisjoint(batch.topics))


def _first_ends(batches: Iterable[Batch]) -> dict[Partition, int]:
    ends: dict[Partition, int] = {}
    for r in (r for batch in batches for r in batch.ranges):
        ends[r.topic, r.partition] = min(r.end, ends.get((r.topic, r.partition), r.end))
    return ends


def _up_to(batch: Batch, ends: dict[Partition, int]) -> Batch:
    cut = (replace(r, end=min(r.end, ends.get((r.topic, r.partition), r.end))) for r in batch.ranges)
    return replace(batch, ranges=tuple(cut))
