"""A route from a real broker to real tables, by a process that dies where a table is named, and where it is made."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline

_KINDS = ("order", "refund", "page view", None)
_MORE_KINDS = (*_KINDS, "late")
_COUNT = 600


class Routed:
    """A topic, and tables by a field of its records."""

    def __init__(self, servers: str) -> None:
        self.ledger = Ledger(servers, new_id())
        #: What a pipeline file has of it.
        self.route = {"topic": self.ledger.topic, "by": "type", "to": "r.${type}", "rest": "r.rest"}

    def produce(self) -> None:
        """The first records."""
        self._produce(range(400), _KINDS)

    def produce_more(self) -> None:
        """The others, some with a new value."""
        self._produce(range(400, _COUNT), _MORE_KINDS)

    def _produce(self, numbers: range, kinds: tuple[str | None, ...]) -> None:
        producer = Producer({"bootstrap.servers": self.ledger.servers, "enable.idempotence": True})
        for n in numbers:
            value = {"type": kinds[n % len(kinds)], "n": n}
            producer.produce(self.ledger.topic, json.dumps(value).encode(), partition=n % 2)
        assert producer.flush(30) == 0

    def tables(self, folder: Path) -> dict[str, list[int]]:
        """The numbers of the rows of each table that has a snapshot."""
        with closing(sqlite3.connect(folder / "frazil-data" / "catalog.db")) as catalog:
            query = "select table_name, metadata_location from iceberg_tables where table_namespace = 'r'"
            found = {name: StaticTable.from_metadata(location) for name, location in catalog.execute(query)}
        written = {name: table for name, table in found.items() if table.current_snapshot() is not None}
        return {name: sorted(one.scan().to_arrow()["n"].to_pylist()) for name, one in written.items()}

    def is_read(self, folder: Path) -> bool:
        """Whether all records are in tables."""
        return sum(map(len, self.tables(folder).values())) == _COUNT

    def assert_whole(self, folder: Path, reported: Mapping[str, Any]) -> None:
        """Each record is in one table, that of its value. reported: what the last run reported of its tables."""
        expected = {
            kind: [n for n in range(_COUNT) if (_KINDS[n % 4] if n < 400 else _MORE_KINDS[n % 5]) == kind]
            for kind in _MORE_KINDS
        }
        rest = sorted([*expected.pop("page view"), *expected.pop(None)])
        assert self.tables(folder) == {**expected, "rest": rest}
        assert {name for name in reported if name.startswith("r.")} == {"r.late", "r.order", "r.refund", "r.rest"}
        assert reported["r.rest"]["rest_records"] == {"no table name": 140, "no value": 140}


# In time: a death at the first of the two steps, which leaves the same as one between them, in test_lookups.py.
@pytest.mark.slow
def test_every_record_is_in_one_table_of_a_route_through_kills(broker: EmbeddedBroker, tmp_path: Path) -> None:
    routed = Routed(broker.bootstrap_servers)
    document = {
        "pipeline": "routes",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "routes": [routed.route],
    }
    routed.produce()
    # The first commit is that of the rest, which names the tables; the first table made after it is one of them.
    for step in ("commit.landed=kill", "create.before=kill"):
        with Pipeline(tmp_path, document, {VARIABLE: step}).start("--until-caught-up") as running:
            running.wait_for_death()
    routed.produce_more()
    routed.assert_whole(tmp_path, Pipeline(tmp_path, document).run()["tables"])
