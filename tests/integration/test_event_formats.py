"""What AWS DMS, Kafka Connect's JsonConverter, producers of CloudEvents and Debezium's outbox router write: from a real
broker to a reader that knows nothing of Frazil.
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

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_changelog import rows

pytestmark = pytest.mark.timeout(600)
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
STRUCTURED = {"content-type": b"application/cloudevents+json"}
EVENT = {"specversion": "1.0", "id": "e-1", "source": "/orders", "type": "placed", "time": "2026-11-22T00:00:01Z"}
BINARY = {**{f"ce_{name}": text.encode() for name, text in EVENT.items()}, "ce_region": b"eu"}
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
    upsert = {"mode": "upsert", "key_columns": ["id"]}
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
