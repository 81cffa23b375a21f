"""Tables with `expect`, as their user runs them: from a real broker to the tables, their dead letters and their status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_changelog import rows

pytestmark = pytest.mark.timeout(600)
ORDERS = [(1, 5), (2, -5), (3, None), (1, -1), (4, 4)]
AMOUNT = {"that": "amount >= 0", "else": "dead_letter"}


def test_rows_that_do_not_meet_a_condition_are_set_aside_dropped_or_counted(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = Ledger(broker.bootstrap_servers, new_id(), 1).topic
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number, amount in ORDERS:
        value = json.dumps({"id": number, "amount": amount}).encode()
        producer.produce(topic, value, json.dumps({"id": number}).encode())
    assert producer.flush(30) == 0
    generous = {"stop_above": "100%"}
    tables: dict[str, Any] = {
        "s.orders": {
            "topic": topic,
            "expect": {"positive": AMOUNT, "small": "amount < 5"},
            "dead_letters": generous,
        },
        "s.latest": {
            "topic": topic,
            "mode": "upsert",
            "key_columns": ["id"],
            "select": "select id, amount * 2 as twice from records",
            "expect": {"positive": {"that": "twice >= 0", "else": "drop"}},
        },
        "s.warned": {"topic": topic, "expect": {"positive": {"that": "amount >= 0", "else": "warn"}}},
        "s.strict": {"topic": topic, "expect": {"positive": {"that": "amount >= 0", "else": "stop"}}},
    }
    pipeline = Pipeline(
        tmp_path, {"pipeline": "p", "kafka": {"bootstrap.servers": broker.bootstrap_servers}, "tables": tables}
    )
    done, document = pipeline.command("run", "--until-caught-up")
    assert done.returncode == 4, done.stderr
    reported = document["tables"]
    stopped = reported.pop("s.strict")
    assert (stopped["state"], stopped["where"]) == ("stopped", f"topic {topic}, partition 0, offset 1")
    assert (
        stopped["reason"] == "the record does not meet positive (amount >= 0): amount = -5 (and 2 more in this batch)"
    )
    assert {name: table["expectations"] for name, table in reported.items()} == {
        "s.orders": {"positive": 3, "small": 2},
        "s.latest": {"positive": 3},
        "s.warned": {"positive": 3},
    }
    assert (reported["s.orders"]["dead_letters"], reported["s.latest"]["ignored_records"]) == (3, {"positive": 3})
    assert sorted((row["id"], row["amount"]) for row in rows(tmp_path, "orders")) == [(1, 5), (4, 4)]
    assert sorted((row["id"], row["twice"]) for row in rows(tmp_path, "latest")) == [(1, 10), (4, 8)]
    assert len(rows(tmp_path, "warned")) == len(ORDERS)
