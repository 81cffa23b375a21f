"""What the broker's answers about offsets mean."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from frazil.errors import SpecError, UnavailableError
from frazil.kafka.port import TopicDescription
from frazil.kafka.topics import KafkaTopics, OffsetClient


class _Answer:
    def __init__(self, offset: int) -> None:
        self.offset = offset


def _answering(monkeypatch: pytest.MonkeyPatch, *rounds: dict[int, int]) -> KafkaTopics:
    """The offsets that the client reports for each partition of topic `a`, question after question. A real broker gives the
    one that matters here only for a moment while it comes back.
    """
    left = list(rounds)

    def ask_offsets(_: OffsetClient, times: dict[tuple[str, int], int], *__: Any) -> Future[dict[Any, _Answer]]:
        offsets, future = left.pop(0), Future[dict[Any, _Answer]]()
        future.set_result({TopicPartition(*partition): _Answer(offsets[partition[1]]) for partition in times})
        return future

    monkeypatch.setattr(OffsetClient, "ask_offsets", ask_offsets)
    return KafkaTopics({"bootstrap.servers": "127.0.0.1:9"})


def test_a_partition_whose_offset_the_broker_does_not_know_yet_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = _answering(monkeypatch, {0: -1001, 1: 7}, {0: -1001, 1: 0})
    assert topics.ends([("a", 0), ("a", 1)]) == {("a", 1): 7}
    assert topics.beginnings([("a", 0), ("a", 1)]) == {("a", 1): 0}


def test_a_partition_without_a_record_so_young_begins_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = _answering(monkeypatch, {0: -1, 1: 5, 2: -1001}, {0: 9})
    assert topics.at_time({("a", 0): 1, ("a", 1): 1, ("a", 2): 1}) == {("a", 0): 9, ("a", 1): 5}


def _describing(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> KafkaTopics:
    """The client's answers for each of the topics that exist."""

    def ask_topics(_: OffsetClient, names: Sequence[str], __: float) -> Future[list[Any]]:
        future = Future[list[Any]]()
        future.set_result([answers[name] for name in names])
        return future

    monkeypatch.setattr(OffsetClient, "ask_topics", ask_topics)
    topics = KafkaTopics({"bootstrap.servers": "127.0.0.1:9"})
    monkeypatch.setattr(topics, "_listed", lambda _: SimpleNamespace(topics=answers))
    return topics


def _topic(leader: int | None) -> SimpleNamespace:
    leads = None if leader is None else SimpleNamespace(id=leader)
    return SimpleNamespace(topic_id="T", partitions=[SimpleNamespace(id=0, leader=leads)])


def test_a_topic_that_was_deleted_since_it_was_listed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = _describing(monkeypatch, b=_topic(1), a=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), c=_topic(None))
    assert topics.topics(lambda _: True) == {"b": TopicDescription("b", "T", 1), "c": TopicDescription("c", "T", 1)}


def test_a_topic_that_may_not_be_described_is_an_error_with_the_brokers_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right to a")
    with pytest.raises(UnavailableError, match="no right to a"):
        _describing(monkeypatch, a=refused, b=_topic(1)).topics(lambda _: True)


@pytest.mark.parametrize(
    ("setting", "words", "remedy"),
    [
        ({"sasl.passwd": "x"}, 'No such configuration property: "sasl.passwd"', "did you mean `sasl.password`?"),
        ({"bootstrap.server": "h:1"}, 'property: "bootstrap.server"', "did you mean `bootstrap.servers`?"),
        ({"ssl.truststore.locaton": "/t"}, '"ssl.truststore.locaton"', "did you mean `ssl.truststore.location`?"),
        ({"foo": "x"}, 'No such configuration property: "foo"', "correct it or remove it"),
        ({"security.protocol": "SASL_SLS"}, '"SASL_SLS" for configuration property "security.protocol"', "correct it"),
        ({"socket.timeout.ms": "x"}, 'configuration property "socket.timeout.ms"', "correct it"),
    ],
)
def test_a_setting_that_the_client_refuses_is_named_with_the_nearest_one(
    setting: dict[str, str], words: str, remedy: str
) -> None:
    with pytest.raises(SpecError) as refused:
        KafkaTopics({"bootstrap.servers": "127.0.0.1:9", **setting})
    assert refused.value.message.startswith("the Kafka client refuses its settings: ")
    assert words in refused.value.message
    assert refused.value.remedy.startswith(remedy)
    assert [refused.value.where] == list(setting)


def test_a_certificate_that_is_not_there_is_a_setting_too() -> None:
    with pytest.raises(SpecError) as refused:
        KafkaTopics({"bootstrap.servers": "127.0.0.1:9", "security.protocol": "SSL", "ssl.ca.location": "/no/such"})
    assert refused.value.where == "ssl.ca.location"


def test_an_address_at_which_nothing_listens_is_named_with_the_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        address = f"127.0.0.1:{one.getsockname()[1]}"
    with pytest.raises(UnavailableError) as caught:
        KafkaTopics({"bootstrap.servers": address}, timeout_s=1.0).cluster_id()
    assert f"{address} failed: Connection refused" in caught.value.message
    assert (caught.value.where, "a broker listens" in caught.value.remedy) == (address, True)


def test_a_source_that_is_dropped_ends_its_client_at_once() -> None:
    # A client in a cycle is collected by whatever thread allocates next: its own, which answers the question, would abort.
    topics = KafkaTopics({"bootstrap.servers": "127.0.0.1:1"})
    topics._asked({("t", 0): -1})
    client = weakref.ref(topics._admin)
    gc.disable()
    try:
        del topics
        assert client() is None
    finally:
        gc.enable()
