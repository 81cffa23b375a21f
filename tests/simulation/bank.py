"""A source's table of accounts, whose sum no transaction changes, and the connector that tells of it: what it has sent
arrives in each partition in its order, of different partitions in any; and it dies, and repeats from anywhere before.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

TOPIC, EVENTS = "bank.public.accounts", "bank.transaction"
EACH = 100
_BETWEEN_COMMITS = 100
_MOST_REPEATED = 30
_OF_EVENTS = -1


@dataclass(frozen=True)
class LoggedSnapshot:
    """One thing that the connector reports. number: of the transaction, by commits; 0: of none. order: of the change in it;
    0: it begins, or it ends after `count` changes. told: the change's number as the connector counts. before: where the
    transaction before it was committed; lsn: where this was written.
    """

    number: int
    partition: int
    order: int = 0
    account: int = -1
    balance: int = 0
    before: int = 0
    lsn: int = 0
    is_end: bool = False
    count: int = 0
    told: int = 0

    @property
    def is_event(self) -> bool:
        """Whether it is of the topic of transactions."""
        return self.partition == _OF_EVENTS

    @property
    def place(self) -> str:
        """Among the source's commits."""
        return f"{self.before:020}/{self.lsn:020}"

    def value(self, has_events: bool) -> bytes:
        """Debezium's envelope, or its event."""
        if self.is_event:
            counted = [{"data_collection": "public.accounts", "event_count": self.count}] if self.count else []
            event = {"status": "END" if self.is_end else "BEGIN", "id": f"{self.number}:{self.lsn}"}
            return json.dumps({**event, "event_count": self.count, "data_collections": counted}).encode()
        place = {"sequence": json.dumps([str(self.before), str(self.lsn)]), "lsn": self.lsn, "txId": self.number}
        told = {"id": f"{self.number}:{self.lsn}", "total_order": self.told, "data_collection_order": self.told}
        envelope: dict[str, Any] = {
            "op": "u" if self.number else "r",
            "before": None,
            "after": {"id": self.account, "balance": self.balance},
            "source": {"connector": "postgresql", **place},
            "transaction": told if has_events and self.number else None,
        }
        return json.dumps(envelope).encode()


