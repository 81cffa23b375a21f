"""A source's table with large values, which several connections change at a time, and the connector that tells of it as
Debezium does: a transaction when it is committed, each change with the place that it had in the log when it was made. Beside
them it reads rows as they are committed, and reports them with a place that is beyond those of open transactions.

What it has sent arrives in each partition in its order, of different partitions in any; and it dies, and repeats from
anywhere before.
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
_SITES = 3
_MOST_REPEATED = 30
_EPOCH_MS = 1_700_000_000_000


@dataclass(frozen=True, eq=False)
class LoggedSnapshot:
    """One record. at: its place among all that the connector reports; lsn: in the source's log. key: None of a
    truncate. row: as it is sent; None of a tombstone. to, since: the key that the row has from now on, or had before.
    number: of the change in its transaction. is_composite: as of Shop.
    """

    at: int
    lsn: int
    op: str
    key: int | None
    partition: int
    row: Row | None = None
    to: int | None = None
    since: int | None = None
    transaction: int = 0
    number: int = 0
    is_composite: bool = False

    @property
    def record(self) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers."""
        key = None if self.key is None else self._spelt(self.key)
        told = (("__debezium.newkey", self.to), ("__debezium.oldkey", self.since))
        headers = tuple((name, self._spelt(other)) for name, other in told if other is not None)
        if self.op == "tombstone":
            return key, None, headers
        images = {"before": self.row, "after": None} if self.op == "d" else {"before": None, "after": self.row}
        # A row that is read beside the stream tells the place in `sequence` alone.
        place = {"lsn": None if self.op == "r" else self.lsn, "sequence": json.dumps([None, str(self.lsn)])}
        source = {"connector": "postgresql", **place, "ts_ms": _EPOCH_MS + self.at}
        order = {"total_order": self.number, "data_collection_order": self.number}
        transaction = {"id": f"{self.transaction}", **order} if self.transaction else None
        return (
            key,
            json.dumps({"op": self.op, **images, "source": source, "transaction": transaction}).encode(),
            headers,
        )

    @property
    def place(self) -> tuple[int, int]:
        """Where it is in the order of the source's log."""
        return self.lsn, self.number

    @property
    def lacks_values(self) -> bool:
        """Whether some were not sent."""
        return self.row is not None and UNSENT in self.row.values()

    def shown(self, row: Row, marks: bool) -> Row:
        """What the table has of the row after this change. marks: whether it keeps deleted rows."""
        columns: dict[str, Any] = {
            **row,
            "_source_order": f"{self.lsn:020d}/{self.number:020d}/{0:020d}" + self._mark,
            "_source_ts": time_of(self.at),
            "_transaction_id": f"{self.transaction}" if self.transaction else None,
            "_total_order": self.number if self.transaction else None,
        }
        if marks:
            is_gone = self.op == "d"
            columns |= {"_deleted": is_gone, "_deleted_at": time_of(self.at) if is_gone else None}
        return columns

    def _spelt(self, key: int) -> bytes:
        return json.dumps(key_fields(key, is_composite=self.is_composite)).encode()

    @property
    def _mark(self) -> str:
        return f"/r{self.partition}" if self.op == "r" else ""


