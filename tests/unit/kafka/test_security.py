"""One identity for two Kafka clients: each way to log in, in librdkafka's words and in Java's."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from frazil.errors import SpecError, UnavailableError
from frazil.kafka import credentials
from frazil.kafka.properties import native_properties, task_properties
from frazil.kafka.topics import KafkaTopics
from tests.fixtures.certificates import Authority

_SECURITY = "org.apache.kafka.common.security"
_HANDLER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
_TOKENS = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
_CLIENT = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": 'a"b\\c',
}
_SASL, _TLS = {"security.protocol": "SASL_SSL"}, {"security.protocol": "SSL"}
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
def test_each_login_in_the_words_of_one_client_is_that_of_both(
    both: dict[str, str], native: dict[str, str], java: dict[str, str]
) -> None:
    assert native_properties(both | java) == both | native
    assert native_properties(both | native) == both | native


@pytest.mark.parametrize("words", ["librdkafka's", "Java's"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
def test_tasks_log_in_with_the_same_password(mechanism: str, words: str) -> None:
    login = {"security.protocol": "sasl_ssl", "sasl.mechanism": mechanism}
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    jaas = f'{_SECURITY}.{module}LoginModule required username="me" password="a\\"b\\\\c";'
    written = {"sasl.jaas.config": jaas} if words == "Java's" else {"sasl.username": "me", "sasl.password": 'a"b\\c'}
    assert _login(login | written) == {
        "sasl.mechanism": mechanism.upper(), "sasl.username": "me", "sasl.password": 'a"b\\c',
    }  # fmt: skip


def _login(properties: dict[str, str]) -> dict[str, str]:
    names = ("sasl.", "https.", "aws.")
    return {name: text for name, text in task_properties(properties).items() if name.startswith(names)}


def test_tasks_get_tokens_as_the_driver_does_and_need_no_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    properties = {
        **_TOKENS,
        **_CLIENT,
        "security.protocol": "SASL_SSL",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
    }
    text = authority.file.read_text().strip()
    expected = {
        **_TOKENS,
        **_CLIENT,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
        "https.ca.pem": text,
    }
    assert _login(properties | {"https.ca.location": str(authority.file)}) == expected
    assert _login(properties | {"https.ca.pem": text, "sasl.oauthbearer.method": "OIDC"}) == expected
    assert _login(properties | {"https.ca.pem": text, "sasl.oauthbearer.grant.type": "client_credentials"}) == expected


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
        ({"ssl.crl.location": "/crl.pem"}, "", "leave it out: only one"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "", "leave it out: only one"),
        ({"sasl.oauthbearer.config": "principal=me"}, "", "write `sasl.oauthbearer.method: oidc`"),
        ({"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "", "write `sasl.oauth"),
        ({"sasl.oauthbearer.assertion.file": "/jwt"}, "", "write `sasl.oauthbearer.method: oidc`"),
        ({**_SASL, "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism", "write `sasl.oauthbearer.method: oidc`"),
        ({**_SASL, "sasl.mechanism": "PLAIN"}, "sasl.mechanism", "write sasl.username and sasl.password"),
        ({**_SASL, "sasl.mechanism": "PLAIN", "sasl.kerberos.keytab": "/k"}, "sasl.mechanism", "leave it out, or use"),
        ({**_SASL, "sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism", "leave it out, or use one of"),
        ({**_SASL, "sasl.username": "me"}, "sasl.username", "leave it out, or use one of"),
        (
            {**_SASL, **_TOKENS, **_CLIENT, "sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"},
            "sasl.oauthbearer.token.endpoint.url",
            "correct it or remove it",
        ),
        ({"ssl.truststore.location": "/t.jks"}, "", "write its certificates as PEM"),
        ({"ssl.keystore.location": "/k.jks"}, "", "convert it with `keytool -importkeystore"),
        ({**_TLS, "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----"}, "ssl.certificate.pem", "write both ssl."),
        ({**_TLS, "ssl.ca.pem": "not PEM"}, "ssl.ca.pem", "give it certificates in PEM"),
        ({**_TLS, "ssl.cipher.suites": "NOT-A-CIPHER"}, "ssl.cipher.suites", "check that the certificate, the key and"),
        ({"isolation.level": "serializable"}, "", "correct it or remove it"),
        ({"request.timeout.ms": "0"}, "", "correct it or remove it"),
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
    native_properties(properties)
    task_properties(properties)


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", ["", "opens"])
def test_tasks_get_a_key_of_any_form_without_its_password(tmp_path: Path, form: PrivateFormat, password: str) -> None:
    made = Authority(tmp_path).make("me")
    key = load_pem_private_key(made.key.read_bytes(), None)
    lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    native = {
        **_TLS,
        "ssl.certificate.location": str(made.certificate),
        "ssl.key.pem": key.private_bytes(Encoding.PEM, form, lock).decode(),
        **({"ssl.key.password": password} if password else {}),
    }
    tasks = task_properties(native)
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    assert tasks["ssl.key.pem"].strip() == plain.strip()
    assert tasks["ssl.certificate.pem"] == made.certificate.read_text().strip()
    assert "ssl.key.password" not in tasks
    if password:
        with pytest.raises(SpecError, match="kafka's client key cannot be read") as refused:
            task_properties(native | {"ssl.key.password": "wrong"})
        assert refused.value.remedy == "check ssl.key.location (or ssl.key.pem) and ssl.key.password"


def test_one_file_of_java_and_a_key_store_have_both_for_tasks(tmp_path: Path) -> None:
    made = Authority(tmp_path).make("me")
    expected = {
        "ssl.certificate.pem": made.certificate.read_text().strip(),
        "ssl.key.pem": made.key.read_text().strip(),
    }
    one_file = {**_TLS, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(made.together)}
    store = tmp_path / "me.p12"
    store.write_bytes(
        serialize_key_and_certificates(
            b"me",
            ec_key(made.key),
            x509.load_pem_x509_certificate(made.certificate.read_bytes()),
            None,
            BestAvailableEncryption(b"opens"),
        )
    )
    pkcs12 = {**_TLS, "ssl.keystore.location": str(store), "ssl.keystore.password": "opens"}
    for properties in (one_file, pkcs12):
        tasks = task_properties(properties)
        assert {name: tasks[name].strip() for name in expected} == expected
        assert not any("keystore" in name for name in tasks)
    with pytest.raises(SpecError, match="kafka's key store cannot be read") as refused:
        task_properties(pkcs12 | {"ssl.keystore.password": "wrong"})
    assert refused.value.remedy == "check ssl.keystore.location and ssl.keystore.password"


def ec_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def test_a_key_of_another_certificate_is_refused_before_anybody_connects(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.make("one"), authority.make("other")
    mixed = {**_TLS, "ssl.certificate.location": str(one.certificate), "ssl.key.location": str(other.key)}
    with pytest.raises(SpecError, match="cannot be followed") as refused:
        task_properties(mixed)
    assert refused.value.remedy.startswith("check that the certificate, the key and the ciphers")


def test_authorities_are_the_files_of_a_folder_or_those_of_the_machine(tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    trusted = task_properties({**_TLS, "ssl.ca.location": str(tmp_path)})["ssl.ca.pem"]
    assert trusted == "\n".join(one.file.read_text().strip() for one in (first, second))
    for machine in ({}, {"ssl.ca.location": "probe"}):
        assert "ssl.ca.pem" not in task_properties(_TLS | machine)


def test_a_renewed_file_is_read_by_the_next_job(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    file = authority.make("me")
    properties = {**_TLS, "ssl.certificate.location": str(file.certificate), "ssl.key.location": str(file.key)}
    before = task_properties(properties)
    authority.make("me")
    after = task_properties(properties)
    assert before["ssl.certificate.pem"] != after["ssl.certificate.pem"] == file.certificate.read_text().strip()


def test_a_file_that_is_not_there_is_named() -> None:
    files = {**_TLS, "ssl.certificate.location": "/nowhere/c.pem", "ssl.key.location": "/nowhere/k.pem"}
    with pytest.raises(SpecError, match="cannot be read: No such file") as refused:
        task_properties(files)
    assert refused.value.where == "/nowhere/c.pem"


@pytest.mark.parametrize("mechanism", [{"sasl.mechanism": "GSSAPI"}, {}], ids=["named", "default"])
def test_kerberos_is_refused_where_the_driver_s_client_is_built_without_it(mechanism: dict[str, str]) -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.kerberos.service.name": "kafka", **mechanism}
    with pytest.raises(SpecError, match=r"built without GSSAPI \(Kerberos\).*tasks lack the Python package") as refused:
        KafkaTopics({"bootstrap.servers": "127.0.0.1:1", **login})
    assert refused.value.remedy.startswith("name another mechanism in sasl.mechanism")
    assert refused.value.remedy.endswith("built with libsasl2, and gssapi here and where tasks run")
    assert refused.value.where == next(iter(mechanism), "kafka")


def test_kerberos_is_refused_for_tasks_without_their_package() -> None:
    with pytest.raises(SpecError, match="Python package gssapi, which is not installed") as refused:
        task_properties({**_SASL, "sasl.kerberos.service.name": "kafka"})
    assert refused.value.remedy.startswith("install gssapi here and where tasks run")


def test_tasks_get_the_key_of_a_principal_where_they_can_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (keytab := tmp_path / "me.keytab").write_bytes(b"\x05\x02key")
    monkeypatch.setattr(credentials, "PACKAGE", "json")  # A package that is there.
    jaas = f'com.sun.security.auth.module.Krb5LoginModule required keyTab="{keytab}" principal="me@EXAMPLE.COM";'
    assert _login({**_SASL, "sasl.mechanism": "GSSAPI", "sasl.jaas.config": jaas}) == {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": "me@EXAMPLE.COM",
        "sasl.kerberos.keytab": base64.b64encode(b"\x05\x02key").decode(),
    }


_IAM = "software.amazon.msk.auth.iam"
_MSK_HOST = "b-1.orders.x1y2z3.c4.kafka.eu-west-1.amazonaws.com:9098"


@pytest.fixture
def _aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_kept", {})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)


@pytest.mark.usefixtures("_aws")
@pytest.mark.parametrize(
    "spelling",
    [
        {"sasl.mechanism": "AWS_MSK_IAM"},
        {
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f"{_IAM}.IAMLoginModule required;",
            "sasl.client.callback.handler.class": f"{_IAM}.IAMClientCallbackHandler",
        },
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{_IAM}.IAMOAuthBearerLoginCallbackHandler",
        },
    ],
)
def test_amazon_msk_gets_tokens_of_its_signer_from_both_clients(spelling: dict[str, str]) -> None:
    properties = {"bootstrap.servers": _MSK_HOST, **_SASL, **spelling}
    tasks = task_properties(properties)
    assert _login(properties) == {
        "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "aws_msk_iam", "aws.region": "eu-west-1",
    }  # fmt: skip
    native = native_properties(properties)
    text, expires_s = native.pop("oauth_cb")("")
    assert native == {"bootstrap.servers": _MSK_HOST, **_SASL, "sasl.mechanism": "OAUTHBEARER"}
    signed = base64.urlsafe_b64decode(text + "===").decode()
    assert signed.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")
    assert 800 < expires_s - time.time() <= 900  # noqa: TID251  (the signer's clock)
    assert credentials.token(tasks, 1)[0] == text  # It is kept.


@pytest.mark.usefixtures("_aws")
def test_amazon_msk_names_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"bootstrap.servers": "kafka.internal:9098", **_SASL, "sasl.mechanism": "AWS_MSK_IAM"}
    with pytest.raises(SpecError, match="names the AWS region") as refused:
        task_properties(properties)
    assert refused.value.remedy == "set AWS_REGION in the environment of this process"
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    jaas = f'{_IAM}.IAMLoginModule required awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="s";'
    role = {"aws.role.arn": "arn:aws:iam::1:role/r", "aws.role.session.name": "s", "aws.region": "us-east-2"}
    assert task_properties(properties | {"sasl.jaas.config": jaas}).items() >= role.items()
    with pytest.raises(SpecError, match="awsRoleExternalId") as refused:
        task_properties(properties | {"sasl.jaas.config": jaas.replace("awsRoleSessionName", "awsRoleExternalId")})
    assert refused.value.remedy.startswith("put it in a profile of the AWS configuration")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(UnavailableError, match="AWS gives no credentials for Amazon MSK") as away:
        native_properties(properties)
    assert away.value.remedy.startswith("give this machine, and those that tasks run on, AWS credentials")
    monkeypatch.setattr(credentials, "_SIGNER", "not_installed")
    for translate in (task_properties, native_properties):
        with pytest.raises(SpecError, match="which is not installed") as refused:
            translate(properties)
        assert refused.value.remedy.startswith("install `frazil[msk]` with pip")


def test_librdkafka_takes_every_login_that_is_translated_for_it(tmp_path: Path) -> None:
    (authority := tmp_path / "ca.pem").write_text("")
    tokens = {**_TOKENS, **_CLIENT, "https.ca.location": str(authority), "sasl.oauthbearer.scope": "x"}
    AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **native_properties(tokens)})
