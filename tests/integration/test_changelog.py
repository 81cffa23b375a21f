"""Changes of a database as it wrote them, from a real broker to a reader that knows nothing of Frazil."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.failpoints import VARIABLE, reached
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger, Pipeline

SAMPLES = Path(__file__).parents[1] / "fixtures" / "debezium_messages.jsonl"


def samples(topic: str) -> list[dict[str, Any]]:
    """What Debezium wrote of a table of PostgreSQL, in the order of each partition."""
    return [one for one in map(json.loads, SAMPLES.read_text().splitlines()) if one["topic"] == topic]


def produce(ledger: Ledger, messages: Iterable[Mapping[str, Any]]) -> None:
    """Writes them again, with their keys, headers and partitions."""
    producer = Producer({"bootstrap.servers": ledger.servers, "enable.idempotence": True})
    for one in messages:
        value = None if one["value"] is None else one["value"].encode()
        key = None if one["key"] is None else one["key"].encode()
        headers = [(name, word.encode()) for name, word in one["headers"]]
        producer.produce(ledger.topic, value, key=key, headers=headers, partition=one["partition"])
    assert producer.flush(30) == 0


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(folder / "frazil-data" / "catalog.db")) as catalog:
        query = "select metadata_location from iceberg_tables where table_name = ?"
        ((location,),) = catalog.execute(query, (table,))
    found: list[dict[str, Any]] = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
    return found


def in_order(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By partition and offset, the row before an update first."""
    return sorted(map(dict, found), key=lambda one: (one["_kafka_partition"], one["_offset"], one["_image"] == "after"))


def noting_what_is_read(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The pipeline, with a log of what its Spark tasks do in `folder`, and without table maintenance, which reads too."""
    folder.mkdir()
    log = {"enabled": "true", "dir": folder.as_uri(), "rolling.enabled": "false", "compress": "false"}
    conf = {f"spark.eventLog.{name}": value for name, value in log.items()}
    return {**document, "maintenance": False, "spark": {"conf": conf}}


def reads(folder: Path) -> int:
    """How many tasks there were: each reads its own records of Kafka."""
    (log,) = folder.iterdir()
    events = map(json.loads, log.read_text().splitlines())
    return sum(event["Event"] == "SparkListenerTaskEnd" for event in events)


@dataclass(frozen=True)
class Ran:
    """A pipeline that was killed as only some tables of a topic had committed what one read was for, and has caught up.
    reads: how often its last run has read of Kafka.
    """

    folder: Path
    reported: str
    reads: int


@pytest.fixture(scope="module")
def ran(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    ledger, orders = (Ledger(broker.bootstrap_servers, new_id(), 4) for _ in range(2))
    table = {"topic": ledger.topic, "envelope": "debezium", "metadata": ["partition", "offset", "transaction_id"]}
    upsert_table = {"topic": ledger.topic, "envelope": "debezium", "mode": "upsert"}
    log = {"topic": orders.topic, "envelope": "debezium", "changelog": True, "metadata": ["partition", "offset"]}
    tables = {
        "s.history": {**table, "changelog": True},
        "s.rows": table,
        "s.upsert_table": upsert_table,
        "s.orders": {**log, "columns": {"placed": "timestamp(us)"}},
    }
    document = {"pipeline": "cdc", "kafka": {"bootstrap.servers": ledger.servers}, "tables": tables}
    customers = samples("fz.public.customers")
    produce(ledger, customers[:6])
    lie: dict[str, Any] = {
        "partition": 1,
        "key": None,
        "headers": [],
        "value": '{"op":"x","before":null,"after":{"id":9}}',
    }
    produce(ledger, [lie, {**lie, "value": '{"ts_ms":1}'}])
    produce(orders, samples("fz.public.orders"))
    folder = tmp_path_factory.mktemp("cdc")
    # It is killed when the first of the others has committed, while the upsert table is held before its commit.
    held = folder / "held"
    with Pipeline(folder, document, {VARIABLE: f"upsert.resolved=hold@{held}"}).start() as running:
        running.wait_until_committed(3 * (6 + 2) + len(samples("fz.public.orders")))
        held.touch()
        produce(ledger, customers[7:])
        wait_until(lambda: any(3 in ids(folder, table) for table in ("history", "rows")), "one has committed")
        wait_until(reached(held).exists, "the upsert table is held")
        running.kill()
    assert ids(folder, "upsert_table") == [1, 2]
    produce(ledger, customers[6:7])
    pipeline = Pipeline(folder, noting_what_is_read(document, folder / "read"))
    pipeline.run()
    return Ran(folder, pipeline.reported, reads(folder / "read"))


def ids(folder: Path, table: str) -> list[int]:
    return sorted(one["id"] for one in rows(folder, table))


def test_one_read_of_a_topic_feeds_a_changelog_an_append_and_an_upsert_table(
    ran: Ran,
) -> None:
    folder = ran.folder
    assert ran.reads == 1
    history = in_order(rows(folder, "history"))
    assert [
        (one["_kafka_partition"], one["_offset"], one["_op"], one["_image"], one["id"], one["name"]) for one in history
    ] == [
        (0, 0, "r", "after", 1, "Ada"),
        (0, 1, "c", "after", 2, "Bob"),
        (0, 2, "u", "after", 2, "Bob"),
        (0, 3, "c", "after", 4, "Di"),
        (0, 4, "u", "identity", 4, "Di"),
        (0, 4, "u", "after", 4, "Dee"),
        (0, 5, "d", "identity", 4, "Dee"),
        (3, 0, "c", "after", 3, "Cy"),
    ]
    assert history[2] == {
        "id": 2, "name": "Bob", "note": "n2", "created": "2026-11-21T08:18:54.645325Z", "email": None,
        "_kafka_partition": 0, "_offset": 2, "_op": "u", "_image": "after", "_transaction_id": "749:26683552",
        "_source_ts": datetime(2026, 11, 21, 8, 18, 54, 646089, UTC),
        "_connector_ts": datetime(2026, 11, 21, 8, 18, 54, 968999, UTC), "_unavailable": None,
    }  # fmt: skip
    written = rows(folder, "rows")
    assert sorted((one["_kafka_partition"], one["_offset"], one["name"]) for one in written) == [
        (0, 0, "Ada"), (0, 1, "Bob"), (0, 2, "Bob"), (0, 3, "Di"), (0, 4, "Dee"), (3, 0, "Cy"),
    ]  # fmt: skip
    upserted = sorted((one["id"], one["name"]) for one in rows(folder, "upsert_table"))
    assert upserted == [(1, "Ada"), (2, "Bob"), (3, "Cy")]
    dead_letters = rows(folder, "history__dead_letters")
    assert [(one["partition"], one["error_class"], one["message"]) for one in dead_letters] == [
        (1, "unknown_operation", 'the envelope has no such operation: "x"')
    ]
    assert '"kind": "delete"' in ran.reported
    assert '"kind": "heartbeat"' in ran.reported


def test_values_that_were_not_sent_are_named_in_their_row(ran: Ran) -> None:
    found = in_order(rows(ran.folder, "orders"))
    assert [(one["_op"], one["id"], one["big"] and len(one["big"]), one["_unavailable"]) for one in found] == [
        ("r", 1, 5, None),
        ("c", 2, 12800, None),
        ("u", 2, None, ["big"]),
        ("d", 2, None, None),
        ("d", 1, None, None),
        ("t", None, None, None),
        ("c", 3, None, ["big"]),
    ]
    assert found[0]["placed"] == datetime(2026, 1, 2, 3, 4, 5, 678901, UTC).replace(tzinfo=None)
