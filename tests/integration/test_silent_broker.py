"""One broker of two takes connections and says nothing: what the other one leads is asked for as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from frazil.clock import SystemClock
from frazil.kafka.topics import KafkaTopics
from tests.fixtures.brokers import TwoBrokers
from tests.fixtures.waiting import wait_until

LED_BY_ONE, LED_BY_TWO = ("one", 0), ("two", 0)
FIRST_WAIT_S, PROMPT_S = 8.0, 4.0
"""Once a second is waited for the silent broker, and a few for whoever tells which topics there are, on busy cores; before
that it was ten seconds, again and again."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    with TwoBrokers(tmp_path_factory.mktemp("brokers")) as made:
        made.create("one", 1)
        made.create("two", 2)
        yield made


def took_s(question: Callable[[], object]) -> float:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    question()
    return clock.monotonic_s() - began_s


def test_a_silent_broker_is_waited_for_once_and_its_partitions_are_absent_until_it_answers(brokers: TwoBrokers) -> None:
    topics = KafkaTopics({"bootstrap.servers": brokers.bootstrap_servers})
    both, names = [LED_BY_ONE, LED_BY_TWO], {"one", "two"}
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers})
    for name in names:
        producer.produce(name, b"{}")
    producer.flush(20)
    assert topics.topics(names.__contains__).keys() == names
    assert topics.ends(both) == {LED_BY_ONE: 1, LED_BY_TWO: 1}
    with brokers.way.silent():
        assert took_s(lambda: topics.ends(both)) < FIRST_WAIT_S
        assert took_s(lambda: topics.topics(names.__contains__)) < FIRST_WAIT_S
        for _ in range(20):
            assert took_s(lambda: topics.ends(both)) < PROMPT_S
        assert topics.ends(both) == {LED_BY_ONE: 1}
        assert topics.beginnings(both) == {LED_BY_ONE: 0}
        assert topics.topics(names.__contains__).keys() == names
        assert topics.answering() == brokers.bootstrap_servers.partition(",")[0]
    brokers.way.cut()
    brokers.way.join()
    wait_until(lambda: topics.ends(both) == {LED_BY_ONE: 1, LED_BY_TWO: 1}, "the broker is heard again", 60)
    assert topics.answering() == brokers.bootstrap_servers
