"""One seeded history of tables whose query groups records by windows: late and doubled records in any partition, services
that come and go, compactions, and trouble between any two steps; then the truth.

The truth: every snapshot holds exactly what a query over the records before its offsets gives, without those that are late,
computed here with plain dictionaries.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from frazil.catalog.progress import from_summary
from frazil.ingest.tables.queries import Queries
from frazil.spec import PipelineSpec
from frazil.types import Progress, Watermark
from packages.state.tests.simulation.state_tables import StateHistory, offset_at
from tests.simulation.scene import Place

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_LATE_US = 600_000_000
_SELECT = (
    "select user, {0}.start as begin, {0}.end as until, count(*) as n, sum(amount) as total, avg(amount) as mean,"
    " max(amount) as high from records where amount is null or amount >= 0 group by user, {0}(ts, {1})"
)
_NAMES = ("until", "n", "total", "mean", "high")
Row = dict[str, Any]


@dataclass(frozen=True)
class Payment:
    """A record. Times are in microseconds since 1970."""

    user: str
    time_us: int
    sent_us: int
    amount: int | None


class GroupHistory(StateHistory):
    """The topics `a` and `b` feed `lake.g`."""

    def __init__(self, seed: int, root: Path, queries: Queries) -> None:
        super().__init__(seed, root, "lake.g")
        fate = self.fate
        self.queries = queries
        #: The slide of sessions is 0.
        self.size_s, self.slide_s = [(60, 60), (600, 300), (420, 180), (60, 0), (200, 0)][fate.pick(0, 4)]
        self.has_late = fate.maybe(0.7)
        self.payments: dict[Place, Payment] = {}
        #: Of the newest snapshot that was checked: the records that count, and its id.
        self.counted: list[Payment] = []
        self.last_snapshot = 0
        for topic in "ab":
            self.source.create(topic, fate.pick(1, 3))
        self.spec = self._spec()

    @property
    def query(self) -> str:
        """The table's query."""
        if not self.slide_s:
            return _SELECT.format("session_window", f"'{self.size_s} seconds'")
        return _SELECT.format("window", f"'{self.size_s} seconds', '{self.slide_s} seconds'")

    def _spec(self) -> PipelineSpec:
        select = json.dumps(self.query)
        late = "late: 10m, " if self.has_late else ""
        version = 3 if self.fate.maybe(0.6) else 2
        return self.spec_of(
            f"topics: [a, b], {late}format_version: {version}, commit: {{interval: 100ms}}, select: {select}"
        )

    # What happens

    def _produce(self) -> None:
        for _ in range(self.fate.pick(1, 15)):
            seconds = 20 * len(self.payments) - (
                self.fate.pick(0, 1500) if self.fate.maybe(0.3) else self.fate.pick(0, 90)
            )
            amount = self.fate.pick(-1, 9)
            payment = Payment(
                f"u{self.fate.pick(0, 4)}",
                _micros(seconds),
                _micros(20 * len(self.payments) + self.fate.pick(-30, 30)),
                None if amount == 7 else amount,
            )
            for _ in range(2 if self.fate.maybe(0.1) else 1):  # The producer sends it twice.
                self._send(payment)

    def _send(self, payment: Payment) -> None:
        topic = self.source.by_name[name := "ab"[self.fate.pick(0, 1)]]
        partition = self.fate.pick(0, len(topic.partitions) - 1)
        time = _BEGIN + timedelta(microseconds=payment.time_us - _micros(0))
        value = json.dumps({"user": payment.user, "ts": time.isoformat(), "amount": payment.amount}).encode()
        gap = self.fate.pick(1, 3) if self.fate.maybe(0.1) else 0
        offset = self.source.produce(name, partition, value, payment.sent_us // 1000, gap)
        self.payments[name, partition, offset] = payment

    def _meddle(self) -> None:
        """What somebody else does to the table."""
        if self.table.has_snapshots:
            self.table.touch() if self.fate.maybe(0.4) else self.table.compact()

    # The truth

    def places(self) -> Iterator[Place]:
        return iter(self.payments)

    def makes_rows(self) -> bool:
        return bool(self.payments)

    def check(self) -> Progress:
        """Compares every snapshot with the query over its records; returns the newest progress."""
        progress, groups, greatest, dropped = Progress(), _Groups(self.size_s, self.slide_s), dict[Any, int](), 0
        closed: dict[tuple[str, int], Row] = {}
        self.counted = []
        for snapshot in reversed(self.catalog.ancestors(self.name)):
            before, progress, self.last_snapshot = (
                progress,
                from_summary("sim", snapshot.summary) or progress,
                snapshot.id,
            )
            for place in sorted(self.payments):
                if offset_at(before, *place[:2]) <= place[2] < offset_at(progress, *place[:2]):
                    dropped += self._count(place, groups, greatest, before.order.event_times)
            rows = {(row["user"], _micros_of(row["begin"])): _shown(row) for row in self.table.rows_at(snapshot.id)}
            assert rows == dict(groups.rows()), f"snapshot {snapshot.id}: {rows} is not {dict(groups.rows())}"
            assert progress.totals.ignored_records.get("late", 0) == dropped
            changed = {key: (row, rows.get(key)) for key, row in closed.items() if rows.get(key) != row}
            assert not changed, f"snapshot {snapshot.id} changes complete windows: {changed}"
            complete = progress.order.windows_complete_to_us
            assert (complete is not None) <= self.has_late
            if complete is not None:
                # A record at its very end extends a session.
                ends = complete - (not self.slide_s)
                closed = {key: row for key, row in rows.items() if row["until"] <= ends}
        return progress

    def _count(self, place: Place, groups: _Groups, greatest: dict[Any, int], before: Watermark) -> int:
        """Adds a record to its groups; returns 1 for one that is late."""
        payment, partition = self.payments[place], place[:2]
        if payment.amount is not None and payment.amount < 0:
            return 0
        limits = [time for time in (greatest.get(partition), before.complete_to_ms) if time is not None]
        counted = min(payment.time_us, payment.sent_us // 1000 * 1000)
        greatest[partition] = max(counted, greatest.get(partition, counted))
        if self.has_late and limits and payment.time_us < max(limits) - _LATE_US:
            return 1
        groups.add(payment)
        self.counted.append(payment)
        return 0


class _Groups:
    """The records of each window."""

    def __init__(self, size_s: int, slide_s: int) -> None:
        self.size_us, self.slide_us = size_s * 1_000_000, slide_s * 1_000_000
        self.amounts: dict[tuple[str, int], list[int | None]] = defaultdict(list)
        #: The ends of sessions.
        self.ends: dict[tuple[str, int], int] = {}

    def add(self, payment: Payment) -> None:
        if not self.slide_us:
            self.amounts[payment.user, payment.time_us].append(payment.amount)
            return
        start = payment.time_us // self.slide_us * self.slide_us
        while start + self.size_us > payment.time_us:
            self.amounts[payment.user, start].append(payment.amount)
            start -= self.slide_us

    def rows(self) -> Iterator[tuple[tuple[str, int], Row]]:
        windows = self.amounts.items() if self.slide_us else self._sessions()
        for (user, begin), amounts in windows:
            known = [amount for amount in amounts if amount is not None]
            of_known = {"total": sum(known), "mean": sum(known) / len(known), "high": max(known)} if known else {}
            of_known |= {"n": len(amounts), "until": self.ends.get((user, begin), begin + self.size_us)}
            yield (user, begin), {name: of_known.get(name) for name in _NAMES}

    def _sessions(self) -> Iterator[tuple[tuple[str, int], list[int | None]]]:
        begin, end, last_user = 0, -1, ""
        amounts: list[int | None] = []
        self.ends = {}
        for (user, time), of_time in sorted(self.amounts.items()):
            if amounts and (user != last_user or time > end):
                yield (last_user, begin), amounts
                amounts = []
            begin, last_user = begin if amounts else time, user
            amounts, end = amounts + of_time, time + self.size_us
            self.ends[user, begin] = end
        if amounts:
            yield (last_user, begin), amounts


def _shown(row: Mapping[str, Any]) -> Row:
    return {**{name: row[name] for name in _NAMES}, "until": _micros_of(row["until"])}


def _micros(seconds: int) -> int:
    return round(_BEGIN.timestamp() + seconds) * 1_000_000


def _micros_of(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000_000
