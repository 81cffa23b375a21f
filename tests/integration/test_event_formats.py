"""What AWS DMS, Kafka Connect's JsonConverter, producers of CloudEvents, Debezium's outbox router and one that writes
timestamps in nanoseconds write: from a real broker to a reader that knows nothing of Frazil.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_changelog import rows

pytestmark = pytest.mark.timeout(600)
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
STRUCTURED = {"content-type": b"application/cloudevents+json"}
EVENT = {"specversion": "1.0", "id": "e-1", "source": "/orders", "type": "placed", "time": "2026-11-22T00:00:01Z"}
BINARY = {**{f"ce_{name}": text.encode() for name, text in EVENT.items()}, "ce_region": b"eu"}
NOW_MS = 1_795_733_737_000
NANOSECONDS = NOW_MS * 1_000_000
COUNT = 1000
FAR = {*range(5, 12), 300, 301, 303, 999}
"""The records whose timestamps Spark cannot hold: side by side, with a few records between them, far from each other, and
the last of all.
"""
Message = tuple[bytes | None, Any, Mapping[str, bytes]]


def _dms(operation: str, data: Any, before: Any = None) -> Message:
    times = {"timestamp": "2026-11-22T00:00:02Z", "commit-timestamp": "2026-11-22T00:00:01.5Z"}
    kind = "control" if data is None else "data"
    metadata = {**times, "record-type": kind, "operation": operation, "schema-name": "public", "table-name": "foo"}
    images = {} if data is None else {"data": data}
    images |= {} if before is None else {"before-image": before}
    return b"public.foo.1", {**images, "metadata": metadata}, {}


def _with_schema(fields: Sequence[Mapping[str, Any]], payload: Any) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": list(fields), "optional": True}, "payload": payload}


def _connect(number: int, price: Any) -> Message:
    decimal = {"type": "bytes", "name": _DECIMAL, "parameters": {"scale": "2"}, "optional": True, "field": "price"}
    of_key = {"type": "int32", "field": "id"}
    value = _with_schema([of_key, decimal], None if price is None else {"id": number, "price": price})
    return json.dumps(_with_schema([of_key], {"id": number})).encode(), value, {}


def _outbox(op: str, payload: Any) -> Message:
    row = {"id": "9f", "aggregatetype": "order", "aggregateid": "7", "type": "placed", "payload": payload}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return b'{"id":"9f"}', {**images, "source": {"connector": "postgresql"}, "op": op, "ts_ms": 1}, {}


MESSAGES: dict[str, list[Message]] = {
    "dms": [
        _dms("create-table", None),
        *(_dms("load", {"id": n, "name": "a"}) for n in range(3)),
        _dms("update", {"id": 1, "name": "b"}),
        _dms("update", {"id": 9, "name": "c"}, {"id": 2}),
        _dms("delete", {"id": 0, "name": None}),
        _dms("upsert", {"id": 5}),
    ],
    "connect": [
        *(_connect(n, base64.b64encode(bytes([1, n])).decode()) for n in range(3)),
        _connect(1, None),
        _connect(2, 12.5),
        _connect(7, "no base64"),
    ],
    "cloud": [
        (None, {"id": 1}, BINARY),
        (None, {**EVENT, "id": "e-2", "data": {"id": 2}}, STRUCTURED),
        (None, [EVENT], {"content-type": b"application/cloudevents-batch+json"}),
    ],
    "outbox": [
        (b"7", json.dumps({"id": 1}), {"id": b"8a", "eventType": b"placed"}),
        _outbox("c", json.dumps({"id": 2})),
        _outbox("d", {"id": 2}),
        _outbox("u", {"id": 2}),
    ],
}


def _far(servers: str) -> str:
    """A topic with records of which some have timestamps in nanoseconds."""
    topic = f"far-{new_id()[:8]}"
    new = NewTopic(topic, 2, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([new])[topic].result(20)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for n in range(COUNT):
        at = NANOSECONDS + n if n in FAR else NOW_MS + n
        value = json.dumps({"key": n % 7, "n": n}).encode()
        producer.produce(topic, value, f"k{n}".encode(), n % 7 % 2, timestamp=at, headers={"n": str(n)})
    assert producer.flush(30) == 0
    return topic


@dataclass(frozen=True)
class Ran:
    """A pipeline that has read all messages, and what the run reported of its tables."""

    folder: Path
    status: Mapping[str, Any]

    def rows(self, table: str) -> list[dict[str, Any]]:
        return sorted(rows(self.folder, table), key=str)

    def counts(self, table: str) -> tuple[int, dict[str, int]]:
        """How many dead letters there are, and how many records were ignored."""
        return self.status[f"s.{table}"]["dead_letters"], self.status[f"s.{table}"]["ignored_records"]


@pytest.fixture(scope="module")
def ran(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    servers, folder = broker.bootstrap_servers, tmp_path_factory.mktemp("formats")
    topics = {name: Ledger(servers, new_id(), 1).topic for name in MESSAGES}
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for name, messages in MESSAGES.items():
        for key, value, headers in messages:
            producer.produce(topics[name], json.dumps(value).encode(), key, headers=list(headers.items()))
    assert producer.flush(30) == 0
    upsert, far = {"mode": "upsert", "key_columns": ["id"]}, _far(servers)
    tables: dict[str, Any] = {
        "s.dms": {"topic": topics["dms"], "envelope": "dms", **upsert},
        "s.history": {"topic": topics["dms"], "envelope": "dms", "changelog": True, "metadata": ["source_table"]},
        "s.connect": {"topic": topics["connect"], "mode": "upsert", "key": {"format": "json"}},
        "s.cloud": {
            "topic": topics["cloud"],
            "envelope": "cloudevents",
            "metadata": ["ce_extensions"],
            "partition_by": ["day(_ce_time)"],
        },
        "s.outbox": {"topic": topics["outbox"], "envelope": "outbox"},
        "s.plain": {"topic": far, "metadata": ["offset", "partition", "key", "headers"]},
        "s.timed": {"topic": far, "metadata": ["timestamp"]},
        "s.newest": {"topic": far, "mode": "upsert", "key_columns": ["key"]},
    }
    for table in tables.values():
        table["dead_letters"] = {"stop_above": "100%"}
    pipeline = Pipeline(folder, {"pipeline": "f", "kafka": {"bootstrap.servers": servers}, "tables": tables})
    return Ran(folder, pipeline.run()["tables"])


def test_a_table_of_dms_has_the_rows_of_its_source(ran: Ran) -> None:
    assert ran.rows("dms") == [{"id": 1, "name": "b"}, {"id": 9, "name": "c"}]
    assert ran.counts("dms") == (1, {"schema_change": 1})


def test_every_change_of_dms_is_kept(ran: Ran) -> None:
    at = {"_source_ts": datetime(2026, 11, 22, 0, 0, 1, 500000, UTC), "_source_table": "foo"}
    at |= {"_connector_ts": datetime(2026, 11, 22, 0, 0, 2, tzinfo=UTC)}
    changes: list[tuple[str, str, int, str | None]] = [("r", "after", n, "a") for n in range(3)]
    changes += [("u", "after", 1, "b"), ("u", "identity", 2, None), ("u", "after", 9, "c"), ("d", "identity", 0, None)]
    named = [{"id": n, "name": name, "_op": op, "_image": image, **at} for op, image, n, name in changes]
    found = [dict(sorted(row.items())) for row in ran.rows("history")]
    assert sorted(found, key=str) == sorted((dict(sorted(row.items())) for row in named), key=str)


def test_keys_and_values_of_connects_converter_have_their_types(ran: Ran) -> None:
    assert ran.rows("connect") == [{"id": 0, "price": Decimal("2.56")}, {"id": 2, "price": Decimal("12.50")}]
    assert ran.counts("connect")[0] == 1


def test_cloud_events_of_both_modes_are_rows(ran: Ran) -> None:
    own = {"_ce_source": "/orders", "_ce_type": "placed", "_ce_time": datetime(2026, 11, 22, 0, 0, 1, tzinfo=UTC)}
    own |= {"_ce_subject": None}
    assert ran.rows("cloud") == [
        {"id": 1, "_ce_extensions": [("region", "eu")], "_ce_id": "e-1", **own},
        {"id": 2, "_ce_extensions": [], "_ce_id": "e-2", **own},
    ]
    assert ran.counts("cloud") == (1, {})


def test_events_of_an_outbox_are_rows_whether_they_were_routed_or_not(ran: Ran) -> None:
    own = {"_event_type": "placed", "_aggregate_id": "7"}
    assert ran.rows("outbox") == [
        {"id": 1, "_event_id": "8a", "_aggregate_type": None, **own},
        {"id": 2, "_event_id": "9f", "_aggregate_type": "order", **own},
    ]
    assert ran.counts("outbox") == (1, {"delete": 1})


def test_records_with_a_timestamp_in_nanoseconds_are_rows_unless_the_table_has_the_timestamp_as_a_column(
    ran: Ran,
) -> None:
    plain = ran.rows("plain")
    assert sorted(row["n"] for row in plain) == list(range(COUNT))
    assert all(row["_key"] == f"k{row['n']}".encode() for row in plain)
    headers = {row["_headers"][0]["value"] for row in plain if row["n"] in FAR}
    assert headers == {str(n).encode() for n in FAR}
    for partition in (0, 1):
        mine = sorted((row for row in plain if row["_partition"] == partition), key=lambda row: int(row["_offset"]))
        assert [row["n"] for row in mine] == [n for n in range(COUNT) if n % 7 % 2 == partition]
        assert [row["_offset"] for row in mine] == list(range(len(mine)))
    assert {row["n"] for row in ran.rows("timed")} == set(range(COUNT)) - FAR
    dead = ran.rows("timed__dead_letters")
    assert {json.loads(row["value"])["n"] for row in dead} == FAR
    assert {row["error_class"] for row in dead} == {"out_of_range"}


def test_records_with_a_timestamp_in_nanoseconds_have_their_place_in_the_order_of_changes(ran: Ran) -> None:
    assert {row["key"]: row["n"] for row in ran.rows("newest")} == {n % 7: n for n in range(COUNT)}
