"""One seeded history of a table with `mode: history`: records and changes, in order and late, deletes, services that come
and go, compactions, and trouble between any two steps; then the truth.

The truth: every snapshot has the versions that the records before its offsets make, applied one by one to plain lists.
"""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.spec import PipelineSpec
from frazil.types import Progress
from packages.state.tests.simulation.state_tables import StateHistory
from packages.state.tests.unit.history.versions import EPOCH, Model
from tests.simulation.scene import Place

_PLAIN = "track: [name]"
_WHOLE = "exclude: [n]"
_ORDERED = "order_by: at, track: [name], columns: {at: timestamptz}"
_CHANGES = "envelope: debezium, track: [name]"
Row = dict[str, Any]


@dataclass(frozen=True)
class Put:
    """What one record asks for: the row of a key from a time in microseconds on; None: the row is deleted."""

    key: int
    time: int
    row: Row | None
    is_placed: bool


class VersionHistory(StateHistory):
    """Topics `a` and `b` feed `lake.v`."""

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed, root, "lake.v")
        fate = self.fate
        self.kind = str(fate.rng.choice([_PLAIN, _WHOLE, _ORDERED, _CHANGES]))
        self.key_count = fate.pick(1, 20)
        self.asked: dict[Place, tuple[Put, ...]] = {}
        self.rows: dict[int, Row] = {}
        self.count = 0
        for topic in "ab":
            self.source.create(topic, fate.pick(1, 3))
        self.spec = self._spec()

    def _spec(self) -> PipelineSpec:
        version = 3 if self.fate.maybe(0.6) else 2
        settings = f"topics: [a, b], mode: history, key: {{format: json}}, key_columns: [k], format_version: {version}"
        return self.spec_of(f"{settings}, commit: {{interval: 100ms}}, {self.kind}")

    # What happens

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 15)):
            key, self.count = self.fate.pick(0, self.key_count - 1), self.count + 1
            is_delete = key in self.rows and self.fate.maybe(0.2)
            row = None if is_delete else {"k": key, "name": f"name {self.fate.pick(0, 3)}", "n": self.count}
            sent_ms = self.clock.now_ms() - (self.fate.pick(0, 3000) if self.fate.maybe(0.3) else 0)
            at_ms, is_placed = sent_ms, False
            if self.kind == _ORDERED and row is not None:
                at_ms = self.clock.now_ms() - self.fate.pick(0, 20) * 100
                is_placed = True
                row["at"] = (EPOCH + datetime.timedelta(milliseconds=at_ms)).isoformat()
            before = self.rows.get(key)
            if row is None:
                del self.rows[key]
            else:
                self.rows[key] = row
            value = row
            if self.kind == _CHANGES:
                op = "d" if row is None else "c" if before is None else "u"
                value = {"op": op, "before": before, "after": row, "source": {"ts_ms": at_ms}}
                sent_ms = self.clock.now_ms()
            self._send(key, value, sent_ms, Put(key, at_ms * 1000, row, is_placed))

    def _send(self, key: int, value: Row | None, sent_ms: int, *asked: Put) -> None:
        topic = "ab"[key % 2]
        partitions = len(self.source.by_name[topic].partitions)
        gap = self.fate.pick(1, 3) if self.fate.maybe(0.1) else 0
        text = None if value is None else json.dumps(value).encode()
        record_key = json.dumps({"k": key}).encode()
        offset = self.source.produce(topic, key % partitions, text, sent_ms, gap, key=record_key)
        self.asked[topic, key % partitions, offset] = asked

    # The truth

    def places(self) -> Iterator[Place]:
        return iter(self.asked)

    def makes_rows(self) -> bool:
        return bool(self.asked)

    def check_snapshot(self, snapshot_id: int, order: list[Place], new: list[Place], progress: Progress | None) -> None:  # noqa: ARG002
        rows = sorted(map(self._shown, self.table.rows_at(snapshot_id)))
        wanted = sorted(self._versions_of(order))
        assert rows == wanted, f"snapshot {snapshot_id}: {rows} is not {wanted}"

    def _shown(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        start, end = _micros(row["valid_from"]), -1 if row["valid_to"] is None else _micros(row["valid_to"])
        assert row["is_current"] == (end == -1)
        return row["k"], start, end, row["name"], row.get("n")

    def _versions_of(self, order: list[Place]) -> list[tuple[Any, ...]]:
        models: dict[int, Model] = defaultdict(lambda: Model(self.kind == _ORDERED, lambda row: row["name"]))
        for place in order:
            for put in self.asked[place]:
                models[put.key].apply(put.time, put.row, is_placed=put.is_placed)
        return [
            (
                key,
                version.start,
                -1 if version.end is None else version.end,
                version.row["name"],
                None if self.kind == _WHOLE else version.row["n"],
            )
            for key, model in models.items()
            for version in model.versions
        ]


def _micros(moment: datetime.datetime) -> int:
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)
