"""Rules of Flink CDC that lack something, and topics of Tableflow and AutoMQ in every form that they are printed in."""

from __future__ import annotations

import json

import pytest

from packages.migrate.tests.unit.imports.test_imports import document, imported, reasons

_MYSQL = (
    "source: {type: mysql, tables: db.orders}\n"
    "sink: {type: iceberg, catalog.properties.type: rest, catalog.properties.uri: 'http://c'}\n"
)


@pytest.mark.parametrize(
    ("rules", "key", "reason"),
    [
        ("route: [{source-table: db.orders}]", "1/route", "it has no sink-table"),
        ("route: [{source-tables: db.orders, sink-table: ods.orders}]", "1/route", "it has no source-table"),
        (
            "transform: [{source-table: db.orders, projection: 'id, ''abc'}]",
            "1/transform.projection",
            "a quotation mark is not closed",
        ),
        (
            "transform: [{source-table: db.orders, filter: id > 1}, {source-table: db.orders, filter: id < 2}]",
            "2/transform.source-table",
            "a rule before it is for the table too: here a table has one `select` and one `where`",
        ),
    ],
)
def test_a_rule_that_lacks_something_is_reported(rules: str, key: str, reason: str) -> None:
    found = imported("flink-cdc", _MYSQL + rules)
    assert reasons(found)[key] == reason
    assert list(document("flink-cdc", _MYSQL + rules)["tables"]) == ["db.orders"]


def test_a_pipeline_without_tables_and_sink_is_reported() -> None:
    found = reasons(imported("flink-cdc", "source: {type: mongodb, database: db, collection: orders}"))
    assert found["source.tables"] == "the pipeline names no table"
    assert found["sink"] == "the pipeline has no sink"


def test_changes_of_the_schema_that_the_sink_chooses_are_reported() -> None:
    text = _MYSQL.replace("iceberg,", "iceberg, exclude.schema.changes: [drop.column],")
    assert [loss.remedy for loss in imported("flink-cdc", text).losses] == ["write `schema_evolution`"]


# ---- topics


@pytest.mark.parametrize(
    "text",
    [
        "topic_name: orders\nkafka_cluster: lkc-1\nretention_ms: '3600000'\n",
        "- topic_name: orders\n  kafka_cluster: lkc-1\n  retention_ms: '3600000'\n",
        "spec:\n  display_name: orders\n  kafka_cluster: {id: lkc-1}\n  config:\n    retention_ms: '3600000'\n",
    ],
)
def test_what_confluent_prints_as_yaml_is_read(text: str) -> None:
    table = {"topic": "orders", "value": {"format": "avro"}, "maintenance": {"snapshots": {"age": "1h"}}}
    assert document("tableflow", text)["tables"] == {"lkc-1.orders": table}
    assert imported("tableflow", text).losses == ()


def test_a_retention_that_is_not_a_number_is_reported_by_its_setting() -> None:
    found = reasons(imported("tableflow", json.dumps({"topic_name": "orders", "retention_ms": "7d"})))
    assert found["orders/retention_ms"] == "`7d` is not a number of milliseconds"


def test_settings_of_topics_that_kafka_prints_are_read() -> None:
    head = "Topic: orders\tTopicId: x\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: "
    keys = "automq.table.topic.partition.by=[bucket(id, 16),day(at)],segment.bytes=1,automq.table.topic.enable=true"
    text = f"{head}{keys}\n\tTopic: orders\tPartition: 0\tLeader: 1\n"
    table = {"topic": "orders", "value": {"format": "raw"}, "partition_by": ["bucket(id, 16)", "day(at)"]}
    assert document("automq", text)["tables"] == {"default.orders": table}


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("tableflow", json.dumps([{"topic_name": "shop.orders"}, {"topic_name": "shop_orders"}])),
        (
            "automq",
            json.dumps({name: {"automq.table.topic.enable": "true"} for name in ("shop.orders", "shop_orders")}),
        ),
    ],
)
def test_two_topics_of_one_table_are_not_one_topic(tool: str, text: str) -> None:
    [table] = document(tool, text)["tables"].values()
    assert table["topic"] == "shop.orders"
    assert "another topic has the table" in reasons(imported(tool, text))["shop_orders"]
