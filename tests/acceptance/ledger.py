"""What the producers were told: which value lies at which offset. The only truth that a table is compared with.

A record counts from the moment the broker acknowledged it; one in a transaction from its commit. What was aborted is
kept too, to be told apart from what nobody ever wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from frazil.clock import new_id

Place = tuple[str, int, int]
"""Topic, partition and offset."""

LARGEST_RECORD = 17 * 1024 * 1024


class Ledger:
    """Acknowledged records by place. None as a value is a tombstone."""

    def __init__(self) -> None:
        self.records: dict[Place, bytes | None] = {}
        self.aborted: set[Place] = set()

    def note(self, place: Place, value: bytes | None) -> None:
        """A record that a reader must see exactly once."""
        assert place not in self.records, f"the broker gave {place} twice"
        self.records[place] = value

    def forget(self, places: Iterable[Place]) -> None:
        """Records that Kafka no longer has, and that nobody may expect."""
        for place in places:
            del self.records[place]

    def of(self, topic: str) -> dict[Place, bytes | None]:
        """The records of one topic."""
        return {place: value for place, value in self.records.items() if place[0] == topic}

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Per topic and partition the offset after the last record."""
        ends: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        for topic, partition, offset in self.records:
            if topic in ends:
                ends[topic][partition] = max(offset + 1, ends[topic].get(partition, 0))
        return ends


class Feed:
    """A producer that writes into a ledger what it was told. It continues when the broker is away for a minute or two."""

    def __init__(self, servers: str, ledger: Ledger, properties: Mapping[str, Any] | None = None) -> None:
        self.ledger = ledger
        self._servers = servers
        self._pending: list[tuple[Place, bytes | None]] | None = None
        self._failures: list[KafkaError] = []
        settings = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.max.bytes": LARGEST_RECORD,
            "delivery.timeout.ms": 180_000,
            "topic.metadata.refresh.interval.ms": 1000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._producer = Producer({**settings, **(properties or {})})

    def send(
        self,
        topic: str,
        values: Iterable[Any],
        partition: int = -1,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | None = None,
        at_ms: int = 0,
    ) -> None:
        """Hands over values: bytes and None as they are, anything else as JSON. at_ms: when they were made; 0: now."""
        extra: list[tuple[str, str | bytes | None]] = [*(headers or {}).items()]
        for value in values:
            raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            self._producer.produce(topic, raw, key, partition, self._note, timestamp=at_ms, headers=extra)
            self._producer.poll(0)

    def knows(self, topic: str, partition: int) -> bool:
        """Whether it has heard of a partition that was added lately."""
        found = self._producer.list_topics(topic, timeout=10).topics[topic].partitions
        return partition in found

    def flush(self, within_s: float = 150.0) -> None:
        """Returns when every record is acknowledged."""
        left = self._producer.flush(within_s)
        assert (left, self._failures) == (0, []), f"{left} records are not acknowledged: {self._failures[:3]}"

    def produce(self, topic: str, values: Iterable[Any], partition: int = -1) -> None:
        """`send` and `flush`."""
        self.send(topic, values, partition)
        self.flush()

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None and partition is not None and offset is not None  # noqa: PT018  (for the type checker)
        entry = ((topic, partition, offset), message.value())
        if self._pending is not None:
            self._pending.append(entry)
        else:
            self.ledger.note(*entry)


class TransactionalFeed(Feed):
    """A feed whose records count when their transaction commits."""

    def __init__(self, servers: str, ledger: Ledger) -> None:
        super().__init__(servers, ledger, {"transactional.id": new_id(), "transaction.timeout.ms": 180_000})
        self._producer.init_transactions(30)

    def begin(self) -> None:
        """Opens a transaction."""
        self._producer.begin_transaction()
        self._pending = []

    def commit(self) -> None:
        """Ends it: its records are there."""
        self._producer.commit_transaction(30)
        for entry in self._take():
            self.ledger.note(*entry)

    def abort(self) -> None:
        """Ends it: its records were never there, though they took offsets."""
        self.flush()
        self._producer.abort_transaction(30)
        self.ledger.aborted |= {place for place, _ in self._take()}

    def _take(self) -> list[tuple[Place, bytes | None]]:
        pending, self._pending = self._pending or [], None
        return pending


def events(count: int, start: int = 0, **more: Any) -> Iterator[dict[str, Any]]:
    """Records with a number, a text, a fraction, a flag, a struct and a list; now and then a field is absent."""
    for number in range(start, start + count):
        event: dict[str, Any] = {
            "id": number,
            "text": f"record {number} – ü",
            "amount": number / 8,
            "even": number % 2 == 0,
            "where": {"city": f"c{number % 7}", "zip": number % 100},
            "tags": [f"t{n}" for n in range(number % 3)],
        }
        if number % 5 == 0:
            del event["amount"]
        yield {**event, **more}


@contextmanager
def plain_reader(servers: str) -> Iterator[Consumer]:
    """A consumer that sees what a read_committed reader may see."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": new_id(),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "fetch.message.max.bytes": LARGEST_RECORD,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        yield consumer
    finally:
        consumer.close()


def read_partition(servers: str, topic: str, partition: int) -> dict[Place, bytes | None]:
    """What is in a partition now, from its beginning to its end."""
    found: dict[Place, bytes | None] = {}
    for message in read_messages(servers, topic, partition):
        offset = message.offset()
        assert offset is not None
        found[topic, partition, offset] = message.value()
    return found


def read_messages(servers: str, topic: str, partition: int) -> list[Message]:
    """The same with keys and headers."""
    found: list[Message] = []
    with plain_reader(servers) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(30)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(message)
    raise AssertionError(f"partition {partition} of {topic} could not be read")