class Bank:
    """accounts: how many; partitions: of their topic. deliver: takes what arrives. sizes: changes of each transaction."""

    def __init__(
        self, rng: np.random.Generator, accounts: int, partitions: int, deliver: Callable[[LoggedSnapshot], None]
    ) -> None:
        self.balances = dict.fromkeys(range(accounts), EACH)
        self.history = [dict(self.balances)]
        self.sizes: Counter[int] = Counter()
        self._rng = rng
        self._partitions = partitions
        self._deliver = deliver
        self._log: list[LoggedSnapshot] = []
        self._next = 0
        self._uncounted = (0, 0)
        self._on_the_way: dict[int, deque[tuple[int, LoggedSnapshot]]] = defaultdict(deque)
        for account in self.balances:
            deliver(LoggedSnapshot(0, account % partitions, account=account, balance=EACH))

    def transfer(self, most: int = 4) -> None:
        """A transaction that moves money between a few accounts, some of them more than once."""
        count = self.pick(2, most)
        rows = self._rng.integers(0, len(self.balances), count).tolist()
        number = len(self.history)
        before, commit = (number - 1) * _BETWEEN_COMMITS, number * _BETWEEN_COMMITS
        # It may have begun before others were committed: its changes are among theirs in the log.
        lsns = np.sort(self._rng.integers(max(1, before - 150), commit, count)).tolist()
        if self._rng.random() < 0.3:  # As the halves of an update that changes a key are.
            lsns[1] = lsns[0]
        left = self._rng.integers(-20, 20, count - 1).tolist()
        self._log.append(LoggedSnapshot(number, _OF_EVENTS, before=before, lsn=lsns[0]))
        for order, (account, amount, lsn) in enumerate(zip(rows, [*left, -sum(left)], lsns, strict=True), 1):
            self.balances[account] += amount
            reported = (order, account, self.balances[account], before, lsn)
            self._log.append(LoggedSnapshot(number, account % self._partitions, *reported))
        self._log.append(LoggedSnapshot(number, _OF_EVENTS, before=before, lsn=commit, is_end=True, count=count))
        self.sizes[number] = count
        self.history.append(dict(self.balances))

    def touch(self, account: int) -> None:
        """A transaction that reports one row again."""
        number, before = len(self.history), (len(self.history) - 1) * _BETWEEN_COMMITS
        self._log.append(LoggedSnapshot(number, _OF_EVENTS, before=before, lsn=before + 1))
        reported = (1, account, self.balances[account], before, before + 1)
        self._log.append(LoggedSnapshot(number, account % self._partitions, *reported))
        self._log.append(LoggedSnapshot(number, _OF_EVENTS, before=before, lsn=before + 2, is_end=True, count=1))
        self.sizes[number] = 1
        self.history.append(dict(self.balances))

    def step(self) -> None:
        """Something is sent, or arrives, or the connector dies."""
        turn = self._rng.random()
        if turn < 0.02:
            self._die()
        elif turn < 0.45:
            self._send()
        else:
            self._arrive()

    def finish(self) -> None:
        """All of it arrives."""
        while self._next < len(self._log) or any(self._on_the_way.values()):
            self._send()
            self._arrive()

    def pick(self, least: int, most: int) -> int:
        """A number from `least` to `most`."""
        return int(self._rng.integers(least, most + 1))

    def _send(self) -> None:
        if self._next < len(self._log):
            reported = self._log[self._next]
            uncounted = self._uncounted[1] if reported.number == self._uncounted[0] else 0
            reported = replace(reported, told=reported.order - uncounted, count=max(0, reported.count - uncounted))
            self._on_the_way[reported.partition].append((self._next, reported))
            self._next += 1

    def _arrive(self) -> None:
        waiting = [partition for partition, entries in self._on_the_way.items() if entries]
        if waiting:
            entries = self._on_the_way[waiting[self.pick(0, len(waiting) - 1)]]
            for _ in range(self.pick(1, len(entries))):
                self._deliver(entries.popleft()[1])

    def _die(self) -> None:
        """What has not arrived is lost; what it had noted as sent is somewhere before. Inside of a transaction it may say
        once more that this begins, and count from there.
        """
        lost = min((entries[0][0] for entries in self._on_the_way.values() if entries), default=self._next)
        self._on_the_way.clear()
        self._next = max(0, lost - self.pick(0, _MOST_REPEATED))
        self._uncounted = (0, 0)
        at = self._log[self._next] if self._next < len(self._log) else LoggedSnapshot(0, 0)
        if (at.order or at.is_end) and self._rng.random() < 0.7:
            self._uncounted = (at.number, at.order - 1 if at.order else at.count)
            begun = LoggedSnapshot(at.number, _OF_EVENTS, before=at.before, lsn=at.lsn)
            self._on_the_way[_OF_EVENTS].append((self._next, begun))


def check_shown(entries: Sequence[LoggedSnapshot], counts: Counter[int]) -> dict[int, int]:
    """What a table shows after these changes, of each partition in their order: whole transactions alone, and of each row
    the newest change. counts: of the changes of each transaction.
    """
    orders: dict[int, set[int]] = defaultdict(set)
    last: dict[int, LoggedSnapshot] = {}
    newest: dict[int, tuple[str, int]] = {}
    for reported in entries:
        last[reported.account] = reported
        if reported.number:
            orders[reported.number].add(reported.order)
            newest[reported.account] = max((reported.place, reported.order), newest.get(reported.account, ("", 0)))
    parts = {number for number, some in orders.items() if len(some) != counts[number]}
    assert not parts, f"transactions {sorted(parts)} are shown in part"
    late = [s for account, s in last.items() if s.number and (s.place, s.order) != newest[account]]
    assert not late, f"rows have gone back: {late}"
    return {account: reported.balance for account, reported in last.items()}
