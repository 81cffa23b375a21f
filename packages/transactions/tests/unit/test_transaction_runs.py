"""Where a batch may end: transactions over partitions, repeated by a connector that dies, cut by limits and restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from frazil_transactions.runs import End, Log, Mark, find_ends, unknown_of
from tests.simulation.bank import EACH, Bank, LoggedSnapshot, check_shown

ONE = ("t", 0)


def _log(*changes: str, partition: int = 0, end: int | None = None, newest: str = "") -> Log:
    """Changes as `transaction place`, one an offset; `-` is a record that is none."""
    log = Log(0, len(changes) if end is None else end, newest)
    orders: Counter[str] = Counter()
    for offset, change in enumerate(changes):
        if change != "-":
            transaction, place = change.split()
            orders[transaction] += 1
            log.add(Mark(("t", partition), offset, 0, transaction, place, orders[transaction]))
    return log


def _ends(logs: list[Log], counts: Mapping[str, int], bounds: list[int] | None = None) -> list[int]:
    by_partition = {("t", number): log for number, log in enumerate(logs)}
    limits = {("t", n): log.end if bounds is None else bounds[n] for n, log in enumerate(logs)}
    return [end.offset for end in find_ends(by_partition, limits, counts).values()]


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ((), 0),
        (("a 1", "a 2"), 0),
        (("a 1", "a 2", "b 3"), 2),
        (("-", "-"), 2),
        (("-", "a 1", "-", "b 2", "-"), 3),
        (("a 2", "b 3", "a 1", "a 2", "b 3"), 0),
        (("a 1", "a 2", "b 3", "a 2", "b 3", "b 4"), 0),
        (("a 1", "a 2", "b 3", "a 2", "b 3", "b 4", "c 5"), 6),
        (("b 3", "a 1", "a 2", "b 3", "b 4", "c 5", "a 1"), 5),
    ],
)
def test_in_one_partition_a_transaction_is_whole_when_a_later_one_has_begun(changes: tuple[str, ...], end: int) -> None:
    assert _ends([_log(*changes)], {}) == [end]


@pytest.mark.parametrize(
    ("changes", "counts", "end"),
    [
        (("a 1", "a 2"), {"a": 2}, 2),
        (("a 1", "a 2", "-"), {"a": 2}, 3),
        (("a 1",), {"a": 2}, 0),
        (("a 1", "a 2", "b 3"), {"a": 2, "b": 2}, 2),
        (("a 1", "a 2", "b 3"), {"a": 2, "b": 1}, 3),
        (("a 1", "b 2"), {"a": 2, "b": 1}, 2),
    ],
    ids=["ended", "what follows goes along", "not all there", "the next one not", "both", "its rest is gone for good"],
)
def test_a_transaction_is_whole_when_it_has_as_many_changes_as_its_end_reports(
    changes: tuple[str, ...], counts: dict[str, int], end: int
) -> None:
    assert _ends([_log(*changes)], counts) == [end]


def test_a_transaction_of_two_partitions_waits_for_both_and_holds_back_what_follows_it() -> None:
    first, second = _log("a 1", "b 3"), _log("a 2", "b 4", partition=1)
    second.runs[0].orders[0] = second.runs[1].orders[0] = 2
    assert _ends([first, second], {"a": 2, "b": 2}) == [2, 2]
    assert _ends([first, second], {"a": 2}) == [1, 1]
    assert _ends([first, second], {"b": 2}) == [2, 2]
    assert _ends([first, second], {}, [2, 1]) == [1, 1]
    assert _ends([first, _log(partition=1)], {"a": 2, "b": 2}) == [0, 0]
    assert _ends([first, _log(partition=1)], {"a": 1, "b": 1}) == [2, 0]


def test_what_the_table_has_is_whole_and_must_be_repeated_to_its_end() -> None:
    again = ("a 1", "b 3", "b 4")
    assert _ends([_log(*again[:2], newest="4")], {}) == [0]
    assert _ends([_log(*again, newest="4")], {}) == [0]  # Another change may be at the last place.
    assert _ends([_log(*again, "c 5", newest="4")], {}) == [3]
    assert find_ends({ONE: _log(newest="4")}, {ONE: 0}, {}) == {ONE: End(0, "4")}


def test_a_bound_is_kept_unless_nothing_of_a_transaction_lies_behind_it() -> None:
    log = _log("a 1", "a 2", "b 3", "-", "-", "c 4")
    found = {bound: _ends([log], {}, [bound])[0] for bound in range(7)}
    assert found == {0: 0, 1: 0, 2: 2, 3: 3, 4: 4, 5: 5, 6: 5}
    assert _ends([_log("-", "-", "-", "a 1")], {}, [2]) == [2]


def test_runs_are_forgotten_when_they_are_in_the_table() -> None:
    log = _log("a 1", "-", "b 2", "c 3")
    assert [run.transaction for run in log.forget(3, "2")] == ["a", "b"]
    assert (log.start, log.newest, [run.transaction for run in log.runs]) == (3, "2", ["c"])
    assert unknown_of([log], {}) == {"c"}
    assert unknown_of([log], {"c": 1}) == set()


class _Reader:
    """Cuts what has arrived, as a table does that is read on from where it is."""

    def __init__(self, rng: np.random.Generator, partitions: int, *, has_events: bool) -> None:
        self.arrived: dict[int, list[LoggedSnapshot]] = {number: [] for number in range(partitions)}
        self.counts: dict[str, int] = {}
        self.begun: Counter[int] = Counter()
        self._rng = rng
        self._has_events = has_events
        self._logs = {("t", number): Log(0, 0) for number in range(partitions)}

    def deliver(self, reported: LoggedSnapshot) -> None:
        if not reported.is_event:
            self.arrived[reported.partition].append(reported)
        elif not reported.is_end:
            self.begun[reported.number] += 1
        elif self._has_events and reported.count:
            self.counts[str(reported.number)] = reported.count
        for number, times in self.begun.items():
            if times > 1:
                self.counts.pop(str(number), None)

    def look(self, share: float) -> None:
        """Reads a part of what has arrived, cuts, and checks what a table then shows."""
        for partition, log in self._logs.items():
            there = self.arrived[partition[1]]
            for offset in range(log.end, log.end + round(share * (len(there) - log.end))):
                reported = there[offset]
                if reported.number:
                    order = reported.told if self._has_events else None
                    log.add(Mark(partition, offset, 0, str(reported.number), reported.place, order))
                log.end = offset + 1
        bounds = {
            p: log.start + round((log.end - log.start) * self._rng.choice([0.5, 1.0])) for p, log in self._logs.items()
        }
        for partition, end in find_ends(self._logs, bounds, self.counts).items():
            assert self._logs[partition].start <= end.offset <= bounds[partition]
            if self._rng.random() < 0.1:  # Another process: it knows what the table knows.
                self._logs[partition] = Log(end.offset, end.offset, end.newest)
            else:
                self._logs[partition].forget(end.offset, end.newest)

    def shown(self, sizes: Counter[int]) -> dict[int, int]:
        """The balances in the table, checked."""
        entries = [reported for (_, n), log in self._logs.items() for reported in self.arrived[n][: log.start]]
        return check_shown(entries, sizes)


@pytest.mark.parametrize("seed", range(60))
def test_every_cut_shows_whole_transactions_and_in_the_end_all_of_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    partitions = int(rng.choice([1, 1, 2, 3]))
    reader = _Reader(rng, partitions, has_events=partitions > 1 or seed % 2 == 0)
    bank = Bank(rng, accounts=8, partitions=partitions, deliver=reader.deliver)
    for _ in range(600):
        if rng.random() < 0.15:
            bank.transfer(most=int(rng.choice([3, 12])))
        bank.step()
        if rng.random() < 0.1:
            reader.look(float(rng.random()))
            balances = dict.fromkeys(bank.balances, EACH) | reader.shown(bank.sizes)
            assert sum(balances.values()) == EACH * len(balances)
    bank.finish()
    for account in (*bank.balances, 0):  # Each partition has a newest one that nothing is wrong with.
        bank.touch(account)
    bank.finish()
    for _ in range(40):
        reader.look(1.0)
    assert reader.shown(bank.sizes) == bank.balances
