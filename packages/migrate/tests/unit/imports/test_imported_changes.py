"""Changes that a sink of Kafka Connect writes as rows: what the pipeline file makes of them is what the sink's table has."""

from __future__ import annotations

import json

from packages.migrate.tests.unit.imports import examples
from packages.migrate.tests.unit.imports.test_imports import document


def _unwrapping(**more: str) -> str:
    """A connector of Tabular's sink, whose transform opens Debezium's envelope."""
    given = {
        "name": "s", "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector", "topics": "db.public.orders",
        "iceberg.tables": "lake.orders", "iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://catalog:8181",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter", "transforms": "flat",
        "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.flat.add.fields": "op,source.ts_ms",
        "transforms.flat.delete.tombstone.handling.mode": "rewrite",
    }  # fmt: skip
    return json.dumps({**given, **more})


def test_an_operation_that_a_transform_unwraps_is_read_in_the_envelope() -> None:
    """In the topic there is no field `__op`, so that every record would be a bad one."""
    keys = {"iceberg.tables.cdc-field": "__op", "iceberg.tables.default-id-columns": "id"}
    table = document("kafka-connect", _unwrapping(**keys))["tables"]["lake.orders"]
    assert (table["envelope"], table["mode"], table["key_columns"]) == ("debezium", "upsert", ["id"])
    assert (table["metadata"], table["add_fields"]) == ({"op": "__op"}, {"__source_ts_ms": "source.ts_ms"})
    assert "where" not in table


def test_a_change_is_one_row_as_in_the_sink() -> None:
    """A changelog table has the row before an update too, which would count updates twice in the sink's table."""
    table = document("kafka-connect", _unwrapping())["tables"]["lake.orders"]
    assert (table["changelog"], table["where"]) == (True, "(_image = 'after' or _op <> 'u')")
    [route] = document("kafka-connect", json.dumps(examples.CHANGES))["routes"]
    assert (route["changelog"], route["where"]) == (True, "(_image = 'after' or _op <> 'u')")
