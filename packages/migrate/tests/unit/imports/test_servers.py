"""Debezium Server as Quarkus configures it: variables with defaults, profiles, logins; and topics of other names."""

from __future__ import annotations

import pytest

from packages.migrate.tests.unit.imports.test_details import only_table, server
from packages.migrate.tests.unit.imports.test_imports import document, imported, reasons

_SINK = "debezium.sink.iceberg."


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (f"{_SINK}upsert=${{UPSERT:true}}", "mode", "upsert"),
        (f"{_SINK}partition-by=${{TERM:day(at)}}", "partition_by", ["day(at)"]),
        (f"{_SINK}format-version=${{VERSION:2}}", "format_version", 2),
    ],
)
def test_the_default_of_a_variable_is_taken_and_reported(line: str, key: str, value: object) -> None:
    assert only_table("debezium-server", server(line))[key] == value
    setting = line.partition("=")[0]
    assert "a variable has no default here" in reasons(imported("debezium-server", server(line)))[setting]


def test_the_default_of_a_secret_is_not_printed() -> None:
    text = server(f"{_SINK}type=rest", f"{_SINK}uri=http://c", f"{_SINK}credential=${{CREDENTIAL:hushhush}}")
    found = imported("debezium-server", text)
    assert "hushhush" not in repr(found)
    assert document("debezium-server", text)["catalog"]["properties"] == {"credential": "${env:CREDENTIAL}"}
    [loss] = found.losses
    assert loss.remedy == "set the environment variable CREDENTIAL before starting Frazil"


def test_a_switch_and_a_table_that_only_the_environment_decides_are_reported() -> None:
    found = reasons(
        imported("debezium-server", server(f"{_SINK}upsert=${{UPSERT}}", f"{_SINK}table-namespace=${{NS}}"))
    )
    assert "neither true nor false" in found[f"{_SINK}upsert"]
    assert found["${env:NS}.pg_shop_orders"] == "the name of a table does not come from a variable"


def test_the_profile_that_runs_unless_named_wins_and_others_are_not_taken() -> None:
    profiles = (f"%prod.{_SINK}upsert=true", f"%dev.{_SINK}upsert=false")
    text = server(f"{_SINK}upsert=false", *profiles)
    assert only_table("debezium-server", text)["mode"] == "upsert"
    found = imported("debezium-server", text)
    assert f"{_SINK}upsert has the value of the profile `prod`" in found.notes
    assert f"%dev.{_SINK}upsert" in found.unneeded


def test_the_logins_to_kafka_and_to_the_registry_are_carried_over() -> None:
    text = server(
        "debezium.sink.kafka.producer.bootstrap.servers=b:9093",
        "debezium.sink.kafka.producer.security.protocol=SASL_SSL",
        "debezium.sink.kafka.producer.linger.ms=5",
        "debezium.format.value=avro",
        "debezium.format.value.schema.registry.url=http://r:8081",
        "debezium.format.value.basic.auth.credentials.source=USER_INFO",
        "debezium.format.value.basic.auth.user.info=ann:${REGISTRY_PASSWORD}",
    )
    file = document("debezium-server", text)
    assert file["kafka"]["security.protocol"] == "SASL_SSL"
    auth = {"username": "ann", "password": "${env:REGISTRY_PASSWORD}"}
    assert file["registry"] == {"url": "http://r:8081", "auth": auth}
    assert imported("debezium-server", text).losses == ()


@pytest.mark.parametrize(
    "kind",
    [
        "io.debezium.transforms.ByLogicalTableRouter",
        "org.apache.kafka.connect.transforms.RegexRouter",
        "io.debezium.transforms.outbox.EventRouter",
    ],
)
def test_a_transform_that_renames_topics_is_reported(kind: str) -> None:
    found = imported("debezium-server", server("debezium.transforms=a", f"debezium.transforms.a.type={kind}"))
    assert "renames topics" in reasons(found)["debezium.transforms.a"]


def test_names_of_topics_of_another_form_are_reported() -> None:
    key = "debezium.source.topic.delimiter"
    assert reasons(imported("debezium-server", server(f"{key}=-")))[key] == "topics have names of another form"
    assert imported("debezium-server", server(f"{key}=.")).losses == ()


def test_every_database_of_a_sql_server_has_its_topics() -> None:
    text = server("debezium.source.database.names=a, b")
    topics = {name: table["topic"] for name, table in document("debezium-server", text)["tables"].items()}
    assert topics == {"default.pg_a_shop_orders": "pg.a.shop.orders", "default.pg_b_shop_orders": "pg.b.shop.orders"}


# ---- names that are almost those of settings


@pytest.mark.parametrize(
    ("tool", "text", "key", "meant"),
    [
        ("debezium-server", server(f"{_SINK}upserts=true"), f"{_SINK}upserts", f"{_SINK}upsert"),
        ("debezium-server", server(f"{_SINK}partiton-by=id"), f"{_SINK}partiton-by", f"{_SINK}partition-by"),
        (
            "kafka-connect",
            '{"topics": "a", "iceberg.tables": "s.a", "iceberg.tables.evolve-schema-enable": "true"}',
            "iceberg.tables.evolve-schema-enable",
            "iceberg.tables.evolve-schema-enabled",
        ),
        (
            "flink-cdc",
            "source: {type: mysql, tables: db.a}\nsink: {type: iceberg}\npipeline: {schema.change.behaviour: evolve}",
            "pipeline.schema.change.behaviour",
            "pipeline.schema.change.behavior",
        ),
        ("tableflow", '{"topic_name": "a", "retention_m": "5"}', "a/retention_m", "retention_ms"),
    ],
)
def test_a_misspelt_setting_is_reported_with_the_one_that_is_meant(tool: str, text: str, key: str, meant: str) -> None:
    found = imported(tool, text)
    assert [(loss.key, loss.remedy) for loss in found.losses] == [(key, f"did you mean `{meant}`?")]
    assert "catalog" not in document(tool, text)
    assert key not in found.carried
