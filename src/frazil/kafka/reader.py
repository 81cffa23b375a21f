"""Records read in the driver: offset ranges, and a few records for `frazil plan` and `frazil check`.

The consumer has assigned partitions, is never subscribed and commits no offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.kafka.port import Partition, ReadRecord, timestamp_of
from frazil.kafka.properties import native_properties
from frazil.kafka.remedies import kafka_remedy
from frazil.types import OffsetRange

_POLL_S = 0.5
_AT_ONCE = 1000
_BATCH_RECORDS = 5000
_TIMEOUT_S = 30.0
# Records fetched in advance are discarded when enough has been read.
_FETCHED_AHEAD_KB = 16 * 1024
_ENOUGH_BYTES = 64 * 1024 * 1024


class Silence(Exception):
    """Records have not arrived in time."""


def open_consumer(properties: Mapping[str, str], group: str, other: Mapping[str, Any] | None = None) -> Consumer:
    """Returns a consumer that reports the end of a partition. other: settings of librdkafka, overridden by the common
    ones.

    Raises: KafkaException where librdkafka refuses the settings.
    """
    level = {"isolation.level": properties.get("isolation.level", "read_committed")}
    own = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    # Where the first records are gone, the remaining ones are read.
    begin = {"auto.offset.reset": "earliest"}
    return Consumer({**native_properties(properties), **level, **own, **begin, **(other or {})})


class AssignedRanges:
    """One reading of ranges, at most one per partition. is_strict: waits for records that a partition does not have
    yet, as when its new leader has not caught up, and refuses those that are gone (with Kafka's `auto.offset.reset:
    error`); otherwise the partition is read to its end. is_sample: a batch that cannot be decompressed in the memory that
    the client allows ends its partition, too.
    """

    def __init__(self, ranges: Iterable[OffsetRange], *, is_strict: bool = False, is_sample: bool = False) -> None:
        self._is_strict = is_strict
        self._ends = (KafkaError._PARTITION_EOF, *((KafkaError._BAD_COMPRESSION,) if is_sample else ()))
        asked = {(r.topic, r.partition): r for r in ranges}
        #: Per partition, the offset up to which it is read.
        self.reached: dict[Partition, int] = {place: r.start for place, r in asked.items()}
        self._left = {place: r for place, r in asked.items() if r.span > 0}
        self._out_of_range: dict[Partition, KafkaException] = {}

    @property
    def is_read(self) -> bool:
        """Whether nothing is left to be read."""
        return not self._left

    def batches(
        self, consumer: Consumer, clock: Clock, timeout_s: float, at_once: int, *, is_for_all: bool = False
    ) -> Iterator[list[ReadRecord]]:
        """Yields records up to the ends of the ranges, at most `at_once` at a time, in order per partition. timeout_s:
        how long to wait for the next records, or for all of them; the caller's time between batches does not count.

        Raises: Silence after the timeout; KafkaException.
        """
        deadline = clock.monotonic_s() + timeout_s
        self._assign(consumer)
        while self._left:
            if clock.monotonic_s() > deadline:
                raise Silence
            messages = consumer.consume(at_once, timeout=_POLL_S)
            batch = [record for record in map(self._take, messages) if record is not None]
            if batch:
                yield batch
            if self._out_of_range:
                self._ask_again(consumer, timeout_s)
            elif messages and not is_for_all:
                deadline = clock.monotonic_s() + timeout_s

    def _assign(self, consumer: Consumer) -> None:
        consumer.assign([TopicPartition(*place, self.reached[place]) for place in self._left])

    def _ask_again(self, consumer: Consumer, timeout_s: float) -> None:
        """Continues where a broker reports that an offset is out of range although its records are not gone: a leader that
        has not caught up does, and one that has just ended a transaction.
        """
        for (topic, partition), error in self._out_of_range.items():
            low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout_s)
            if low > self.reached[topic, partition]:
                raise error
        self._out_of_range.clear()
        self._assign(consumer)

    def _take(self, message: Message) -> ReadRecord | None:
        """Returns the record if it belongs to a range, and notes how far its partition is read."""
        error = message.error()
        place = (message.topic() or "", message.partition() or 0)
        wanted, offset = self._left.get(place), message.offset() or 0
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._out_of_range[place] = KafkaException(error)
            return None
        if error is not None and error.code() not in self._ends:
            raise KafkaException(error)
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
        timestamp_of(int(at_ms)) if kind != TIMESTAMP_NOT_AVAILABLE else None,
        tuple((str(pair[0]), _bytes(pair[1])) for pair in message.headers() or []),
        _bytes(message.key()),
    )


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None


class KafkaReader:
    """Implements the port `RecordReader`. properties: Kafka's client properties. timeout_s: how long to wait for the next
    records. To be used by one thread at a time.
    """

    def __init__(self, properties: Mapping[str, str], clock: Clock, timeout_s: float = _TIMEOUT_S) -> None:
        self._properties = properties
        self._clock = clock
        self._timeout_s = timeout_s
        self._consumer: Consumer | None = None

    def read(self, ranges: Iterable[OffsetRange], enough_bytes: int) -> tuple[list[ReadRecord], dict[Partition, int]]:
        """See the port. The consumer is kept for the next call."""
        asked = AssignedRanges(ranges, is_strict=True)
        found: list[ReadRecord] = []
        if asked.is_read:
            return found, asked.reached
        servers, read_bytes = self._properties["bootstrap.servers"], 0
        try:
            consumer = self._consumer = self._consumer or self._open_kept()
            for batch in asked.batches(consumer, self._clock, self._timeout_s, _AT_ONCE):
                found += batch
                read_bytes += sum(len(record.value or b"") for record in batch)
                if read_bytes >= enough_bytes:
                    break
            consumer.unassign()
        except KafkaException as error:
            self.close()
            raise _failure("records cannot be read", error, servers) from None
        except Silence:
            self.close()
            raise UnavailableError(f"no record has arrived for {self._timeout_s:.0f} s", where=servers) from None
        return found, asked.reached

    def batches(self, wanted: OffsetRange) -> Iterator[Sequence[ReadRecord]]:
        asked = AssignedRanges([wanted])
        if asked.is_read:
            return
        where = f"topic {wanted.topic}, partition {wanted.partition}"
        try:
            with closing(open_consumer(self._properties, "frazil-dead-letters")) as consumer:
                yield from asked.batches(consumer, self._clock, self._timeout_s, _BATCH_RECORDS)
        except KafkaException as error:
            raise _failure("records cannot be read again", error, where) from None
        except Silence:
            raise UnavailableError(f"records did not arrive within {self._timeout_s:.0f} s", where=where) from None

    def close(self) -> None:
        """Closes the client; the next read opens another."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open_kept(self) -> Consumer:
        # Missing records must not be skipped: a part of a transaction would look complete.
        other = {"auto.offset.reset": "error", "queued.max.messages.kbytes": _FETCHED_AHEAD_KB}
        return open_consumer(self._properties, "frazil-look", other)


def read_sample(properties: Mapping[str, str], ranges: Iterable[OffsetRange], clock: Clock) -> list[ReadRecord]:
    """Returns the records of `ranges`, fewer where they are large.

    Raises: UnavailableError where they do not arrive in time.
    """
    asked = AssignedRanges(ranges, is_sample=True)
    found: list[ReadRecord] = []
    if asked.is_read:
        return found
    servers, read_bytes = properties["bootstrap.servers"], 0
    try:
        with closing(open_consumer(properties, "frazil-plan")) as consumer:
            for batch in asked.batches(consumer, clock, _TIMEOUT_S, _AT_ONCE, is_for_all=True):
                found += batch
                read_bytes += sum(len(record.value or b"") for record in batch)
                if read_bytes >= _ENOUGH_BYTES:
                    break
    except KafkaException as error:
        raise _failure("the sample cannot be read", error, servers) from None
    except Silence:
        raise UnavailableError(f"the sample did not arrive within {_TIMEOUT_S:.0f} s", where=servers) from None
    return found


def _failure(what: str, error: KafkaException, where: str) -> UnavailableError:
    words = error.args[0].str()
    return UnavailableError(f"{what}: {words}", remedy=kafka_remedy(words), where=where)
