"""A broker that asks who everybody is: every way to log in for both Kafka clients, what is refused, and the least rights."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from confluent_kafka import Producer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest

from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.kafka import credentials
from frazil.kafka.fetch.connection import Connection, connect, is_refusal
from frazil.kafka.group import KafkaGroup
from frazil.kafka.outbox import KafkaOutbox
from frazil.kafka.port import OutRecord
from frazil.kafka.properties import task_properties
from frazil.kafka.reader import read_sample
from frazil.kafka.topics import KafkaTopics, denied_topics
from frazil.types import OffsetRange
from tests.fixtures.secure_broker import PASSWORD, USER, SecureBroker
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline
from tests.needs import has_package, needs

if has_package("ha"):
    from frazil_ha.elector import Claim
    from frazil_ha.kafka import KafkaElector
    from frazil_ha.transactional_ids import may_describe

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


def connected(properties: Mapping[str, str]) -> Connection:
    """A connection as tasks make it."""
    host, _, port = properties["bootstrap.servers"].rpartition(":")
    return connect(host, int(port), task_properties(properties), 10)


def fetched(connection: Connection) -> int:
    """The number of bytes of the topic's records."""
    part = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=100_000, current_leader_epoch=-1, log_start_offset=-1
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=5000,
        min_bytes=1,
        max_bytes=100_000,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])],
        forgotten_topics_data=[],
        version=11,
    )
    [topic] = connection.ask(request, 10).responses
    [answer] = topic.partitions
    assert answer.error_code == 0
    return len(answer.records)


def is_alive(connection: Connection) -> bool:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False, version=4)
    return len(connection.ask(request, 10).brokers) == 1


@pytest.mark.parametrize("words", ["librdkafka's", "Java's"])
@pytest.mark.parametrize("listener", ["PLAIN", "SCRAM", "MTLS", "OAUTH"])
def test_driver_and_tasks_log_in_with_one_section_and_read_with_the_least_rights(
    secure: SecureBroker, listener: str, words: str
) -> None:
    properties = secure.properties(listener) if words == "librdkafka's" else secure.java_properties(listener)
    with secure.allowed(*READ):
        topics = KafkaTopics(properties)
        assert topics.cluster_id()
        assert list(topics.topics(lambda _: True)) == [TOPIC]
        assert topics.ends([(TOPIC, 0)]) == {(TOPIC, 0): 3}
        assert denied_topics(properties, [TOPIC], "READ") == set()
        assert len(read_sample(properties, [RANGE], SystemClock())) == 3
        with connected(properties) as connection:
            assert fetched(connection) > 0


def test_driver_and_tasks_take_a_key_store(secure: SecureBroker, tmp_path: Path) -> None:
    (store := tmp_path / "client.p12").write_bytes(
        serialize_key_and_certificates(
            b"client",
            load_pem_private_key(secure.client.key.read_bytes(), b"opens"),  # type: ignore[arg-type]
            x509.load_pem_x509_certificate(secure.client.certificate.read_bytes()),
            None,
            BestAvailableEncryption(b"opens"),
        )
    )
    own = ("ssl.certificate.location", "ssl.key.location", "ssl.key.password")
    properties = {name: text for name, text in secure.properties("MTLS").items() if name not in own}
    properties |= {"ssl.keystore.location": str(store), "ssl.keystore.password": "opens"}
    assert KafkaTopics(properties).cluster_id()
    with connected(properties) as connection:
        assert is_alive(connection)


def test_a_renewed_certificate_is_shown_by_the_next_connection(secure: SecureBroker) -> None:
    foreign = secure.stranger.make("foreign")
    names = {"ssl.certificate.location": foreign.certificate, "ssl.key.location": foreign.key}
    properties = {**secure.properties("MTLS"), **{name: str(path) for name, path in names.items()}}
    with pytest.raises(UnavailableError, match="alert"):
        connected(properties)
    foreign.certificate.write_bytes(secure.client.certificate.read_bytes())
    foreign.key.write_bytes(secure.client.key.read_bytes())
    with connected(properties) as connection:
        assert is_alive(connection)


def test_a_session_that_ends_soon_is_told_from_one_that_does_not(secure: SecureBroker) -> None:
    with connected(secure.properties("PLAIN")) as lasting, connected(secure.properties("BRIEF")) as brief:
        assert not brief.is_expired
        assert is_alive(brief)
        wait_until(lambda: brief.is_expired, "the session does not end")
        assert is_alive(brief), "the broker still answers: there is time to make another connection"
        assert not lasting.is_expired
        with connected(secure.properties("BRIEF")) as another:
            assert is_alive(another)


