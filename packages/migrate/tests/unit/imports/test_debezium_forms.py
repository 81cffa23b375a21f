"""The forms in which people have the settings of Debezium Server: properties, the operator's resource, and variables."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from frazil.errors import SpecError
from packages.migrate.tests.unit.imports.test_details import only_table
from packages.migrate.tests.unit.imports.test_imports import document, imported, reasons

_PROPERTIES = """\
debezium.sink.type=iceberg
debezium.sink.iceberg.table-namespace=lake
debezium.sink.iceberg.upsert=true
debezium.sink.iceberg.upsert-keep-deletes=false
debezium.sink.iceberg.partition-by=day(__source_ts_ms)
debezium.sink.iceberg.type=rest
debezium.sink.iceberg.uri=http://catalog:8181
debezium.sink.iceberg.s3.path-style-access=true
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.topic.prefix=pg
debezium.source.table.include.list=public.orders
debezium.format.value=json
debezium.transforms=t0
debezium.transforms.t0.type=io.debezium.transforms.ExtractNewRecordState
debezium.transforms.t0.add.fields=op,source.ts_ms
quarkus.log.level=INFO
"""
_OPERATOR = """\
apiVersion: debezium.io/v1alpha1
kind: DebeziumServer
metadata: {name: cdc}
spec:
  version: 3.4.0.Final
  quarkus: {config: {log.level: INFO}}
  source:
    class: io.debezium.connector.postgresql.PostgresConnector
    offset: {memory: {}}
    config: {topic.prefix: pg, table.include.list: public.orders}
  format: {value: {type: json}}
  transforms:
    - type: io.debezium.transforms.ExtractNewRecordState
      config: {add.fields: "op,source.ts_ms"}
  sink:
    type: iceberg
    config:
      table-namespace: lake
      upsert: true
      upsert-keep-deletes: false
      partition-by: day(__source_ts_ms)
      type: rest
      uri: http://catalog:8181
      s3: {path-style-access: true}
"""
_VARIABLES = {
    "DEBEZIUM_SINK_TYPE": "iceberg",
    "DEBEZIUM_SINK_ICEBERG_TABLE_NAMESPACE": "lake",
    "DEBEZIUM_SINK_ICEBERG_UPSERT": "true",
    "DEBEZIUM_SINK_ICEBERG_UPSERT_KEEP_DELETES": "false",
    "DEBEZIUM_SINK_ICEBERG_PARTITION_BY": "day(__source_ts_ms)",
    "DEBEZIUM_SINK_ICEBERG_TYPE": "rest",
    "DEBEZIUM_SINK_ICEBERG_URI": "http://catalog:8181",
    "DEBEZIUM_SINK_ICEBERG_S3_PATH_STYLE_ACCESS": "true",
    "DEBEZIUM_SOURCE_CONNECTOR_CLASS": "io.debezium.connector.postgresql.PostgresConnector",
    "DEBEZIUM_SOURCE_TOPIC_PREFIX": "pg",
    "DEBEZIUM_SOURCE_TABLE_INCLUDE_LIST": "public.orders",
    "DEBEZIUM_FORMAT_VALUE": "json",
    "DEBEZIUM_TRANSFORMS": "t0",
    "DEBEZIUM_TRANSFORMS_T0_TYPE": "io.debezium.transforms.ExtractNewRecordState",
    "DEBEZIUM_TRANSFORMS_T0_ADD_FIELDS": "op,source.ts_ms",
    "QUARKUS_LOG_LEVEL": "INFO",
}
_LINES = [f"{name}={value}" for name, value in _VARIABLES.items()]
_CONTAINER: dict[str, Any] = {
    "name": "server",
    "env": [{"name": name, "value": value} for name, value in _VARIABLES.items()],
}
_DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {"template": {"spec": {"containers": [_CONTAINER]}}},
}


@pytest.mark.parametrize(
    "text",
    [
        _OPERATOR,
        json.dumps(yaml.safe_load(_OPERATOR)),
        "# the server\n" + "\n".join(_LINES),
        "".join(f"export {name}='{value}'\n" for name, value in _VARIABLES.items()),
        yaml.safe_dump({"services": {"cdc": {"image": "debezium/server", "environment": _VARIABLES}}}),
        yaml.safe_dump({"services": {"cdc": {"environment": _LINES}}}),
        yaml.safe_dump(_DEPLOYMENT),
        yaml.safe_dump(_VARIABLES),
        yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "data": {"application.properties": _PROPERTIES}}),
    ],
)
def test_every_form_makes_the_file_that_the_properties_make(text: str) -> None:
    expected, found = imported("debezium-server", _PROPERTIES), imported("debezium-server", text)
    assert document("debezium-server", text) == document("debezium-server", _PROPERTIES)
    assert found.losses == expected.losses
    assert set(found.carried) == set(expected.carried)


def test_the_file_has_what_the_settings_mean() -> None:
    table = only_table("debezium-server", _OPERATOR)
    assert (table["mode"], table["deletes"], table["partition_by"]) == ("upsert", "hard", ["day(__source_ts_ms)"])
    assert table["columns"] == {"__source_ts_ms": "timestamptz(ms)"}
    catalog = {"type": "rest", "uri": "http://catalog:8181", "properties": {"s3.path-style-access": "true"}}
    assert document("debezium-server", _OPERATOR)["catalog"] == catalog


def test_a_variable_of_a_profile_and_one_from_a_secret_are_read() -> None:
    profile = "\n".join([*_LINES, "_PROD_DEBEZIUM_SINK_ICEBERG_UPSERT_KEEP_DELETES=true"])
    assert only_table("debezium-server", profile)["deletes"] == "soft"
    secret = {"name": "DEBEZIUM_SINK_ICEBERG_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    text = yaml.safe_dump({**_DEPLOYMENT, "spec": {"containers": [{"env": [*_CONTAINER["env"], secret]}]}})
    properties = document("debezium-server", text)["catalog"]["properties"]
    assert properties["token"] == "${env:DEBEZIUM_SINK_ICEBERG_TOKEN}"


def test_a_variable_whose_property_can_have_several_names_is_reported() -> None:
    text = "\n".join([*_LINES, "DEBEZIUM_SINK_ICEBERG_S3_SSE_TYPE=s3"])
    found = reasons(imported("debezium-server", text))
    assert "it is read as `s3.sse.type`" in found["DEBEZIUM_SINK_ICEBERG_S3_SSE_TYPE"]
    assert document("debezium-server", text)["catalog"]["properties"]["s3.sse.type"] == "s3"


def test_a_resource_without_settings_is_refused_until_the_remedy_is_done() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 8080}]}}
    with pytest.raises(SpecError, match="is a `Service` of Kubernetes without settings") as refused:
        imported("debezium-server", yaml.safe_dump(service))
    assert refused.value.remedy == "give one of DebeziumServer, ConfigMap, or application.properties"
    assert imported("debezium-server", _OPERATOR).text
