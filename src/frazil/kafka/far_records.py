"""Records whose timestamps Spark cannot hold: the driver reads them, and Spark gets them beside those that it reads itself.

Spark's Kafka source makes microseconds in 64 bits of every timestamp, whatever columns are asked for, and ends the task
where they do not fit: a producer that writes nanoseconds in place of milliseconds is enough (decision 49).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from frazil.kafka.port import FARTHEST_MS, Partition, ReadRecord
from frazil.types import OffsetRange

MOST_RECORDS = 10_000
"""The largest number of records that the driver keeps, and that one job gets from it."""
MOST_STRETCHES = 50
"""The largest number of stretches in a batch: Spark reads what is between them in as many pieces."""
_MOST_BYTES = 32 * 1024 * 1024
# Spark would read what is between two such records in a piece of its own. Below this the driver hands that over too.
_NEAR_RECORDS, _NEAR_BYTES = 100, 1024 * 1024

RangeReader = Callable[[OffsetRange], Iterator[Sequence[ReadRecord]]]


@dataclass(frozen=True)
class Stretch:
    """All records of a range that begins and ends with one that Spark cannot read."""

    range: OffsetRange
    records: tuple[ReadRecord, ...]

    @property
    def place(self) -> Partition:
        """The topic and its partition."""
        return self.range.topic, self.range.partition

    def overlaps(self, r: OffsetRange) -> bool:
        """Whether a part of it is in another range."""
        return self.place == (r.topic, r.partition) and self.range.start < r.end and r.start < self.range.end

    def within(self, r: OffsetRange) -> Stretch:
        """Returns the part of it in another range of the partition."""
        start, end = max(r.start, self.range.start), min(r.end, self.range.end)
        records = tuple(one for one in self.records if start <= one.offset < end)
        return Stretch(OffsetRange(r.topic, r.partition, start, end), records)


class TooManyFarRecords(Exception):
    """A batch has more of them than the driver hands over at once; `first` is the first of them."""

    def __init__(self, first: ReadRecord) -> None:
        super().__init__(
            f"too many records of topic {first.topic} for one batch have timestamps that Spark cannot read, such as"
            " nanoseconds in place of milliseconds"
        )
        self.first = first


class FarRecords:
    """The stretches that were found so far. Used by several threads at once."""

    def __init__(self, read: RangeReader) -> None:
        """read: yields the records of a range; see `RecordReader.batches`."""
        self._read = read
        self._lock = threading.Lock()
        self._known: tuple[Stretch, ...] = ()

    def within(self, ranges: Sequence[OffsetRange]) -> list[Stretch]:
        """Returns what is known in the ranges, in order per partition."""
        found = (one.within(r) for one in self._known for r in ranges if one.overlaps(r))
        return sorted(found, key=lambda one: (*one.place, one.range.start))

    def search(self, ranges: Iterable[OffsetRange]) -> bool:
        """Reads the ranges, and returns whether they have such records that were not known.

        Raises: TooManyFarRecords; UnavailableError where the records do not arrive.
        """
        found: list[Stretch] = []
        for r in ranges:
            for one in _stretches(record for batch in self._read(r) for record in batch):
                found.append(one)
                if len(found) > MOST_STRETCHES or _is_too_much(found):
                    raise TooManyFarRecords(found[0].records[0])
        with self._lock:
            has_news = not {one.range for one in found} <= {one.range for one in self._known}
            kept = [*(one for one in self._known if not any(one.overlaps(new.range) for new in found)), *found]
            while _is_too_much(kept) or len(kept) > MOST_STRETCHES:
                kept.pop(0)  # Found again where it is read once more.
            self._known = tuple(kept)
        return has_news


def without(ranges: Iterable[OffsetRange], apart: Iterable[Stretch]) -> list[OffsetRange]:
    """Returns the ranges without the stretches, which are in order per partition."""
    cuts = list(apart)
    left: list[OffsetRange] = []
    for r in ranges:
        start = r.start
        for cut in (one.range for one in cuts if one.place == (r.topic, r.partition)):
            left.append(OffsetRange(r.topic, r.partition, start, cut.start))
            start = cut.end
        left.append(OffsetRange(r.topic, r.partition, start, r.end))
    return [r for r in left if r.span > 0]


def _stretches(records: Iterable[ReadRecord]) -> Iterator[Stretch]:
    """Yields the stretches of a partition's records, which are in order; a long one in parts, so that it can be refused."""
    found: list[ReadRecord] = []
    since: list[ReadRecord] = []
    for record in records:
        if record.timestamp_ms is not None and abs(record.timestamp_ms) >= FARTHEST_MS:
            found += [*since, record]
            since = []
        elif found:
            since.append(record)
        if found and (len(since) > _NEAR_RECORDS or _size(since) > _NEAR_BYTES or len(found) > MOST_RECORDS):
            yield _stretch(found)
            found, since = [], []
    if found:
        yield _stretch(found)


def _stretch(records: Sequence[ReadRecord]) -> Stretch:
    first, last = records[0], records[-1]
    return Stretch(OffsetRange(first.topic, first.partition, first.offset, last.offset + 1), tuple(records))


def _is_too_much(found: Sequence[Stretch]) -> bool:
    """A single record is never too much: Spark would hold it too."""
    count = sum(len(one.records) for one in found)
    return count > MOST_RECORDS or (count > 1 and sum(_size(one.records) for one in found) > _MOST_BYTES)


def _size(records: Iterable[ReadRecord]) -> int:
    return sum(len(one.value or b"") + len(one.key or b"") for one in records)
