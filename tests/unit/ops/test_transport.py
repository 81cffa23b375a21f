"""`check` reports secrets that travel without encryption, and settings without effect."""

from __future__ import annotations

import pytest

from frazil.ops.check import check_secrets, check_transport
from frazil.ops.plan import plan_document
from frazil.ops.store_check import (
    check_catalog_settings,
    check_driver_settings,
    check_hadoop_settings,
    check_store_properties,
)
from frazil.spec import load_spec
from tests.unit.ops.conftest import Scenario

_SAFE = "spark.authenticate: 'true', spark.network.crypto.enabled: 'true', spark.io.encryption.enabled: 'true'"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("catalog: {type: rest, uri: 'http://catalog/api', properties: {credential: 'id:word'}}", ["catalog"]),
        ("catalog: {type: rest, uri: 'http://u:p@catalog/api'}", ["catalog"]),
        ("catalog: {type: rest, uri: 'http://catalog/api'}", []),
        ("catalog: {type: rest, uri: 'https://catalog/api', properties: {token: t}}", []),
        ("catalog: {type: rest, uri: 'http://127.0.0.1:1/api', properties: {token: t}}", []),
        ("catalog: {type: rest, uri: 'http://localhost/api', properties: {token: t}}", []),
        ("registry: {url: 'http://registry:8081', auth: {username: u, password: p}}", ["registry"]),
        ("registry: {url: 'http://[::1]:8081', auth: {username: u, password: p}}", []),
        ("registry: {url: 'http://registry:8081'}", []),
        ("spark: {master: 'spark://h:7077'}", ["spark"]),
        (f"spark: {{master: 'spark://h:7077', conf: {{{_SAFE}}}}}", []),
        ("spark: {master: 'local[2]'}", []),
    ],
)
def test_what_travels_in_the_open_is_told(scenario: Scenario, text: str, names: list[str]) -> None:
    spec = scenario.spec(f"{text}\ntables: {{a.b: {{topic: c}}}}\n")
    found = list(check_transport(spec))
    assert [one.name for one in found] == [f"transport of {name}" for name in names]
    assert all(one.is_ok and one.found.startswith("mind: ") for one in found)


@pytest.mark.parametrize(
    ("protocol", "servers", "is_told"),
    [
        ("SASL_PLAINTEXT", "broker:9092", True),
        ("SASL_SSL", "broker:9092", False),
        ("SASL_PLAINTEXT", "127.0.0.1:1", False),
    ],
)
def test_a_password_of_kafka_in_the_open_is_told(
    scenario: Scenario, protocol: str, servers: str, is_told: bool
) -> None:
    file = scenario.root / "p.yaml"
    file.write_text(
        f"pipeline: p\nkafka: {{bootstrap.servers: '{servers}', security.protocol: {protocol}, sasl.mechanism: PLAIN,"
        " sasl.username: u, sasl.password: p}\ntables: {a.b: {topic: c}}\n"
    )
    assert [one.name for one in check_transport(load_spec(file))] == (["transport of kafka"] if is_told else [])


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (
            "sasl.username: u, sasl.password: p",
            "Kafka's clients do not use sasl.username, sasl.password with `security.protocol: PLAINTEXT`",
        ),
        (
            "security.protocol: SASL_PLAINTEXT, ssl.ca.location: /ca.pem",
            "Kafka's clients do not use ssl.ca.location with `security.protocol: SASL_PLAINTEXT`",
        ),
        ("security.protocol: SSL, ssl.ca.location: /ca.pem", None),
    ],
)
def test_settings_that_the_protocol_leaves_without_effect_are_told(
    scenario: Scenario, settings: str, found: str | None
) -> None:
    file = scenario.root / "p.yaml"
    servers = "bootstrap.servers: '127.0.0.1:1'"
    file.write_text(f"pipeline: p\nkafka: {{{servers}, {settings}}}\ntables: {{a.b: {{topic: c}}}}\n")
    shown = [one.found.removeprefix("mind: ").partition(";")[0] for one in check_transport(load_spec(file))]
    assert shown == ([found] if found else [])


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (
            "spark.hadoop.fs.s3a.endpoint: 'http://s', spark.hadoop.fs.s3a.encryption.algorithm: SSE-KMS",
            "fs.s3a.encryption.algorithm, fs.s3a.endpoint reach no table, which Iceberg's own clients read and write;"
            " write Iceberg's properties of the store under `catalog.properties`",
        ),
        (
            "spark.hadoop.dfs.replicaton: '2'",
            "the tasks that write files get no dfs.replicaton; did you mean `dfs.replication`?",
        ),
        (
            "spark.hadoop.dfs.client.read.shortcircuit: 'true'",
            "the tasks that write files get no dfs.client.read.shortcircuit; keep it where the driver needs it, or remove"
            " it",
        ),
        ("spark.hadoop.dfs.replication: '2', spark.hadoop.dfs.ha.namenodes.lake: 'a,b'", None),
        ("spark.hadoop.hive.metastore.client.socket.timeout: 5s, spark.sql.x: y", None),
    ],
)
def test_settings_of_hadoop_that_reach_no_table_are_told(scenario: Scenario, settings: str, found: str | None) -> None:
    spec = scenario.spec(f"spark: {{conf: {{{settings}}}}}\ntables: {{a.b: {{topic: c}}}}\n")
    shown = [one.found for one in check_hadoop_settings(spec)]
    assert shown == ([f"mind: {found}"] if found else [])


