"""A broker that asks who everybody is: every way to log in for both Kafka clients, what is refused, and the least rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from frazil.runtime.transactional_ids import may_describe

from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.ha.elector import Claim
from frazil.ha.kafka import KafkaElector
from frazil.kafka.group import KafkaGroup
from frazil.kafka.outbox import KafkaOutbox
from frazil.kafka.port import OutRecord
from frazil.kafka.properties import java_properties
from frazil.kafka.reader import read_sample
from frazil.kafka.source import read_ranges
from frazil.kafka.topics import KafkaTopics, denied_topics
from frazil.runtime.jvm import Jvm
from frazil.types import OffsetRange
from tests.fixtures.secure_broker import PASSWORD, SecureBroker
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline

pytestmark = pytest.mark.timeout(300)
TOPIC, OTHER, DEAD = "orders", "payroll", "orders-dead"
#: The least rights of a pipeline that reads a topic.
READ = (("TOPIC", TOPIC, "DESCRIBE"), ("TOPIC", TOPIC, "READ"), ("GROUP", "frazil-*", "DESCRIBE"))
#: The further ones of a pipeline that writes dead letters to a topic, besides those on the topic.
WRITE_IDS = (("TRANSACTIONAL_ID", "frazil-*", "WRITE"), ("GROUP", "frazil-*", "READ"))
#: Those of the processes of a pipeline that elect a leader.
ELECT = (
    ("TOPIC", "frazil-elect-ha", "READ"),
    ("TOPIC", "frazil-elect-ha", "WRITE"),
    ("GROUP", "frazil-elect-ha", "READ"),
    ("TRANSACTIONAL_ID", "frazil-elect", "WRITE"),
)
RANGE = OffsetRange(TOPIC, 0, 0, 3)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure")) as running:
        running.create(TOPIC, OTHER, DEAD)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "enable.idempotence": True})
        for topic in (TOPIC, OTHER):
            for number in range(3):
                producer.produce(topic, f'{{"n": {number}}}')
        assert producer.flush(30) == 0
        yield running


@pytest.mark.parametrize("words", ["librdkafka's", "Java's"])
@pytest.mark.parametrize("listener", ["PLAIN", "SCRAM", "MTLS", "OAUTH"])
def test_both_clients_log_in_with_one_section_and_read_with_the_least_rights(
    secure: SecureBroker, jvm: Jvm, listener: str, words: str
) -> None:
    properties = secure.properties(listener)
    if words == "Java's":
        properties = java_properties(properties)
    with secure.allowed(*READ):
        topics = KafkaTopics(properties)
        assert topics.cluster_id()
        assert list(topics.topics(lambda _: True)) == [TOPIC]
        assert topics.ends([(TOPIC, 0)]) == {(TOPIC, 0): 3}
        assert denied_topics(properties, [TOPIC], "READ") == set()
        assert len(read_sample(properties, [RANGE], SystemClock())) == 3
        assert read_ranges(jvm.session(), properties, [RANGE], ["value"], 1).where("value is not null").count() == 3


def _refusal(properties: Mapping[str, str]) -> UnavailableError:
    with pytest.raises(UnavailableError) as caught:
        KafkaTopics(properties, 5).cluster_id()
    assert PASSWORD not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("listener", "changed", "words", "remedy"),
    [
        ("PLAIN", {"sasl.password": "wrong"}, "Invalid username or password", "check sasl.mechanism and the user"),
        ("SCRAM", {"sasl.password": "wrong"}, "due to invalid credentials", "check sasl.mechanism and the user"),
        ("OAUTH", {"sasl.oauthbearer.client.secret": "wrong"}, "invalid_client", "check sasl.mechanism and the user"),
        ("PLAIN", {"sasl.mechanism": "SCRAM-SHA-256"}, "supported mechanisms: PLAIN", "check sasl.mechanism and the"),
        ("PLAIN", {"ssl.ca.location": "stranger"}, "unable to get local issuer", "name the authority of the service's"),
        ("OAUTH", {"https.ca.location": "stranger"}, "unable to get local issuer", "name the authority of the service"),
        ("EXPIRED", {}, "certificate has expired", "renew the service's certificate"),
        ("MISNAMED", {}, "is not valid for '127.0.0.1'", "use a host name that the service's certificate has"),
        ("MTLS", {"ssl.certificate.location": "", "ssl.key.location": ""}, "alert", "the service refuses the cert"),
        ("BROKER", {"security.protocol": "SSL"}, "in state SSL_HANDSHAKE", "check that a broker is running at boot"),
    ],
)  # fmt: skip
def test_a_refused_login_or_certificate_is_named_with_its_remedy(
    secure: SecureBroker, listener: str, changed: dict[str, str], words: str, remedy: str
) -> None:
    properties = secure.properties(listener)
    if changed.get("ssl.certificate.location") == "":
        properties = {name: text for name, text in properties.items() if name not in (*changed, "ssl.key.password")}
    else:
        properties |= {name: str(secure.stranger.file) if v == "stranger" else v for name, v in changed.items()}
    refused = _refusal(properties)
    assert words in refused.message
    assert refused.remedy.startswith(remedy), refused


def test_dead_letters_are_written_with_the_least_rights_and_a_missing_one_is_named(
    secure: SecureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = secure.properties("PLAIN")
    needed = (("TOPIC", DEAD, "READ"), ("TOPIC", DEAD, "WRITE"), *WRITE_IDS)

    def write(name: str) -> None:
        KafkaOutbox(properties).write("frazil-p-t", DEAD, name, [OutRecord(b"k", b"v")])

    with secure.allowed(*needed):
        write("first")
    monkeypatch.setattr("frazil.kafka.outbox._TIMEOUT_S", 3.0)
    for missing, remedy in zip(
        needed,
        (
            "allow this user to DESCRIBE and READ the topic, and to READ and WRITE a topic of dead letters",
            "allow this user to DESCRIBE and READ the topic, and to READ and WRITE a topic of dead letters",
            "allow this user to WRITE with transactional ids of the prefix `frazil-`",
            "allow this user to READ groups with the prefix `frazil-`",
        ),
        strict=True,
    ):
        with secure.allowed(*(right for right in needed if right != missing)):
            with pytest.raises(UnavailableError) as caught:
                write(f"without {missing}")
            assert caught.value.remedy == remedy, caught.value


def described(jvm: Jvm, properties: Mapping[str, str], name: str) -> bool:
    """The answer of the broker, which may take longer than the question waits while other tests have the processor."""

    def answers() -> list[bool]:
        answer = may_describe(jvm.gateway, properties, name)
        return [] if answer is None else [answer]

    return wait_until(answers, "an answer")[0]


@pytest.mark.parametrize("listener", ["PLAIN", "MTLS"])
def test_a_missing_right_on_a_transactional_id_is_found_without_writing_with_it(
    secure: SecureBroker, jvm: Jvm, listener: str
) -> None:
    properties = java_properties(secure.properties(listener))
    for name, rights in (("frazil-elect", ELECT), ("frazil-p-t", WRITE_IDS)):
        assert described(jvm, properties, name) is False
        with secure.allowed(*rights):
            assert described(jvm, properties, name) is True
    away = {**properties, "bootstrap.servers": "127.0.0.1:1"}
    assert may_describe(jvm.gateway, away, "frazil-elect") is None


def test_a_leader_is_elected_with_the_least_rights_and_a_missing_one_is_named(secure: SecureBroker) -> None:
    topic = ELECT[0][1]
    elector = KafkaElector(secure.properties("PLAIN"), "elect", "one")
    with secure.allowed(*ELECT), pytest.raises(SpecError, match="does not exist, and this client may not create it"):
        elector.check()
    with secure.allowed(*ELECT, ("TOPIC", topic, "CREATE")):
        assert elector.check() == f"topic {topic} does not exist; this client may create it"
    assert topic not in secure.admin.list_topics(timeout=10).topics
    secure.create(topic)
    for missing in ELECT[:3]:
        with secure.allowed(*(right for right in ELECT if right != missing)):
            with pytest.raises((SpecError, UnavailableError)) as caught:
                elector.check()
            assert caught.value.remedy.startswith(("allow Read, Write and Describe", "allow this user to READ groups"))
    claim = Claim("one", "127.0.0.1:1", "key", 0, "start")
    with secure.allowed(*ELECT[:3]):
        elector.check()
        elector.prepare()
        with pytest.raises(SpecError, match="may not use the control topic") as refused:
            elector.claim(claim, None)
        assert refused.value.remedy.endswith("Write on transactional id frazil-elect")

    def is_elected() -> bool:
        with suppress(
            SpecError
        ):  # It may still have to read the broker's answers from while the rights were withdrawn.
            elector.prepare()
            return elector.newest() is not None or elector.claim(claim, None)
        return False

    with secure.allowed(*ELECT):
        wait_until(is_elected, "nobody is elected although all rights are granted")
        elector.close()


def _next_offset(group: KafkaGroup) -> int | None:
    """The group's offset of the topic; None while the broker is only starting to coordinate groups."""
    with suppress(UnavailableError):
        return next((one.offset for one in group.offsets([(TOPIC, 0)]).values()), None)
    return None


