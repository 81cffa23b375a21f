"""A pipeline as tools that measure lag see it: Kafka's own command, and the requests of others."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.clock import new_id
from frazil.errors import ConflictError, UnavailableError
from frazil.kafka.group import KafkaGroup
from frazil.kafka.port import GroupOffset
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jars import jars_directory
from frazil.runtime.java import find_java
from tests.fixtures import fetching
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger, Pipeline, Running

pytestmark = pytest.mark.timeout(300)
_OFFSETS = "__consumer_offsets"
_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def described(broker: EmbeddedBroker, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """What `kafka-consumer-groups --describe` shows of a group: current offset and lag, by topic and partition."""
    folder = fetching.installed(Path(fetching.__file__).with_name("kafka-tools-ivy.xml")) / "kafka-tools"
    classes = f"{folder}/*:{jars_directory('broker')}/*"
    words = ["--bootstrap-server", broker.bootstrap_servers, "--describe", "--offsets", "--group", group]
    command = [str(find_java().path), "-XX:TieredStopAtLevel=1", "-cp", classes, _COMMAND, *words]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    head, *rows = [line.split() for line in shown.splitlines() if line.strip()]
    places = [head.index(name) for name in ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LAG")]
    found = [[row[place] for place in places] for row in rows]
    return {(topic, int(partition)): (int(offset), int(lag)) for topic, partition, offset, lag in found}


def coordinated(broker: EmbeddedBroker, name: str) -> KafkaGroup:
    """A group, once its broker coordinates groups: to the first that asks it may answer that it does not yet."""
    group = KafkaGroup({"bootstrap.servers": broker.bootstrap_servers}, name)

    def is_ready() -> bool:
        with suppress(UnavailableError):
            group.offsets([("missing", 0)])
            return True
        return False

    wait_until(is_ready, "no broker coordinates the group")
    return group


@contextmanager
def member(broker: EmbeddedBroker, group: str, topic: str) -> Iterator[None]:
    """A consumer that is a member of the group meanwhile."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.2) is not None or consumer.assignment(), "the consumer is not assigned")
        yield
    finally:
        consumer.close()


def _published(pipeline: Pipeline, running: Running) -> dict[str, Any]:
    """What the state file of the running process reports of the published offsets."""
    state = json.loads(pipeline.state_text)
    is_its_own = state["pid"] == running.pid and state["published_offsets"] is not None
    return dict(state["published_offsets"]) if is_its_own else {"failure": ""}


def _lags_by_requests(broker: EmbeddedBroker, group: str, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The lag as KEDA computes it: OffsetFetch of the group and ListOffsets of its topics, without joining the group."""
    client = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False})
    try:
        committed = client.committed([TopicPartition(*place) for place in places], timeout=20)
        ends = [client.get_watermark_offsets(one, timeout=20)[1] for one in committed]
        return {(one.topic, one.partition): end - one.offset for one, end in zip(committed, ends, strict=True)}
    finally:
        client.close()


def _offsets_in_their_topic(broker: EmbeddedBroker, group: str) -> dict[tuple[str, int], int]:
    """The newest offsets as Burrow finds them: by reading the topic in which brokers keep them."""
    client = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": new_id(), "enable.partition.eof": True}
    )
    found: dict[tuple[str, int], int] = {}
    try:
        partitions = client.list_topics(_OFFSETS, timeout=20).topics[_OFFSETS].partitions
        client.assign([TopicPartition(_OFFSETS, number, 0) for number in partitions])
        left = len(partitions)
        while left:
            message = client.poll(20)
            assert message is not None
            left -= message.error() is not None
            key, value = message.key(), message.value()
            if (
                message.error() is None
                and key is not None
                and value is not None
                and struct.unpack(">h", key[:2])[0] < 2
            ):
                name, rest = _text(key[2:])
                topic, rest = _text(rest)
                if name == group:
                    found[topic, struct.unpack(">i", rest)[0]] = struct.unpack(">q", value[2:10])[0]
        return found
    finally:
        client.close()


def _text(raw: bytes) -> tuple[str, bytes]:
    (length,) = struct.unpack(">h", raw[:2])
    return raw[2 : 2 + length].decode(), raw[2 + length :]


def _state(broker: EmbeddedBroker, group: str) -> ConsumerGroupState:
    """The state of the group by DescribeGroups."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    [done] = admin.describe_consumer_groups([group], request_timeout=20).values()
    state: ConsumerGroupState = done.result().state
    return state


def _document(broker: EmbeddedBroker, name: str, topic: str) -> dict[str, Any]:
    tables = {"s.one": {"topic": topic}, "s.two": {"topic": topic, "start": "latest"}}
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    return {"pipeline": name, "kafka": kafka, "tables": tables}


def test_a_group_is_written_once_it_may_be_and_kafkas_command_shows_the_lag(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """While a consumer is a member of it; by a pipeline that publishes nothing, in test_lookups."""
    name, topic = f"p-{new_id()[:8]}", f"t-{new_id()[:8]}"
    group, places = f"frazil-{name}", [(topic, 0), (topic, 1)]
    ledger = Ledger(broker.bootstrap_servers, topic)
    ledger.produce(14)
    committed = coordinated(broker, group)
    pipeline = Pipeline(tmp_path, _document(broker, name, topic))
    with member(broker, group, topic), pipeline.start() as running:
        [refused] = running.wait_for("offsets_refused")
        assert "a consumer is a member of group" in refused["reason"]
        wait_until(lambda: _published(pipeline, running)["failure"] == refused["reason"], "the state has the reason")
        running.wait_until_committed(14)
        running.stop()
    assert committed.offsets(places) == {}
    with pipeline.start() as running:
        wait_until(lambda: _published(pipeline, running).get("last_ms"), "the offsets are published")
        found = _published(pipeline, running)
        assert (found["group"], found["failure"]) == (group, "")
        wait_until(lambda: set(_lags_by_requests(broker, group, places).values()) == {0}, "the group has caught up")
    ledger.produce(4)
    assert described(broker, group) == {(topic, 0): (7, 2), (topic, 1): (7, 2)}
    assert _lags_by_requests(broker, group, places) == {(topic, 0): 2, (topic, 1): 2}
    assert _offsets_in_their_topic(broker, group) == {(topic, 0): 7, (topic, 1): 7}
    assert _state(broker, group) is ConsumerGroupState.EMPTY


def test_offsets_of_a_group_are_committed_without_joining_it(broker: EmbeddedBroker) -> None:
    name, topic = new_id(), f"t-{new_id()[:8]}"
    Ledger(broker.bootstrap_servers, topic)
    group = coordinated(broker, name)
    held = GroupOffset(5, "frazil one")
    group.commit({(topic, 0): held, ("missing", 0): held})
    assert group.offsets([(topic, 0), (topic, 1), ("missing", 0)]) == {(topic, 0): held}
    assert group.may_commit()
    assert KafkaGroup({"bootstrap.servers": broker.bootstrap_servers}, new_id()).may_commit()
    with member(broker, name, topic), pytest.raises(ConflictError):
        group.commit({(topic, 0): GroupOffset(6, "frazil one")})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": name})
    [seen] = consumer.committed([TopicPartition(topic, 0)], timeout=20)
    consumer.close()
    assert (seen.offset, seen.metadata) == (5, "frazil one")
