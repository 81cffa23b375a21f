"""MySQL's changes as Canal writes them, from a real broker to readers that know nothing of Frazil."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.processes import plain_environment
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_change_log import rows

pytestmark = pytest.mark.timeout(900)
TYPES = {"id": "int(11)", "price": "decimal(8,2)", "note": "varchar(40)", "raw": "varbinary(8)"}
KEYS = 30


@dataclass
class Source:
    """A table of MySQL, and what Canal says of it. images: the rows before and after each change, in a change log's form."""

    ledger: Ledger
    seed: int
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    images: list[tuple[str, str | None, int | None, Decimal | None]] = field(default_factory=list)
    ddl: int = 0

    def __post_init__(self) -> None:
        self._chance = np.random.default_rng(self.seed)

    def work(self, messages: int) -> None:
        """So many messages of one to five rows each, now and then one about the table itself."""
        self._producer = Producer({"bootstrap.servers": self.ledger.servers, "linger.ms": 5})
        for _ in range(messages):
            step = self._chance.integers(100)
            if step < 2:
                self._tell("ALTER", None, isDdl=True, sql="alter table t comment 'x'")
                self.ddl += 1
            elif step < 3:
                self._tell("TRUNCATE", None, isDdl=True, sql="truncate table t")
                self.rows.clear()
                self.images.append(("t", None, None, None))
            else:
                (self._insert, self._update, self._delete)[int(step % 3)]()
        assert self._producer.flush(30) == 0

    def _insert(self) -> None:
        free = [key for key in range(KEYS) if key not in self.rows]
        made = [self._row(int(key)) for key in self._some(free)]
        self.rows |= {row["id"]: row for row in made}
        self._say("INSERT", made, [("c", "after", row) for row in made])

    def _update(self) -> None:
        data, old, images = [], [], []
        for key in self._some(list(self.rows)):
            before = self.rows.pop(key)
            free = [other for other in range(KEYS) if other not in self.rows]
            moved = int(self._chance.choice(free)) if self._chance.integers(5) == 0 else key
            after = self._row(moved)
            self.rows[moved] = after
            changed = {name: before[name] for name in after if after[name] != before[name]}
            data.append(after)
            old.append(changed)
            images += [("u", "before", before), ("u", "after", after)]
        self._say("UPDATE", data, images, old)

    def _delete(self) -> None:
        gone = [self.rows.pop(key) for key in self._some(list(self.rows))]
        self._say("DELETE", gone, [("d", "before", row) for row in gone])

    def _some(self, keys: list[int]) -> list[int]:
        count = min(len(keys), int(self._chance.integers(1, 6)))
        return [int(key) for key in self._chance.choice(keys, count, replace=False)] if count else []

    def _row(self, key: int) -> dict[str, Any]:
        cents = int(self._chance.integers(-(10**8) + 1, 10**8))
        note = None if cents % 7 == 0 else f'n"{cents % 50}ü'
        return {"id": key, "price": Decimal(cents) / 100, "note": note, "raw": self._chance.bytes(cents % 4)}

    def _say(self, kind: str, data: list[Any], images: list[tuple[str, str, Any]], old: Any = None) -> None:
        if data:
            self._tell(kind, [_texts(row) for row in data], old=old and [_texts(row) for row in old])
            self.images += [(op, image, row["id"], row["price"]) for op, image, row in images]

    def _tell(self, kind: str, data: Any, **more: Any) -> None:
        said = {
            "data": data,
            "database": "d",
            "table": "t",
            "es": 5000,
            "ts": 6000,
            "id": 1,
            "isDdl": False,
            "old": None,
        }
        types = {"mysqlType": TYPES, "pkNames": ["id"], "type": kind} if data else {"mysqlType": None, "type": kind}
        self._producer.produce(self.ledger.topic, json.dumps({**said, **types, **more}).encode(), partition=0)


def _texts(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Values as Canal writes them."""
    found: dict[str, str | None] = {}
    for name, value in row.items():
        found[name] = value.decode("latin-1") if isinstance(value, bytes) else None if value is None else str(value)
    return found


def _status(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "frazil.cli.main", "status", "--file", "frazil.yaml", "--output", "json"]
    done = subprocess.run(command, cwd=folder, env=plain_environment(), capture_output=True, timeout=120, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_table_of_mysql_is_mirrored_and_every_change_is_kept_though_the_process_is_killed(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id(), 1)
    table = {"topic": ledger.topic, "envelope": "canal", "commit": {"interval": "200ms"}}
    log = {**table, "changelog": True, "metadata": ["offset"]}
    tables = {"s.mirror": {**table, "mode": "upsert"}, "s.history": log}
    pipeline = Pipeline(
        tmp_path, {"pipeline": "canal", "kafka": {"bootstrap.servers": ledger.servers}, "tables": tables}
    )
    source = Source(ledger, 7)
    source.work(150)
    with pipeline.start() as running:
        for times in (1, 3, 5):
            running.wait_for("batch_committed", times)
            source.work(60)
    source.work(100)
    pipeline.run()

    mirrored = {row["id"]: row for row in rows(tmp_path, "mirror")}
    assert mirrored == source.rows
    history = sorted(rows(tmp_path, "history"), key=lambda row: int(row["_offset"]))
    assert sorted(_told(history), key=str) == sorted(source.images, key=str)
    assert [image[0] for image in source.images] == [row["_op"] for row in history]
    found = _status(tmp_path)["tables"]
    assert (found["s.mirror"]["passed_over"], found["s.history"]["passed_over"]) == ({"schema_change": source.ddl},) * 2
    assert found["s.history"]["dead_letters"] == 0


def _told(history: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["_op"], row["_image"], row["id"], row["price"]) for row in history]
