"""Tables of Kafka Connect's real sink whose columns have record metadata: its configuration is imported, its table adopted
and continued, and each column has the values that the sink would have written.

In time: unit/imports/test_record_metadata.py, unit/ingest/tables/test_metadata_types.py, unit/adopt/test_adopt.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from frazil.kafka.group import KafkaGroup
from frazil.runtime.broker import EmbeddedBroker
from frazil_migrate.imports.kafka_connect import import_connector
from packages.migrate.tests.acceptance.test_adopt import TABLE, Scene, create_topic
from tests.fixtures.iceberg_sink import IcebergSink
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600), pytest.mark.slow]

_TRANSFORMS = "org.apache.kafka.connect.transforms"
_SCHEMA = {"type": "struct", "fields": [{"field": "number", "type": "int64", "optional": False}]}
_ADDED = {
    "transforms": "insert,date,text",
    "transforms.insert.type": f"{_TRANSFORMS}.InsertField$Value",
    "transforms.insert.timestamp.field": "kafka_ts",
    "transforms.insert.partition.field": "part",
    "transforms.insert.offset.field": "pos",
    "transforms.insert.topic.field": "topic",
    "transforms.date.type": f"{_TRANSFORMS}.InsertField$Value",
    "transforms.date.timestamp.field": "kafka_date",
    "transforms.text.type": f"{_TRANSFORMS}.TimestampConverter$Value",
    "transforms.text.field": "kafka_date",
    "transforms.text.target.type": "string",
    "transforms.text.format": "yyyy-MM-dd",
    "iceberg.tables.default-partition-by": "kafka_date",
    "iceberg.catalog": "lake",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


def fill(scene: Scene, sink: IcebergSink, send: Callable[[], None]) -> None:
    """Has the sink fill the table, and stops it when the table has all that it has read."""
    place = (scene.ledger.topic, 0)
    group = KafkaGroup({"bootstrap.servers": scene.ledger.servers}, sink.group)

    def is_filled() -> bool:
        send()  # The sink commits what it has read when more arrives.
        return len(scene.numbers()) >= 3

    try:
        sink.start()
        wait_until(is_filled, "the table has rows")
        sink.ask("pause")
        wait_until(
            lambda: group.offsets([place])[place].offset == len(scene.numbers()), "all that was read is committed"
        )
        sink.ask("stop")
        wait_until(lambda: not group.is_live(), "the group is empty")
    finally:
        sink.kill()


@pytest.mark.parametrize("has_schemas", [False, True])
def test_columns_of_record_metadata_continue_as_the_sink_wrote_them(
    has_schemas: bool, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    scene, servers = Scene(tmp_path, broker.bootstrap_servers), broker.bootstrap_servers
    sink = IcebergSink(tmp_path, servers, scene.ledger.topic, TABLE)
    sink.settings |= {**_ADDED, "value.converter.schemas.enable": str(has_schemas).lower()}
    create_topic(servers, sink.settings["iceberg.control.topic"])
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for number in range(sent, sent + count):
            row = {"number": number}
            value = {"schema": _SCHEMA, "payload": row} if has_schemas else row
            producer.produce(scene.ledger.topic, json.dumps(value).encode(), partition=0)
        sent += count
        assert producer.flush(30) == 0

    fill(scene, sink, lambda: send(1))
    before = len(scene.numbers())
    imported = import_connector(json.dumps(sink.settings), servers)
    assert [loss.key for loss in imported.losses] == []
    scene.pipeline = Pipeline(tmp_path, yaml.safe_load(imported.text))
    assert scene.adopt("--from", "kafka-connect", "--apply")["action"] == "adopt"
    send(5)
    scene.pipeline.run()
    table = scene.table()
    assert table is not None
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["number"])
    assert [row["number"] for row in rows] == list(range(sent))
    assert len(rows) > before
    for row in rows:
        milliseconds = round(row["kafka_ts"].timestamp() * 1000) if has_schemas else row["kafka_ts"]
        assert row == _row(scene.ledger.topic, row["number"], row["kafka_ts"], _date(milliseconds))
    assert len({task.file.partition[0] for task in table.scan().plan_files()}) <= 2  # Days.


def _row(topic: str, number: int, moment: Any, date: str) -> dict[str, Any]:
    """A row, as the sink and the pipeline are both to write it."""
    return {"number": number, "kafka_ts": moment, "part": 0, "pos": number, "topic": topic, "kafka_date": date}


def _date(milliseconds: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%d")
