"""A table of MySQL under a random load, and what Canal writes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from confluent_kafka import Producer

from tests.integration.pipelines import Ledger

TYPES = {"id": "int(11)", "price": "decimal(8,2)", "note": "varchar(40)", "raw": "varbinary(8)"}
KEYS = 30


@dataclass
class CanalSource:
    """A table of MySQL, and what Canal reports of it. images: the rows before and after each change, in a changelog's
    form.
    """

    ledger: Ledger
    seed: int
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    images: list[tuple[str, str | None, int | None, Decimal | None]] = field(default_factory=list)
    ddl: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def work(self, messages: int) -> None:
        """So many messages of one to five rows each, now and then one about the table itself."""
        self._producer = Producer(
            {"bootstrap.servers": self.ledger.servers, "enable.idempotence": True, "linger.ms": 5}
        )
        for _ in range(messages):
            step = self._rng.integers(100)
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
            moved = int(self._rng.choice(free)) if self._rng.integers(5) == 0 else key
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
        count = min(len(keys), int(self._rng.integers(1, 6)))
        return [int(key) for key in self._rng.choice(keys, count, replace=False)] if count else []

    def _row(self, key: int) -> dict[str, Any]:
        cents = int(self._rng.integers(-(10**8) + 1, 10**8))
        note = None if cents % 7 == 0 else f'n"{cents % 50}ü'
        return {"id": key, "price": Decimal(cents) / 100, "note": note, "raw": self._rng.bytes(cents % 4)}

    def _say(self, kind: str, data: list[Any], images: list[tuple[str, str, Any]], old: Any = None) -> None:
        if data:
            self._tell(kind, [_texts(row) for row in data], old=old and [_texts(row) for row in old])
            self.images += [(op, image, row["id"], row["price"]) for op, image, row in images]

    def _tell(self, kind: str, data: Any, **more: Any) -> None:
        reported = {
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
        self._producer.produce(self.ledger.topic, json.dumps({**reported, **types, **more}).encode(), partition=0)


def _texts(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Values as Canal writes them."""
    found: dict[str, str | None] = {}
    for name, value in row.items():
        found[name] = value.decode("latin-1") if isinstance(value, bytes) else None if value is None else str(value)
    return found
