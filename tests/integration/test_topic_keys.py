"""Keys of topics in the control topic of a pipeline, on a broker that refuses them as configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.cli.main import main
from frazil.clock import new_id
from frazil.kafka import topics
from frazil.kafka.topics import KafkaTopics
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger, Pipeline

pytestmark = pytest.mark.jvm
_ENABLE, _INTERVAL = "automq.table.topic.enable", "automq.table.topic.commit.interval.ms"
_NAMESPACE = "automq.table.topic.namespace"


def test_the_configuration_of_topics_is_read_where_the_broker_knows_the_keys(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that Apache Kafka knows stand for those that only AutoMQ's brokers do."""
    topic, other = new_id(), new_id()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    made = [NewTopic(topic, 1, config={"cleanup.policy": "compact"}), NewTopic(other, 1)]
    for future in admin.create_topics(made).values():
        future.result(20)
    source = KafkaTopics({"bootstrap.servers": broker.bootstrap_servers})
    # A broker may list a new topic a moment later.
    wait_until(lambda: len(source.described((topic, other))) == 2, "both topics are listed")
    assert topic not in source.topic_keys("no-control-topic")
    monkeypatch.setattr(topics, "ENABLE", "cleanup.policy")
    monkeypatch.setattr(topics, "PREFIX", "cleanup.")
    found = source.topic_keys("no-control-topic")
    assert (found[topic], found[other]) == ({"cleanup.policy": "compact"}, {})


def test_keys_in_the_control_topic_make_and_end_a_table(
    broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, topic = f"p-{new_id()[:8]}", f"t-{new_id()[:8]}"
    kafka = {"bootstrap.servers": broker.bootstrap_servers, "topics_from": "topic_configuration"}
    pipeline = Pipeline(tmp_path, {"pipeline": name, "kafka": kafka}, jvm=jvm)
    Ledger(broker.bootstrap_servers, topic).produce(10)

    def keys(*words: str, code: int = 0) -> Any:
        """What `frazil topic` prints: the topics, or the remedy."""
        assert main(["topic", *words, "--file", str(pipeline.file), "--output", "json"]) == code
        document = json.loads(capsys.readouterr().out)
        return document["topics"] if code == 0 else document["error"]["remedy"]

    assert keys("show") == {}
    assert keys("set", topic, _ENABLE, code=2) == f"write it as {_ENABLE}=true"
    assert keys("set", topic, f"{_ENABLE}d=true", code=2) == f"did you mean `{_ENABLE}`?"
    assert keys("set", topic, "x=true", code=2).startswith("write a key of AutoMQ's table topics")
    assert keys("set", topic, f"{_ENABLE}=yes", code=2) == "write true or false"
    assert keys("show") == {}
    given = {_ENABLE: "true", _INTERVAL: "200", _NAMESPACE: "shop"}
    assert keys("set", topic, *(f"{key}={value}" for key, value in given.items())) == {topic: given}
    assert keys("unset", topic, "y", code=2) == f"see `frazil topic show {topic}`"
    del given[_INTERVAL]
    assert keys("unset", topic, _INTERVAL) == {topic: given}
    assert keys("show", topic) == {topic: given}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
    producer.produce(f"frazil-{name}-topics", b"damaged", b"other")
    assert producer.flush(30) == 0
    assert keys("show") == {topic: given}
    assert keys("set", "other", f"{_ENABLE}=false") == {"other": {_ENABLE: "false"}}
    assert keys("show") == {topic: given, "other": {_ENABLE: "false"}}

    table = f"shop.{topic}"
    with pipeline.start() as running:
        running.wait_until_committed(10)
        done, found = pipeline.command("verify", table)
        verified = found["tables"][table]
        assert (done.returncode, verified["equal"], verified["rows"]) == (0, True, 10), done.stdout + done.stderr
        keys("set", topic, f"{_ENABLE}=false")
        (stopped,) = running.wait_for("table_stopped")
        assert (stopped["table"], stopped["where"]) == (table, f"topic {topic}")
    assert pipeline.status() == {}
    plain = {"pipeline": name, "kafka": {"bootstrap.servers": "b:1"}, "tables": {"a.b": {"topic": "c"}}}
    pipeline.file.write_text(yaml.safe_dump(plain))
    assert keys("show", code=2) == "write `topics_from: topic_configuration` under `kafka`"
