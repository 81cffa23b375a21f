"""Configurations of other tools, imported and run: the records become the rows that the tool would have made of them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import StaticTable

from bench.registry import Registry
from frazil.cli.main import main
from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.import_pages import ADOPTED, Page, Services, fill, leave, read_page
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.servers import RestCatalogServer

PAGES = ("kafka-connect", "automq", "flink-cdc", "flink-sql", "debezium-server", "tableflow")
_TRANSFORMS = "org.apache.kafka.connect.transforms"


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table, by their ids."""
    with closing(sqlite3.connect(folder / "catalog.db")) as catalog:
        query = "select metadata_location from iceberg_tables where table_name = ?"
        ((location,),) = catalog.execute(query, (table,))
    found: list[dict[str, Any]] = StaticTable.from_metadata(str(location)).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def connector(topic: str, folder: Path) -> str:
    """A connector that routes by a field, with transforms."""
    config = {
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
        "iceberg.catalog.uri": f"jdbc:sqlite:{folder}/catalog.db",
        "iceberg.catalog.warehouse": str(folder / "warehouse"),
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
    }
    return json.dumps({"name": f"sink-{topic}", "config": config})


_SCRIPT = """
CREATE TABLE src (id BIGINT, cust STRING, pos BIGINT METADATA FROM 'offset', is_late AS id >= 2) WITH (
  'connector'='kafka', 'topic'='{topic}', 'scan.startup.mode'='earliest-offset', 'format'='json'
);
CREATE TABLE shop.upper_case (id BIGINT, name STRING, pos BIGINT);
INSERT INTO shop.upper_case SELECT id, UPPER(cust), pos FROM src WHERE id > 1;
INSERT INTO shop.declared /*+ OPTIONS('compression-codec'='zstd') */ SELECT * FROM src;
"""
_PIPELINE = """
source: {{type: mysql, tables: {database}.users}}
sink: {{type: iceberg}}
route:
  - {{source-table: {database}.users, sink-table: shop.users}}
transform:
  - {{source-table: {database}.users, projection: '\\*, upper(name) as name', filter: id > 0, primary-keys: id}}
"""
_SERVER = """
debezium.sink.type=iceberg
debezium.sink.iceberg.table-namespace=shop
debezium.sink.iceberg.upsert=true
debezium.sink.iceberg.upsert-keep-deletes=false
debezium.source.topic.prefix=pg
debezium.source.table.include.list={database}.users
"""


def change(operation: str, number: int, name: str) -> dict[str, Any]:
    """A change in Debezium's envelope."""
    row = {"id": number, "name": name}
    before, after = (row, None) if operation == "d" else (None, row)
    return {"op": operation, "before": before, "after": after, "source": {"connector": "mysql"}, "ts_ms": 6}


def test_imported_configurations_run(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, database = new_id(), f"db_{new_id().replace('-', '')}"
    changes = f"pg.{database}.users"
    for name in (topic, changes):
        Ledger(broker.bootstrap_servers, name, partitions=1)
    texts = {
        "kafka-connect": connector(topic, tmp_path),
        "flink-sql": _SCRIPT.format(topic=topic),
        "flink-cdc": _PIPELINE.format(database=database),
        "debezium-server": _SERVER.format(database=database),
    }
    documents = []
    for tool, text in texts.items():
        (tmp_path / tool).write_text(text)
        assert main(["import", tool, str(tmp_path / tool), "--bootstrap", broker.bootstrap_servers]) == 0
        documents.append(yaml.safe_load(capsys.readouterr().out))
    with Registry() as registry:
        services = Services(broker.bootstrap_servers, "http://unused", registry)
        pages = [read_page(tool) for tool in PAGES]
        documents += [imported(page, services, tmp_path, capsys) for page in pages]
        shared = {name: part for document in documents for name, part in document.items()} | documents[0]
        tables = {name: table for document in documents for name, table in document["tables"].items()}
        pipeline = Pipeline(tmp_path / "run", {**shared, "tables": tables})
        for page in pages:
            fill(page, services)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        for number, kind in enumerate(("order", "sale", "return", "other")):
            value = {"id": number, "kind": kind, "cust": "ann", "internal": True}
            producer.produce(topic, json.dumps(value).encode())
        producer.produce(topic, None, key=b"x")
        for operation, number in (("c", 0), ("c", 1), ("c", 2), ("u", 2), ("d", 1)):
            value = change(operation, number, f"{operation}{number}")
            producer.produce(changes, json.dumps(value).encode(), key=json.dumps({"id": number}).encode())
        assert producer.flush(30) == 0
        assert [one for one in pipeline.checks() if not one["ok"]] == []
        pipeline.run()
    made = [{"id": number, "customer": "ann", "origin": "web", "pos": number} for number in range(3)]
    assert (rows(tmp_path, "orders"), rows(tmp_path, "returns")) == (made[:2], made[2:])
    assert rows(tmp_path, "upper_case") == [{"id": number, "name": "ANN", "pos": number} for number in (2, 3)]
    assert rows(tmp_path, "declared") == [
        {"id": number, "cust": "ann", "pos": number, "is_late": number >= 2} for number in range(4)
    ]
    assert rows(tmp_path, "users") == [{"id": 2, "name": "U2"}]
    assert rows(tmp_path, f"pg_{database}_users") == [{"id": 0, "name": "c0"}, {"id": 2, "name": "u2"}]
    for page in pages:
        for name, expected in page.rows.items():
            assert chosen(rows(tmp_path, name.rpartition(".")[2]), expected) == expected, page.tool


@pytest.mark.slow  # In time: the same files in one pipeline, above; what is taken over in unit/adopt.
@pytest.mark.parametrize("tool", PAGES)
def test_the_commands_of_a_page_lead_to_its_tables(
    tool: str, broker: EmbeddedBroker, server: RestCatalogServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Registry() as registry, RestCatalog("reader", uri=server.url) as catalog:
        services, page = Services(broker.bootstrap_servers, server.url, registry), read_page(tool)
        document = imported(page, services, tmp_path, capsys)
        pipeline = Pipeline(tmp_path, document, {"CATALOG_SECRET": "user:secret"})
        fill(page, services)
        if tool in ADOPTED:
            leave(page, services, tmp_path, catalog)
        assert [words[0] for words in page.then] == ["check", "plan", *(["adopt"] if tool in ADOPTED else []), "run"]
        for words in page.then[:-1]:
            done, _ = pipeline.command(*words)
            assert done.returncode == (4 if words[0] == "plan" else 0), done.stdout + done.stderr
        pipeline.run()
        for name, expected in page.rows.items():
            if "catalog" in document:
                found = catalog.load_table(name).scan().to_arrow().to_pylist()
            else:
                found = rows(tmp_path / "frazil-data", name.rpartition(".")[2])
            assert chosen(sorted(found, key=lambda row: int(row["id"])), expected) == expected


def imported(page: Page, services: Services, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the page's command makes of its configuration."""
    (folder / page.command[2]).write_text(services.put_in(page.configuration))
    words = [str(folder / word) if word == page.command[2] else services.put_in(word) for word in page.command]
    assert main(words) == 0
    document: dict[str, Any] = yaml.safe_load(services.put_in(capsys.readouterr().out))
    return document


def chosen(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the columns that are expected."""
    return [{name: row[name] for name in expected[0]} for row in found]


def test_a_cluster_without_table_topics_is_reported(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    Ledger(broker.bootstrap_servers, new_id())
    assert main(["import", "automq", "--bootstrap", broker.bootstrap_servers, "--output", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "no topic has automq.table.topic.enable=true"
