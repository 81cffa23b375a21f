"""Secrets that travel without encryption, and settings without effect, are told by `check`."""

from __future__ import annotations

import pytest

from frazil.ops.check import check_hadoop_settings, check_transport
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
            "Hadoop's client reads no dfs.replicaton; did you mean `dfs.replication`?",
        ),
        ("spark.hadoop.dfs.namenode.name.dir: /x", "Hadoop's client reads no dfs.namenode.name.dir; remove it"),
        ("spark.hadoop.dfs.replication: '2', spark.hadoop.dfs.ha.namenodes.lake: 'a,b'", None),
        ("spark.hadoop.hive.metastore.client.socket.timeout: 5s, spark.sql.x: y", None),
    ],
)
def test_settings_of_hadoop_that_reach_no_table_are_told(scenario: Scenario, settings: str, found: str | None) -> None:
    spec = scenario.spec(f"spark: {{conf: {{{settings}}}}}\ntables: {{a.b: {{topic: c}}}}\n")
    shown = [one.found for one in check_hadoop_settings(spec)]
    assert shown == ([f"mind: {found}"] if found else [])
