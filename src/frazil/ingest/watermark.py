"""The record timestamp up to which a table is complete. Pure.

Within a partition, complete means in log order: a record with an earlier timestamp than its predecessors is late.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from frazil.kafka.port import Partition
from frazil.types import OffsetRange, Offsets, Watermark, later


def advance_watermark(
    before: Watermark,
    latest_ms: Mapping[str, Mapping[int, int]],
    ranges: tuple[OffsetRange, ...],
    position: Offsets,
    ends: Mapping[Partition, int],
    silent: Container[Partition] = (),
) -> Watermark:
    """Returns the watermark after a batch; it never goes back.

    A partition that is read to its end without new records does not hold the others back. A partition with records to
    read does, also before the first of them is read.

    before: the watermark before the batch. latest_ms: the latest timestamps in the batch, in milliseconds since the
    epoch. ranges: the offsets of the batch. position: the table's offsets after the batch. ends: the ends when it was
    planned. silent: partitions without a known end, which may have any records.
    """
    marks = later(before.partitions, latest_ms)
    read_to = ((t, p, offset) for t, ps in position.items() for p, offset in ps.items())
    behind = {(t, p) for t, p, offset in read_to if (t, p) in silent or ends.get((t, p), offset) > offset}
    if any(partition not in marks.get(topic, {}) for topic, partition in behind):
        return Watermark(marks, before.complete_to_ms)
    read = {(r.topic, r.partition) for r in ranges}
    holding = [mark for t, ps in marks.items() for p, mark in ps.items() if (t, p) in read | behind]
    complete = [ms for ms in (before.complete_to_ms, min(holding, default=None)) if ms is not None]
    return Watermark(marks, max(complete, default=None))
