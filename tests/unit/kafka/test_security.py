"""One identity for two Kafka clients: each way to log in, in librdkafka's words and in Java's."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from frazil.errors import SpecError
from frazil.kafka.properties import java_properties, native_properties
from frazil.kafka.topics import KafkaTopics

_SECURITY = "org.apache.kafka.common.security"
_HANDLER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
_TOKENS = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
_CLIENT = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": 'a"b\\c',
}
_OIDC = f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required clientId="me" clientSecret="a\\"b\\\\c"'


@pytest.mark.parametrize(
    ("both", "native", "java"),
    [
        (
            {"sasl.mechanism": "PLAIN"},
            {"sasl.username": "me", "sasl.password": 'a"b\\c'},
            {"sasl.jaas.config": f'{_SECURITY}.plain.PlainLoginModule required username="me" password="a\\"b\\\\c";'},
        ),
        (
            {"sasl.mechanism": "SCRAM-SHA-256"},
            {"sasl.username": "me", "sasl.password": "p=;'q"},
            {"sasl.jaas.config": f'{_SECURITY}.scram.ScramLoginModule required username="me" password="p=;\'q";'},
        ),
        (_TOKENS, _CLIENT, {"sasl.login.callback.handler.class": _HANDLER, "sasl.jaas.config": f"{_OIDC};"}),
        (
            _TOKENS,
            {
                **_CLIENT,
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
                "https.ca.location": "/ca.pem",
            },
            {
                "sasl.login.callback.handler.class": _HANDLER,
                "sasl.jaas.config": (
                    f'{_OIDC} scope="kafka" ssl.truststore.location="/ca.pem" ssl.truststore.type="PEM"'
                    ' extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1";'
                ),
            },
        ),
        (
            {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"},
            {"sasl.kerberos.keytab": "/me.keytab", "sasl.kerberos.principal": "me@EXAMPLE.COM"},
            {
                "sasl.jaas.config": (
                    'com.sun.security.auth.module.Krb5LoginModule required keyTab="/me.keytab"'
                    ' principal="me@EXAMPLE.COM" useKeyTab="true" storeKey="true";'
                )
            },
        ),
    ],
    ids=["plain", "scram", "oidc", "oidc with all", "gssapi"],
)
def test_each_login_in_the_words_of_one_client_reaches_the_other(
    both: dict[str, str], native: dict[str, str], java: dict[str, str]
) -> None:
    assert java_properties(both | native) == both | java
    assert native_properties(both | java) == both | native
    assert native_properties(both | native) == both | native
    assert java_properties(both | java) == both | java


def test_a_login_module_as_people_write_it_is_understood() -> None:
    jaas = f"{_SECURITY}.scram.ScramLoginModule REQUIRED\n  username=me\n  password=secret-1;"
    native = native_properties({"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas})
    assert (native["sasl.username"], native["sasl.password"]) == ("me", "secret-1")


@pytest.mark.parametrize(
    ("properties", "where", "remedy"),
    [
        ({"sasl.jaas.config": "com.example.Module required token=x;"}, "sasl.jaas.config", "leave it out: the driver"),
        ({"sasl.login.callback.handler.class": "com.example.Handler"}, "", "leave it out: the driver"),
        ({"ssl.engine.factory.class": "com.example.Engine"}, "", "leave it out: the driver"),
        ({"security.providers": "com.example.Provider"}, "", "leave it out: the driver"),
        ({"sasl.client.callback.handler.class": "com.example.Handler"}, "", "leave it out: the driver"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "", "leave it out: the two Kafka clients name ciphers"),
        ({"ssl.crl.location": "/crl.pem"}, "", "leave it out: only one"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "", "leave it out: only one"),
        ({"sasl.oauthbearer.config": "principal=me"}, "", "write `sasl.oauthbearer.method: oidc`"),
        ({"sasl.oauthbearer.assertion.file": "/jwt"}, "", "write `sasl.oauthbearer.method: oidc`"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "", "write `sasl.oauthbearer.method: oidc`"),
        ({"https.ca.pem": "-----BEGIN"}, "", "write the certificates to a file"),
        ({"sasl.mechanism": "PLAIN", "sasl.kerberos.keytab": "/k"}, "sasl.mechanism", "leave it out, or use one of"),
        ({"security.protocol": "SASL_SSL", "sasl.username": "me"}, "sasl.username", "leave it out, or use one of"),
        ({"ssl.truststore.location": "/t.jks"}, "", "write its certificates as PEM"),
        ({"ssl.keystore.location": "/k.jks"}, "", "convert it with `keytool -importkeystore"),
        ({"ssl.certificate.pem": "-----BEGIN CERTIFICATE-----"}, "", "write both ssl.certificate.location and"),
        ({"enable.ssl.certificate.verification": "false"}, "", "name the authority in ssl.ca.location"),
    ],
)
def test_what_one_client_cannot_follow_is_refused_before_either_connects(
    properties: dict[str, str], where: str, remedy: str
) -> None:
    with pytest.raises(SpecError) as refused:
        _translate_both(properties)
    assert refused.value.where == (where or next(iter(properties)))
    assert refused.value.remedy.startswith(remedy)
    assert not any(text in str(refused.value) for text in ("token=x", "/jwt", "-----BEGIN"))


def _translate_both(properties: dict[str, str]) -> None:
    java_properties(properties)
    native_properties(properties)


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", ["", "opens"])
def test_java_gets_a_key_of_any_form_as_it_can_read_it(form: PrivateFormat, password: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    native = {
        "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----",
        "ssl.key.pem": key.private_bytes(Encoding.PEM, form, lock).decode(),
        **({"ssl.key.password": password} if password else {}),
    }
    java = java_properties(native)
    assert java["ssl.keystore.key"] == key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    assert "ssl.key.password" not in java
    if password:
        with pytest.raises(SpecError, match="kafka's client key cannot be read"):
            java_properties(native | {"ssl.key.password": "wrong"})


def test_a_key_that_is_not_there_is_named() -> None:
    files = {"ssl.certificate.location": "/nowhere/c.pem", "ssl.key.location": "/nowhere/k.pem"}
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        java_properties(files)


@pytest.mark.parametrize("mechanism", [{"sasl.mechanism": "GSSAPI"}, {}], ids=["named", "default"])
def test_kerberos_is_refused_where_the_driver_s_client_is_built_without_it(mechanism: dict[str, str]) -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.kerberos.service.name": "kafka", **mechanism}
    with pytest.raises(SpecError, match=r"built without GSSAPI \(Kerberos\)") as refused:
        KafkaTopics({"bootstrap.servers": "127.0.0.1:1", **login})
    assert refused.value.remedy.startswith("name another mechanism in sasl.mechanism")
    assert refused.value.where == next(iter(mechanism), "kafka")


def test_librdkafka_takes_every_login_that_is_translated_for_it(tmp_path: Path) -> None:
    (authority := tmp_path / "ca.pem").write_text("")
    tokens = {**_TOKENS, **_CLIENT, "https.ca.location": str(authority), "sasl.oauthbearer.scope": "x"}
    AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **native_properties(tokens)})
