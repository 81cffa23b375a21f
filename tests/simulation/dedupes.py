"""One seeded history of an append table without duplicates: producers that repeat records, services that come and go,
compactions, and trouble between any two steps; then the truth.

The truth, at every snapshot: no two rows of one id are near each other, every record before the offsets is a row or is near
a row of its id that came before it, and the balance of each commit counts what was dropped.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from frazil.catalog.progress import from_summary
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec, load_spec
from frazil.types import Progress
from tests.simulation.scene import Place, Scene, pipeline_of
from tests.simulation.tables import Meddling, SharedTable

_TABLE = "lake.d"
_WITHIN_MS = 3000


class DedupeHistory(Scene):
    """Topics `a` and `b` feed `lake.d`."""

    def __init__(self, seed: int, root: Path) -> None:
        fate = Meddling(seed)
        super().__init__(fate, root)
        fate.meddle = self._meddle
        self.table = SharedTable(self.catalog, _TABLE, fate)
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
        layout = self.fate.rng.choice(["", ", partition_by: [bucket(id, 3)]", ", sort_by: [v]"])
        columns = ", columns: {id: string, v: long}"
        path = self.root / "pipeline.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"tables:\n  {_TABLE}: {{{settings}, {others}{columns}{layout}}}\n".replace(
            "bucket(id, 3)", '"bucket(id, 3)"'
        )
        path.write_text(f'pipeline: sim\nkafka: {{bootstrap.servers: "localhost:9092"}}\n{text}')
        return pipeline_of(self.root, load_spec(path, {}).tables[0])

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

    def _touch_tables(self) -> None:
        if self.fate.maybe(0.06):
            self._meddle()
        if self.fate.maybe(0.02):
            self._roll_back(_TABLE)
        if self.fate.maybe(0.01):
            self._drop(_TABLE)

    def _meddle(self) -> None:
        if not self.table.has_snapshots:
            return
        if self.fate.maybe(0.4):
            self.table.touch()
        elif self.fate.maybe(0.1):
            self.table.upgrade()
        else:
            self.table.compact()

    # The truth

    def _check_end(self, service: Service) -> None:
        [table] = service.tables
        assert table.status.run_state is not RunState.STOPPED, f"stopped: {table.status.reason} ({table.status.where})"
        if self.catalog.load(_TABLE) is None:
            assert not self.produced
            return
        progress = self.check()
        behind = [place for place in self.produced if _at(progress, *place[:2]) <= place[2]]
        assert not behind, f"not complete: {behind[:5]}"

    def check(self) -> Progress:
        """Checks every snapshot; returns the newest progress."""
        progress = Progress()
        order: list[Place] = []
        for snapshot in reversed(self.catalog.ancestors(_TABLE)):
            before, progress = progress, from_summary("sim", snapshot.summary) or progress
            new = sorted(
                place for place in self.produced if _at(before, *place[:2]) <= place[2] < _at(progress, *place[:2])
            )
            order += new
            rows = [(row["_topic"], row["_partition"], row["_offset"]) for row in self.table.rows_at(snapshot.id)]
            kept = self._kept(order)
            assert sorted(rows) == sorted(kept), f"snapshot {snapshot.id}: {set(rows) ^ set(kept)}"
            if new and progress.balance is not None and progress.commit_id != before.commit_id:
                dropped = len(set(new) - set(kept))
                assert progress.balance.dropped.get("duplicate", 0) == dropped, snapshot.id
                assert progress.balance.written == len(new) - dropped, snapshot.id
        return progress

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


def _at(progress: Progress, topic: str, partition: int) -> int:
    return progress.offsets.get(topic, {}).get(partition, 0)
