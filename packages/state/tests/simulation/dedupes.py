"""One seeded history of an append table without duplicates: producers that repeat records, services that come and go,
compactions, and trouble between any two steps; then the truth.

The truth, at every snapshot: no two rows of one id are near each other, every record before the offsets is a row or is near
a row of its id that came before it, and the balance of each commit counts what was dropped.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from frazil.spec import PipelineSpec
from frazil.types import Progress
from packages.state.tests.simulation.state_tables import StateHistory
from tests.simulation.scene import Place

_WITHIN_MS = 3000


class DedupeHistory(StateHistory):
    """Topics `a` and `b` feed `lake.d`."""

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed, root, "lake.d")
        fate = self.fate
        self.has_limit = fate.maybe(0.6)
        self.id_count = fate.pick(1, 40) if fate.maybe(0.5) else 1000
        self.produced: dict[Place, tuple[str | None, int]] = {}
        self.now_ms = 1_700_000_000_000
        for topic in "ab":
            self.source.create(topic, fate.pick(1, 3))
        self.spec = self._spec()

    def _spec(self) -> PipelineSpec:
        version, within = 3 if self.fate.maybe(0.5) else 2, f", within: {_WITHIN_MS}ms" if self.has_limit else ""
        settings = f"topics: [a, b], format_version: {version}, dedupe: {{by: [id]{within}}}"
        others = "metadata: [topic, partition, offset, timestamp], commit: {interval: 100ms}"
        layout = self.fate.rng.choice(["", ', partition_by: ["bucket(id, 3)"]', ", sort_by: [v]"])
        columns = ", columns: {id: string, v: long}"
        return self.spec_of(f"{settings}, {others}{columns}{layout}")

    # What happens

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 20)):
            number = self.fate.pick(0, self.id_count - 1)
            name = None if self.fate.maybe(0.03) else f"e{number}"
            topic = "ab"[self.fate.pick(0, 1)]
            partition = self.fate.pick(0, len(self.source.by_name[topic].partitions) - 1)
            self.now_ms += self.fate.pick(0, 300)
            at_ms = self.now_ms - (self.fate.pick(0, 5000) if self.fate.maybe(0.2) else 0)
            value: dict[str, Any] = {"id": name, "v": len(self.produced)}
            offset = self.source.produce(topic, partition, json.dumps(value).encode(), at_ms)
            self.produced[topic, partition, offset] = (name, at_ms)

    # The truth

    def places(self) -> Iterator[Place]:
        return iter(self.produced)

    def makes_rows(self) -> bool:
        return bool(self.produced)

    def check_snapshot(self, snapshot_id: int, order: list[Place], new: list[Place], progress: Progress | None) -> None:
        rows = [(row["_topic"], row["_kafka_partition"], row["_offset"]) for row in self.table.rows_at(snapshot_id)]
        kept = self._kept(order)
        assert sorted(rows) == sorted(kept), f"snapshot {snapshot_id}: {set(rows) ^ set(kept)}"
        if new and progress is not None and progress.batch.balance is not None:
            dropped = len(set(new) - set(kept))
            assert progress.batch.balance.dropped.get("duplicate", 0) == dropped, snapshot_id
            assert progress.batch.balance.written == len(new) - dropped, snapshot_id

    def _kept(self, order: list[Place]) -> list[Place]:
        """The records that are kept, of records in this order."""
        kept: list[Place] = []
        times: dict[str, list[int]] = defaultdict(list)
        for place in order:
            name, at_ms = self.produced[place]
            is_near = any(not self.has_limit or abs(at_ms - time) <= _WITHIN_MS for time in times[name or ""])
            if name is None or not is_near:
                kept.append(place)
                times[name or ""].append(at_ms)
        return kept
