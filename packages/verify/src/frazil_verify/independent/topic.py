"""The records of a topic, read by librdkafka, which Frazil's tasks do not use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_AT_ONCE = 10_000
_POLL_S = 1.0
_SILENT_POLLS = 60
"""So many empty polls in a row end the reading with an error."""
_NO_TIMESTAMP = 0


class TopicNotReadable(Exception):
    """Why the records of a topic cannot be read."""


@dataclass(slots=True)
class Record:
    """A record in its topic."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None
    #: None for a record without one.
    timestamp_ms: int | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition and offset."""
        return self.topic, self.partition, self.offset


@dataclass(frozen=True)
class Range:
    """Offsets of one partition, half-open."""

    topic: str
    partition: int
    start: int
    end: int


def read_topic(properties: Mapping[str, str], ranges: Sequence[Range]) -> Iterator[list[Record]]:
    """Yields the records of the ranges that Kafka still has, those of one partition after another.

    Raises: TopicNotReadable.
    """
    settings: dict[str, Any] = {
        **properties,
        "group.id": "frazil-verify",  # Required by librdkafka; without `subscribe` no group is joined.
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    try:
        for wanted in ranges:
            if wanted.start < wanted.end:
                yield from _read_range(consumer, wanted)
    except KafkaException as error:
        raise TopicNotReadable(str(error.args[0])) from None
    finally:
        consumer.close()


def _read_range(consumer: Consumer, wanted: Range) -> Iterator[list[Record]]:
    consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
    silent_polls = 0
    while True:
        messages = consumer.consume(_AT_ONCE, _POLL_S)
        silent_polls = 0 if messages else silent_polls + 1
        if silent_polls > _SILENT_POLLS:
            raise TopicNotReadable(f"no record of {wanted.topic}, partition {wanted.partition} arrived for a minute")
        records, is_over = [], False
        for message in messages:
            error = message.error()
            if error is not None:
                is_over |= error.code() == KafkaError._PARTITION_EOF
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                continue
            offset = message.offset()
            assert offset is not None
            is_over |= offset >= wanted.end - 1
            if offset < wanted.end:
                records.append(_record_of(message, wanted, offset))
        if records:
            yield records
        if is_over:
            return


def _record_of(message: Any, wanted: Range, offset: int) -> Record:
    kind, at_ms = message.timestamp()
    headers = message.headers()
    return Record(
        wanted.topic,
        wanted.partition,
        offset,
        message.value(),
        message.key(),
        None if kind == _NO_TIMESTAMP else at_ms,
        tuple(map(tuple, headers)) if headers else (),
    )
