"""The forms in which people have the settings of other tools, and values that a tool would not take as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.errors import SpecError
from packages.migrate.tests.unit.imports.test_details import only_table, server, sink
from packages.migrate.tests.unit.imports.test_imports import document, imported, reasons

_APACHE = "org.apache.iceberg.connect.IcebergSinkConnector"
_SETTINGS = {"topics": "orders", "iceberg.tables": "shop.orders", "iceberg.tables.evolve-schema-enabled": "true"}
_STRIMZI = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaConnector
metadata:
  name: orders
  labels: {strimzi.io/cluster: connect}
spec:
  class: org.apache.iceberg.connect.IcebergSinkConnector
  tasksMax: 2
  config:
    topics: orders
    iceberg.tables: "shop.orders"  # one
    iceberg.tables.evolve-schema-enabled: true
"""
_CONFLUENT = """\
apiVersion: platform.confluent.io/v1beta1
kind: Connector
metadata: {name: orders}
spec:
  class: org.apache.iceberg.connect.IcebergSinkConnector
  taskMax: 2
  configs: {topics: orders, iceberg.tables: shop.orders, iceberg.tables.evolve-schema-enabled: "true"}
"""
_PLAIN_YAML = """\
name: orders
topics: orders
iceberg.tables: 'shop.orders'
iceberg.tables.evolve-schema-enabled: true
"""
_NAMED = {"name": "orders", "config": _SETTINGS}


@pytest.mark.parametrize(
    "text",
    [
        _STRIMZI,
        _CONFLUENT,
        _PLAIN_YAML,
        json.dumps({**_NAMED, "tasks": [], "type": "sink"}),
        json.dumps([_NAMED]),
        json.dumps({"orders": {"info": _NAMED}}),
        "name=orders\rtopics=orders\r\niceberg.tables=shop.\\\r\n  orders\niceberg.tables.evolve-schema-enabled: True",
    ],
)
def test_a_connector_is_read_in_every_form_that_people_have_it_in(text: str) -> None:
    file = document("kafka-connect", text)
    assert file["pipeline"] == "orders"
    assert file["tables"] == {"shop.orders": {"topic": "orders", "schema_evolution": "evolve"}}
    assert imported("kafka-connect", text).losses == ()


def test_the_settings_of_debezium_server_are_read_from_nested_yaml() -> None:
    flat = server("debezium.sink.iceberg.upsert=true", "debezium.sink.iceberg.type=rest")
    nested = """\
debezium:
  sink: {type: iceberg, iceberg: {upsert: true, type: rest}}
  source:
    topic.prefix: pg
    table.include.list: shop.orders
"""
    assert document("debezium-server", nested) == document("debezium-server", flat)


@pytest.mark.parametrize(
    ("tool", "text", "message", "remedy"),
    [
        (
            "kafka-connect",
            json.dumps({"a": {"info": _NAMED}, "b": {"info": _NAMED}}),
            "the configuration has 2 connectors",
            "give one of them: a pipeline file is made of one connector",
        ),
        ("kafka-connect", '["a", "b"]', "the configuration is a list of 2 entries", "give one of them alone"),
        (
            "kafka-connect",
            "kind: Deployment\nspec: {replicas: 1}\n",
            "the configuration is a `Deployment` of Kubernetes, which is not a connector",
            "give one of KafkaConnector, Connector, or the settings alone",
        ),
        (
            "kafka-connect",
            json.dumps({**_SETTINGS, "connector.class": "io.confluent.connect.s3.S3SinkConnector"}),
            "the connector is not an Iceberg sink: io.confluent.connect.s3.S3SinkConnector",
            "give the configuration of the sink",
        ),
        ("kafka-connect", '{"name": "a", "config": "{}"}', "the configuration has no settings", "give a mapping"),
        (
            "debezium-server",
            json.dumps({"topics": "orders"}),
            "the configuration has no setting of Debezium Server",
            "give a configuration of it, in a form that `frazil import debezium-server --help` names",
        ),
        (
            "debezium-server",
            "SINK_TYPE=iceberg",
            "the configuration has no setting of",
            "give a configuration",
        ),
        ("kafka-connect", "curl -X POST http://connect", "the configuration has no setting of", "give a configuration"),
        (
            "kafka-connect",
            '{"topics": "a", "topics": "b"}',
            "the configuration has `topics` twice",
            "keep one of them: tools take the last",
        ),
        (
            "kafka-connect",
            "a=1\\\n 2\n# c \\\ntopics=a\ntopics=b",
            "the configuration has `topics` twice, line 5",
            "keep",
        ),
        (
            "flink-cdc",
            "pipeline: {name: a}\npipeline: {name: b}",
            "the configuration has `pipeline` twice, line 2",
            "keep",
        ),
    ],
)
def test_what_is_not_one_configuration_of_the_tool_is_refused(tool: str, text: str, message: str, remedy: str) -> None:
    with pytest.raises(SpecError) as refused:
        imported(tool, text)
    assert refused.value.message.startswith(message)
    assert refused.value.remedy.startswith(remedy)


