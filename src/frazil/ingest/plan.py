"""Progress, ends and the clock in; batches of exact offset ranges out. Pure: the same input plans the same batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from frazil.kafka.port import Partition
from frazil.types import Batch, OffsetRange, Offsets

# A table with more than this to read is in catch-up: it gets jobs of its own.
CATCH_UP_RECORDS = 150_000
# The first batch decides the inferred columns; later batches are as large as one commit should be.
FIRST_BATCH_RECORDS = 50_000
MAX_BATCH_RECORDS = 4_000_000
MAX_BATCH_BYTES = 1024 * 1024 * 1024
ASSUMED_RECORD_BYTES = 250
# Tables of one job are committed one after another: with 200 at a time the last of them would be seconds late, and all
# of them due again in the same moment.
MAX_TABLES_PER_JOB = 32


@dataclass(frozen=True)
class TableClock:
    """When a table may commit again.

    next_due_s: on the monotonic clock. record_bytes: average size of its records, as far as known. is_light: they are
    known to be small, every one of them. is_first: nothing is
    known of its columns yet.
    """

    table: str
    next_due_s: float
    target_bytes: int
    record_bytes: float = ASSUMED_RECORD_BYTES
    is_light: bool = False
    is_first: bool = False


def plan_batch(position: Offsets, ends: Mapping[Partition, int], clock: TableClock, now_s: float) -> Batch | None:
    """What the table reads next, or None when it is not due or there is nothing.

    position: per topic and partition the next offset to read. Due is a table whose interval has passed, or for which
    enough bytes wait to fill a file.
    """
    waiting = [
        OffsetRange(topic, partition, offset, ends[topic, partition])
        for topic, partitions in position.items()
        for partition, offset in partitions.items()
        if ends.get((topic, partition), offset) > offset
    ]
    total = sum(r.span for r in waiting)
    is_full = total * clock.record_bytes >= clock.target_bytes
    if not waiting or (now_s < clock.next_due_s and not is_full):
        return None
    return Batch(clock.table, tuple(limit_ranges(waiting, batch_limit(clock))), clock.is_light)


def batch_limit(clock: TableClock) -> int:
    """The most offsets that one batch of the table covers."""
    by_bytes = int(MAX_BATCH_BYTES / max(1.0, clock.record_bytes))
    return max(1, min(FIRST_BATCH_RECORDS if clock.is_first else MAX_BATCH_RECORDS, by_bytes))


def limit_ranges(ranges: Iterable[OffsetRange], limit: int) -> list[OffsetRange]:
    """The ranges cut to `limit` offsets in all, fairly: short ones whole, long ones to the same length."""
    by_length = sorted(ranges, key=lambda r: (r.span, r.topic, r.partition))
    kept = []
    left = limit
    for number, r in enumerate(by_length):
        share = left // (len(by_length) - number)
        span = min(r.span, share)
        left -= span
        if span:
            kept.append(OffsetRange(r.topic, r.partition, r.start, r.start + span))
    return sorted(kept, key=lambda r: (r.topic, r.partition))


def group_batches(batches: Iterable[Batch]) -> tuple[list[list[Batch]], list[Batch]]:
    """Small batches in groups that one job each can serve (no topic twice), and the catch-ups, which go alone."""
    groups: list[list[Batch]] = []
    catch_ups = []
    for batch in batches:
        if batch.span > CATCH_UP_RECORDS:
            catch_ups.append(batch)
            continue
        for group in groups:
            if len(group) < MAX_TABLES_PER_JOB and all(batch.topics.isdisjoint(other.topics) for other in group):
                group.append(batch)
                break
        else:
            groups.append([batch])
    return groups, catch_ups


def lag_records(position: Offsets, ends: Mapping[Partition, int]) -> int:
    """Offsets between the position and the ends."""
    return sum(
        max(0, ends.get((topic, partition), offset) - offset)
        for topic, partitions in position.items()
        for partition, offset in partitions.items()
    )