@pytest.mark.parametrize(
    "case",
    [
        (
            "type: rest, uri: 'https://h', properties: {credentials: 'a:b'}",
            "Iceberg reads no `credentials`; did you mean `credential`?",
        ),
        (
            "type: rest, uri: 'https://h', properties: {rest.auth.typ: basic}",
            "Iceberg reads no `rest.auth.typ`; did you mean `rest.auth.type`?",
        ),
        (
            "type: rest, uri: 'https://h', properties: {ur: x}",
            "Iceberg reads no `ur`; did you mean `catalog.uri`?",
        ),
        (
            "type: rest, uri: 'https://h', properties: {headers.X-Realm: x}",
            "Iceberg reads no `headers.X-Realm`; did you mean `header.X-Realm`?",
        ),
        (
            "type: glue, warehouse: 's3://b/w', properties: {glue.skip-archives: 'true'}",
            "Iceberg reads no `glue.skip-archives`; did you mean `glue.skip-archive`?",
        ),
        (
            "type: glue, warehouse: 's3://b/w', properties: {glue.region: eu-west-1}",
            "Iceberg reads no `glue.region`; did you mean `client.region`?",
        ),
        (
            "type: rest, uri: 'https://h', properties: {s3.secret-acess-key: k, s3.region: eu-west-1}",
            "`s3.region` reaches Iceberg alone, not the tasks that write data files; did you mean `client.region`?",
            "Iceberg reads no `s3.secret-acess-key`; did you mean `s3.secret-access-key`?",
        ),
        (
            "impl: com.example.Shelf, properties: {shelf.token: t, credentials: 'a:b', ref: x}",
            "Iceberg gets `credentials`, `shelf.token` unchecked",
        ),
        (
            "type: rest, uri: 'https://h', properties: {credential: 'a:b', rest.auth.x.claims: c, table-default.a: b,"
            " header.X: y, glue.id: '1', s3.sse.type: none, client.region: r, client.assume-role.arn: a,"
            " rest.sigv4-enabled: 'true'}",
            "Iceberg gets `rest.auth.x.claims` unchecked",
        ),
        (
            "type: nessie, uri: 'http://h/api/v2', warehouse: /w,"
            " properties: {authentication.type: BEARER, authentication.token: t, nessie.transport.read-timeout: '1000'}",
            "Iceberg gets `nessie.transport.read-timeout` unchecked",
        ),
        ("type: jdbc, uri: 'jdbc:postgresql://h/d', warehouse: /w, properties: {jdbc.sslpassword: x, clients: '2'}",),
    ],
)
def test_properties_of_a_catalog_that_iceberg_may_ignore_are_named_without_their_values(
    scenario: Scenario, case: tuple[str, ...]
) -> None:
    catalog, *sentences = case
    spec = scenario.spec(f"catalog: {{{catalog}}}\ntables: {{a.b: {{topic: c}}}}\n")
    assert [finding.found for finding in check_catalog_settings(spec)] == [f"mind: {words}" for words in sentences]
    assert plan_document(spec, [])["warnings"] == sentences


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (
            "jdbc.journal_mode: NOPE",
            "`jdbc.journal_mode` is `NOPE`, and the driver lists DELETE, WAL; write one of them",
        ),
        ("jdbc.jurnal_mode: WAL", "the driver lists no `jdbc.jurnal_mode`; did you mean `jdbc.journal_mode`?"),
        ("jdbc.sslmode: require", "the driver lists no `jdbc.sslmode`; remove it"),
        ("jdbc.strict_mod: 'true'", "the driver lists no `jdbc.strict_mod`; did you mean `jdbc.strict-mode`?"),
        ("jdbc.journal_mode: wal, jdbc.encoding: UTF-8, jdbc.busy_timeout: '5', jdbc.schema-version: V1", None),
        ("jdbc.user: u, jdbc.password: p, jdbc.strict-mode: 'true', retryable_status_codes: '40001'", None),
    ],
)
def test_settings_that_the_driver_of_a_database_does_not_list_are_told(
    scenario: Scenario, properties: str, found: str | None
) -> None:
    listed = {"journal_mode": ("DELETE", "WAL"), "encoding": ("'UTF-8'", "'UTF-16'"), "busy_timeout": ()}
    catalog = f"catalog: {{type: jdbc, uri: 'jdbc:sqlite:c.db', properties: {{{properties}}}}}"
    spec = scenario.spec(f"{catalog}\ntables: {{a.b: {{topic: c}}}}\n")
    assert [one.found for one in check_driver_settings(spec, listed)] == ([f"mind: {found}"] if found else [])
    assert list(check_driver_settings(spec, {})) == [], "an unknown driver lists nothing"


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ("warehouse: 's3://lake/w', properties: {gcs.oauth2.token: t, s3.endpoint: 'http://s'}", "gcs.oauth2.token"),
        ("warehouse: 'gs://lake/w', properties: {s3.sse.type: kms, s3.sse.key: k}", "s3.sse.key, s3.sse.type"),
        ("warehouse: 'hdfs://h:1/w', properties: {adls.token: t}", "adls.token"),
        ("warehouse: /srv/lake, properties: {s3.endpoint: 'http://s'}", "s3.endpoint"),
        ("warehouse: 's3a://lake/w', properties: {s3.sse.type: s3, client.region: eu-west-1}", None),
        ("type: rest, uri: 'https://c', properties: {gcs.oauth2.token: t}", None),
    ],
)
def test_properties_of_a_store_that_has_no_table_are_told(scenario: Scenario, section: str, found: str | None) -> None:
    uri = "" if "uri" in section else ", uri: 'jdbc:sqlite:c.db'"
    spec = scenario.spec(f"catalog: {{{section}{uri}}}\ntables: {{a.b: {{topic: c}}}}\n")
    shown = [one.found.partition(";")[0] for one in check_store_properties(spec, [])]
    assert shown == ([f"mind: no table is in the store of {found}"] if found else [])
    lookup = "lookup: {l: {file: 's3://b/l.csv', on: x = y, take: [z]}}"
    spec = scenario.spec(f"catalog: {{{section}{uri}}}\ntables: {{a.b: {{topic: c, {lookup}}}}}\n")
    others = [one for one in (found or "").split(", ") if not one.startswith("s3.")]
    assert bool(list(check_store_properties(spec, []))) == any(others), "the file of a lookup needs them"


def test_secrets_that_are_too_short_to_be_masked_in_words_are_told(scenario: Scenario) -> None:
    def checked(password: str) -> list[str]:
        registry = f"registry: {{url: 'https://r', auth: {{username: u, password: {password}}}}}"
        return [one.found for one in check_secrets(scenario.spec(f"{registry}\ntables: {{a.b: {{topic: c}}}}\n"))]

    assert checked("abc") == []
    assert checked("ab") == [
        "mind: 1 secret of less than 3 characters, masked only as a whole value; use longer secrets, and write values that"
        " are none into the file itself"
    ]