def test_a_pipeline_runs_with_the_least_rights_names_a_missing_one_and_continues_when_it_is_granted(
    secure: SecureBroker, tmp_path: Path
) -> None:
    document: dict[str, Any] = {
        "pipeline": "p",
        "kafka": {**secure.properties("SCRAM"), "sasl.password": "${env:KAFKA_PASSWORD}"},
        "tables": {"s.orders": {"topic": TOPIC}},
    }
    pipeline = Pipeline(tmp_path, document, {"KAFKA_PASSWORD": PASSWORD})
    with secure.allowed(*READ[:1]), pipeline.start("--log-level", "debug") as running:
        waiting = running.wait_for("table_backing_off")[0]
        assert f"Not authorized to access topics: [{TOPIC}]" in waiting["reason"]
        remedy = "allow this user to DESCRIBE and READ the topic"
        wait_until(lambda: remedy in pipeline.state_text, "the state shows no remedy")
        problems = {check["name"]: check for check in pipeline.checks() if not check["ok"]}
        assert problems[f"topic {TOPIC}"]["found"] == "this client may not read it"
        assert all("allow" in problem["remedy"] for problem in problems.values()), problems
        assert problems["group frazil-p"]["remedy"].startswith(
            "allow it: `kafka-acls --add --allow-principal User:NAME"
        )
        with secure.allowed(READ[1]):
            running.wait_until_committed(3)
            [unpublished] = running.wait_for("offsets_not_published")
            assert unpublished["remedy"] == "allow this user to READ groups with the prefix `frazil-`"
        with secure.allowed(READ[1], WRITE_IDS[1]):
            group = KafkaGroup({"bootstrap.servers": secure.bootstrap_servers}, "frazil-p")
            wait_until(lambda: _next_offset(group) == 3, "nothing is published")
            running.stop()
    assert PASSWORD not in pipeline.reported
    assert PASSWORD not in pipeline.state_text
    assert 'p\\"ass' not in pipeline.reported
