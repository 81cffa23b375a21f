"""One set of Kafka properties for two clients."""

from __future__ import annotations

import pytest

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
        native_properties({"sasl.jaas.config": "com.example.Module required;"})
    assert refused.value.remedy == "write sasl.username and sasl.password"


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
        "ssl.keystore.location": "/k",
        "debug": "all",
        "client.id": "x",
    }
    assert native_properties(properties) == {"debug": "all", "client.id": "x"}
    assert java_properties(properties) == {
        "fetch.max.bytes": "1", "max.poll.records": "5", "ssl.keystore.location": "/k", "client.id": "x",
    }  # fmt: skip
