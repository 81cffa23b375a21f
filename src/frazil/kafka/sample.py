"""Reads a few records in the driver, for `frazil plan`: assigned, never subscribed, and nothing is committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.kafka.port import Partition
from frazil.kafka.properties import native_properties
from frazil.types import OffsetRange

_AT_ONCE = 1000
_TIMEOUT_S = 30.0
_ENOUGH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class SampledRecord:
    """One record's value and headers, and where it was."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    key: bytes | None = None


def read_sample(properties: Mapping[str, str], ranges: Iterable[OffsetRange], clock: Clock) -> list[SampledRecord]:
    """The records of `ranges`, fewer when they are large. UnavailableError when they do not come in time."""
    open_ranges = {(r.topic, r.partition): r for r in ranges}
    if not open_ranges:
        return []
    level = {"isolation.level": properties.get("isolation.level", "read_committed")}
    own = {"group.id": "frazil-plan", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**native_properties(properties), **level, **own})
    try:
        consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in open_ranges.values()])
        return _drain(consumer, open_ranges, clock, properties["bootstrap.servers"])
    except KafkaException as error:
        message = f"the sample cannot be read: {error.args[0].str()}"
        raise UnavailableError(message, where=properties["bootstrap.servers"]) from None
    finally:
        consumer.close()


def _drain(consumer: Consumer, ranges: dict[Partition, OffsetRange], clock: Clock, servers: str) -> list[SampledRecord]:
    found: list[SampledRecord] = []
    read_bytes, deadline = 0, clock.monotonic_s() + _TIMEOUT_S
    while ranges and read_bytes < _ENOUGH_BYTES:
        if clock.monotonic_s() > deadline:
            raise UnavailableError(f"the sample did not come within {_TIMEOUT_S:.0f} s", where=servers)
        for message in consumer.consume(_AT_ONCE, timeout=0.5):
            place, offset, error = (
                (message.topic() or "", message.partition() or 0),
                message.offset() or 0,
                message.error(),
            )
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            wanted = ranges.get(place)
            if wanted is None:
                continue
            if error is None and offset < wanted.end:
                value = message.value()
                found.append(SampledRecord(*place, offset, value, _headers(message), _bytes(message.key())))
                read_bytes += len(value or b"")
            if error is not None or offset >= wanted.end - 1:
                del ranges[place]
    return found


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    pairs = message.headers() or []
    return tuple((str(pair[0]), pair[1] if isinstance(pair[1], bytes) else None) for pair in pairs)


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None
