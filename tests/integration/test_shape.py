"""A table whose columns are shaped, from a real broker to a reader that knows nothing of Frazil."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
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


def produce(ledger: Ledger, key: str | None, trace: str | None, value: Mapping[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": ledger.servers})
    headers: list[tuple[str, str | bytes | None]] = [("traceparent", trace.encode())] if trace is not None else []
    producer.produce(ledger.topic, json.dumps(value).encode(), key=key and key.encode(), headers=headers, partition=0)
    assert producer.flush(30) == 0


def rows(folder: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(folder / "frazil-data" / "catalog.db") as catalog:
        ((location,),) = catalog.execute("select metadata_location from iceberg_tables where table_name = 't'")
    found: list[dict[str, Any]] = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: int(row["_offset"]))


def test_a_shaped_table_is_read_back_as_it_was_asked_for(broker: EmbeddedBroker, tmp_path: Path) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id(), 1)
    document = {
        "pipeline": "shape",
        "kafka": {"bootstrap.servers": ledger.servers},
        "tables": {"s.t": {"topic": ledger.topic, **SHAPE}},
    }
    pipeline = Pipeline(tmp_path, document)
    customer = {"name": "ann", "address": {"zipCode": "10115"}, "taxNumber": 7}
    produce(ledger, "k1", "00-a", {"orderId": 1, "customer": customer, "seenAt": 1_700_000_000_123, "noise": [1, "x"]})
    produce(ledger, None, None, {"orderId": 2, "customer": None, "noise": {"a": 1}})
    with pipeline.start() as running:
        running.wait_until_committed(2)
        produce(ledger, "k3", "00-c", {"orderId": 3, "customer": {"vipLevel": 2}})
        running.wait_until_committed(3)
        running.stop()
    common = {"region": "eu", "customer_name": None, "customer_address_zip_code": None, "customer_vip_level": None}
    assert rows(tmp_path) == [
        {
            **common, "order_id": 1, "customer_name": "ann", "customer_address_zip_code": "10115", "trace": "00-a",
            "seen_at": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), "_offset": 0, "_key": "k1",
        },
        {**common, "order_id": 2, "trace": None, "seen_at": None, "_offset": 1, "_key": None},
        {**common, "order_id": 3, "customer_vip_level": 2, "trace": "00-c", "seen_at": None, "_offset": 2, "_key": "k3"},
    ]  # fmt: skip
