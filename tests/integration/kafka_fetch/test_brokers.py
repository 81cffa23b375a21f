"""Ranges read from a cluster of two real brokers whose partitions change hands while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.kafka.fetch.ranges import read_ranges
from frazil.types import OffsetRange
from tests.fixtures.brokers import TwoBrokers
from tests.fixtures.range_reads import ALL, client_of, read_and_fail, rows_of
from tests.fixtures.waiting import wait_until

COUNT = 300


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    with TwoBrokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture
def topic(brokers: TwoBrokers) -> str:
    """Led by the second broker, with a copy on the first."""
    name = f"copied-{new_id()[:8]}"
    brokers.create_copied(name)
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "linger.ms": "0", "log_level": 0})
    for number in range(COUNT):
        producer.produce(name, b"%d" % number + bytes(100_000))
        producer.poll(0) if number % 50 else producer.flush()
    producer.flush()
    wait_until(lambda: brokers.leader(name) == (2, [1, 2]), "both have it")
    return name


def offsets_while(client: Any, topic: str, acts: Any) -> list[int]:
    """The offsets of a whole read; `acts` is gone on with after each batch."""
    found: list[int] = []
    for batch in read_ranges(client, [OffsetRange(topic, 0, 0, COUNT)], ALL):
        found += [row.offset for row in rows_of(batch)]
        next(acts, None)
    return found


def test_a_leader_that_is_frozen_while_it_is_read_and_comes_back(brokers: TwoBrokers, topic: str) -> None:
    def acts() -> Iterator[None]:
        with brokers.second_frozen():
            wait_until(lambda: brokers.leader(topic)[0] == 1, "the other one leads")
            yield
            yield
        wait_until(lambda: brokers.leader(topic)[1] == [1, 2], "it is back")
        brokers.elect_preferred(topic)
        wait_until(lambda: brokers.leader(topic)[0] == 2, "it leads again")

    going = acts()
    with client_of(brokers.bootstrap_servers, request_timeout_ms="30000") as client:
        assert offsets_while(client, topic, going) == list(range(COUNT))
    for _ in going:
        pass


def test_a_leader_whose_connections_break_while_they_are_read(brokers: TwoBrokers, topic: str) -> None:
    def acts() -> Iterator[None]:
        for _ in range(3):
            brokers.way.sever()
            yield

    with client_of(brokers.bootstrap_servers, request_timeout_ms="30000") as client:
        assert offsets_while(client, topic, acts()) == list(range(COUNT))


def test_a_leader_that_clients_do_not_reach_is_named(brokers: TwoBrokers, topic: str) -> None:
    with client_of(brokers.bootstrap_servers, request_timeout_ms="900") as client, brokers.way.away():
        _, error = read_and_fail(client, [OffsetRange(topic, 0, 5, COUNT)])
    assert error.message.startswith("records have not arrived for 0.9 s: the broker cannot be connected to: ")
    assert error.where == f"topic {topic}, partition 0, offset 5"