def test_a_comment_does_not_continue_in_the_next_line() -> None:
    text = "# C:\\jars\\\ntopics=orders\niceberg.tables=shop.orders\n"
    assert only_table("kafka-connect", text)["topic"] == "orders"


# ---- values


@pytest.mark.parametrize(("value", "expected"), [("True", "evolve"), ("TRUE ", "evolve"), ("False", "freeze")])
def test_a_switch_is_read_in_any_case(value: str, expected: str) -> None:
    table = only_table("kafka-connect", sink(**{"iceberg.tables.evolve-schema-enabled": value}))
    assert table["schema_evolution"] == expected


def test_a_switch_that_the_tool_would_refuse_is_reported() -> None:
    key = "iceberg.tables.upsert-mode-enabled"
    assert reasons(imported("kafka-connect", sink(**{key: "yes"})))[key].startswith("`yes` is neither true nor false")


@pytest.mark.parametrize(("value", "mode"), [("yes", "upsert"), ("ON", "upsert"), ("1", "upsert"), ("no", None)])
def test_debezium_server_has_more_words_for_true(value: str, mode: str | None) -> None:
    assert only_table("debezium-server", server(f"debezium.sink.iceberg.upsert={value}")).get("mode") == mode


def test_a_tolerance_is_read_in_any_case_and_an_unknown_one_reported() -> None:
    assert only_table("kafka-connect", sink(**{"errors.tolerance": "ALL"}))["on_bad_record"] == "dead_letter"
    other = sink(**{"errors.tolerance": "some"})
    assert reasons(imported("kafka-connect", other))["errors.tolerance"] == "`some` is unknown"
    assert "on_bad_record" not in only_table("kafka-connect", other)


@pytest.mark.parametrize(
    ("tool", "text", "key"),
    [
        ("kafka-connect", sink(**{"iceberg.control.commit.interval-ms": "5m"}), "iceberg.control.commit.interval-ms"),
        (
            "debezium-server",
            server("debezium.sink.batch.batch-size-wait.max-wait-ms=10s"),
            "debezium.sink.batch.batch-size-wait.max-wait-ms",
        ),
    ],
)
def test_a_time_that_is_not_a_number_of_milliseconds_is_reported_by_its_setting(tool: str, text: str, key: str) -> None:
    found = imported(tool, text)
    assert [loss.remedy for loss in found.losses] == ["write one there, such as 60000, and import again"]
    assert key in reasons(found)
    assert "commit" not in document(tool, text)


def test_the_type_of_a_catalog_is_read_in_any_case() -> None:
    assert document("kafka-connect", sink(**{"iceberg.catalog.type": "REST"}))["catalog"]["type"] == "rest"


def test_topics_beside_an_expression_are_reported() -> None:
    text = sink(**{"topics.regex": "o.*"})
    assert "topics" in reasons(imported("kafka-connect", text))
    assert only_table("kafka-connect", text)["topics"] == "/^(?:o.*)$/"


def test_a_table_without_a_namespace_is_reported_with_its_name_here() -> None:
    found = imported("kafka-connect", sink(**{"iceberg.tables": "orders"}))
    assert reasons(found)["iceberg.tables orders"] == "a table is in a namespace here: it is `default.orders`"


def dynamic(**settings: str) -> str:
    given: dict[str, Any] = json.loads(sink(**settings))
    del given["iceberg.tables"]
    return json.dumps({**given, "iceberg.tables.dynamic-enabled": "true"})


def test_dynamic_tables_without_a_field_make_no_route() -> None:
    found = imported("kafka-connect", dynamic())
    assert reasons(found)["iceberg.tables.route-field"] == "no field names the tables"
    assert "routes" not in document("kafka-connect", dynamic())


def test_settings_of_single_dynamic_tables_are_reported_as_such() -> None:
    """The sink has them: they are not without effect there."""
    key = "iceberg.table.shop.orders.partition-by"
    found = imported("kafka-connect", dynamic(**{"iceberg.tables.route-field": "to", key: "day(at)"}))
    assert reasons(found)[key] == "the tables of a route have the same settings"
    assert any("lower case" in note for note in found.notes)
