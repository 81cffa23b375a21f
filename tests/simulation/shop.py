"""A source's table with large values, and the connector that tells of it as Debezium does: what it has sent arrives in each
partition in its order, of different partitions in any; and it dies, and repeats from anywhere before.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tests.simulation.forms import UNSENT

Row = Mapping[str, Any]
Headers = tuple[tuple[str, bytes], ...]
LARGE = ("big", "blob")
_MOST_REPEATED = 30
_EPOCH_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Said:
    """One record. lsn: its place in the source's log. key: None of a truncate. row: as it is sent; None of a tombstone.
    to, since: the key that the row has from now on, or had before. number: of the change in its transaction.
    """

    lsn: int
    op: str
    key: int | None
    partition: int
    row: Row | None = None
    to: int | None = None
    since: int | None = None
    transaction: int = 0
    number: int = 0

    @property
    def record(self) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers."""
        key = None if self.key is None else json.dumps({"id": self.key}).encode()
        told = (("__debezium.newkey", self.to), ("__debezium.oldkey", self.since))
        headers = tuple((name, json.dumps({"id": other}).encode()) for name, other in told if other is not None)
        if self.op == "tombstone":
            return key, None, headers
        images = {"before": self.row, "after": None} if self.op == "d" else {"before": None, "after": self.row}
        source = {"connector": "postgresql", "lsn": self.lsn, "ts_ms": _EPOCH_MS + self.lsn}
        order = {"total_order": self.number, "data_collection_order": self.number}
        transaction = {"id": f"{self.transaction}", **order} if self.transaction else None
        return (
            key,
            json.dumps({"op": self.op, **images, "source": source, "transaction": transaction}).encode(),
            headers,
        )

    @property
    def lacks_values(self) -> bool:
        """Whether some were not sent."""
        return self.row is not None and UNSENT in self.row.values()

    def shown(self, row: Row, marks: bool) -> Row:
        """What the table has of the row after this change. marks: whether it keeps deleted rows."""
        columns: dict[str, Any] = {
            **row,
            "_source_order": f"{self.lsn:020d}/{self.number:020d}/{0:020d}",
            "_source_ts": time_of(self.lsn),
            "_transaction_id": f"{self.transaction}" if self.transaction else None,
            "_total_order": self.number if self.transaction else None,
        }
        if marks:
            is_gone = self.op == "d"
            columns |= {"_deleted": is_gone, "_deleted_at": time_of(self.lsn) if is_gone else None}
        return columns


def time_of(lsn: int) -> datetime:
    """When the source made a change."""
    return datetime.fromtimestamp((_EPOCH_MS + lsn) / 1000, UTC)


