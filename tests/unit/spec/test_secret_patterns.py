"""Secrets that are written literally are known by their keys and by their forms, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.secrets import Secrets, is_secret_key, secrets_in, secrets_of
from tests.unit.spec.pipeline_file import Load, Refuse, with_section, with_table

_PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password", "ssl.key.password", "ssl.keystore.key", "ssl.key.pem", "sasl.jaas.config",
        "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret", "basic.auth.user.info", "bearer.auth.token",
        "bearer.auth.client.secret", "schema.registry.basic.auth.user.info", "ssl.key.passphrase",
        "fs.azure.account.key.shop.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.key.shop.blob.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret.shop.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token.shop.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.container.shop.token", "spark.hadoop.fs.s3a.secret.key", "spark.authenticate.secret",
        "spark.ssl.keyStorePassword", "spark.ssl.keyPassword", "header.Cookie", "header.Authorization",
        "header.Proxy-Authorization", "header.X-Api-Key", "credential", "token", "s3.secret-access-key",
        "s3.session-token", "adls.sas-token.account", "adls.connection-string.account", "jdbc.password",
        "adls.auth.shared-key.account.key", "gcs.oauth2.token", "rest.auth.basic.password", "encryption.kms-secret",
        "gcs.encryption-key", "PASSWORD", "key_password",
    ],
)  # fmt: skip
def test_a_key_that_holds_a_secret_is_known(key: str) -> None:
    assert is_secret_key(key)
    assert secrets_of(key, "plain") == {"plain"}


@pytest.mark.parametrize(
    "key",
    [
        "bootstrap.servers", "sasl.username", "sasl.mechanism", "sasl.oauthbearer.token.endpoint.url", "oauth2-server-uri",
        "token-refresh-enabled", "token-expires-in-ms", "client.credentials-provider", "warehouse", "uri",
        "header.X-Iceberg-Access-Delegation", "s3.endpoint", "client.region", "ssl.keystore.location", "ssl.keystore.type",
        "spark.driver.memory", "spark.security.credentials.kafka.enabled", "fs.azure.account.auth.type.shop.dfs.core",
        "fs.azure.sas.token.provider.type.shop.dfs.core.windows.net", "spark.executor.extraJavaOptions",
        "sasl.oauthbearer.jwt.assertion.private.key.file", "monkey", "key.deserializer", "primary.key",
    ],
)  # fmt: skip
def test_a_key_that_holds_none_is_left_alone(key: str) -> None:
    assert not is_secret_key(key)


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ("https://frazil:hunter2@catalog/api", "hunter2"),
        ("https://u:p%40ss@h", "p@ss"),
        ("jdbc:postgresql://frazil:hunter2@db:5432/lake", "hunter2"),
        ("jdbc:postgresql://db/lake?user=f&password=hunter2&ssl=true", "hunter2"),
        ("jdbc:sqlserver://db;databaseName=l;user=f;password=hunter2;encrypt=true", "hunter2"),
        ('org.apache.kafka.PlainLoginModule required username="f" password="hun ter2";', "hun ter2"),
        ("org.apache.kafka.PlainLoginModule required username='f' password='hunter2';", "hunter2"),
        ('OAuthBearerLoginModule required clientId="f" clientSecret="hunter2";', "hunter2"),
        ("-Dx=1 -Djavax.net.ssl.keyStorePassword=hunter2 -Xss4m", "hunter2"),
        ("Bearer abc.def-123", "abc.def-123"),
        ("Authorization: Basic dTpwCg==", "dTpwCg=="),
        ("id AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("https://a.blob.core.windows.net/c?sv=2024&sig=abc%2Bdef", "abc%2Bdef"),
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc123==;EndpointSuffix=x", "abc123=="),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_def", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_def"),
        (_PEM, _PEM),
        (_PEM, "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"),
    ],
)
def test_a_value_with_the_form_of_a_secret_gives_it_away(value: str, secret: str) -> None:
    assert secret in set(secrets_in(value))


@pytest.mark.parametrize(
    "value",
    [
        "https://catalog:8181/api", "jdbc:sqlite:/data/catalog.db", "s3://lake/warehouse", "broker-1:9092,broker-2:9092",
        "-Xss4m -Dlog=x", "local[*]", "jdbc:postgresql://db:5432/lake?user=frazil&ssl=true", "user@example.com", "basic",
    ],
)  # fmt: skip
def test_a_value_without_a_secret_gives_none(value: str) -> None:
    assert set(secrets_in(value)) == set()


def test_the_password_in_an_address_of_the_catalog_is_never_shown(load: Load) -> None:
    spec = load(with_section("catalog: {type: rest, uri: 'https://frazil:hunter2@catalog/api'}"))
    assert spec.file.secrets == {"hunter2"}
    assert (
        spec.redact(f"opened the catalog at {spec.catalog.uri}")
        == "opened the catalog at https://frazil:***@catalog/api"
    )


@pytest.mark.parametrize("text", ["{access.token: plain}", "{comment: 'see https://u:hunter2@host'}"])
def test_a_secret_in_a_table_property_is_refused(refuse: Refuse, text: str) -> None:
    error = refuse(with_table(f"properties: {text}"))
    assert "holds a secret, and table properties are for everyone to read" in error.message
    assert "hunter2" not in str(error)


def test_a_variable_that_is_not_utf_8_is_refused(refuse: Refuse) -> None:
    error = refuse(with_section("spark: {conf: {spark.x: '${env:A}'}}"), {"A": "pass\udcff"})
    assert (error.message, error.remedy) == ("the environment variable `A` is not UTF-8", "set it to UTF-8 text")


def test_a_secret_file_is_remembered_with_what_is_inside(tmp_path: Path) -> None:
    (tmp_path / "jaas").write_text('x.PlainLoginModule required username="f" password="hunter2";')
    secrets = Secrets({})
    secrets.resolve(f"${{file:{tmp_path / 'jaas'}}}", "sasl.jaas.config")
    assert "hunter2" in secrets.secret_texts
