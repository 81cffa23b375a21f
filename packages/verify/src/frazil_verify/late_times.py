"""Which records a table's commits have found late, for a copy that reads the same offsets in other batches.

A record is late by the times of its own partition, which any batches show, or by the time that all partitions had reached
before its batch, which only the commits of the table have recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil.catalog.progress import REPLAY_ID, key
from frazil.types import by_partition
from frazil_verify.history import History

RecordedTimes = tuple[tuple[str, int, int, int], ...]
"""Topic, partition, first offset, and the time in microseconds that all partitions had reached before it was read."""


@dataclass(frozen=True)
class LateTimes:
    """What the commits of a table with `late` have recorded."""

    times: RecordedTimes
    #: Why it is not known of every record whether it was late; empty where it is.
    unknown: str = ""


def late_times(history: History, pipeline: str) -> LateTimes:
    """Returns the times by which records were late. history: the snapshots of the table up to the compared one."""
    times: dict[tuple[str, int, int], int] = {}
    read, before_us, unknown = dict[tuple[str, int], int](), None, ""
    is_first = True
    for _, progress in history.progress(pipeline):
        if progress is None:
            continue
        ends, ledger = by_partition(progress.offsets), progress.ledger
        if progress.batch.balance is not None:
            if ledger is not None and ledger.commits == 1:
                times, unknown, read = {}, "", by_partition(ledger.starts)
            elif is_first:
                unknown, read = "commits that recorded which records were late have expired", ends
            for (topic, partition), end in ends.items():
                first = read.get((topic, partition), 0)
                if end > first and before_us is not None:
                    times[topic, partition, first] = before_us
            is_first = False
        read, before_us = ends, progress.order.event_times.complete_to_ms
    if any(key(pipeline, REPLAY_ID) in snapshot.summary for snapshot in history.snapshots):
        unknown = "a replay has counted late records"
    return LateTimes(tuple((*place, time) for place, time in sorted(times.items())), unknown)
