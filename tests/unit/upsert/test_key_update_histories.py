"""Upsert tables of rows that get other keys, against a dictionary: whatever the batches end between."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frazil_testing.twins import FakeClock
from tests.fixtures.slices import sliced
from tests.unit.upsert.upsert_source import Log, Row, UpsertSource

_KEYS = 6
_ORDERED: dict[str, Any] = {"metadata": {"source_order": "_source_order"}, "order_by": "_source_order"}


class Delayed(Log):
    """A log whose records reach the topic later: each partition's in their order."""

    def __init__(self, scenario: UpsertSource) -> None:
        super().__init__(scenario, FakeClock().now_ms())
        self.waiting: dict[int, deque[tuple[Any, ...]]] = {0: deque(), 1: deque()}

    def send(self, partition: int, key: Row, value: Row | None, headers: Any) -> None:
        self.waiting[partition].append((partition, key, value, headers))

    def deliver(self, partition: int, count: int) -> None:
        for _ in range(min(count, len(self.waiting[partition]))):
            super().send(*self.waiting[partition].popleft())


@pytest.mark.parametrize("settings", [{}, _ORDERED], ids=["by arrival", "by order"])
@pytest.mark.parametrize("seed", sliced(range(6), 3))
def test_moved_rows_keep_their_values(tmp_path: Path, seed: int, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(seed)
    scenario = UpsertSource(tmp_path, int(rng.integers(1, 4)), **settings)
    log, rows = Delayed(scenario), dict[int, Row]()
    for number in range(40):
        _change(log, rows, rng, str(number))
        for partition in (0, 1):
            log.deliver(partition, int(rng.integers(0, 4)))
        if rng.random() < 0.4:
            scenario.catch_up()
    for partition in (1, 0):
        log.deliver(partition, 1000)
        scenario.catch_up()
    assert scenario.dead_letters() == []
    assert [{name: row[name] for name in ("id", "v", "big")} for row in scenario.by_id()] == [
        rows[key] for key in sorted(rows)
    ]


def _change(log: Delayed, rows: dict[int, Row], rng: np.random.Generator, v: str) -> None:
    """A change of the source. Keys have their partitions."""
    old, new = (int(key) for key in rng.integers(0, _KEYS, 2))
    if old not in rows:
        rows[old] = {"id": old, "v": v, "big": f"big {v}"}
        log.write(rows[old], old % 2)
    elif new not in rows:
        rows[new] = {**rows.pop(old), "id": new, "v": v}
        log.move(old, new, v, (old % 2, new % 2))
    elif rng.random() < 0.3:
        del rows[old]
        log.remove(old, old % 2)
    else:
        rows[old] = {**rows[old], "v": v}
        log.keep(old, v, old % 2)
