"""One broker of two takes connections and reports nothing: what the other one leads is asked for as before. And leaders
change, which clients are not told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.ingest.batches.job import SparkJobs
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.topics import KafkaTopics
from frazil.runtime.jvm import Jvm
from frazil.types import Batch, OffsetRange
from tests.fixtures.brokers import TwoBrokers
from tests.fixtures.waiting import wait_until
from tests.unit.ingest.targets import target_of

LED_BY_ONE, LED_BY_TWO = ("one", 0), ("two", 0)
FIRST_WAIT_S, PROMPT_S = 8.0, 4.0
"""Once a second is waited for the silent broker, and a few for whoever tells which topics there are, on busy cores; before
that it was ten seconds, again and again."""
JOBS = 8
"""Where a job asked any broker, one of two waited for the silent one."""
PATIENCE_S = 10


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    with TwoBrokers(tmp_path_factory.mktemp("brokers")) as made:
        made.create("one", 1)
        made.create("two", 2)
        made.create("read", 1)
        made.create("led", 1)
        made.create("lost", 2)
        yield made


def took_s(question: Callable[[], object]) -> float:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    question()
    return clock.monotonic_s() - began_s


def test_a_silent_broker_is_waited_for_once_and_its_partitions_are_absent_until_then(brokers: TwoBrokers) -> None:
    topics = KafkaTopics({"bootstrap.servers": brokers.bootstrap_servers})
    both, names = [LED_BY_ONE, LED_BY_TWO], {"one", "two"}
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "enable.idempotence": True})
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


def test_a_partition_whose_leader_has_changed_is_asked_of_the_present_one(brokers: TwoBrokers) -> None:
    """As in a restart of one broker after the other: no connection of the client tells it."""
    brokers.create_copied("moving")
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "enable.idempotence": True})
    producer.produce("moving", b"{}")
    producer.flush(20)
    clients = [KafkaTopics({"bootstrap.servers": brokers.bootstrap_servers}) for _ in range(2)]
    for topics in clients:
        assert topics.topics({"moving"}.__contains__).keys() == {"moving"}
        assert topics.ends([("moving", 0)]) == {("moving", 0): 1}
    with brokers.second_frozen():
        wait_until(lambda: brokers.leader("moving")[0] == 1, "the first broker leads", 60)
    wait_until(lambda: brokers.leader("moving") == (1, [1, 2]), "the second broker has a whole copy again", 60)
    assert clients[0].ends([("moving", 0)]) == {("moving", 0): 1}  # It believed in broker 2.
    brokers.elect_preferred("moving")
    wait_until(lambda: brokers.leader("moving")[0] == 2, "the second broker leads", 60)
    assert clients[0].beginnings([("moving", 0)]) == {("moving", 0): 0}  # It believed in broker 1.
    assert clients[1].ends([("moving", 0)]) == {("moving", 0): 1}  # It believed in an earlier time of broker 2.


@pytest.fixture
def read(jvm: Jvm, tmp_path: Path) -> Callable[..., int]:
    """Reads the first record of each topic by one task, and returns how many there were."""

    def run(servers: str, *topics: str) -> int:
        kafka = {"bootstrap.servers": servers, "request.timeout.ms": f"{PATIENCE_S}000"}
        jobs = SparkJobs(jvm.session, kafka, parallelism=lambda _: 1)
        target = target_of(tmp_path, {"id": "long"})
        batch = Batch(target.name, tuple(OffsetRange(topic, 0, 0, 1) for topic in topics))
        reports = jobs.run([batch], Job(dict.fromkeys(topics, target)), pool="small")
        return sum(report.counts.record_count for report in reports)

    return run


@pytest.mark.jvm
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # PySpark leaves the socket of an answer to the garbage collector.
def test_a_job_asks_no_broker_but_those_that_lead_what_it_reads(brokers: TwoBrokers, read: Callable[..., int]) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "enable.idempotence": True})
    producer.produce("read", b"{}")
    producer.flush(20)
    one, _, two = brokers.bootstrap_servers.partition(",")
    assert read(one, "read") == 1  # From now on there is a process that runs tasks.
    with brokers.way.silent():
        for servers in (f"{one},{two}", one) * (JOBS // 2):
            assert took_s(partial(read, servers, "read")) < PROMPT_S
        assert took_s(partial(read, f"{two},{one}", "read")) < FIRST_WAIT_S
    brokers.way.cut()
    brokers.way.join()


@pytest.mark.jvm
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_job_waits_for_a_silent_broker_as_long_as_it_may_and_names_its_ranges(
    brokers: TwoBrokers, read: Callable[..., int]
) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "enable.idempotence": True})
    for topic in ("led", "lost"):
        producer.produce(topic, b"{}")
    producer.flush(20)
    assert read(brokers.bootstrap_servers, "led", "lost") == 2
    with brokers.way.silent():
        began_s = SystemClock().monotonic_s()
        with pytest.raises(UnavailableError) as failure:
            read(brokers.bootstrap_servers, "led", "lost")
        assert PATIENCE_S <= SystemClock().monotonic_s() - began_s < PATIENCE_S + FIRST_WAIT_S
    assert failure.value.where == "topic lost, partition 0, offset 0"
    words = rf"a task failed: records have not arrived for {PATIENCE_S} s: .*broker 127\.0\.0\.1:{brokers.way.port}.*"
    assert re.fullmatch(words, failure.value.message)
    brokers.way.cut()
    brokers.way.join()
    assert read(brokers.bootstrap_servers, "led", "lost") == 2
