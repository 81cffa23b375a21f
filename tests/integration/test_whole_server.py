"""All topics of one database server in a pipeline, from a real broker: partitions between which rows move, shards with equal
ids, documents that are gone, and topics without changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_changelog import rows
from tests.unit.cdc.mongodb_source import change, key_of

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]
_ROUTED = "__dbz__physicalTableIdentifier"
_SCHEMA_CHANGE = {"source": {"connector": "mysql"}, "ts_ms": 1, "databaseName": "shop", "ddl": "drop table t"}
_TRANSACTION = {"status": "END", "id": "571:1", "ts_ms": 1, "event_count": 1, "data_collections": []}
_TOPICS = ("", ".transaction", ".public.orders", "-ev_2026_01", "-ev_2026_02", "-customers", "-docs")
_DOCUMENTS, _GONE = 1000, 300


class _Server:
    """What Debezium writes of a server, to topics whose names begin with `name`."""

    def __init__(self, servers: str) -> None:
        self.name = f"srv{new_id()}"
        for topic in _TOPICS:
            Ledger(servers, f"{self.name}{topic}", 1)
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})

    def send(self, topic: str, key: Any, value: Any) -> None:
        raw = None if value is None else json.dumps(value).encode()
        self._producer.produce(f"{self.name}{topic}", raw, None if key is None else json.dumps(key).encode())

    def row(self, topic: str, op: str, lsn: int, row: Mapping[str, Any], table: str = "", **key: Any) -> None:
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        source = {"connector": "postgresql", "lsn": lsn, "table": table}
        self.send(topic, {"id": row["id"], **key}, {"op": op, **images, "source": source})
        if op == "d":
            self.send(topic, {"id": row["id"], **key}, None)

    def document(self, number: int, op: str, v: str | None) -> None:
        text = None if v is None else json.dumps({"_id": number, "v": v})
        self.send("-docs", key_of(str(number)), change(op, text))

    def flush(self) -> None:
        assert self._producer.flush(30) == 0


@dataclass(frozen=True)
class _Ran:
    """The pipeline after two runs, and what the second one and commands reported."""

    pipeline: Pipeline
    name: str
    first: Mapping[str, Any]
    second: Mapping[str, Any]

    def rows(self, table: str) -> list[dict[str, Any]]:
        return sorted(
            rows(self.pipeline.directory, table), key=lambda row: json.dumps(row, sort_keys=True, default=str)
        )


@pytest.fixture(scope="module")
def ran(broker: EmbeddedBroker, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> _Ran:
    server = _Server(broker.bootstrap_servers)
    prefix = server.name
    ordered = {"metadata": ["source_order"], "order_by": "_source_order"}
    apart = {"metadata": ["source_table"], "key_columns": ["_source_table", "id"]}
    document = {
        "pipeline": "server",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "namespace": "s",
        "topics": f"/^{prefix}(\\.|$)/",
        "defaults": {"envelope": "debezium", "mode": "upsert", "key": {"format": "json"}},
        "tables": {
            "s.events": {"topics": f"/^{prefix}-ev_/", **ordered},
            "s.customers": {"topic": f"{prefix}-customers", **apart},
            "s.docs": {"topic": f"{prefix}-docs"},
            "s.docs_log": {"topic": f"{prefix}-docs", "mode": "append", "changelog": True},
        },
    }
    pipeline = Pipeline(tmp_path_factory.mktemp("server"), document, jvm=jvm)
    for _ in range(3):
        server.send("", None, _SCHEMA_CHANGE)
        server.send(".transaction", None, _TRANSACTION)
    server.row(".public.orders", "c", 1, {"id": 1, "v": "a"})
    server.row("-ev_2026_01", "c", 1, {"id": 2, "v": "old"})
    server.row("-ev_2026_01", "d", 2, {"id": 2, "v": "old"})
    server.row("-ev_2026_02", "c", 3, {"id": 2, "v": "new"})
    server.row("-ev_2026_02", "c", 13, {"id": 1, "v": "new"})
    for table in ("c1", "c2"):
        server.row("-customers", "c", 1, {"id": 7, "v": table}, table, **{_ROUTED: f"shop.{table}"})
    for number in range(_DOCUMENTS):
        server.document(number, "c", "a")
    server.flush()
    first = pipeline.run()["tables"]
    server.row("-ev_2026_01", "c", 11, {"id": 1, "v": "old"})
    server.row("-ev_2026_01", "d", 12, {"id": 1, "v": "old"})
    server.row("-customers", "d", 2, {"id": 7, "v": None}, "c1", **{_ROUTED: "shop.c1"})
    for number in range(_DOCUMENTS):
        server.document(number, "u", None if number < _GONE else "b")
    for number in range(_GONE):
        server.document(number, "d", None)
    server.flush()
    return _Ran(pipeline, prefix, first, pipeline.run()["tables"])


def test_rows_that_moved_to_another_topic_are_there_in_one_batch_and_in_two(ran: _Ran) -> None:
    assert [(row["id"], row["v"]) for row in ran.rows("events")] == [(2, "new"), (1, "new")]


def test_rows_of_shards_with_one_id_stay_apart(ran: _Ran) -> None:
    assert ran.rows("customers") == [{"id": 7, "v": "c2", "_source_table": "c2"}]
    assert (ran.first["s.customers"]["size"]["row_count"], ran.second["s.customers"]["dead_letters"]) == (2, 0)


def test_documents_that_are_gone_stop_no_table(ran: _Ran) -> None:
    left = [{"_id": number, "v": "b"} for number in range(_GONE, _DOCUMENTS)]
    assert sorted(ran.rows("docs"), key=lambda row: int(row["_id"])) == left
    log = ran.rows("docs_log")
    counts = dict.fromkeys((("c", "after"), ("u", "after"), ("d", "identity")), 0)
    for row in log:
        counts[row["_op"], row["_image"]] += 1
    assert list(counts.values()) == [_DOCUMENTS, _DOCUMENTS - _GONE, _GONE]
    for table in ("s.docs", "s.docs_log"):
        found = ran.second[table]
        assert (found["ignored_records"], found["dead_letters"]) == ({"update_without_document": _GONE}, 0)


def test_topics_without_changes_are_nothing_to_do_for_any_command(ran: _Ran) -> None:
    reason = "the records so far change no row ({}), so the table has no column yet"
    kinds = {f"s.{ran.name}": "schema_change", f"s.{ran.name}.transaction": "transaction"}
    (done, status), (planned, plan), checks = (
        ran.pipeline.command("status"), ran.pipeline.command("plan"), ran.pipeline.checks()
    )  # fmt: skip
    assert (done.returncode, planned.returncode) == (0, 0), (done.stdout, planned.stdout)
    found = {one["name"]: one["found"] for one in checks}
    for name, kind in kinds.items():
        assert (ran.second[name]["state"], ran.second[name]["lag_records"]) == ("waiting", 0)
        for told in (ran.second[name], status["tables"][name], plan["tables"][name]):
            assert told["reason"] == reason.format(kind)
        assert found[f"records of {name}"].startswith(reason.format(kind))
    assert [(row["id"], row["v"]) for row in ran.rows("orders")] == [(1, "a")]
