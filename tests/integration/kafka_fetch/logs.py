"""Topics of a real broker that are written to, and what librdkafka's consumer reads of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.topics import Topics
from tests.fixtures.waiting import wait_until

Read = tuple[int, bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]] | None]
"""Offset, key, value, timestamp (ms) and headers of a record."""
_SOON = {"linger.ms": "0", "log_level": 0}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}


class Written:
    """A topic of its own."""

    def __init__(
        self, broker: EmbeddedBroker, partitions: int = 1, properties: Mapping[str, str] | None = None
    ) -> None:
        self.servers = broker.bootstrap_servers
        self.topics = Topics(self.servers)
        self.name = self.topics.create(f"fetched-{new_id()[:8]}", partitions, properties)
        self._producers: dict[str, Producer] = {}

    def write(self, *values: bytes | None, partition: int = 0, **more: Any) -> None:
        """Records, in one batch if they fit. more: of `produce`; or a codec, and settings of the producer."""
        codec = more.pop("codec", "none")
        settings = {"compression.type": codec, "linger.ms": "50", **more.pop("settings", {})}
        producer = self._producer(codec, settings)
        for value in values:
            producer.produce(self.name, value, partition=partition, **more)
        producer.flush()

    def write_alone(self, *values: bytes | None, partition: int = 0, **more: Any) -> None:
        """Records, each in a batch of its own."""
        for value in values:
            self.write(value, partition=partition, **more)

    def transactional(self, name: str, codec: str = "none") -> Producer:
        """A producer of transactions, always the same one of a name."""
        made = f"{self.name}-{name}"
        is_new = made not in self._producers
        producer = self._producer(made, {"transactional.id": made, "compression.type": codec, "linger.ms": "0"})
        if is_new:
            producer.init_transactions(30)
        return producer

    @contextmanager
    def transaction(self, name: str, is_kept: bool = True) -> Iterator[Callable[..., None]]:
        """What is written meanwhile is one transaction; its records are with the broker when the call returns."""
        producer = self.transactional(name)
        producer.begin_transaction()

        def write(*values: bytes, partition: int = 0) -> None:
            for value in values:
                producer.produce(self.name, value, partition=partition)
            producer.flush(30)

        yield write
        producer.commit_transaction(30) if is_kept else producer.abort_transaction(30)

    def _producer(self, name: str, settings: Mapping[str, str]) -> Producer:
        if name not in self._producers:
            self._producers[name] = Producer({"bootstrap.servers": self.servers, **_SOON, **settings})
        return self._producers[name]

    def bounds(self, partition: int = 0) -> tuple[int, int]:
        """The first offset and the one after the last."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "none", "log_level": 0})
        found = consumer.get_watermark_offsets(TopicPartition(self.name, partition), timeout=30)
        consumer.close()
        return int(found[0]), int(found[1])

    def compacted_to(self, offsets: Sequence[int]) -> None:
        """Writes records until the log has only these of those before."""

        def kept() -> list[int]:
            self.write(b"", key=b"another segment begins with it")
            return [one[0] for one in self.consumed("read_uncommitted") if one[0] <= max(offsets)]

        wait_until(lambda: kept() == list(offsets), "the log is compacted")

    def consumed_of(self, partitions: int, level: str) -> list[list[Read]]:
        """What librdkafka reads of each partition."""
        return [self.consumed(level, partition) for partition in range(partitions)]

    def consumed(self, level: str, partition: int = 0) -> list[Read]:
        """What librdkafka reads of the partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "none",
                "isolation.level": level,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "fetch.error.backoff.ms": 10,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.name, partition, 0)])
        found: list[Read] = []
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                break  # The end of the partition.
            found.append(_fields_of(message))
        consumer.close()
        return found


def _fields_of(message: Any) -> Read:
    headers = message.headers()
    kind, timestamp_ms = message.timestamp()
    return (
        message.offset(),
        message.key(),
        message.value(),
        None if kind == 0 else timestamp_ms,
        None if headers is None else list(headers),
    )
