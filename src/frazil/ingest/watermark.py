"""Up to which record timestamp a table is complete. Pure.

Within a partition, complete means in log order: a record that its producer stamped earlier than its predecessors is late.
"""

from __future__ import annotations

from collections.abc import Mapping

from frazil.kafka.port import Partition
from frazil.types import OffsetRange, Watermark, later


def advance_watermark(
    before: Watermark,
    latest_ms: Mapping[str, Mapping[int, int]],
    ranges: tuple[OffsetRange, ...],
    ends: Mapping[Partition, int],
) -> Watermark:
    """The watermark after a batch.

    latest_ms: the latest timestamps the batch saw. ends: as known when it was planned. A partition that is read to its end
    and had nothing new does not hold the others back; one with records still to read does. It never goes back.
    """
    marks = later(before.partitions, latest_ms)
    read_to = {(r.topic, r.partition): r.end for r in ranges}
    holding = [
        mark
        for topic, partitions in marks.items()
        for partition, mark in partitions.items()
        if (topic, partition) in read_to
        or ends.get((topic, partition), 0) > read_to.get((topic, partition), ends.get((topic, partition), 0))
    ]
    complete = [ms for ms in (before.complete_to_ms, min(holding, default=None)) if ms is not None]
    return Watermark(marks, max(complete, default=None))