class Shop:
    """keys: how many; partitions: of the topic. deliver: takes what arrives. versions: of each key what its row was after a
    change, by that change's place in the log. marks: whether deleted rows stay. can_repeat_moves: whether a connector that
    died may say again that a row has got another key.
    """

    def __init__(
        self,
        chance: np.random.Generator,
        keys: int,
        partitions: int,
        deliver: Callable[[Said], None],
        *,
        marks: bool,
        can_repeat_moves: bool,
    ) -> None:
        self.rows: dict[int, Row] = {}
        self.versions: dict[int, dict[int, Row | None]] = {key: {} for key in range(keys)}
        self.log: list[Said] = []
        self._chance = chance
        self._partitions = partitions
        self._deliver = deliver
        self._marks = marks
        self._can_repeat_moves = can_repeat_moves
        self._lsn = self._transaction = self._number = self._next = self._columns = 0
        self._on_the_way: list[deque[int]] = [deque() for _ in range(partitions)]

    def change(self, *, can_empty: bool) -> None:
        """Something happens in the source's table."""
        turn, key = self._chance.random(), self.pick(0, len(self.versions) - 1)
        if turn < 0.5 or not self._transaction:
            self._transaction, self._number = (self._lsn + 1, 0) if self._chance.random() < 0.8 else (0, 0)
        if turn < 0.01:
            self._columns += 1
        if can_empty and turn > 0.985:
            self._empty()
        elif key not in self.rows:
            self._write("c", key, self._row(key))
        elif turn < 0.15:
            self._delete(key)
        elif turn < 0.35:
            self._move(key, self.pick(0, len(self.versions) - 1))
        elif turn < 0.42:
            self._write("r", key, self.rows[key])  # An incremental snapshot reads it beside the changes.
        else:
            self._update(key)

    def step(self) -> None:
        """Something is sent, or arrives, or the connector dies."""
        turn = self._chance.random()
        if turn < 0.01:
            self._die()
        elif turn < 0.5:
            self._send()
        else:
            self._arrive()

    def finish(self) -> None:
        """All of it arrives."""
        while self._next < len(self.log) or any(self._on_the_way):
            self._send()
            self._arrive()

    def pick(self, least: int, most: int) -> int:
        """A number from `least` to `most`."""
        return int(self._chance.integers(least, most + 1))

    def _row(self, key: int) -> dict[str, Any]:
        row = {"id": key, "n": len(self.log), **{name: f"{name} {len(self.log)}" for name in LARGE}}
        return {**row, **{f"new{n}": f"text {len(self.log)}" for n in range(min(2, self._columns))}}

    def _update(self, key: int) -> None:
        new = self._row(key)
        kept = {name: self.rows[key][name] for name in LARGE if self._chance.random() < 0.7}
        self._write("u", key, {**new, **kept}, dict.fromkeys(kept, UNSENT))

    def _move(self, key: int, to: int) -> None:
        """The row gets another key: a delete and an insert at one place of the log."""
        if to in self.rows:
            self._update(key)
            return
        row = {**self._row(to), **{name: self.rows[key][name] for name in LARGE}}
        unsent = {name: UNSENT for name in LARGE if self._chance.random() < 0.7}
        self._delete(key, to)
        self._write("c", to, row, unsent, since=key)

    def _delete(self, key: int, to: int | None = None) -> None:
        self._lsn += 1
        row = self.rows.pop(key)
        gone = {name: value if name == "id" else None for name, value in row.items()}
        said = self._say("d", key, gone, to)
        self._say("tombstone", key, None, to)
        self.versions[key][self._lsn] = said.shown(row, self._marks) if self._marks else None

    def _write(self, op: str, key: int, row: Row, unsent: Row | None = None, since: int | None = None) -> None:
        if since is None:
            self._lsn += 1
        said = self._say(op, key, {**row, **(unsent or {})}, since=since)
        self.rows[key] = row
        self.versions[key][self._lsn] = said.shown(row, self._marks)

    def _empty(self) -> None:
        self._lsn += 1
        self._say("t", None, None)
        self.rows.clear()

    def _say(self, op: str, key: int | None, row: Row | None, to: int | None = None, since: int | None = None) -> Said:
        if op != "tombstone":
            self._number += 1
        partition = self.pick(0, self._partitions - 1) if key is None else key % self._partitions
        said = Said(self._lsn, op, key, partition, row, to, since, self._transaction)
        said = replace(said, number=self._number if self._transaction else 0)
        self.log.append(said)
        return said

    def _send(self) -> None:
        if self._next < len(self.log):
            self._on_the_way[self.log[self._next].partition].append(self._next)
            self._next += 1

    def _arrive(self) -> None:
        waiting = [entries for entries in self._on_the_way if entries]
        if waiting:
            entries = waiting[self.pick(0, len(waiting) - 1)]
            for _ in range(self.pick(1, min(6, len(entries)))):
                self._deliver(self.log[entries.popleft()])

    def _die(self) -> None:
        """What has not arrived is lost; what it had noted as sent is somewhere before."""
        lost = min((entries[0] for entries in self._on_the_way if entries), default=self._next)
        waiting = {number for entries in self._on_the_way for number in entries}
        has_moved = [n for n in range(self._next) if n not in waiting and self.log[n].since is not None]
        first = max(0, lost - self.pick(0, _MOST_REPEATED))
        if not self._can_repeat_moves:
            first = max([first, *(n + 1 for n in has_moved)])
            if first > lost:
                return  # What is lost would be told behind what cannot be told again.
        while 0 < first < len(self.log) and self.log[first].lsn == self.log[first - 1].lsn:
            first -= 1  # The connector remembers places of the log, and not what it has made of one.
        for entries in self._on_the_way:
            entries.clear()
        self._next = first