def key_fields(key: int, *, is_composite: bool) -> Row:
    """The columns of a key: one, or two of which a change of the key may leave one as it is."""
    return {"id": key // _SITES, "site": f"s{key % _SITES}"} if is_composite else {"id": key}


def key_of(row: Row) -> int:
    """The key that a row has."""
    number: int = row["id"]
    return number if row.get("site") is None else number * _SITES + int(row["site"].removeprefix("s"))


def time_of(at: int) -> datetime:
    """When the source made a change."""
    return datetime.fromtimestamp((_EPOCH_MS + at) / 1000, UTC)


@dataclass
class Transaction:
    """Changes that nobody else sees yet. rows: of the keys that it has changed, which nobody else may change."""

    number: int
    reported: list[tuple[LoggedSnapshot, Row | None]]
    rows: dict[int, Row | None]
    count: int = 0


@dataclass(frozen=True)
class Ways:
    """What a source and its connector do. marks: whether deleted rows stay. moves_keys: whether rows get other keys;
    can_repeat_moves: whether a connector that died may say so again. is_composite: keys have two columns.
    """

    marks: bool
    can_repeat_moves: bool
    moves_keys: bool = True
    is_composite: bool = False


class Shop:
    """keys: how many; partitions: of the topic. deliver: takes what arrives. versions: of each key what its row was after a
    change, by that change's place among all.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        keys: int,
        partitions: int,
        deliver: Callable[[LoggedSnapshot], None],
        ways: Ways,
    ) -> None:
        self.rows: dict[int, Row] = {}
        self.versions: dict[int, dict[int, Row | None]] = {key: {} for key in range(keys)}
        self.log: list[LoggedSnapshot] = []
        self._open: list[Transaction] = []
        self._rng = rng
        self._partitions = partitions
        self._deliver = deliver
        self._ways = ways
        self._at = self._lsn = self._next = self._columns = 0
        self._on_the_way: list[deque[int]] = [deque() for _ in range(partitions)]

    def change(self, *, can_empty: bool) -> None:
        """Something happens in the source's table."""
        turn, key = self._rng.random(), self.pick(0, len(self.versions) - 1)
        if turn < 0.01:
            self._columns += 1
        if self._open and self._rng.random() < 0.4:
            self._commit(self._open[self.pick(0, len(self._open) - 1)])
        if can_empty and turn > 0.985:
            self._empty()
        elif key in self.rows and turn > 0.9:
            self._read(key)
        else:
            self._change(self._transaction(), key, turn)

    def _change(self, mine: Transaction, key: int, turn: float) -> None:
        """What a connection does; it waits for one that has changed the row, and is done before."""
        self._wait_for(mine, key)
        row = self._seen(mine, key)
        if row is None:
            self._write(mine, "c", key, self._row(key))
        elif turn < 0.15:
            self._delete(mine, key, row)
        elif turn < 0.35 and self._ways.moves_keys:
            self._move(mine, key, row, self.pick(0, len(self.versions) - 1))
        else:
            self._update(mine, key, row)
        if not mine.number:
            self._commit(mine)

    def step(self) -> None:
        """Something is sent, or arrives, or the connector dies."""
        turn = self._rng.random()
        if turn < 0.01:
            self._die()
        elif turn < 0.5:
            self._send()
        else:
            self._arrive()

    def finish(self) -> None:
        """All of it is committed, and arrives."""
        while self._open:
            self._commit(self._open[0])
        while self._next < len(self.log) or any(self._on_the_way):
            self._send()
            self._arrive()

    def pick(self, least: int, most: int) -> int:
        """A number from `least` to `most`."""
        return int(self._rng.integers(least, most + 1))

    def _transaction(self) -> Transaction:
        """One that is open, or another; those without a number are over with their change."""
        turn = self._rng.random()
        if self._open and turn < 0.5:
            return self._open[self.pick(0, len(self._open) - 1)]
        if len(self._open) > 2 or turn > 0.85:
            return Transaction(0, [], {})
        self._open.append(Transaction(self._lsn + 1, [], {}))
        return self._open[-1]

    def _wait_for(self, mine: Transaction, key: int) -> None:
        for other in [one for one in self._open if one is not mine and key in one.rows]:
            self._commit(other)

    def _seen(self, mine: Transaction, key: int) -> Row | None:
        return mine.rows[key] if key in mine.rows else self.rows.get(key)

    def _commit(self, mine: Transaction) -> None:
        """Its changes are reported, one after the other."""
        last = 0
        for one, row in mine.reported:
            self._at += int(one.lsn != last)
            last = one.lsn
            reported = replace(one, at=self._at)
            self.log.append(reported)
            if reported.op == "tombstone":
                continue
            assert reported.key is not None
            if reported.op == "d":
                gone = self.rows.pop(reported.key)
                self.versions[reported.key][self._at] = (
                    reported.shown(gone, self._ways.marks) if self._ways.marks else None
                )
            else:
                assert row is not None
                self.rows[reported.key] = row
                self.versions[reported.key][self._at] = reported.shown(row, self._ways.marks)
        if mine in self._open:
            self._open.remove(mine)

    def _row(self, key: int) -> dict[str, Any]:
        row = {**self._key_fields(key), "n": self._lsn, **{name: f"{name} {self._lsn}" for name in LARGE}}
        return {**row, **{f"new{n}": f"text {self._lsn}" for n in range(min(2, self._columns))}}

    def _key_fields(self, key: int) -> Row:
        return key_fields(key, is_composite=self._ways.is_composite)

    def _update(self, mine: Transaction, key: int, old: Row) -> None:
        new = self._row(key)
        kept = {name: old[name] for name in LARGE if self._rng.random() < 0.7}
        self._write(mine, "u", key, {**new, **kept}, dict.fromkeys(kept, UNSENT))

    def _move(self, mine: Transaction, key: int, old: Row, to: int) -> None:
        """The row gets another key: a delete and an insert at one place of the log."""
        self._wait_for(mine, to)
        if self._seen(mine, to) is not None:
            self._update(mine, key, old)
            return
        row = {**self._row(to), **{name: old[name] for name in LARGE}}
        unsent = {name: UNSENT for name in LARGE if self._rng.random() < 0.7}
        self._delete(mine, key, old, to)
        self._write(mine, "c", to, row, unsent, since=key)

    def _delete(self, mine: Transaction, key: int, row: Row, to: int | None = None) -> None:
        self._lsn += 1
        gone = {**dict.fromkeys(row), **self._key_fields(key)}
        self._say(mine, "d", key, gone, to=to)
        self._say(mine, "tombstone", key, None, to=to)
        mine.rows[key] = None

    def _write(
        self, mine: Transaction, op: str, key: int, row: Row, unsent: Row | None = None, since: int | None = None
    ) -> None:
        if since is None:
            self._lsn += 1
        self._say(mine, op, key, {**row, **(unsent or {})}, row, since=since)
        mine.rows[key] = row

    def _say(
        self,
        mine: Transaction,
        op: str,
        key: int,
        sent: Row | None,
        row: Row | None = None,
        *,
        to: int | None = None,
        since: int | None = None,
    ) -> None:
        if op != "tombstone":
            mine.count += 1
        number = mine.count if mine.number else 0
        places = (key % self._partitions, sent, to, since, mine.number, number, self._ways.is_composite)
        reported = LoggedSnapshot(0, self._lsn, op, key, *places)
        mine.reported.append((reported, row))

    def _empty(self) -> None:
        """It has the table for itself: whoever has changed a row is done before."""
        while self._open:
            self._commit(self._open[0])
        self._lsn += 1
        self._at += 1
        self.log.append(LoggedSnapshot(self._at, self._lsn, "t", None, self.pick(0, self._partitions - 1)))
        self.rows.clear()

    def _read(self, key: int) -> None:
        """A snapshot reads a row beside the changes. Its place is that of what the connector has reported last, or
        beyond it.
        """
        self._at += 1
        lsn = self.log[-1].lsn if self._rng.random() < 0.3 else self._lsn
        told: dict[str, Any] = {"row": self.rows[key], "is_composite": self._ways.is_composite}
        reported = LoggedSnapshot(self._at, lsn, "r", key, key % self._partitions, **told)
        self.log.append(reported)
        self.versions[key][self._at] = reported.shown(self.rows[key], self._ways.marks)

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
        if not self._ways.can_repeat_moves:
            first = max([first, *(n + 1 for n in has_moved)])
            if first > lost:
                return  # What is lost would be told behind what cannot be told again.
        while 0 < first < len(self.log) and self.log[first].at == self.log[first - 1].at:
            first -= 1  # The connector remembers places of the log, and not what it has made of one.
        for entries in self._on_the_way:
            entries.clear()
        self._next = first
