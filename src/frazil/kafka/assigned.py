"""Exact ranges read by a consumer in the driver: assigned, never subscribed, and nothing is committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from frazil.clock import Clock
from frazil.kafka.port import Partition, ReadRecord
from frazil.kafka.properties import native_properties
from frazil.types import OffsetRange

_POLL_S = 0.5


class Silence(Exception):
    """Records have not come in time."""


def open_consumer(properties: Mapping[str, str], group: str, other: Mapping[str, Any] | None = None) -> Consumer:
    """A consumer that is told at the end of a partition. other: settings of librdkafka, before those that all have.

    Raises KafkaException when librdkafka refuses the settings.
    """
    level = {"isolation.level": properties.get("isolation.level", "read_committed")}
    own = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    # Where the first records are gone, what is left of them is read.
    begin = {"auto.offset.reset": "earliest"}
    return Consumer({**native_properties(properties), **level, **own, **begin, **(other or {})})


class AssignedRanges:
    """One reading of ranges, no two of one partition. is_strict: what a partition does not have yet, as when its new leader
    has not caught up, is waited for; else it is read to its end. reached: per partition the offset up to which it is read.
    """

    def __init__(self, ranges: Iterable[OffsetRange], *, is_strict: bool = False) -> None:
        self._is_strict = is_strict
        asked = {(r.topic, r.partition): r for r in ranges}
        self.reached: dict[Partition, int] = {place: r.start for place, r in asked.items()}
        self._left = {place: r for place, r in asked.items() if r.span > 0}

    @property
    def is_read(self) -> bool:
        """Whether nothing is left to be read."""
        return not self._left

    def batches(
        self, consumer: Consumer, clock: Clock, timeout_s: float, at_once: int, *, is_for_all: bool = False
    ) -> Iterator[list[ReadRecord]]:
        """Reads to the ends of the ranges, at most `at_once` records at a time, those of a partition in their order.

        timeout_s: how long is waited for the next records, or for all of them; the time that the caller takes for a lot does
        not count as waiting for the next. Raises Silence after it, and KafkaException.
        """
        deadline = clock.monotonic_s() + timeout_s
        consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in self._left.values()])
        while self._left:
            if clock.monotonic_s() > deadline:
                raise Silence
            messages = consumer.consume(at_once, timeout=_POLL_S)
            batch = [record for record in map(self._take, messages) if record is not None]
            if batch:
                yield batch
            if messages and not is_for_all:
                deadline = clock.monotonic_s() + timeout_s

    def _take(self, message: Message) -> ReadRecord | None:
        """The record, if it was asked for; notes how far its partition is read."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        place = (message.topic() or "", message.partition() or 0)
        wanted, offset = self._left.get(place), message.offset() or 0
        if wanted is None:
            return None
        after = offset if error is not None else offset + 1
        is_over = after >= wanted.end or (error is not None and not self._is_strict)
        self.reached[place] = wanted.end if is_over else after
        if is_over:
            del self._left[place]
        return _record(message, place, offset) if error is None and wanted.start <= offset < wanted.end else None


def _record(message: Message, place: Partition, offset: int) -> ReadRecord:
    kind, at_ms = message.timestamp()
    return ReadRecord(
        *place,
        offset,
        _bytes(message.value()),
        int(at_ms) if kind != TIMESTAMP_NOT_AVAILABLE else None,
        tuple((str(pair[0]), _bytes(pair[1])) for pair in message.headers() or []),
        _bytes(message.key()),
    )


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None
