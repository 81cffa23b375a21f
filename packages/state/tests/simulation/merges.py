"""One seeded history of a table whose rows are merged: records and changes in any partition, services that come and go,
compactions, and trouble between any two steps; then the truth.

The truth: every snapshot holds exactly what a query over the records before its offsets gives, computed here with plain
dictionaries.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frazil.spec import PipelineSpec
from frazil.types import Progress
from packages.state.tests.simulation.state_tables import StateHistory
from tests.simulation.scene import Place

PLAIN = (
    "merge: {n: sum, records: count, low: min, high: max, first: first, filled: latest_non_null, began: first_non_null,"
    " every: bool_and, some: bool_or, tags: collect_set, all_tags: collect_list, state: latest by changed}"
)
ORDERED = "order_by: at, merge: {n: sum, records: count, low: min, high: max, tags: collect_set}"
CHANGES = "envelope: debezium, merge: {n: sum, records: count}"
Row = dict[str, Any]


@dataclass(frozen=True)
class Put:
    """What one record asks for. key: of the group. op: `put`, `take` (a row is subtracted) or `clear`."""

    op: str
    key: int
    row: Row


class MergeHistory(StateHistory):
    """Topics `a` and `b` feed `lake.m`. is_scattered: records of a group come through several partitions."""

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed, root, "lake.m")
        fate = self.fate
        self.kind = str(fate.rng.choice([PLAIN, ORDERED, CHANGES]))
        self.is_scattered = self.kind != PLAIN or fate.maybe(0.3)
        self.key_count = fate.pick(1, 30)
        self.asked: dict[Place, tuple[Put, ...]] = {}
        self.rows: dict[int, Row] = {}
        self.count = 0
        self.topics_grow = self.is_scattered
        for topic in "ab":
            self.source.create(topic, fate.pick(1, 3))
        self.spec = self._spec()

    def _spec(self) -> PipelineSpec:
        version = 3 if self.fate.maybe(0.6) else 2
        settings = f"topics: [a, b], mode: upsert, key: {{format: json}}, key_columns: [k], format_version: {version}"
        return self.spec_of(f"{settings}, commit: {{interval: 100ms}}, {self.kind}")

    # What happens

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 15)):
            if self.kind == CHANGES:
                self._change()
            elif self.fate.maybe(0.9) or self.is_scattered:
                row = self._row(self.fate.pick(0, self.key_count - 1))
                self._send(row["k"], row["k"], row, Put("put", row["k"], row))
            else:
                key = self.fate.pick(0, self.key_count - 1)
                self._send(key, key, None, Put("clear", key, {}))

    def _change(self) -> None:
        """A change of the source's table, whose rows move from one group to another."""
        number = self.fate.pick(0, 20)
        before = self.rows.get(number)
        if before is not None and self.fate.maybe(0.3):
            del self.rows[number]
            value: Row = {"op": "d", "before": before, "after": None}
            self._send(number, number, value, Put("take", before["k"], before))
            return
        after = {"id": number, **self._row(self.fate.pick(0, self.key_count - 1))}
        self.rows[number] = after
        asked = [Put("put", after["k"], after)]
        if before is not None:
            asked.insert(0, Put("take", before["k"], before))
        value = {"op": "c" if before is None else "u", "before": before, "after": after}
        self._send(number, number, value, *asked)

    def _row(self, key: int) -> Row:
        """A row with values that are there or not."""
        number, fate = self.count, self.fate
        row: Row = {"k": key, "n": number if fate.maybe(0.8) else None, "at": number // 3 - fate.pick(0, 4)}
        row |= {"low": number * 7 % 31, "high": f"text {number * 5 % 17}", "last": number}
        for name in ("first", "filled", "began"):
            row[name] = number if fate.maybe(0.6) else None
        for name in ("every", "some"):
            row[name] = fate.maybe(0.5) if fate.maybe(0.7) else None
        row["state"], row["changed"] = number if fate.maybe(0.8) else None, fate.pick(0, 9) if fate.maybe(0.6) else None
        for name in ("tags", "all_tags"):
            row[name] = [f"t{fate.pick(0, 5)}" for _ in range(fate.pick(0, 3))] if fate.maybe(0.7) else None
        return row

    def _send(self, owner: int, key: int, value: Row | None, *asked: Put) -> None:
        """owner: the number of what has its changes in one partition."""
        name = "id" if self.kind == CHANGES else "k"
        topic = "ab"[owner % 2]
        partitions = len(self.source.by_name[topic].partitions)
        partition = self.fate.pick(0, partitions - 1) if self.is_scattered and self.kind != CHANGES else 0
        gap = self.fate.pick(1, 3) if self.fate.maybe(0.1) else 0
        text = None if value is None else json.dumps(value).encode()
        record_key = json.dumps({name: key}).encode()
        offset = self.source.produce(topic, partition, text, self.clock.now_ms(), gap, key=record_key)
        self.asked[topic, partition, offset] = asked
        self.count += 1

    # The truth

    def places(self) -> Iterator[Place]:
        return iter(self.asked)

    def makes_rows(self) -> bool:
        return any(asked.op == "put" for puts in self.asked.values() for asked in puts)

    def check_snapshot(self, snapshot_id: int, order: list[Place], new: list[Place], progress: Progress | None) -> None:  # noqa: ARG002
        expected = query(self.kind, (put for place in order for put in self.asked[place]))
        rows = [{name: row.get(name) for name in self._names(row)} for row in self.table.rows_at(snapshot_id)]
        found = {row["k"]: _comparable(row) for row in rows}
        assert len(found) == len(rows), f"snapshot {snapshot_id} has a key twice"
        wanted = {key: _comparable(row) for key, row in expected.items()}
        assert found == wanted, f"snapshot {snapshot_id}: {found} is not {wanted}"

    def _names(self, row: Mapping[str, Any]) -> Iterable[str]:
        of_kind = {PLAIN: _OF_PLAIN, ORDERED: _OF_ORDERED, CHANGES: _OF_CHANGES}[self.kind]
        return (name for name in of_kind if name in row)


def query(kind: str, puts: Iterable[Put]) -> dict[int, Row]:
    """Returns what a query makes of records in this order, by key: a batch query over all of them."""
    groups: dict[int, list[Put]] = defaultdict(list)
    for put in puts:
        if put.op == "clear":
            groups.pop(put.key, None)
        else:
            groups[put.key].append(put)
    functions = {PLAIN: _OF_PLAIN, ORDERED: _OF_ORDERED, CHANGES: _OF_CHANGES}[kind]
    rows = {
        key: {name: function(of_key, name) for name, function in functions.items()} for key, of_key in groups.items()
    }
    return {key: row for key, row in rows.items() if row["records"]}


def _values(puts: list[Put], name: str) -> list[Any]:
    return [put.row[name] for put in puts if put.row[name] is not None]


def _sum(puts: list[Put], name: str) -> int | None:
    values = [put.row[name] * (-1 if put.op == "take" else 1) for put in puts if put.row[name] is not None]
    return sum(values) if values else None


def _set(puts: list[Put], name: str) -> list[Any] | None:
    lists = _values(puts, name)
    return sorted({element for elements in lists for element in elements}) if lists else None


def _empty(puts: list[Put], name: str) -> list[Any] | None:
    return [] if _values(puts, name) else None


def _latest_by_order(puts: list[Put], name: str) -> Any:
    return _latest_by(puts, name, "at")


def _latest_by(puts: list[Put], name: str, order: str) -> Any:
    ordered = [(put.row[order], number, put.row[name]) for number, put in enumerate(puts) if put.row[order] is not None]
    return max(ordered, key=lambda entry: entry[:2])[2] if ordered else None


Function = Callable[[list[Put], str], Any]
_OF_CHANGES: dict[str, Function] = {
    "k": lambda puts, name: puts[-1].row[name],
    "n": lambda puts, name: _sum(puts, name) or 0,
    "records": lambda puts, _: sum(-1 if put.op == "take" else 1 for put in puts),
    "last": lambda puts, name: [put for put in puts if put.op == "put"][-1].row[name],
}
_BOTH: dict[str, Function] = {
    **_OF_CHANGES,
    "n": _sum,
    "low": lambda puts, name: min(_values(puts, name)),
    "high": lambda puts, name: max(_values(puts, name)),
    "tags": lambda puts, name: (
        sorted({tag for tags in _values(puts, name) for tag in tags}) if _values(puts, name) else None
    ),
}
_OF_ORDERED: dict[str, Function] = {**_BOTH, "last": _latest_by_order, "at": _latest_by_order}
_OF_PLAIN: dict[str, Function] = {
    **_BOTH,
    "first": lambda puts, name: puts[0].row[name],
    "last": lambda puts, name: puts[-1].row[name],
    "filled": lambda puts, name: _values(puts, name)[-1] if _values(puts, name) else None,
    "began": lambda puts, name: _values(puts, name)[0] if _values(puts, name) else None,
    "every": lambda puts, name: all(_values(puts, name)) if _values(puts, name) else None,
    "some": lambda puts, name: any(_values(puts, name)) if _values(puts, name) else None,
    "state": lambda puts, name: _latest_by(puts, name, "changed"),
    "changed": lambda puts, name: max(_values(puts, name), default=None),
    "all_tags": lambda puts, name: [tag for tags in _values(puts, name) for tag in tags] or _empty(puts, name),
}


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without nulls, which a column that is not there yet has too, and with sets in order."""
    tags = row.get("tags")
    return {
        name: sorted(tags) if name == "tags" and tags else value for name, value in row.items() if value is not None
    }
