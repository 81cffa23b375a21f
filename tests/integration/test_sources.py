"""Changes as Maxwell, and Debezium for MongoDB, write them: from a real broker to a reader that knows nothing of Frazil."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_change_log import rows
from tests.unit.ingest.document_world import change, key_of, key_with_schema, value_with_schema

pytestmark = pytest.mark.timeout(900)
KEYS = 30


@dataclass
class Source:
    """A table or a collection whose changes go to a topic of its own. form: `hash` and `array` as Maxwell's keys are,
    `plain` and `schema` as Debezium's messages of MongoDB. rows: what is in it.
    """

    ledger: Ledger
    form: str
    seed: int
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = np.random.default_rng(self.seed)

    def work(self, changes: int) -> None:
        """So many changes, each of a row by chance."""
        self._producer = Producer({"bootstrap.servers": self.ledger.servers, "linger.ms": 5})
        is_maxwell = self.form in ("hash", "array")
        for _ in range(changes):
            key = int(self._chance.integers(KEYS))
            before = self.rows.get(key)
            made = {"v": f'a "{self._chance.integers(1000)}"', "n": int(self._chance.integers(2**40))}
            if before is not None and self._chance.integers(3) == 0:
                del self.rows[key]
            else:
                self.rows[key] = made
            (self._tell_maxwell if is_maxwell else self._tell_document)(key, before, self.rows.get(key))
        assert self._producer.flush(30) == 0

    def _tell_maxwell(self, key: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        kind = "delete" if after is None else "insert" if before is None else "update"
        row = {"id": key, "part": "x", **(after or before or {})}
        said = {"database": "shop", "table": "e", "type": kind, "ts": 1, "xid": 1, "commit": True, "data": row}
        if kind == "update" and before is not None and after is not None:
            said["old"] = {name: old for name, old in before.items() if after[name] != old}
        named = {"database": "shop", "table": "e", "pk.id": key, "pk.part": "x"}
        told: Any = named if self.form == "hash" else ["shop", "e", [{"id": key}, {"part": "x"}]]
        self._send(json.dumps(told).encode(), json.dumps(said).encode())

    def _tell_document(self, key: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        op = "d" if after is None else "c" if before is None else "u"
        document = None if after is None else json.dumps(document_of(key, after))
        name, said = key_of(json.dumps(_oid(key))), change(op, document)
        is_bare = self.form == "plain"
        raw = json.dumps(name).encode() if is_bare else key_with_schema(name)
        self._send(raw, json.dumps(said).encode() if is_bare else value_with_schema(said))
        if op == "d":
            self._send(raw, None)

    def _send(self, key: bytes, value: bytes | None) -> None:
        self._producer.produce(self.ledger.topic, value, key)


def _oid(key: int) -> dict[str, str]:
    return {"$oid": f"596e275826f08b27307{key:05x}"}


def document_of(key: int, row: dict[str, Any]) -> dict[str, Any]:
    """A document with an object id, as the connector writes it."""
    return {"_id": _oid(key), **row}


def test_mirrors_find_their_keys_by_themselves_though_the_process_is_killed(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    forms = ("hash", "array", "plain", "schema")
    sources = {form: Source(Ledger(broker.bootstrap_servers, new_id(), 2), form, n) for n, form in enumerate(forms)}
    tables = {}
    for form, source in sources.items():
        envelope = "maxwell" if form in ("hash", "array") else "debezium"
        said = {"topic": source.ledger.topic, "envelope": envelope, "commit": {"interval": "200ms"}}
        tables[f"s.t_{form}"] = {**said, "mode": "upsert"}
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    pipeline = Pipeline(tmp_path, {"pipeline": "sources", "kafka": kafka, "tables": tables})
    for source in sources.values():
        source.work(150)
    with pipeline.start() as running:
        running.wait_for("batch_committed", len(forms))
        for source in sources.values():
            source.work(150)
        running.wait_for("batch_committed", len(forms) + 2)
    for source in sources.values():
        source.work(50)
    found = pipeline.run()["tables"]
    assert [found[name]["dead_letters"] for name in tables] == [0] * len(forms)
    for form in ("hash", "array"):
        whole = [{"id": key, "part": "x", **row} for key, row in sorted(sources[form].rows.items())]
        assert sorted(rows(tmp_path, f"t_{form}"), key=lambda row: int(row["id"])) == whole
    for form in ("plain", "schema"):
        whole = [document_of(key, row) for key, row in sorted(sources[form].rows.items())]
        assert sorted(rows(tmp_path, f"t_{form}"), key=lambda row: str(row["_id"])) == whole
