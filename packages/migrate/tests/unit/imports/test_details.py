"""Settings of other tools that are easily lost: table properties with a key of their own, types, names, logins and terms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.errors import SpecError
from frazil_migrate.imports.draft import Imported
from packages.migrate.tests.unit.imports.test_imports import document, imported, reasons


def only_table(tool: str, text: str) -> dict[str, Any]:
    [found] = document(tool, text)["tables"].values()
    table: dict[str, Any] = found
    return table


def sink(**settings: str) -> str:
    given = {"topics": "orders", "iceberg.tables": "shop.orders", "iceberg.catalog.type": "rest"}
    return json.dumps({**given, "iceberg.catalog.uri": "http://c", **settings})


def server(*lines: str) -> str:
    return "\n".join([*lines, "debezium.source.topic.prefix=pg", "debezium.source.table.include.list=shop.orders"])


def pipeline(sink_: str = "", transform: str = "") -> str:
    rule = f"transform: [{{source-table: db.orders, {transform}}}]\n" if transform else ""
    head = "source: {type: mysql, tables: db.orders}\nroute: [{source-table: db.orders, sink-table: shop.orders}]\n"
    return f"{head}sink: {{type: iceberg{sink_}}}\n{rule}"


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("flink-cdc", pipeline(', table.properties.format-version: "2"')),
        ("flink-cdc", pipeline("", "primary-keys: id, table-options: format-version=2")),
        ("kafka-connect", sink(**{"iceberg.tables.write-props.format-version": "2"})),
        ("debezium-server", server("debezium.sink.iceberg.format-version=2")),
    ],
)
def test_a_format_version_among_properties_is_the_setting(tool: str, text: str) -> None:
    table = only_table(tool, text)
    assert (table["format_version"], table.get("properties")) == (2, None)
    assert not [loss for loss in imported(tool, text).losses if "format" in loss.key]


_UNWRAP = (
    "debezium.transforms=route,unwrap",
    "debezium.transforms.unwrap.type=io.debezium.transforms.ExtractNewRecordState",
)


def test_the_times_that_debezium_server_makes_timestamps_are_so_here() -> None:
    """`day(__source_ts_ms)` of a number would stop every table."""
    partition = "debezium.sink.iceberg.partition-by=day(__source_ts_ms)"
    fields = "debezium.transforms.unwrap.add.fields=op,table,source.ts_ms,source.ts_ns,ts_ms"
    table = only_table("debezium-server", server(*_UNWRAP, fields, partition))
    assert table["columns"] == {"__source_ts_ms": "timestamptz(ms)", "__ts_ms": "timestamptz(ms)"}
    assert "metadata" not in table
    few = "debezium.transforms.unwrap.add.fields=op,source.ts_ms:at"
    assert "columns" not in only_table("debezium-server", server(*_UNWRAP, few))
    # Without the transform the topic has the envelope.
    table = only_table("debezium-server", server(partition))
    assert (table["metadata"], table.get("columns")) == ({"source_ts": "__source_ts_ms"}, None)
    assert "metadata" not in only_table("debezium-server", server("debezium.sink.iceberg.partition-by=day(placed_at)"))


# ---- Tableflow


_TOPIC = {
    "display_name": "orders",
    "kafka_cluster": [{"id": "lkc-1"}],
    "table_formats": ["ICEBERG"],
    "managed_storage": [{}],
    "error_handling": [{"mode": "SKIP"}],
}
_RESOURCE = {"type": "confluent_tableflow_topic", "name": "orders", "mode": "managed"}
_OTHER = {"type": "confluent_kafka_topic", "values": {"topic_name": "others"}}


@pytest.mark.parametrize(
    "shown",
    [
        {
            "terraform_version": "1.9",
            "values": {"root_module": {"resources": [_OTHER, {**_RESOURCE, "values": _TOPIC}]}},
        },
        {
            "terraform_version": "1.9",
            "values": {"root_module": {"child_modules": [{"resources": [{**_RESOURCE, "values": _TOPIC}]}]}},
        },
        {
            "terraform_version": "1.9",
            "planned_values": {"root_module": {"resources": [{**_RESOURCE, "values": _TOPIC}]}},
        },
        {"version": 4, "lineage": "x", "resources": [{**_RESOURCE, "instances": [{"attributes": _TOPIC}]}]},
        {**_RESOURCE, "values": _TOPIC},
    ],
)
def test_what_terraform_shows_whole_has_the_topics(shown: dict[str, Any]) -> None:
    tables = document("tableflow", json.dumps(shown))["tables"]
    assert tables == {"lkc-1.orders": {"topic": "orders", "value": {"format": "avro"}, "on_bad_record": "skip"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'resource "confluent_tableflow_topic" "orders" {\n  display_name = "orders"\n}\n',
            "the configuration is in Terraform's own language",
        ),
        ('{"suspended": false}', "the configuration names no topic"),
        ("suspended=false", "the configuration names no topic"),
        ('[{"display_name": "orders"}, {}]', "the configuration has no settings"),
        (
            '{"terraform_version": "1.9", "values": {"root_module": {"resources": []}}}',
            "the configuration has no resource `confluent_tableflow_topic`",
        ),
    ],
)
def test_no_topic_is_invented(text: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        imported("tableflow", text)
    assert refused.value.message == message
    assert refused.value.remedy


def test_dots_of_a_topic_are_underscores_in_the_table_as_with_automq() -> None:
    text = json.dumps({"display_name": "shop.orders", "kafka_cluster": {"id": "lkc-1"}})
    found = imported("tableflow", text)
    assert list(document("tableflow", text)["tables"]) == ["lkc-1.shop_orders"]
    assert "`lkc-1.shop_orders`" in reasons(found)["shop.orders"]


# ---- small


def test_a_mask_needs_a_key_which_is_reported() -> None:
    kind = "org.apache.kafka.connect.transforms.MaskField$Value"
    mask = {
        "transforms": "m",
        "transforms.m.type": kind,
        "transforms.m.fields": "card",
        "transforms.m.replacement": "*",
    }
    [loss] = [loss for loss in imported("kafka-connect", sink(**mask)).losses if loss.key == "transforms.m"]
    assert "PROTECT_KEY" in loss.remedy
    table = only_table("kafka-connect", sink(**mask))
    assert table["protect"] == {"card": {"action": "constant", "value": "*"}}
    assert table["protect_key"] == "${env:PROTECT_KEY}"


def test_a_login_in_one_secret_is_named_by_its_whole_setting() -> None:
    secret = "${file:/run/secrets/registry}"
    place = "value.converter.schema.registry."
    avro = {"value.converter": "io.confluent.connect.avro.AvroConverter", f"{place}url": "http://r"}
    for key in (f"{place}basic.auth.user.info", "value.converter.basic.auth.user.info"):
        assert key in reasons(imported("kafka-connect", sink(**avro, **{key: secret})))
    keys = {"schema.registry.url": "http://r", "schema.registry.config.basic.auth.user.info": secret}
    shared = {f"automq.table.topic.{key}": value for key, value in keys.items()}
    text = json.dumps({**shared, "orders": {"automq.table.topic.enable": "true"}})
    assert "automq.table.topic.schema.registry.config.basic.auth.user.info" in reasons(imported("automq", text))


def _reported(found: Imported) -> list[str]:
    return [loss.remedy for loss in found.losses if "is not how" in loss.reason]


@pytest.mark.parametrize(
    ("tool", "text", "remedy"),
    [
        (
            "kafka-connect",
            sink(**{"iceberg.tables.default-partition-by": "day[created_at]"}),
            "write `day(created_at)`",
        ),
        ("kafka-connect", sink(**{"iceberg.tables.default-partition-by": "days[at],id"}), "write `day(at)`"),
        (
            "automq",
            json.dumps(
                {"orders": {"automq.table.topic.enable": "true", "automq.table.topic.partition.by": "[day[at]]"}}
            ),
            "write `day(at)`",
        ),
        ("debezium-server", server("debezium.sink.iceberg.partition-by=bucket[id]"), "write `bucket(id, 16)`"),
        ("flink-cdc", pipeline(', partition.key: "shop.orders:hour[at"'), "write `hour(at)`"),
    ],
)
def test_a_malformed_term_is_named_whole(tool: str, text: str, remedy: str) -> None:
    assert _reported(imported(tool, text)) == [remedy]


def test_a_partition_by_the_time_of_processing_is_named() -> None:
    """The column is the time of the record here, and each moment would be a partition."""
    source = "CREATE TABLE src (id BIGINT, at AS PROCTIME()) WITH ('connector'='kafka', 'topic'='o', 'format'='json');"
    target = "CREATE TABLE shop.orders (id BIGINT, at TIMESTAMP(3)) PARTITIONED BY (at) WITH ('connector'='iceberg'{});"
    options = ", 'catalog-type'='rest', 'uri'='http://c', 'catalog-database'='shop'"
    text = f"{source}\n{target.format(options)}\nINSERT INTO shop.orders SELECT id, at FROM src;"
    assert "partition_by at" in reasons(imported("flink-sql", text))
