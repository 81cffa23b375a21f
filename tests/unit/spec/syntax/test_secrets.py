from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from frazil.cli.output import Redaction
from tests.unit.spec.pipeline_file import Load, Refuse, with_section, with_table

REST = """catalog:
  type: rest
  uri: https://u:${env:NAME}@catalog
  warehouse: s3://${env:BUCKET}/lake
  properties: {credential: "id:${file:secret.txt}"}
registry:
  url: https://${env:HOST}
  auth: {username: "${env:NAME}", password: "${file:secret.txt}"}
  tls: {ca: "${env:BUCKET}", certificate: c, key_password: "${env:NAME}"}
  properties: {bearer.auth.client.secret: "${env:NAME}"}
spark: {master: "spark://${env:HOST}:7077", conf: {spark.x: "${env:NAME}", spark.y: "${spark.home} ${sys:z}"}}
"""


def test_references_are_replaced_and_their_values_never_shown(load: Load) -> None:
    Path("secret.txt").write_text("s3cr3t\n", encoding="utf-8")
    spec = load(with_section(REST), {"NAME": "hunter2", "BUCKET": "hidden-bucket", "HOST": "hidden-host"})
    assert spec.catalog.uri == "https://u:hunter2@catalog"
    assert spec.catalog.warehouse == "s3://hidden-bucket/lake"
    assert spec.catalog.properties == {"credential": "id:s3cr3t"}
    assert spec.spark.master == "spark://hidden-host:7077"
    assert spec.spark.conf == {"spark.x": "hunter2", "spark.y": "${spark.home} ${sys:z}"}
    assert spec.registry
    assert (spec.registry.urls, spec.registry.auth.password) == (("https://hidden-host",), "s3cr3t")
    assert spec.file.secrets == {"hunter2", "s3cr3t", "id:s3cr3t", "hidden-bucket", "hidden-host"}
    shown = " ".join((repr(spec), str(spec), repr(spec.catalog), spec.model_dump_json(), repr(spec.spark.model_dump())))
    assert [secret for secret in spec.file.secrets if secret in shown] == []


def test_a_secret_is_taken_out_of_any_text_the_longest_first(load: Load) -> None:
    spec = load(with_section("spark: {conf: {spark.a: '${env:A}', spark.b: '${env:B}'}}"), {"A": "abc", "B": "abcdef"})
    assert spec.redact("login with abcdef or abc failed") == "login with *** or *** failed"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", "***"),
        ("a table has a column", "a table has a column"),
        ("no answer at http://u:a@registry, login `a`", "no answer at http://u:***@registry, login `***`"),
        ('{"password": "a", "name": "data"}', '{"password": "***", "name": "data"}'),
    ],
)
def test_a_secret_of_one_character_is_masked_as_a_value_and_not_inside_words(load: Load, text: str, shown: str) -> None:
    spec = load(with_section("spark: {conf: {spark.a: '${env:A}'}}"), {"A": "a"})
    redaction = Redaction()
    redaction.hide(spec.file.secrets)
    assert (spec.redact(text), redaction.text(text)) == (shown, shown)


def test_a_password_that_is_written_into_the_file_is_a_secret_too(load: Load) -> None:
    text = 'pipeline: p\nkafka: {bootstrap.servers: "b:1", sasl.username: me, sasl.password: plain}\n'
    spec = load(f"{text}tables: {{a.b: {{topic: c}}}}\n")
    assert spec.file.secrets == {"plain"}
    assert "plain" not in repr(spec)


@pytest.mark.parametrize(
    "key",
    [
        "token", "header.Authorization", "s3.secret-access-key", "adls.sas-token.account.host",
        "adls.connection-string.account.host", "adls.auth.shared-key.account.key", "jdbc.password", "gcs.oauth2.token",
        "s3.sse.key", "gcs.encryption-key",
        "gcs.decryption-key", "client.access-key-secret", "client.security-token", "s3.session-token",
    ],
)  # fmt: skip
def test_properties_of_catalogs_and_stores_that_are_secrets_are_known_by_their_names(load: Load, key: str) -> None:
    needs = {
        "s3.secret-access-key": "s3.access-key-id: eu",
        "s3.session-token": "s3.access-key-id: eu, s3.secret-access-key: plain",
        "client.access-key-secret": "client.access-key-id: eu",
        "adls.auth.shared-key.account.key": "adls.auth.shared-key.account.name: eu",
        "s3.sse.key": "s3.sse.type: custom",
    }.get(key, "client.region: eu")
    spec = load(with_section(f"catalog: {{type: rest, uri: 'http://h', properties: {{{key}: plain, {needs}}}}}"))
    assert spec.file.secrets == {"plain"}


def test_a_spec_keeps_its_secrets_when_it_travels(load: Load) -> None:
    spec = load(with_section("spark: {conf: {spark.a: '${env:A}'}}"), {"A": "abc"})
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_file_s_last_line_end_is_not_part_of_the_secret(load: Load) -> None:
    Path("key.pem").write_bytes(b"BEGIN\nabc\n\r\n")
    spec = load(with_section("spark: {conf: {spark.a: '${file:key.pem}'}}"))
    assert spec.spark.conf == {"spark.a": "BEGIN\nabc\n"}


