"""Catalogs of every type in the pipeline file, and the names that Hive and Glue would change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from frazil.runtime.properties import catalog_properties, spark_conf, uses_aws
from tests.unit.spec.pipeline_file import HEAD, Load, Refuse, with_section

HIVE = "catalog: {type: hive, uri: 'thrift://h:9083', warehouse: lake}\n"


@pytest.mark.parametrize(
    ("section", "properties"),
    [
        (
            "type: hive, uri: 'thrift://h', warehouse: lake",
            {"type": "hive", "uri": "thrift://h", "warehouse": "HERE/lake"},
        ),
        (
            "type: glue, warehouse: 's3://b/lake', properties: {glue.id: '123', client.region: eu-west-1}",
            {
                "type": "glue",
                "warehouse": "s3://b/lake",
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "http-client.apache.socket-timeout-ms": "10000",
                "s3.retry.min-wait-ms": "200",
                "io.manifest.cache-enabled": "true",
                "glue.id": "123",
                "client.region": "eu-west-1",
            },
        ),
        (
            "type: nessie, uri: 'http://h/api/v2', warehouse: lake, properties: {ref: dev}",
            {
                "type": "nessie",
                "uri": "http://h/api/v2",
                "warehouse": "HERE/lake",
                "table-override.write.metadata.delete-after-commit.enabled": "false",
                "ref": "dev",
            },
        ),
        (
            "type: hadoop, warehouse: lake, properties: {lock-impl: org.example.Lock}",
            {
                "type": "hadoop",
                "warehouse": "HERE/lake",
                "table-override.write.metadata.delete-after-commit.enabled": "false",
                "lock-impl": "org.example.Lock",
            },
        ),
        ("impl: org.example.Shelf, warehouse: shelf", {"catalog-impl": "org.example.Shelf", "warehouse": "shelf"}),
    ],
)
def test_every_property_reaches_iceberg_under_its_own_name(
    load: Load, section: str, properties: dict[str, str]
) -> None:
    found = catalog_properties(load(with_section(f"catalog: {{{section}}}")))
    assert {name: text.replace(str(Path.cwd()), "HERE") for name, text in found.items()} == properties


@pytest.mark.parametrize(
    ("section", "needed"),
    [
        ("type: glue, warehouse: 's3://b/w'", True),
        (
            "type: hadoop, warehouse: w, properties: {lock-impl: org.apache.iceberg.aws.dynamodb.DynamoDbLockManager}",
            True,
        ),
        ("type: rest, uri: 'http://h', properties: {rest.auth.type: sigv4}", True),
        ("impl: org.apache.iceberg.aws.dynamodb.DynamoDbCatalog", True),
        ("type: rest, uri: 'http://h', properties: {rest.auth.type: basic}", False),
        ("type: hive, uri: 'thrift://h', warehouse: w", False),
        ("type: hive, uri: 'thrift://h', warehouse: 's3://b/w'", True),
    ],
)
def test_amazons_clients_are_there_where_something_needs_them(load: Load, section: str, needed: bool) -> None:
    assert uses_aws(load(with_section(f"catalog: {{{section}}}"))) == needed


def test_amazons_clients_and_a_region_are_there_for_the_file_of_a_lookup(load: Load) -> None:
    catalog = "catalog: {uri: 'jdbc:sqlite:c.db', warehouse: lake, properties: {s3.endpoint: 'http://127.0.0.1:9'}}\n"
    table = "  a.b: {topic: c, lookup: {l: {file: FILE, on: x = y, take: [z]}}}\n"
    far, near = (load(f"{HEAD}{catalog}tables:\n{table.replace('FILE', file)}") for file in ("s3://b/l.csv", "/l.csv"))
    assert (uses_aws(far), uses_aws(near)) == (True, False)
    assert {"io-impl", "client.region"} & catalog_properties(far).keys() == {"client.region"}


def test_jars_and_hadoops_settings_reach_both_jvms(load: Load, tmp_path: Path) -> None:
    jar = tmp_path / "shelf.jar"
    jar.touch()
    spec = load(with_section(f"catalog: {{impl: a.B, jars: ['{jar}']}}\nspark: {{conf: {{spark.jars: /own.jar}}}}"))
    assert spark_conf(spec) == {"spark.jars": f"/own.jar,{jar}"}
    name = "spark.hadoop.hive.metastore.client.socket.timeout"
    assert spark_conf(load(with_section(HIVE))) == {name: "20s"}
    assert spark_conf(load(with_section(f"{HIVE}spark: {{conf: {{{name}: 5s}}}}"))) == {name: "5s"}


@pytest.mark.parametrize(
    ("table", "advice"),
    [("Shop.Orders", "shop.orders"), ("eu.shop.orders", "eu_shop.orders"), ("shop.orders-eu", "shop.orders_eu")],
)
def test_a_name_that_hive_would_change_is_refused_with_one_that_it_keeps(
    load: Load, refuse: Refuse, table: str, advice: str
) -> None:
    error = refuse(f"{HEAD}{HIVE}tables:\n  {table}: {{topic: a}}\n")
    assert (f"cannot have a table `{table}`" in error.message, error.where) == (True, "pipeline.yaml:5")
    assert error.remedy == f"name the table, such as `{advice}`, under `tables`"
    load(f"{HEAD}{HIVE}tables:\n  {advice}: {{topic: a}}\n")


@pytest.mark.parametrize("character", ["a", "ä"])
def test_a_name_that_leaves_no_room_for_that_of_dead_letters_is_refused(
    load: Load, refuse: Refuse, character: str
) -> None:
    most = 241 // len(character.encode())
    error = refuse(f"{HEAD}tables:\n  shop.{character * (most + 1)}: {{topic: a}}\n")
    size = (most + 1) * len(character.encode())
    assert error.message == f"the table's name behind its namespace has {size} bytes: 241 are the most"
    assert error.where == "pipeline.yaml:4"
    load(f"{HEAD}tables:\n  shop.{character * most}: {{topic: a}}\n")


@pytest.mark.parametrize(
    ("properties", "message", "followed"),
    [
        ({"s3.access-key-id": "k"}, "`s3.access-key-id` has no effect without `s3.secret-access-key`", {}),
        ({"s3.secret-access-key": "k", "s3.access-key-id": ""}, "`s3.secret-access-key` has no effect without", {}),
        ({"s3.sse.key": "k"}, "`s3.sse.key` has no effect without `s3.sse.type`", {"s3.sse.type": "kms"}),
        (
            {"client.assume-role.arn": "a"},
            "`client.assume-role.arn` has no effect without `client.factory`",
            {"client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"},
        ),
        ({"rest.client.proxy.hostname": "h"}, "has no effect without `rest.client.proxy.port`", {}),
        ({"rest.auth.basic.username": "u"}, "has no effect without `rest.auth.type", {"rest.auth.type": "basic"}),
        ({"rest.signing-name": "glue"}, "has no effect without `rest.auth.type", {"rest.auth.type": "sigv4"}),
        ({"rest.signing-name": "glue", "rest.auth.type": "none"}, "no effect without `rest.auth.type: sigv4`", {}),
        ({"gcp.auth.scopes": "a"}, "has no effect without `rest.auth.type", {"rest.auth.type": "google"}),
        ({"credential": "a:b", "rest.auth.type": "none"}, "`credential` has no effect without `rest.auth.type", {}),
        ({"token": "t", "rest.auth.type": "BASIC"}, "`token` has no effect without `rest.auth.type: oauth2`", {}),
        (
            {"token": "t", "rest.auth.type": "sigv4", "rest.auth.sigv4.delegate-auth-type": "none"},
            "`token` has no effect without `rest.auth.type: oauth2`",
            {},
        ),
        ({"s3.sse.type": "Custom"}, "`s3.sse.type: custom` has no effect without", {"s3.sse.key": "k"}),
        ({"http-client.urlconnection.socket-timeout-ms": "1"}, "no effect without `http-client.type`", {}),
        ({"jdbc.schema-version": "V2"}, "`jdbc.schema-version` is `V2`", {}),
        ({"s3.sse.type": "aws:kms"}, "`s3.sse.type` is `aws:kms`", {}),
        ({"rest.auth.type": "SigV4"}, "`rest.auth.type` is `SigV4`", {}),
        ({"io.manifest.cache.max-total-bytes": "128MB"}, "`io.manifest.cache.max-total-bytes` is `128MB`", {}),
        ({"s3.multipart.part-size-bytes": "32 MiB"}, "`s3.multipart.part-size-bytes` is `32 MiB`", {}),
        ({"s3.delete.num-threads": "0"}, "`s3.delete.num-threads` is `0`", {}),
        ({"ref.hash": "1122"}, "`ref.hash` names a commit, which can only be read", {}),
        ({"nessie.http2-upgrade": "yes"}, "`nessie.http2-upgrade` is `yes`, which Iceberg takes for false", {}),
        ({"s3.crt.enabled": "on"}, "`s3.crt.enabled` is `on`, which Iceberg takes for false", {}),
        ({"clients": "0"}, "`clients` is `0`: Frazil would wait for the catalog without end", {}),
        ({"token": " "}, "`token` is empty", {}),
        ({"oauth2-server-uri": "https://h/a b"}, "`oauth2-server-uri` is not an address", {}),
        ({"nessie.ref": "dev"}, "`nessie.ref` is not one of Iceberg's properties", {}),
        ({"token-exchange-enabled": "yes"}, "`token-exchange-enabled` is `yes`, which Iceberg takes for false", {}),
        ({"s3.checksum-enabled": "1"}, "`s3.checksum-enabled` is `1`, which Iceberg takes for false", {}),
        ({"jdbc.strict-mode": " true"}, "`jdbc.strict-mode` is ` true`, which Iceberg takes for false", {}),
    ],
    ids=str,
)
def test_a_property_that_iceberg_would_not_obey_without_a_word_is_refused(
    load: Load, refuse: Refuse, properties: dict[str, str], message: str, followed: dict[str, str]
) -> None:
    def section(more: dict[str, str]) -> str:
        return with_section(
            f"catalog: {{type: rest, uri: 'http://h', properties: {json.dumps({**properties, **more})}}}"
        )

    assert message in refuse(section({})).message
    if followed:
        (name,) = followed
        assert f"write `{name}" in refuse(section({})).remedy
        load(section(followed))


def test_what_catalogs_obey_is_accepted(load: Load) -> None:
    for properties in (
        {"credential": "secret", "rest.auth.type": "sigv4", "rest.signing-name": "glue"},
        {"token": "t", "rest.auth.type": "oauth2", "token-refresh-enabled": "FALSE"},
        {"credential": "a:b", "rest.auth.type": "com.example.Auth", "oauth2-server-uri": "v1/oauth/tokens"},
        {"s3.access-key-id": "", "s3.secret-access-key": "", "s3.session-token": "", "scope": ""},
        {"client.assume-role.arn": "a", "rest.sigv4-enabled": "true", "x-enabled": "1", "x-ms": "soon"},
        {"rest.sigv4-enabled": "TRUE", "rest.access-key-id": "k", "rest.session-token": "t", "credential": "a:b"},
        {"jdbc.schema-version": "v1", "snapshot-loading-mode": "REFS", "s3.sse.type": "KMS", "clients": "2"},
        {"s3.write.tags.kept-enabled": "yes", "s3.write.tags.kept-ms": "long", "s3.retry.num-retries": "0"},
    ):
        section = f"catalog: {{type: rest, uri: 'http://h', properties: {json.dumps(properties)}}}"
        assert load(with_section(section)).catalog.properties == properties


def test_a_missing_secret_is_the_only_error_of_its_pair(refuse: Refuse) -> None:
    secret = "{s3.access-key-id: k, s3.secret-access-key: '${env:NOT_THERE_AT_ALL}'}"
    error = refuse(with_section(f"catalog: {{type: rest, uri: 'http://h', properties: {secret}}}"))
    assert "NOT_THERE_AT_ALL` is not set" in error.message
    assert "has no effect" not in str(error)


def test_the_region_of_a_lock_makes_no_store_of_amazons(load: Load) -> None:
    section = "type: hadoop, warehouse: lake, properties: {lock-impl: a.Lock, client.region: eu-west-1}"
    assert "io-impl" not in catalog_properties(load(with_section(f"catalog: {{{section}}}")))


def test_a_jdbc_catalog_has_a_name_and_so_may_a_class(load: Load) -> None:
    assert load(with_section("catalog: {warehouse: w}")).catalog.name == "frazil"
    assert load(with_section("catalog: {name: lake}")).catalog.name == "lake"
    assert load(with_section("catalog: {impl: org.example.Shelf, name: lake}")).catalog.name == "lake"
