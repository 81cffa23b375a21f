"""What AWS DMS, Kafka Connect's JsonConverter, producers of CloudEvents, Debezium's outbox router and one that writes
timestamps in nanoseconds write, and the tables of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.clock import new_id
from tests.integration.pipelines import Ledger

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


def formats(servers: str) -> dict[str, dict[str, Any]]:
    """Topics with all messages, and their tables."""
    topics = {name: Ledger(servers, new_id(), 1).topic for name in MESSAGES}
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for name, messages in MESSAGES.items():
        for key, value, headers in messages:
            producer.produce(topics[name], json.dumps(value).encode(), key, headers=list(headers.items()))
    assert producer.flush(30) == 0
    upsert, far = {"mode": "upsert", "key_columns": ["id"]}, _far(servers)
    tables: dict[str, Any] = {
        "s.dms": {"topic": topics["dms"], "envelope": "dms", **upsert},
        "s.changes": {"topic": topics["dms"], "envelope": "dms", "changelog": True, "metadata": ["source_table"]},
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
    return {name: {**table, "dead_letters": {"stop_above": "100%"}} for name, table in tables.items()}
