"""The Outbox port, on memory and on a real broker: every lot is there once, whatever is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from frazil import failpoints
from frazil.clock import new_id
from frazil.errors import ConflictError, UnavailableError
from frazil.kafka.outbox import KafkaOutbox
from frazil.kafka.port import Outbox, OutRecord
from frazil.runtime.broker import EmbeddedBroker
from frazil_testing.memory_kafka import MemoryOutbox

LOTS = [[OutRecord(b"k", b"a", [("h", b"1"), ("e", None)]), OutRecord(None, None)], [OutRecord(None, b"b")]]


class Post(Protocol):
    """An outbox and what a reader finds in its topics."""

    def open(self) -> Outbox:
        """As a new process would."""

    def lose(self, loss: str) -> None:
        """The next lot's question or answer is lost."""

    def read(self, topic: str) -> list[OutRecord]:
        """What is committed."""


class MemoryPost:
    """The twin."""

    def __init__(self) -> None:
        self._box = MemoryOutbox()

    def open(self) -> Outbox:
        return self._box

    def lose(self, loss: str) -> None:
        self._box.losses.append(loss)

    def read(self, topic: str) -> list[OutRecord]:
        return self._box.topics.get(topic, [])


class BrokerPost:
    """A real broker; an answer is lost by a process that ends before it comes."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._servers = broker.bootstrap_servers

    def open(self) -> Outbox:
        return KafkaOutbox({"bootstrap.servers": self._servers})

    def lose(self, loss: str) -> None:
        step = {"question": "outbox.before", "answer": "outbox.after"}[loss]
        failpoints.arm({failpoints.VARIABLE: f"{step}=reset"})

    def read(self, topic: str) -> list[OutRecord]:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": new_id(), "log_level": 0})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
            consumer.assign([TopicPartition(topic, 0, 0)])
            found = []
            while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    headers = [(str(pair[0]), pair[1]) for pair in message.headers() or []]
                    found.append(OutRecord(message.key(), message.value(), headers))  # type: ignore[arg-type]
            return found
        finally:
            consumer.close()


@pytest.fixture(params=["memory", "broker"])
def post(request: pytest.FixtureRequest) -> Iterator[Post]:
    yield MemoryPost() if request.param == "memory" else BrokerPost(request.getfixturevalue("broker"))
    failpoints.arm({})


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """One with a single partition, so that order can be told."""
    name = f"out-{new_id()[:8]}"
    if "broker" in request.node.name or "broker" in request.fixturenames:
        servers = request.getfixturevalue("broker").bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(name, 1)])[name].result(timeout=20)
    return name


def _plain(records: list[OutRecord]) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    return [(record.key, record.value, list(record.headers)) for record in records]


def test_lots_are_written_in_order_and_a_name_that_comes_again_is_not(post: Post, topic: str) -> None:
    outbox = post.open()
    for name, lot in zip(("one", "two"), LOTS, strict=True):
        outbox.write("owner", topic, name, lot)
        outbox.write("owner", topic, name, lot)
    post.open().write("owner", topic, "two", LOTS[1])
    assert _plain(post.read(topic)) == _plain([*LOTS[0], *LOTS[1]])


@pytest.mark.parametrize("loss", ["question", "answer"])
def test_a_lot_whose_answer_was_lost_is_there_once(post: Post, topic: str, loss: str) -> None:
    first = post.open()
    first.write("owner", topic, "one", LOTS[0])
    post.lose(loss)
    with pytest.raises((UnavailableError, ConnectionError)):
        first.write("owner", topic, "two", LOTS[1])
    failpoints.arm({})
    again = post.open()
    again.write("owner", topic, "two", LOTS[1])
    assert _plain(post.read(topic)) == _plain([*LOTS[0], *LOTS[1]])


def test_an_earlier_writer_is_refused(broker: EmbeddedBroker, topic: str) -> None:
    first, second = (KafkaOutbox({"bootstrap.servers": broker.bootstrap_servers}) for _ in range(2))
    first.write("owner", topic, "one", LOTS[0])
    second.write("owner", topic, "two", LOTS[1])
    with pytest.raises(ConflictError, match="another process writes topic"):
        first.write("owner", topic, "three", LOTS[1])


def test_a_broker_that_is_away_is_an_outage(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frazil.kafka.outbox._TIMEOUT_S", 1.0)
    away = KafkaOutbox({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(UnavailableError, match=f"topic {topic} cannot be written"):
        away.write("owner", topic, "one", LOTS[0])