@pytest.mark.parametrize(
    ("reference", "message", "remedy"),
    [
        ("${env:NOPE}", "the environment variable `NOPE` is not set", "set NOPE before starting Frazil"),
        ("${env:EMPTY}", "the environment variable `EMPTY` is empty", "set EMPTY before starting Frazil"),
        ("${file:nope}", "the secret's file `nope` does not exist", "create it, or correct its path"),
        ("${file:.}", "the secret's file `.` cannot be read (Is a directory)", "create it, or correct its path"),
        ("${file:empty}", "the secret's file `empty` is empty", "write the secret, and only it, into the file"),
        ("${file:latin}", "the secret's file `latin` is not UTF-8", "save the secret as UTF-8 text"),
        ("${evn:NAME}", "`${evn:…}` is not a reference to a secret", "write `${env:NAME}` or `${file:PATH}`"),
        (
            "${env:NAME:-hunter2}",
            "`${env:NAME…}` is not a reference to a secret",
            "write `${env:NAME}` for an environment variable; it has no default",
        ),
        ("${ENV:NAME}", "`${ENV:…}` is not a reference to a secret", "write `${env:NAME}` or `${file:PATH}`"),
    ],
)
def test_a_missing_secret_is_named_with_its_line(refuse: Refuse, reference: str, message: str, remedy: str) -> None:
    Path("empty").touch()
    Path("latin").write_bytes(b"caf\xe9 hunter2")
    for section in (
        f"spark:\n  conf:\n    spark.a: x{reference}",
        f"catalog:\n  uri: jdbc:sqlite:a\n  warehouse: {reference}",
    ):
        error = refuse(with_section(section), {"EMPTY": ""})
        assert (error.message, error.remedy, error.where) == (message, remedy, "pipeline.yaml:6")
        assert error.exit_code == 2


@pytest.mark.parametrize("reference", ["${NAME}", "${NAME:-hunter2}", "x${NAME}"])
@pytest.mark.parametrize(
    "section", ["catalog:\n  uri: jdbc:sqlite:a\n  warehouse: {}", "registry:\n  url: http://r\n  auth:\n    token: {}"]
)
def test_a_reference_as_a_shell_writes_it_is_never_taken_for_the_value(
    refuse: Refuse, section: str, reference: str
) -> None:
    error = refuse(with_section(section.format(reference)))
    assert error.message == "`${NAME}` is not a reference to a secret"
    assert error.remedy == "write `${env:NAME}` for an environment variable; it has no default"


def test_spark_has_references_of_its_own(load: Load) -> None:
    assert load(with_section("spark: {conf: {spark.a: '${NAME}'}}")).spark.conf == {"spark.a": "${NAME}"}


@pytest.mark.parametrize(
    "section",
    [
        "catalog: {type: '${env:SECRET}'}",
        "catalog: {type: rest, uri: '${env:SECRET}'}",
        "catalog: {uri: '${env:SECRET}'}",
        "catalog: {uri: 'jdbc:x:${env:SECRET}'}",
        "catalog: {properties: {uri: '${env:SECRET}', token: [hunter2]}}",
        "catalog: {properties: {token: *hunter2}}",
        "catalog: {properties: {token: !hunter2 x}}",
        "catalog: {properties: {token: !hunter2!hunter2 x}}",
        "catalog: {properties: {token:hunter2}}",
        "catalog: {properties: {token: &hunter2 x, b: &hunter2 y, c: 'unclosed}}",
        "spark: {conf: {driver.memory: '${env:SECRET}'}}",
        "registry: {url: '${env:SECRET}'}",
        "registry: {url: 'https://u:${env:SECRET}@registry'}",
        "registry: {url: 'https://registry:${env:SECRET}'}",
        "registry: {url: 'https://a', auth: {username: 'a:${env:SECRET}', password: '${env:SECRET}'}}",
        "registry: {url: 'https://a', properties: {ssl.key.password: '${env:SECRET}'}}",
    ],
)
def test_no_error_shows_a_secret(refuse: Refuse, section: str) -> None:
    error = refuse(with_section(section), {"SECRET": "hunter2"})
    assert "hunter2" not in repr(error) + str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize(
    "settings",
    [
        "location: 's3://b/{}'",
        "where: \"a = '{}'\"",
        "select: \"select '{}' as a from records\"",
        "partition_by: ['{}']",
        "columns: {{a: {{type: string, field: '{}'}}}}",
        "include: ['{}']",
        "mode: upsert, key_columns: ['{}']",
        "metadata: {{offset: '{}'}}",
        "envelope: {{operation: op, insert: ['{}']}}, mode: upsert, key_columns: [id]",
        "add_fields: {{a: \"'{}'\"}}",
    ],
)
def test_a_reference_that_nothing_reads_is_refused(refuse: Refuse, settings: str) -> None:
    """It would be taken for the text itself."""
    error = refuse(with_table(settings.format("${file:secret.txt}")))
    assert (error.message, error.where) == ("a reference to a secret is not read here", "pipeline.yaml:4")
    assert error.remedy == "write the value itself"


def test_a_reference_is_no_second_problem_of_a_section_that_could_not_be_read(refuse: Refuse) -> None:
    error = refuse(with_section("registry: {url: 5, auth: {username: u, password: '${env:NAME}'}}"))
    assert [other.message for other in error.others] == ["the environment variable `NAME` is not set"]
