"""The embedded broker, really started: what it keeps, what passes through it, and that it never stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.runtime.broker import EmbeddedBroker, broker_archive
from tests.fixtures.processes import wait_until_ended
from tests.fixtures.slices import sliced

_LARGE = 16 * 1024 * 1024
_PARENT = """
import sys, time
from pathlib import Path
from frazil.runtime.broker import EmbeddedBroker
broker = EmbeddedBroker(Path(sys.argv[1]))
broker.start()
print(broker.pid, broker.port, flush=True)
time.sleep(60)
"""


def create_topic(servers: str, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(name, partitions)]).values():
        created.result(timeout=20)


def produce(servers: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "message.max.bytes": _LARGE + 1024})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def read_one(servers: str, topic: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": new_id(), "fetch.message.max.bytes": _LARGE + 1024})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is not None
        return value
    finally:
        consumer.close()


def end_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=30)
    finally:
        process.kill()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker(tmp_path / "broker")
    yield made
    made.kill()


def test_a_record_of_sixteen_megabytes_passes(broker: EmbeddedBroker) -> None:
    topic = new_id()
    create_topic(broker.bootstrap_servers, topic)
    value = os.urandom(_LARGE)
    produce(broker.bootstrap_servers, topic, value)
    assert read_one(broker.bootstrap_servers, topic) == value


def test_two_hundred_topics_fit(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    names = [f"many-{new_id()}" for _ in range(200)]
    for created in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        created.result(timeout=60)
    produce(broker.bootstrap_servers, names[-1], b"last")
    assert read_one(broker.bootstrap_servers, names[-1]) == b"last"
    for deleted in admin.delete_topics(names).values():
        deleted.result(timeout=60)


def test_a_topic_is_never_made_by_reading_it(broker: EmbeddedBroker) -> None:
    topic = new_id()
    cluster = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(topic, timeout=10)
    assert cluster.topics[topic].error is not None


def test_topics_cluster_and_address_survive_a_stop_and_a_kill_of_the_broker(
    own_broker: EmbeddedBroker,
) -> None:
    own_broker.start()
    servers, pid = own_broker.bootstrap_servers, own_broker.pid
    cluster = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).cluster_id
    create_topic(servers, "kept")
    produce(servers, "kept", b"before")
    for end in (own_broker.stop, own_broker.kill):
        end()
        wait_until_ended(pid, 1)
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=1)
        own_broker.start()
        pid = own_broker.pid
        assert own_broker.bootstrap_servers == servers
        assert read_one(servers, "kept") == b"before"
    assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).cluster_id == cluster


def test_a_started_broker_is_not_started_twice(broker: EmbeddedBroker) -> None:
    pid = broker.pid
    broker.start()
    assert broker.pid == pid


def test_the_broker_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        assert Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"server.properties\0")
        parent.kill()
    wait_until_ended(pid, 5)


def test_a_broker_takes_its_classes_from_the_archive_that_the_set_up_recorded(broker: EmbeddedBroker) -> None:
    # Java maps an archive only where its own version, the jars and their order are those of the recording.
    assert str(broker_archive()) in Path(f"/proc/{broker.pid}/maps").read_text(), "run `frazil setup`"


def test_a_port_that_is_taken_is_an_error_and_leaves_no_process(broker: EmbeddedBroker, tmp_path: Path) -> None:
    second = EmbeddedBroker(tmp_path, broker.port)
    with pytest.raises(UnavailableError) as caught:
        second.start()
    assert caught.value.message == f"the broker cannot listen on 127.0.0.1:{broker.port}: Address already in use"
    assert "--port" in caught.value.remedy
    assert not second.is_running
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_running_broker_is_refused_and_left_as_it_is(broker: EmbeddedBroker) -> None:
    properties, temporary = broker.directory / "server.properties", broker.directory / "tmp"
    before = properties.read_text(), temporary.stat().st_ino
    for port in (0, broker.port):
        with pytest.raises(UnavailableError, match="a broker runs in this folder already"):
            EmbeddedBroker(broker.directory, port).start()
    assert (properties.read_text(), temporary.stat().st_ino) == before
    assert broker.is_running


def test_a_property_the_broker_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"num\.io\.threads"):
        EmbeddedBroker(tmp_path, properties={"num.io.threads": "many"}).start()


# In time: Ctrl-C, of the demo, in test_commands.py.
@pytest.mark.parametrize(("how", "locale"), sliced([(signal.SIGTERM, "C"), (signal.SIGINT, "C.UTF-8")], 1))
def test_dev_broker_runs_in_any_folder_and_locale_until_it_is_told_to_stop(
    tmp_path: Path, how: signal.Signals, locale: str
) -> None:
    words = ["dev", "broker", "--port", "0", "--dir", str(tmp_path / "jürgen" / "日"), "--output", "json"]
    command = [sys.executable, "-m", "frazil.cli.main", *words]
    environment = {**os.environ, "LC_ALL": locale}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, encoding="utf-8"
    ) as running:
        assert running.stdout is not None
        reported = json.loads(running.stdout.readline())
        create_topic(reported["bootstrap_servers"], "made")
        running.send_signal(how)
        rest, errors = end_of(running)
    assert (running.returncode, rest, errors) == (0, "", "")
    wait_until_ended(reported["pid"], 1)


def test_dev_broker_reports_so_when_its_broker_dies(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "frazil.cli.main", "dev", "broker", "--port", "0", "--dir", str(tmp_path)]
    command += ["--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        reported = json.loads(running.stdout.readline())
        os.kill(reported["pid"], signal.SIGKILL)
        rest, _ = end_of(running)
    assert running.returncode == 1
    assert json.loads(rest)["error"]["message"] == "the broker ended by itself"
