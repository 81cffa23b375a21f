"""One set of Kafka properties for two clients."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from frazil.errors import SpecError
from frazil.kafka.properties import native_properties, task_properties

_LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": 'a"b\\c'}
_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a\\"b\\\\c";'


def test_tasks_get_librdkafka_s_words_and_the_values_that_are_not_written() -> None:
    assert task_properties({"bootstrap.servers": "h:9092", **_LOGIN}) == {
        "bootstrap.servers": "h:9092",
        **_LOGIN,
        "isolation.level": "read_committed",
        "request.timeout.ms": "30000",
        "ssl.endpoint.identification.algorithm": "https",
        "enable.ssl.certificate.verification": "true",
    }


def test_tasks_get_the_settings_of_fetches_in_either_spelling() -> None:
    own = {
        "bootstrap.servers": "h:9092", "client.id": "me", "client.rack": "a", "isolation.level": "read_uncommitted",
        "fetch.max.bytes": "1000", "max.partition.fetch.bytes": "100", "broker.address.family": "v4",
    }  # fmt: skip
    plain = {"security.protocol": "PLAINTEXT"}
    assert task_properties(own | {"socket.timeout.ms": "500"}) == own | plain | {"request.timeout.ms": "500"}
    assert task_properties(own | {"request.timeout.ms": "700"}) == own | plain | {"request.timeout.ms": "700"}


def test_a_login_module_becomes_a_user_and_a_password_for_librdkafka() -> None:
    properties = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": _JAAS}
    assert native_properties(properties) == {
        "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": 'a"b\\c',
    }  # fmt: skip


def test_a_login_module_without_a_password_is_refused_with_a_remedy() -> None:
    with pytest.raises(SpecError) as refused:
        native_properties({"sasl.jaas.config": _JAAS.replace("password", "passwd")})
    remedy = "write sasl.username and sasl.password in place of `sasl.jaas.config`"
    assert (refused.value.remedy, refused.value.where) == (remedy, "sasl.jaas.config")


def test_a_mechanism_without_passwords_is_refused() -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.username": "me", "sasl.password": "x"}
    with pytest.raises(SpecError, match="GSSAPI"):
        task_properties(login)


@pytest.mark.parametrize("spelling", ["sasl.mechanism", "sasl.mechanisms"])
def test_either_spelling_of_the_mechanism_reaches_tasks(spelling: str) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "me", "sasl.password": "x"}
    tasks = task_properties({**login, spelling: "scram-sha-512"})
    assert tasks["sasl.mechanism"] == "SCRAM-SHA-512"
    assert "sasl.mechanisms" not in tasks


@pytest.mark.parametrize(
    ("written", "check", "verified"),
    [
        ({}, "https", "true"),
        ({"ssl.endpoint.identification.algorithm": ""}, "none", "true"),
        ({"ssl.endpoint.identification.algorithm": "none"}, "none", "true"),
        ({"enable.ssl.certificate.verification": "False"}, "https", "false"),
    ],
)
def test_what_is_verified_of_a_broker_is_the_same_for_both(written: dict[str, str], check: str, verified: str) -> None:
    tasks = task_properties({"security.protocol": "ssl", **written})
    assert tasks["ssl.endpoint.identification.algorithm"] == check
    assert tasks["enable.ssl.certificate.verification"] == verified
    Producer(native_properties({"security.protocol": "ssl", **written}))


def test_what_only_one_client_knows_goes_to_that_one() -> None:
    properties = {"fetch.max.bytes": "1", "max.poll.records": "5", "ssl.provider": "SunJSSE", "debug": "all"}
    properties |= {"bootstrap.servers": "h:1", "client.id": "x"}
    assert native_properties(properties) == {"debug": "all", "bootstrap.servers": "h:1", "client.id": "x"}
    assert task_properties(properties).items() >= {"fetch.max.bytes": "1", "client.id": "x"}.items()
    assert task_properties(properties).keys().isdisjoint(("debug", "max.poll.records", "ssl.provider"))


_CA, _CHAIN, _KEY = (f"-----BEGIN {word}-----" for word in ("CA", "CERTIFICATE", "PRIVATE KEY"))


@pytest.mark.parametrize(
    ("native", "java"),
    [
        ({"ssl.ca.pem": _CA}, {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _CA}),
        ({"ssl.ca.location": "/ca"}, {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca"}),
        (
            {"ssl.certificate.pem": _CHAIN, "ssl.key.pem": _KEY},
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": _CHAIN, "ssl.keystore.key": _KEY},
        ),
        ({"ssl.endpoint.identification.algorithm": "none"}, {"ssl.endpoint.identification.algorithm": ""}),
        ({"ssl.endpoint.identification.algorithm": "https"}, {"ssl.endpoint.identification.algorithm": "https"}),
    ],
)
def test_certificates_in_the_words_of_java_reach_librdkafka(native: dict[str, str], java: dict[str, str]) -> None:
    password = {"ssl.key.password": "secret"}
    assert native_properties(native | password) == native | password
    assert native_properties(java | password) == native | password


def test_one_pem_file_of_java_has_both_for_librdkafka() -> None:
    assert native_properties({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/both.pem"}) == {
        "ssl.certificate.location": "/both.pem", "ssl.key.location": "/both.pem",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("location", "kind"), [("/k.p12", {}), ("/K.PFX", {}), ("/k", {"ssl.keystore.type": "pkcs12"})]
)
def test_a_pkcs12_file_reaches_librdkafka(location: str, kind: dict[str, str]) -> None:
    store = {"ssl.keystore.location": location, "ssl.keystore.password": "secret"}
    assert native_properties(store | kind) == store


def test_what_is_written_in_librdkafka_s_words_counts_before_java_s() -> None:
    trusted = {"ssl.truststore.location": "/t.jks", "ssl.truststore.password": "secret"}
    own = {"ssl.keystore.location": "/k.jks"}
    native = {"ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/c.pem", "ssl.key.location": "/k.pem"}
    assert native_properties({**trusted, **own, **native}) == native


@pytest.mark.parametrize(
    "name",
    [
        "metric.reporters", "metrics.recording.level", "interceptor.classes", "ssl.provider",
        "ssl.trustmanager.algorithm", "ssl.keymanager.algorithm", "sasl.login.refresh.window.factor",
        "ssl.secure.random.implementation", "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.expected.audience", "sasl.kerberos.ticket.renew.jitter", "exclude.internal.topics",
        "socket.connection.setup.timeout.max.ms", "auto.include.jmx.reporter", "config.providers",
    ],
)  # fmt: skip
def test_a_name_that_only_java_knows_does_not_keep_librdkafka_from_starting(name: str) -> None:
    assert name not in task_properties({name: "x"})
    Producer(native_properties({name: "x"}))


def test_what_is_left_out_is_reported_once_without_its_value() -> None:
    only_java, only_native = ("metric.reporters", "metrics.num.samples"), ("debug", "log_level")
    properties = dict.fromkeys((*only_java, *only_native), "secret") | {"client.id": "both"}
    with capture_logs() as logged:
        for _ in range(2):
            native_properties(properties)
            task_properties(properties)
    of_one = sorted((*only_java, *only_native))
    assert logged == [
        {"event": "settings_ignored", "log_level": "debug", "client": "librdkafka", "settings": [*only_java]},
        {
            "event": "settings_ignored",
            "log_level": "debug",
            "client": "tasks",
            "settings": of_one,
        },
    ]
