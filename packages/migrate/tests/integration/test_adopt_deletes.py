"""A table with equality deletes and a metadata column, as Flink and AutoMQ write them, taken over and continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.integration.lakes import Lake
from tests.integration.pipelines import Ledger, Pipeline

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
TABLE = "shop.orders"


def _rows(lake: Lake) -> list[tuple[int, str, int | None]]:
    """Id, name and the offset of the metadata column, as Iceberg's own reader has them."""
    java = lake.connect().java_table(TABLE)
    records = lake.jvm.gateway.jvm.org.apache.iceberg.data.IcebergGenerics.read(java).build()
    iterator, found = records.iterator(), []
    while iterator.hasNext():
        record = iterator.next()
        origin = record.getField("_kafka_metadata")
        found.append(
            (int(record.getField("id")), str(record.getField("name")), origin and int(origin.getField("offset")))
        )
    return sorted(found)


@pytest.mark.slow  # In time: acceptance/test_adopt.py, and test_maintenance.py, which takes deletes of another engine out.
def test_an_upsert_table_with_equality_deletes_and_metadata_columns_is_continued(
    broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path
) -> None:
    lake, topic = Lake(jvm, tmp_path / "lake"), Ledger(broker.bootstrap_servers, new_id(), 1).topic
    spark = lake.spark()
    spark.sql("create namespace if not exists frazil.shop")
    columns = "id bigint not null, name string, _kafka_metadata struct<partition: int, offset: bigint>"
    properties = "'format-version' = '2', 'write.delete.mode' = 'merge-on-read'"
    spark.sql(f"create table frazil.{TABLE} ({columns}) using iceberg tblproperties ({properties})")
    values = ", ".join(
        f"({number}, 'old{number}', named_struct('partition', 0, 'offset', {number}L))" for number in range(5)
    )
    spark.sql(f"insert into frazil.{TABLE} values {values}")
    lake.delete_equal(TABLE, [0, 1])

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})

    def send(number: int, value: dict[str, Any] | None) -> None:
        text = None if value is None else json.dumps(value).encode()
        producer.produce(topic, text, json.dumps({"id": number}).encode())

    for number in range(5):
        send(number, {"id": number, "name": "read by the other tool"})
    send(1, {"id": 1, "name": "new1"})
    send(2, {"id": 2, "name": "new2"})
    send(3, None)
    assert producer.flush(30) == 0
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({topic: {"0": 5}}))
    root = tmp_path / "lake"
    pipeline = Pipeline(
        tmp_path / "run",
        {
            "pipeline": "shop",
            "kafka": {"bootstrap.servers": broker.bootstrap_servers},
            "catalog": {"uri": f"jdbc:sqlite:{root / 'catalog.db'}", "warehouse": str(root)},
            "tables": {TABLE: {"topic": topic, "mode": "upsert", "key_columns": ["id"], "key": {"format": "json"}}},
        },
    )
    done, found = pipeline.command("adopt", TABLE, "--from", "flink", "--offsets", str(offsets), "--apply")
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["tables"][TABLE]["offsets"] == {topic: {"0": 5}}
    pipeline.run()
    assert _rows(lake) == [(1, "new1", None), (2, "new2", None), (4, "old4", 4)]
