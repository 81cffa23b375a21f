"""The Source port, on memory and on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from frazil.clock import SystemClock, new_id
from frazil.errors import UnavailableError
from frazil.kafka.port import Source, TopicDescription
from frazil.kafka.topics import KafkaTopics
from frazil.runtime.broker import EmbeddedBroker
from frazil_testing.memory_kafka import MemorySource


class Log(Protocol):
    """Topics and the source that looks at them."""

    @property
    def source(self) -> Source:
        """The port."""

    def create(self, topic: str, partition_count: int) -> None:
        """Makes a topic."""

    def compact(self, topic: str) -> None:
        """Makes it a compacted one."""

    def delete(self, topic: str) -> None:
        """Deletes it."""

    def produce(self, topic: str, partition: int, timestamp_ms: int) -> None:
        """Appends a record."""

    def trim(self, topic: str, partition: int, offset: int) -> None:
        """Forgets the records before an offset."""

    def begin_transaction(self, topic: str, partition: int) -> None:
        """Appends a record in a transaction that stays open."""

    def end_transaction(self, topic: str, partition: int) -> None:
        """Commits it."""


class MemoryLog:
    """The twin."""

    def __init__(self) -> None:
        self.source: MemorySource = MemorySource()

    def create(self, topic: str, partition_count: int) -> None:
        self.source.create(topic, partition_count)

    def compact(self, topic: str) -> None:
        self.source.compact(topic, 0, 0)

    def delete(self, topic: str) -> None:
        del self.source.by_name[topic]

    def produce(self, topic: str, partition: int, timestamp_ms: int) -> None:
        self.source.produce(topic, partition, b"{}", timestamp_ms)

    def trim(self, topic: str, partition: int, offset: int) -> None:
        self.source.trim(topic, partition, offset)

    def begin_transaction(self, topic: str, partition: int) -> None:
        self.source.begin_transaction(topic, partition)
        self.source.produce(topic, partition, b"{}")

    def end_transaction(self, topic: str, partition: int) -> None:
        self.source.end_transaction(topic, partition)


class BrokerLog:
    """A real broker."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        properties: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}
        self.source = KafkaTopics(properties)
        self._admin = AdminClient(properties)
        self._producer = Producer(properties)
        self._properties = properties

    def create(self, topic: str, partition_count: int) -> None:
        for future in self._admin.create_topics([NewTopic(topic, partition_count, 1)]).values():
            future.result()
        self._until(lambda: topic in self.source.topics(_only(topic)))

    def compact(self, topic: str) -> None:
        policy = ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
        for future in self._admin.incremental_alter_configs([changed]).values():
            future.result()

    def delete(self, topic: str) -> None:
        for future in self._admin.delete_topics([topic]).values():
            future.result()
        self._until(lambda: topic not in self.source.topics(_only(topic)))

    @staticmethod
    def _until(claim: Callable[[], bool]) -> None:
        clock = SystemClock()
        for _ in range(200):
            if claim():
                return
            clock.sleep(0.05)
        raise AssertionError("the broker does not come to it")

    def produce(self, topic: str, partition: int, timestamp_ms: int) -> None:
        self._producer.produce(topic, b"{}", partition=partition, timestamp=timestamp_ms)
        self._producer.flush()

    def trim(self, topic: str, partition: int, offset: int) -> None:
        for future in self._admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            future.result()

    def begin_transaction(self, topic: str, partition: int) -> None:
        self._transactional = Producer({**self._properties, "transactional.id": new_id()})
        self._transactional.init_transactions()
        self._transactional.begin_transaction()
        self._transactional.produce(topic, b"{}", partition=partition)
        self._transactional.flush()

    def end_transaction(self, topic: str, partition: int) -> None:
        self._transactional.commit_transaction()
        place = [(topic, partition)]  # The coordinator writes the marker after its answer.
        self._until(lambda: self.source.ends(place) == self.source.log_ends(place))


@pytest.fixture(params=["memory", pytest.param("broker", marks=pytest.mark.jvm)])
def log(request: pytest.FixtureRequest) -> Log:
    return MemoryLog() if request.param == "memory" else BrokerLog(request.getfixturevalue("broker"))


