"""The sample of later records that decides a table's columns together with its first batch.

The type of a column must not depend on where the first batch ends: `{"a": 1}` in it and `{"a": 1.5}` behind it are one
double.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from frazil.ingest.failures import TaskFailedError, is_heap_full, is_jvm_gone
from frazil.ingest.plan import FIRST_BATCH_RECORDS, limit_ranges
from frazil.kafka.port import Partition
from frazil.types import Batch, OffsetRange, Offsets

log = structlog.get_logger("frazil")

SAMPLE_BYTES = 64 * 1024 * 1024
"""The largest size of the values in one read of the sample, estimated from the average size in the batch."""


def log_unsampled(batch: Batch, error: TaskFailedError) -> None:
    """Logs the records that do not contribute to the first columns, because a task that reads them fails.

    Raises: `error` where no record is its cause.
    """
    if is_jvm_gone(error) or is_heap_full(error):
        raise error
    log.warning("sample_failed", table=batch.table, where=batch.place, reason=error.message)


def sample_reads(
    position: Offsets, read: Sequence[OffsetRange], reach: Mapping[Partition, int], record_bytes: float
) -> list[list[OffsetRange]]:
    """Returns the ranges to read behind the first batch (`read`): all records where two reads suffice, else one read in
    the middle and one at the end, with an equal share of every partition. reach: how far records may be read.
    """
    ends = {(r.topic, r.partition): r.end for r in read}
    rest = [
        OffsetRange(topic, partition, start, reach[topic, partition])
        for topic, partitions in sorted(position.items())
        for partition, offset in sorted(partitions.items())
        if (start := ends.get((topic, partition), offset)) < reach.get((topic, partition), 0)
    ]
    most = max(1, min(FIRST_BATCH_RECORDS, int(SAMPLE_BYTES / max(1.0, record_bytes))))
    total = sum(r.span for r in rest)
    if total <= most:
        return [rest] if rest else []
    first = {(r.topic, r.partition): r.span for r in limit_ranges(rest, most)}
    spans = [(r, first.get((r.topic, r.partition), 0)) for r in rest]
    if total <= 2 * most:
        parts = ([_part(r, 0, span) for r, span in spans], [_part(r, span, r.span) for r, span in spans])
    else:
        middles = [_part(r, (r.span - span) // 2, (r.span + span) // 2) for r, span in spans]
        parts = (middles, [_part(r, r.span - span, r.span) for r, span in spans])
    return [[r for r in part if r.span] for part in parts]


def _part(whole: OffsetRange, start: int, end: int) -> OffsetRange:
    return OffsetRange(whole.topic, whole.partition, whole.start + start, whole.start + end)
