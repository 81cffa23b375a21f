"""Tables whose columns are shaped and named by the file, and their records: test_partitions.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

from frazil.clock import new_id
from tests.integration.pipelines import Ledger

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
"""Names of columns, and how docs/guides/names.md reports that Spark and DuckDB want them."""
CUSTOMER = {"name": "ann", "address": {"zipCode": "10115"}, "taxNumber": 7}


class Shaped:
    """The topics of `p.shaped`, of `p.placed`, which has metadata columns, and of `p.odd`, whose columns have odd names."""

    def __init__(self, servers: str) -> None:
        self._shaped, self.placed, self._odd = (Ledger(servers, new_id(), 1) for _ in range(3))

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        return {
            "p.shaped": {"topic": self._shaped.topic, **SHAPE},
            "p.placed": {"topic": self.placed.topic, "metadata": ["topic", "partition", "offset"]},
            "p.odd": {"topic": self._odd.topic},
        }

    def produce(self) -> None:
        """Records for all of them."""
        seen = {"orderId": 1, "customer": CUSTOMER, "seenAt": 1_700_000_000_123, "noise": [1, "x"]}
        _produce(self._shaped, "k1", "00-a", seen)
        _produce(self._shaped, None, None, {"orderId": 2, "customer": None, "noise": {"a": 1}})
        self.placed.produce(100)
        _produce(self._odd, None, None, {name: number for number, (name, *_) in enumerate(NAMES)})

    def produce_more(self) -> None:
        """A record with a new field."""
        _produce(self._shaped, "k3", "00-c", {"orderId": 3, "customer": {"vipLevel": 2}})


def _produce(ledger: Ledger, key: str | None, trace: str | None, value: Mapping[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": ledger.servers, "enable.idempotence": True})
    headers: list[tuple[str, str | bytes | None]] = [("traceparent", trace.encode())] if trace is not None else []
    producer.produce(ledger.topic, json.dumps(value).encode(), key=key and key.encode(), headers=headers, partition=0)
    assert producer.flush(30) == 0