@pytest.fixture
def topic() -> str:
    return f"t-{new_id()}"


def _only(topic: str) -> Callable[[str], bool]:
    return lambda name: name == topic


def test_topics_are_described_and_missing_ones_absent(log: Log, topic: str) -> None:
    assert log.source.topics(_only(topic)) == log.source.described([topic]) == {}
    log.create(topic, 3)
    (described,) = log.source.topics(_only(topic)).values()
    assert described == TopicDescription(topic, described.id, 3)
    assert log.source.described([topic, f"{topic}-missing"]) == {topic: described}


def test_a_topic_made_again_has_another_id(log: Log, topic: str) -> None:
    log.create(topic, 1)
    before = log.source.topics(_only(topic))[topic].id
    assert log.source.described([topic])[topic].id == before
    log.delete(topic)
    assert log.source.described([topic]) == {}
    log.create(topic, 1)
    assert log.source.described([topic])[topic].id != before


def test_compacted_topics_are_told_from_others_and_missing_ones(log: Log, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        log.create(name, 1)
    assert log.source.compacted([topic, other]) == log.source.compacted([]) == frozenset()
    log.compact(topic)
    assert log.source.compacted([topic, other, f"{topic}-missing"]) == {topic}


def test_ends_and_beginnings_follow_the_log_and_unknown_partitions_are_absent(log: Log, topic: str) -> None:
    log.create(topic, 2)
    for _ in range(3):
        log.produce(topic, 1, 1_000)
    partitions = [(topic, 0), (topic, 1), (topic, 7), (f"{topic}-gone", 0)]
    assert log.source.ends(partitions) == {(topic, 0): 0, (topic, 1): 3}
    assert log.source.beginnings(partitions) == {(topic, 0): 0, (topic, 1): 0}
    log.trim(topic, 1, 2)
    assert log.source.beginnings(partitions) == {(topic, 0): 0, (topic, 1): 2}
    assert log.source.ends(partitions) == {(topic, 0): 0, (topic, 1): 3}


def test_an_open_transaction_holds_back_what_may_be_read_and_not_the_end_of_the_log(log: Log, topic: str) -> None:
    log.create(topic, 2)
    log.produce(topic, 0, 1_000)
    partitions = [(topic, 0), (topic, 1), (topic, 7), (f"{topic}-gone", 0)]
    log.begin_transaction(topic, 0)
    for _ in range(3):
        log.produce(topic, 0, 2_000)
    assert log.source.ends(partitions) == {(topic, 0): 1, (topic, 1): 0}
    assert log.source.log_ends(partitions) == {(topic, 0): 5, (topic, 1): 0}
    assert log.source.at_time({(topic, 0): 1_500}) == {(topic, 0): 1}
    log.end_transaction(topic, 0)
    assert log.source.ends(partitions) == log.source.log_ends(partitions) == {(topic, 0): 6, (topic, 1): 0}


def test_a_time_is_an_offset_and_after_the_last_record_the_end(log: Log, topic: str) -> None:
    log.create(topic, 2)
    for ms in (1_000, 2_000, 3_000):
        log.produce(topic, 0, ms)
    wanted = {(topic, 0): 1_500, (topic, 1): 1_500}
    assert log.source.at_time(wanted) == {(topic, 0): 1, (topic, 1): 0}
    assert log.source.at_time({(topic, 0): 3_001, (f"{topic}-gone", 0): 5}) == {(topic, 0): 3}


def test_nothing_asked_is_nothing_answered(log: Log) -> None:
    assert log.source.ends([]) == log.source.beginnings([]) == log.source.at_time({}) == {}


def test_the_cluster_has_an_id_that_stays(log: Log) -> None:
    assert log.source.cluster_id() == log.source.cluster_id() != ""


@pytest.mark.parametrize("kind", ["memory", pytest.param("broker", marks=pytest.mark.jvm)])
def test_a_broker_that_is_gone_is_an_outage(kind: str) -> None:
    source: Source
    if kind == "memory":
        memory = MemorySource()
        memory.is_down = True
        source = memory
    else:
        source = KafkaTopics({"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "1500"})
    with pytest.raises(UnavailableError):
        source.topics(lambda _: True)
