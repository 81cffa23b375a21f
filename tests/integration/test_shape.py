"""Tables whose columns are shaped and named by the file, from a real broker to readers that know nothing of Frazil."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.verifier import metadata_at, open_duckdb
from tests.fixtures.foreign_spark import ForeignSpark
from tests.integration.pipelines import Ledger, Pipeline

SHAPE = {
    "flatten": True,
    "column_case": "snake",
    "include": ["orderId", "customer", "seenAt"],
    "exclude": ["customer.taxNumber"],
    "columns": {
        "region": {"type": "string", "constant": "eu"},
        "trace": {"type": "string", "header": "traceparent"},
        "seen_at": "timestamptz(ms)",
    },
    "key": {"format": "text"},
    "metadata": ["offset", "key"],
}


NAMES = (
    ("user-name", "`user-name`", '"user-name"'),
    ("user name", "`user name`", '"user name"'),
    ("größe", "`größe`", "größe"),
    ("a.b", "`a.b`", '"a.b"'),
    ("1st", "`1st`", '"1st"'),
    ("order", "`order`", '"order"'),
    ("select", "`select`", '"select"'),
    ("_id", "_id", "_id"),
    ('x"y', '`x"y`', '"x""y"'),
    ("x`y", "`x``y`", '"x`y"'),
)
"""Names of columns, and how docs/how-to/shape.md reports that Spark and DuckDB want them."""


@dataclass(frozen=True)
class Ran:
    """A folder with the tables `s.t`, which is shaped, `q.t`, whose records come from the topic `named`, and `o.t`, whose
    columns have odd names.
    """

    folder: Path
    named: str


def produce(ledger: Ledger, key: str | None, trace: str | None, value: Mapping[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": ledger.servers, "enable.idempotence": True})
    headers: list[tuple[str, str | bytes | None]] = [("traceparent", trace.encode())] if trace is not None else []
    producer.produce(ledger.topic, json.dumps(value).encode(), key=key and key.encode(), headers=headers, partition=0)
    assert producer.flush(30) == 0


def metadata_of(folder: Path, namespace: str) -> str:
    with closing(sqlite3.connect(folder / "frazil-data" / "catalog.db")) as catalog:
        query = "select metadata_location from iceberg_tables where table_namespace = ?"
        ((location,),) = catalog.execute(query, (namespace,))
    return str(location)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = StaticTable.from_metadata(metadata_of(folder, "s")).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: int(row["_offset"]))


@pytest.fixture(scope="module")
def ran(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One pipeline, which has read all of its topics."""
    shaped, named, odd = (Ledger(broker.bootstrap_servers, new_id(), 1) for _ in range(3))
    metadata = {"topic": "kafka_topic", "partition": "kafka_partition", "offset": "kafka_offset"}
    document = {
        "pipeline": "shape",
        "kafka": {"bootstrap.servers": shaped.servers},
        "tables": {
            "s.t": {"topic": shaped.topic, **SHAPE},
            "q.t": {"topic": named.topic, "metadata": metadata},
            "o.t": {"topic": odd.topic},
        },
    }
    pipeline = Pipeline(tmp_path_factory.mktemp("shape"), document)
    customer = {"name": "ann", "address": {"zipCode": "10115"}, "taxNumber": 7}
    produce(shaped, "k1", "00-a", {"orderId": 1, "customer": customer, "seenAt": 1_700_000_000_123, "noise": [1, "x"]})
    produce(shaped, None, None, {"orderId": 2, "customer": None, "noise": {"a": 1}})
    named.produce(100)
    produce(odd, None, None, {name: number for number, (name, *_) in enumerate(NAMES)})
    with pipeline.start() as running:
        running.wait_until_committed(103)
        produce(shaped, "k3", "00-c", {"orderId": 3, "customer": {"vipLevel": 2}})
        running.wait_until_committed(104)
        running.stop()
    return Ran(pipeline.directory, named.topic)


def test_a_shaped_table_is_read_back_as_it_was_asked_for(ran: Ran) -> None:
    common = {"region": "eu", "customer_name": None, "customer_address_zip_code": None, "customer_vip_level": None}
    assert rows(ran.folder) == [
        {
            **common, "order_id": 1, "customer_name": "ann", "customer_address_zip_code": "10115", "trace": "00-a",
            "seen_at": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), "_offset": 0, "_key": "k1",
        },
        {**common, "order_id": 2, "trace": None, "seen_at": None, "_offset": 1, "_key": None},
        {**common, "order_id": 3, "customer_vip_level": 2, "trace": "00-c", "seen_at": None, "_offset": 2, "_key": "k3"},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def with_tables(ran: Ran, spark: ForeignSpark) -> ForeignSpark:
    """Another team's Spark that has the pipeline's tables, by docs/how-to/query.md."""
    spark.restart()
    spark.add_local_catalog("frazil", ran.folder)
    return spark


def test_odd_names_are_kept_and_read_as_the_page_reports(ran: Ran, with_tables: ForeignSpark) -> None:
    expected = {name: number for number, (name, *_) in enumerate(NAMES)}
    assert with_tables.sql(f"select {', '.join(name for _, name, _ in NAMES)} from frazil.o.t") == [expected]
    metadata = metadata_at(metadata_of(ran.folder, "o"), {})
    with open_duckdb(metadata) as connection:
        found = connection.sql(f"select {', '.join(name for *_, name in NAMES)} from iceberg_scan('{metadata}')")
        assert found.to_arrow_table().to_pylist() == [expected]


def test_spark_reads_every_column_of_a_table_whose_metadata_columns_have_names_of_their_own(
    ran: Ran, with_tables: ForeignSpark
) -> None:
    found = with_tables.sql("select * from frazil.q.t order by kafka_offset")
    assert len(found) == 100
    assert found[7] == {
        "number": 7,
        "word": "w7",
        "half": 3.5,
        "kafka_topic": ran.named,
        "kafka_partition": 0,
        "kafka_offset": 7,
    }
