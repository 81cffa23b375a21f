"""A JDBC catalog keeps its tables under its name: every import carries over the name that its tool gives the catalog."""

from __future__ import annotations

import json

import pytest

from packages.migrate.tests.unit.imports.test_imports import document, imported

_URI = "jdbc:postgresql://db/lake"


def sink(**settings: str) -> str:
    given = {"topics": "orders", "iceberg.tables": "shop.orders", "iceberg.catalog.uri": _URI}
    return json.dumps({**given, "iceberg.catalog.warehouse": "s3://lake", "iceberg.catalog.type": "jdbc", **settings})


def server(*lines: str) -> str:
    place = "debezium.sink.iceberg."
    own = [f"{place}type=jdbc", f"{place}uri={_URI}", f"{place}warehouse=s3://lake"]
    return "\n".join([*own, *(place + line for line in lines), "debezium.source.table.include.list=shop.orders"])


def script(name: str, kind: str) -> str:
    catalog = f"CREATE CATALOG {name} WITH ('type'='iceberg', {kind}, 'uri'='{_URI}', 'warehouse'='s3://lake');"
    source = "CREATE TABLE src (id BIGINT) WITH ('connector'='kafka', 'topic'='orders', 'format'='json');"
    return f"{catalog}\n{source}\nINSERT INTO {name}.shop.orders SELECT id FROM src;"


def connector_table(*options: str) -> str:
    """A table of Flink's whose catalog is among its own options."""
    source = "CREATE TABLE src (id BIGINT) WITH ('connector'='kafka', 'topic'='orders', 'format'='json');"
    given = [
        "'connector'='iceberg'",
        f"'uri'='{_URI}'",
        "'warehouse'='s3://lake'",
        "'catalog-database'='shop'",
        *options,
    ]
    return (
        f"{source}\nCREATE TABLE orders (id BIGINT) WITH ({', '.join(given)});\nINSERT INTO orders SELECT id FROM src;"
    )


_CLASS = "'catalog-impl'='org.apache.iceberg.jdbc.JdbcCatalog'"
_CDC = (
    "source: {type: mysql, tables: db.orders}\n"
    f"sink: {{type: iceberg, catalog.properties.type: jdbc, catalog.properties.uri: '{_URI}'}}\n"
    "route: [{source-table: db.orders, sink-table: shop.orders}]\n"
)


@pytest.mark.parametrize(
    ("tool", "text", "name"),
    [
        ("kafka-connect", sink(**{"iceberg.catalog": "lake"}), "lake"),
        ("kafka-connect", sink(), "iceberg"),
        ("kafka-connect", sink(**{"iceberg.catalog": "frazil"}), None),
        ("debezium-server", server("catalog-name=lake"), "lake"),
        ("debezium-server", server(), "default"),
        ("flink-sql", script("lake", _CLASS), "lake"),
        ("flink-sql", script("lake", "'catalog-type'='jdbc'"), "lake"),
        ("flink-sql", connector_table(_CLASS, "'catalog-name'='lake'"), "lake"),
        ("flink-cdc", _CDC, "IcebergMetadataApplier"),
    ],
)
def test_the_name_of_a_jdbc_catalog_is_carried_over(tool: str, text: str, name: str | None) -> None:
    found = imported(tool, text)
    assert document(tool, text)["catalog"].get("name") == name
    assert [loss for loss in found.losses if "catalog" in loss.key] == []


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("kafka-connect", sink(**{"iceberg.catalog": "lake", "iceberg.catalog.type": "rest"})),
        ("debezium-server", server("catalog-name=lake").replace("=jdbc", "=rest")),
        ("flink-sql", script("lake", "'catalog-type'='rest'")),
        ("flink-sql", script("lake", "'catalog-impl'='org.apache.iceberg.nessie.NessieCatalog'")),
        ("flink-cdc", _CDC.replace("type: jdbc", "type: rest")),
    ],
)
def test_other_catalogs_keep_no_name_and_get_none(tool: str, text: str) -> None:
    found = imported(tool, text)
    assert "name" not in document(tool, text)["catalog"]
    assert [loss.key for loss in found.losses if "catalog" in loss.key] == []


def test_a_jdbc_catalog_of_a_tool_that_names_none_is_noted() -> None:
    keys = {"automq.table.topic.catalog.type": "jdbc", "automq.table.topic.catalog.uri": _URI}
    text = json.dumps({**keys, "orders": {"automq.table.topic.enable": "true"}})
    assert any("`catalog.name`" in note for note in imported("automq", text).notes)
