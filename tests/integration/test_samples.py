"""Samples of topics with records that no command of an operator should hold: they are left out, their neighbours are not."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from frazil.clock import SystemClock, new_id
from frazil.kafka.reader import read_sample
from frazil.runtime.broker import EmbeddedBroker
from frazil.types import OffsetRange
from tests.acceptance.topics import Topics

MIB = 1024 * 1024


def _send(broker: EmbeddedBroker, topic: str, codec: str, *values: bytes) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 1_000_000_000}
    producer = Producer({**settings, "compression.type": codec})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("codec", ["zstd", "gzip", "lz4", "snappy"])
def test_a_sample_leaves_large_records_out_and_ends_at_too_large_batches(broker: EmbeddedBroker, codec: str) -> None:
    topic = Topics(broker.bootstrap_servers).create(f"sample-{new_id()[:8]}", 1)
    _send(broker, topic, codec, b"1", b"2")
    _send(broker, topic, codec, b"x" * 40 * MIB)
    _send(broker, topic, codec, b"3")
    _send(broker, topic, codec, b"x" * 200 * MIB)
    _send(broker, topic, codec, b"4")
    found = read_sample({"bootstrap.servers": broker.bootstrap_servers}, [OffsetRange(topic, 0, 0, 6)], SystemClock())
    assert [(one.offset, one.value) for one in found] == [(0, b"1"), (1, b"2"), (3, b"3")]
