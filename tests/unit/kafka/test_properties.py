"""One set of Kafka properties for two clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from structlog.testing import capture_logs

from frazil.errors import SpecError
from frazil.kafka.properties import java_properties, native_properties

_LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": 'a"b\\c'}
_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="a\\"b\\\\c";'


def test_a_user_and_a_password_become_a_login_module_for_java() -> None:
    assert java_properties({"bootstrap.servers": "h:9092", **_LOGIN}) == {
        "bootstrap.servers": "h:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": _JAAS,
    }


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
    with pytest.raises(SpecError, match="GSSAPI"):
        java_properties({"sasl.mechanism": "GSSAPI", "sasl.username": "me", "sasl.password": "x"})


@pytest.mark.parametrize("spelling", ["sasl.mechanism", "sasl.mechanisms"])
def test_either_spelling_of_the_mechanism_reaches_java(spelling: str) -> None:
    properties = {spelling: "scram-sha-512", "sasl.username": "me", "sasl.password": "x"}
    java = java_properties(properties)
    assert java["sasl.mechanism"] == "scram-sha-512"
    assert java["sasl.jaas.config"].startswith("org.apache.kafka.common.security.scram.ScramLoginModule required")
    assert "sasl.mechanisms" not in java


def test_certificates_in_files_reach_both() -> None:
    properties = {"ssl.ca.location": "/ca.pem", "enable.ssl.certificate.verification": "false"}
    assert native_properties(properties) == properties
    assert java_properties(properties) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_what_only_one_client_knows_goes_to_that_one() -> None:
    properties = {
        "fetch.max.bytes": "1",
        "max.poll.records": "5",
        "ssl.provider": "SunJSSE",
        "debug": "all",
        "client.id": "x",
    }
    assert native_properties(properties) == {"debug": "all", "client.id": "x"}
    assert java_properties(properties) == {
        "fetch.max.bytes": "1", "max.poll.records": "5", "ssl.provider": "SunJSSE", "client.id": "x",
    }  # fmt: skip


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
def test_certificates_in_the_words_of_one_client_reach_the_other(native: dict[str, str], java: dict[str, str]) -> None:
    password = {"ssl.key.password": "secret"}
    assert java_properties(native | password) == java | password
    assert native_properties(native | password) == native | password
    assert native_properties(java | password) == native | password
    assert java_properties(java | password) == java | password


def test_a_certificate_in_a_file_and_a_key_in_a_variable_go_together(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text(_CHAIN)
    assert java_properties({"ssl.certificate.location": str(file), "ssl.key.pem": _KEY}) == {
        "ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": _CHAIN, "ssl.keystore.key": _KEY,
    }  # fmt: skip


def test_one_pem_file_of_java_has_both_for_librdkafka() -> None:
    assert native_properties({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/both.pem"}) == {
        "ssl.certificate.location": "/both.pem", "ssl.key.location": "/both.pem",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("location", "kind"), [("/k.p12", {}), ("/K.PFX", {}), ("/k", {"ssl.keystore.type": "pkcs12"})]
)
def test_a_pkcs12_file_reaches_both(location: str, kind: dict[str, str]) -> None:
    store = {"ssl.keystore.location": location, "ssl.keystore.password": "secret"}
    assert native_properties(store | kind) == store
    assert java_properties(store | kind) == {**store, "ssl.keystore.type": "PKCS12"}


def test_what_is_written_for_both_clients_is_left_as_it_is() -> None:
    trusted = {"ssl.truststore.location": "/t.jks", "ssl.truststore.password": "secret"}
    own = {"ssl.keystore.location": "/k.jks"}
    native = {"ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/c.pem", "ssl.key.location": "/k.pem"}
    assert java_properties({**trusted, **own, **native}) == {**trusted, **own}
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
    assert java_properties({name: "x"}) == {name: "x"}
    Producer(native_properties({name: "x"}))


def test_what_is_left_out_is_reported_once_without_its_value() -> None:
    only_java, only_native = ("metric.reporters", "metrics.num.samples"), ("debug", "log_level")
    properties = dict.fromkeys((*only_java, *only_native), "secret") | {"client.id": "both"}
    with capture_logs() as logged:
        for _ in range(2):
            native_properties(properties)
            java_properties(properties)
    assert logged == [
        {"event": "settings_ignored", "log_level": "debug", "client": "librdkafka", "settings": [*only_java]},
        {"event": "settings_ignored", "log_level": "debug", "client": "java", "settings": [*only_native]},
    ]
