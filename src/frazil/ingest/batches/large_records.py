"""Records that are larger than the process which would read them: dead letters that nobody has read.

They are looked for once a job has lacked memory, or before the batch of a table is read that was read when the JVM ended. A
record that no table of its topic takes because of `limits: {record_size}` is handed over without its value; Spark reads
what is around it. One that a table would take stops this table, with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import structlog

from frazil.ingest.failures import TooLargeForMemoryError
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.port import ReadRecord
from frazil.kafka.record_sizes import LargeRecord
from frazil.kafka.source import Stretch
from frazil.types import BadRecord, OffsetRange
from frazil.write.target import TableTarget

log = structlog.get_logger("frazil")

FLOOR_BYTES = 32 * 1024 * 1024
"""Smaller records are read, whatever they need."""

FindLarge = Callable[[Sequence[OffsetRange], int], list[LargeRecord]]


class LargeRecords:
    """The large records that were found so far. Used by several threads at once."""

    def __init__(self, find: FindLarge) -> None:
        """find: returns the records of ranges whose values have more bytes than a number; see `find_large`."""
        self._find = find
        self._known: frozenset[LargeRecord] = frozenset()

    def search(self, ranges: Sequence[OffsetRange]) -> bool:
        """Looks for large records, and returns whether there are such that were not known.

        Raises: UnavailableError where the records do not arrive.
        """
        found = frozenset(self._find(ranges, FLOOR_BYTES)) - self._known
        for one in sorted(found, key=lambda one: (one.topic, one.partition, one.offset)):
            log.warning(
                "large_record_found", topic=one.topic, partition=one.partition, offset=one.offset, bytes=one.value_bytes
            )
        self._known |= found
        return bool(found)

    def within(self, ranges: Iterable[OffsetRange], job: Job) -> list[LargeRecord]:
        """Returns those in the ranges that no table takes, in order per partition.

        Raises: TooLargeForMemoryError for one that a table would take.
        """
        found = [one for r in ranges for one in self._known if _is_within(one, r)]
        for one in found:
            limit = max(_limit_of(target) for target in job.targets_of(one.topic))
            if one.end > one.offset + 1 or (one.value_bytes is not None and one.value_bytes <= limit):
                raise TooLargeForMemoryError(one.topic, one.partition, one.offset, one.end, one.value_bytes)
        return sorted(found, key=lambda one: (one.topic, one.partition, one.offset))


def _is_within(one: LargeRecord, r: OffsetRange) -> bool:
    return (one.topic, one.partition) == (r.topic, r.partition) and r.start <= one.offset < r.end


def _limit_of(target: TableTarget) -> int:
    return (target.source or target).reading.max_record_bytes


def without_values(large: Iterable[LargeRecord]) -> Iterator[Stretch]:
    """Yields what a task gets in place of each record: all but its value."""
    for one in large:
        record = ReadRecord(one.topic, one.partition, one.offset, None, one.timestamp_ms, one.headers, one.key)
        yield Stretch(OffsetRange(one.topic, one.partition, one.offset, one.end), (record,))


def refusing(job: Job, large: Sequence[LargeRecord]) -> Job:
    """Returns the job whose tables refuse these records unread."""
    if not large:
        return job
    targets = {topic: _refusing(target, large, topic) for topic, target in job.targets.items()}
    beside = {topic: tuple(_refusing(one, large, topic) for one in others) for topic, others in job.beside.items()}
    return replace(job, targets=targets, beside=beside)


def _refusing(target: TableTarget, large: Iterable[LargeRecord], topic: str) -> TableTarget:
    if (
        target.route is not None and target.route_values
    ):  # Only its value decides whose it is: the table of the rest has it.
        return target
    refused = (
        BadRecord(one.topic, one.partition, one.offset, "too_large", "", _reason(one, _limit_of(target)))
        for one in large
        if one.topic == topic
    )
    return replace(target, crashing=(*target.crashing, *refused))


def _reason(one: LargeRecord, limit: int) -> str:
    size = "more bytes than fit into memory" if one.value_bytes is None else f"{one.value_bytes} bytes"
    return f"the value has {size}, and `limits.record_size` allows {limit}: it was not read, and only Kafka has it"
