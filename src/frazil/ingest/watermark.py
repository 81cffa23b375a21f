"""Up to which record timestamp a table is complete. Pure.

Within a partition, complete means in log order: a record that its producer stamped earlier than its predecessors is
late.
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
    """The watermark after a batch.

    latest_ms: the latest timestamps the batch saw. position: the table's vector after the batch; ends: as known when it
    was planned; silent: partitions that have none just now, and may have anything. A partition that is read to its end and
    had nothing new does not hold the others back; one with records still to read does, also before the first of them is
    read. It never goes back.
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