def test_a_token_that_expires_is_renewed(secure: SecureBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_kept", {})
    monkeypatch.setattr(secure.tokens, "lifetime_s", 3)
    properties = secure.properties("OAUTH")
    with connected(properties) as connection:
        assert is_alive(connection)
        wait_until(lambda: connection.is_expired, "the session outlives its token")
    with connected(properties) as connection:
        assert not connection.is_expired
        assert is_alive(connection)


def test_driver_and_tasks_log_in_with_the_tokens_of_a_signer(
    secure: SecureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens that this broker takes, in place of those that Amazon MSK alone can check."""
    expires_s = SystemClock().now_ms() // 1000 + 900
    parts = ({"alg": "none"}, {"sub": USER, "iat": expires_s - 900, "exp": expires_s})
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    regions = []

    def sign(region: str) -> tuple[str, int]:
        regions.append(region)
        return f"{coded[0]}.{coded[1]}.", expires_s * 1000

    monkeypatch.setattr(credentials, "_kept", {})
    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token", sign)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    properties = secure.properties("UNSECURED")
    with secure.allowed(*READ):
        topics = KafkaTopics(properties)
        assert topics.ends([(TOPIC, 0)]) == {(TOPIC, 0): 3}
        assert len(read_sample(properties, [RANGE], SystemClock())) == 3
        with connected(properties) as connection:
            assert fetched(connection) > 0
    assert regions == ["eu-west-1"], "one token for all clients of the process"


def _refusals(properties: Mapping[str, str]) -> Iterator[UnavailableError]:
    """What each of the two clients says."""
    for ask in (lambda: KafkaTopics(properties, 5).cluster_id(), lambda: connected(properties)):
        with pytest.raises(UnavailableError) as caught:
            ask()
        assert PASSWORD not in str(caught.value)
        yield caught.value


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
    ],
)  # fmt: skip
def test_a_refused_login_or_certificate_is_named_with_its_remedy_by_both_clients(
    secure: SecureBroker, listener: str, changed: dict[str, str], words: str, remedy: str
) -> None:
    properties = secure.properties(listener)
    if changed.get("ssl.certificate.location") == "":
        properties = {name: text for name, text in properties.items() if name not in (*changed, "ssl.key.password")}
    else:
        properties |= {name: str(secure.stranger.file) if v == "stranger" else v for name, v in changed.items()}
    for refused in _refusals(properties):
        assert words in refused.message
        assert refused.remedy.startswith(remedy), refused
    assert is_refusal(refused), "the task's; others of the cluster need not be tried"


def test_a_listener_of_another_protocol_is_named_with_its_remedy_by_both_clients(secure: SecureBroker) -> None:
    by_driver, by_task = _refusals(secure.properties("BROKER") | {"security.protocol": "SSL"})
    assert "in state SSL_HANDSHAKE" in by_driver.message
    assert by_driver.remedy.startswith("check that a broker listens at `boot")
    assert by_task.remedy.startswith("check that security.protocol is that of the listener")
    *_, by_task = _refusals(secure.properties("PLAIN") | {"security.protocol": "PLAINTEXT"})
    assert by_task.remedy.startswith("check that security.protocol is that of the listener")
    assert not is_refusal(by_task)


@pytest.mark.parametrize(
    ("listener", "settings"),
    [
        ("MISNAMED", {"ssl.endpoint.identification.algorithm": "none"}),
        ("EXPIRED", {"enable.ssl.certificate.verification": "false"}),
        ("MTLS", {"ssl.cipher.suites": "ECDHE-ECDSA-AES256-GCM-SHA384"}),
    ],
)
def test_driver_and_tasks_verify_certificates_as_the_pipeline_file_sets(
    secure: SecureBroker, listener: str, settings: dict[str, str]
) -> None:
    properties = secure.properties(listener) | settings
    assert KafkaTopics(properties).cluster_id()
    with connected(properties) as connection:
        assert is_alive(connection)


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


def described(properties: Mapping[str, str], name: str) -> bool:
    """The answer of the broker, which may take longer than the question waits while other tests have the processor."""

    def answers() -> list[bool]:
        answer = may_describe(properties, name)
        return [] if answer is None else [answer]

    return wait_until(answers, "an answer")[0]


@pytest.mark.parametrize("listener", ["PLAIN", "MTLS"])
@needs("ha")
def test_a_missing_right_on_a_transactional_id_is_found_without_writing_with_it(
    secure: SecureBroker, listener: str
) -> None:
    properties = task_properties(secure.properties(listener))
    for name, rights in (("frazil-elect", ELECT), ("frazil-p-t", WRITE_IDS)):
        assert described(properties, name) is False
        with secure.allowed(*rights):
            assert described(properties, name) is True
    assert may_describe({**properties, "bootstrap.servers": "127.0.0.1:1"}, "frazil-elect") is None
    both = {**properties, "bootstrap.servers": f"127.0.0.1:1,{properties['bootstrap.servers']}"}
    assert described(both, "frazil-elect") is False


@needs("ha")
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


def test_a_pipeline_names_a_missing_right_and_continues_when_it_is_granted(
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
        assert waiting["reason"] == "a task failed: topic authorization failed"
        assert waiting["where"] == f"topic {TOPIC}, partition 0, offset 0"
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
