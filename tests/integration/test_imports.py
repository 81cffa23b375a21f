"""A connector of Kafka Connect's sink, imported and run: the records are the rows that the connector would have made."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from frazil.cli.main import main
from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline

_TRANSFORMS = "org.apache.kafka.connect.transforms"


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table, by their ids."""
    with sqlite3.connect(folder / "catalog.db") as catalog:
        query = "select metadata_location from iceberg_tables where table_name = ?"
        ((location,),) = catalog.execute(query, (table,))
    found: list[dict[str, Any]] = StaticTable.from_metadata(str(location)).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def test_an_imported_connector_runs(broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topic = Ledger(broker.bootstrap_servers, new_id()).topic
    connector = {
        "name": f"sink-{topic}",
        "config": {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": "1",
            "topics": topic,
            "iceberg.tables": "shop.orders,shop.returns",
            "iceberg.tables.route-field": "kind",
            "iceberg.table.shop.orders.route-regex": "order|sale",
            "iceberg.table.shop.returns.route-regex": "ret.*",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.tables.default-partition-by": "truncate(customer, 1)",
            "iceberg.control.commit.interval-ms": "1000",
            "iceberg.catalog.type": "jdbc",
            "iceberg.catalog.uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
            "iceberg.catalog.warehouse": str(tmp_path / "warehouse"),
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "predicates": "empty",
            "predicates.empty.type": f"{_TRANSFORMS}.predicates.RecordIsTombstone",
            "transforms": "dead,names,origin,place",
            "transforms.dead.type": f"{_TRANSFORMS}.Filter",
            "transforms.dead.predicate": "empty",
            "transforms.names.type": f"{_TRANSFORMS}.ReplaceField$Value",
            "transforms.names.renames": "cust:customer",
            "transforms.names.exclude": "internal,kind",
            "transforms.origin.type": f"{_TRANSFORMS}.InsertField$Value",
            "transforms.origin.static.field": "origin",
            "transforms.origin.static.value": "web",
            "transforms.place.type": f"{_TRANSFORMS}.InsertField$Value",
            "transforms.place.offset.field": "pos",
        },
    }
    file = tmp_path / "connector.json"
    file.write_text(json.dumps(connector))
    assert main(["import", "kafka-connect", str(file), "--bootstrap", broker.bootstrap_servers]) == 0
    pipeline = Pipeline(tmp_path / "run", yaml.safe_load(capsys.readouterr().out))
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    kinds = ("order", "sale", "return", "other")
    for number, kind in enumerate(kinds):
        value = {"id": number, "kind": kind, "cust": "ann", "internal": True}
        producer.produce(topic, json.dumps(value).encode(), partition=0)
    producer.produce(topic, None, key=b"x", partition=0)
    assert producer.flush(30) == 0
    pipeline.run()
    made = [{"id": number, "customer": "ann", "origin": "web", "pos": number} for number in range(3)]
    assert (rows(tmp_path, "orders"), rows(tmp_path, "returns")) == (made[:2], made[2:])


def test_a_cluster_without_table_topics_is_reported(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    Ledger(broker.bootstrap_servers, new_id())
    assert main(["import", "automq", "--bootstrap", broker.bootstrap_servers, "--output", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "no topic has automq.table.topic.enable=true"
