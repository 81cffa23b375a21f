"""Large records on a real broker, told by a process with little memory: whatever compresses them, and what kills it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.kafka.record_sizes import LargeRecord, find_large
from frazil.runtime.broker import EmbeddedBroker
from frazil.types import OffsetRange
from tests.acceptance.topics import Topics
from tests.integration.servers import free_port

MIB = 1024 * 1024
FLOOR = 16 * MIB
LITTLE = 300 * MIB


def send(broker: EmbeddedBroker, topic: str, values: Sequence[bytes], codec: str = "none", **settings: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            "message.max.bytes": 1_000_000_000,
            **settings,
        }
    )
    for value in values:
        producer.produce(topic, value, b"k", 0, headers=[("from", b"a test"), ("none", None)])
    assert producer.flush(60) == 0


def new_topic(broker: EmbeddedBroker) -> str:
    return Topics(broker.bootstrap_servers).create(f"sizes-{new_id()[:8]}", 1)


def found(broker: EmbeddedBroker, topic: str, end: int, memory: int = LITTLE, start: int = 0) -> list[LargeRecord]:
    properties = {"bootstrap.servers": broker.bootstrap_servers}
    return find_large(properties, [OffsetRange(topic, 0, start, end)], FLOOR, memory)


def test_large_records_are_named_and_small_ones_are_not(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    send(broker, topic, [b"1"] * 3)
    for codec in ("zstd", "gzip", "lz4", "snappy", "none"):
        send(broker, topic, [b"x" * 17 * MIB], codec)
        send(broker, topic, [b"2"] * 2)
    large = found(broker, topic, 18)
    assert [(one.offset, one.end, one.value_bytes) for one in large] == [
        (offset, offset + 1, 17 * MIB) for offset in (3, 6, 9, 12, 15)
    ]
    assert {(one.key, one.headers) for one in large} == {(b"k", (("from", b"a test"), ("none", None)))}
    assert all(one.timestamp_ms is not None for one in large)
    assert [one.offset for one in found(broker, topic, 12, start=7)] == [9]


def test_a_record_of_which_the_process_dies_is_named_by_its_place(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    send(broker, topic, [b"1"] * 5)
    for codec in ("zstd", "lz4"):
        send(broker, topic, [b"x" * 400 * MIB], codec)
        send(broker, topic, [b"2"] * 2)
    send(broker, topic, [b"x" * 20 * MIB], "zstd")
    large = found(broker, topic, 12)
    assert [(one.offset, one.end, one.value_bytes) for one in large] == [
        (5, 6, None),
        (8, 9, None),
        (11, 12, 20 * MIB),
    ]


def test_a_batch_of_which_the_process_dies_is_named_by_its_first_and_last_record(broker: EmbeddedBroker) -> None:
    topic = new_topic(broker)
    send(broker, topic, [b"1"])
    send(broker, topic, [b"x" * 60 * MIB] * 6, "zstd", **{"batch.size": 400 * MIB, "linger.ms": 2000})
    send(broker, topic, [b"2"] * 3)
    large = found(broker, topic, 10)
    assert [(one.offset, one.end, one.value_bytes) for one in large] == [(1, 7, None)]
    assert [one.value_bytes for one in found(broker, topic, 10, memory=2048 * MIB)] == [60 * MIB] * 6


def test_a_broker_that_does_not_answer_is_an_outage() -> None:
    with pytest.raises(UnavailableError) as raised:
        find_large(
            {"bootstrap.servers": f"127.0.0.1:{free_port()}"}, [OffsetRange("a", 0, 0, 1)], FLOOR, patience_s=0.5
        )
    assert "no record has arrived" in raised.value.message
