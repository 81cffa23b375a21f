"""Configurations of other tools, imported and run: the records become the rows that the tool would have made of them. So
do those of the examples of the pages "the same in Frazil", in the same pipeline.
"""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass
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
from packages.migrate.tests.integration.import_pages import ADOPTED, Page, Services, fill, leave, read_page
from tests.fixtures.loggers import kept_loggers
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.same_pages import EXAMPLES, Example, produce
from tests.integration.servers import RestCatalogServer

pytestmark = pytest.mark.timeout(600)

PAGES = ("kafka-connect", "automq", "flink-cdc", "flink-sql", "debezium-server", "tableflow", "auto-cdc")
_TRANSFORMS = "org.apache.kafka.connect.transforms"


def all_rows(folder: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(folder / "catalog.db")) as catalog:
        query = "select metadata_location from iceberg_tables where table_namespace || '.' || table_name = ?"
        ((location,),) = catalog.execute(query, (table,))
    found: list[dict[str, Any]] = StaticTable.from_metadata(str(location)).scan().to_arrow().to_pylist()
    return found


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table, by their ids."""
    return sorted(all_rows(folder, table), key=lambda row: int(row["id"]))


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


@dataclass(frozen=True)
class Ran:
    """A folder in which a pipeline of all imported configurations and all examples has run. database: that of the changes.
    pages: those whose configurations were imported.
    """

    folder: Path
    database: str
    pages: Sequence[Page]


@pytest.fixture(scope="module")
def ran(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("imports")
    topic, database = new_id(), f"db_{new_id().replace('-', '')}"
    changes = f"pg.{database}.users"
    for name in (topic, changes):
        Ledger(broker.bootstrap_servers, name, partitions=1)
    texts = {
        "kafka-connect": connector(topic, folder),
        "flink-sql": _SCRIPT.format(topic=topic),
        "flink-cdc": _PIPELINE.format(database=database),
        "debezium-server": _SERVER.format(database=database),
    }
    documents = []
    for tool, text in texts.items():
        (folder / tool).write_text(text)
        words = ["import", tool, str(folder / tool), "--bootstrap", broker.bootstrap_servers]
        documents.append(yaml.safe_load(printed(words)))
    with Registry() as registry:
        services = Services(broker.bootstrap_servers, "http://unused", registry)
        pages = [read_page(tool) for tool in PAGES]
        documents += [imported(page, services, folder) for page in pages]
        shared = {name: part for document in documents for name, part in document.items()} | documents[0]
        documents += [example.lines for example in EXAMPLES]
        tables = {name: table for document in documents for name, table in document.get("tables", {}).items()}
        routes = [route for document in documents for route in document.get("routes", ())]
        document = {**shared, "tables": tables, "routes": routes}
        pipeline = Pipeline(folder / "run", document, {"PROTECT_KEY": "k" * 32})
        for page in pages:
            fill(page, services)
        produce(broker.bootstrap_servers, EXAMPLES)
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
        yield Ran(folder, database, pages)


def test_imported_configurations_run(ran: Ran) -> None:
    folder = ran.folder
    made = [{"id": number, "customer": "ann", "origin": "web", "pos": number} for number in range(3)]
    assert (rows(folder, "shop.orders"), rows(folder, "shop.returns")) == (made[:2], made[2:])
    assert rows(folder, "shop.upper_case") == [{"id": number, "name": "ANN", "pos": number} for number in (2, 3)]
    assert rows(folder, "shop.declared") == [
        {"id": number, "cust": "ann", "pos": number, "is_late": number >= 2} for number in range(4)
    ]
    assert rows(folder, "shop.users") == [{"id": 2, "name": "U2"}]
    assert rows(folder, f"shop.pg_{ran.database}_users") == [{"id": 0, "name": "c0"}, {"id": 2, "name": "u2"}]
    for page in ran.pages:
        for name, expected in page.rows.items():
            assert chosen(rows(folder, name), expected) == expected, page.tool


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.place)
def test_the_records_of_an_example_become_its_rows(ran: Ran, example: Example) -> None:
    assert example.rows, "an example shows its rows"
    for name, expected in example.tables.items():
        found = [json.loads(json.dumps(row, default=str)) for row in all_rows(ran.folder, name)]
        assert sorted(found, key=str) == sorted(expected, key=str), name


@pytest.mark.slow  # In time: the same files in one pipeline, above; what is taken over in unit/adopt.
@pytest.mark.parametrize("tool", PAGES)
def test_the_commands_of_a_page_lead_to_its_tables(
    tool: str, broker: EmbeddedBroker, server: RestCatalogServer, tmp_path: Path
) -> None:
    with Registry() as registry, RestCatalog("reader", uri=server.url) as catalog:
        services, page = Services(broker.bootstrap_servers, server.url, registry), read_page(tool)
        document = imported(page, services, tmp_path)
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
                found = rows(tmp_path / "frazil-data", name)
            assert chosen(sorted(found, key=lambda row: int(row["id"])), expected) == expected


def printed(words: Sequence[str]) -> str:
    """What a command prints that ends well."""
    out = io.StringIO()
    with kept_loggers(), redirect_stdout(out):
        assert main(list(words)) == 0
    return out.getvalue()


def imported(page: Page, services: Services, folder: Path) -> dict[str, Any]:
    """What the page's command makes of its configuration."""
    (folder / page.command[2]).write_text(services.put_in(page.configuration))
    words = [str(folder / word) if word == page.command[2] else services.put_in(word) for word in page.command]
    document: dict[str, Any] = yaml.safe_load(services.put_in(printed(words)))
    return document


def chosen(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the columns that are expected."""
    return [{name: row[name] for name in expected[0]} for row in found]


def test_a_cluster_without_table_topics_is_reported(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    Ledger(broker.bootstrap_servers, new_id())
    assert main(["import", "automq", "--bootstrap", broker.bootstrap_servers, "--output", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "no topic has automq.table.topic.enable=true"
