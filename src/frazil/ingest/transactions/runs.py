"""Where a batch may end so that it shows every transaction whole: for each partition the furthest such offset. Pure.

A topic repeats changes when its connector has died, beginning anywhere; so a batch may not end inside of a repetition, where
rows have gone back. Places (`cdc.source.commit_order`) sort as the
source has committed; those of one transaction are beyond those of every earlier one.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from frazil.kafka.port import Partition
from frazil.types import OffsetRange

_NOTHING: Mapping[str, array[int]] = {}


@dataclass(frozen=True, slots=True)
class Mark:
    """A change: its place in Kafka, its transaction, its place among the source's commits, its number in the transaction."""

    partition: Partition
    offset: int
    timestamp_ms: int
    transaction: str
    place: str
    order: int | None = None


@dataclass(slots=True)
class Run:
    """Changes of one transaction that follow each other in a partition. What is between and behind them and is no change of
    a transaction (a tombstone, a row of a snapshot) has no part in it.

    start, last: offsets of its first and its last change. place: of its last one. since_ms: the timestamp of its first
    record. orders: the changes' numbers in the transaction, where they have any. is_renumbered: the connector has begun
    to count anew inside of it.
    """

    start: int
    last: int
    transaction: str
    place: str
    since_ms: int
    orders: array[int] = field(default_factory=lambda: array("q"))
    is_renumbered: bool = False


@dataclass
class Log:
    """What is known of a partition: its runs from the offset `start` to `end`, which is the next to look at. newest: the
    place of the newest change before `start`; empty where that is not known.
    """

    start: int
    end: int
    newest: str = ""
    runs: list[Run] = field(default_factory=list)

    def add(self, mark: Mark) -> None:
        """Another change. Within a run places do not go back."""
        run = self.runs[-1] if self.runs else None
        if run is None or run.transaction != mark.transaction or mark.place < run.place:
            run = Run(mark.offset, mark.offset, mark.transaction, mark.place, mark.timestamp_ms)
            self.runs.append(run)
        if mark.order is not None and (not run.orders or (mark.place, mark.order) != (run.place, run.orders[-1])):
            run.is_renumbered |= bool(run.orders) and mark.order <= run.orders[-1]
            run.orders.append(mark.order)
        run.last, run.place = mark.offset, mark.place

    def forget(self, before: int, newest: str) -> list[Run]:
        """Begins at an offset where a batch has ended, and with the newest place then; the runs that are done."""
        count = next((n for n, run in enumerate(self.runs) if run.last >= before), len(self.runs))
        done, self.runs = self.runs[:count], self.runs[count:]
        self.start, self.newest = before, newest
        return done


@dataclass(frozen=True)
class Cut:
    """Where the next batch of a table ends. position: where it begins; it is of no use for another one. places: of the
    newest change before its end, per topic and partition, of a table that shows transactions whole.
    """

    position: Mapping[str, Mapping[int, int]]
    ranges: tuple[OffsetRange, ...]
    places: Mapping[str, Mapping[int, str]]


@dataclass(frozen=True)
class End:
    """The end of a partition's part of a batch, and the place of the newest change before it."""

    offset: int
    newest: str


def find_ends(
    logs: Mapping[Partition, Log],
    bounds: Mapping[Partition, int],
    counts: Mapping[str, int],
    behind: Mapping[str, array[int]] = _NOTHING,
) -> dict[Partition, End]:
    """The furthest ends, none beyond its bound, before which every transaction is whole; where there is nothing whole, the
    log's start.

    counts: how many changes a transaction has in these partitions together, where it is known. behind: numbers of changes
    before the logs' starts, of transactions that may reach beyond them. A transaction is whole when
    it has so many; or when every partition has a change of a later one, as then nothing of it can come.
    """
    prefixes = _Prefixes(logs, bounds, counts, behind)
    prefixes.shrink()
    return {partition: prefixes.end(partition) for partition in logs}


@dataclass(frozen=True)
class _Known:
    """All that is known of a transaction. runs: by partition their numbers; places: of its newest change, by partition."""

    runs: dict[Partition, list[int]] = field(default_factory=dict)
    places: dict[Partition, str] = field(default_factory=dict)


class _Prefixes:
    """Of each partition the first so many runs; shrunk until every transaction in them is whole."""

    def __init__(
        self,
        logs: Mapping[Partition, Log],
        bounds: Mapping[Partition, int],
        counts: Mapping[str, int],
        behind: Mapping[str, array[int]],
    ) -> None:
        self._logs = logs
        self._bounds = bounds
        self._counts = counts
        self._behind = behind
        self._highest = {partition: _highest(log) for partition, log in logs.items()}
        self._known = _by_transaction(logs)
        self._kept = {
            partition: sum(run.last < bounds[partition] for run in log.runs) for partition, log in logs.items()
        }
        # Every partition has seen a change as late as this.
        self._passed = min((places[-1] for places in self._highest.values()), default="")

    def shrink(self) -> None:
        """Takes out what is not whole, and what then is not any more."""
        waiting = deque(self._known)
        for partition, count in self._kept.items():
            self._kept[partition] = self._before_repeats(partition, count)
        while waiting:
            transaction = waiting.popleft()
            inside = self._inside(transaction)
            if inside and not self._is_whole(transaction, inside):
                for partition, numbers in inside.items():
                    waiting.extend(self._cut(partition, numbers[0]))

    def end(self, partition: Partition) -> End:
        """Where the prefix of a partition ends, with what follows its last run and belongs to none."""
        log, count = self._logs[partition], self._kept[partition]
        offset = log.runs[count].start if count < len(log.runs) else log.end
        return End(max(log.start, min(offset, self._bounds[partition])), self._highest[partition][count])

    def _inside(self, transaction: str) -> dict[Partition, list[int]]:
        kept = (
            (partition, [number for number in numbers if number < self._kept[partition]])
            for partition, numbers in self._known[transaction].runs.items()
        )
        return {partition: numbers for partition, numbers in kept if numbers}

    def _is_whole(self, transaction: str, inside: Mapping[Partition, list[int]]) -> bool:
        runs = {partition: [self._logs[partition].runs[n] for n in numbers] for partition, numbers in inside.items()}
        if all(run.place <= self._logs[partition].newest for partition, some in runs.items() for run in some):
            return True  # A repetition of what the table has.
        count = self._counts.get(transaction)
        if count is not None and self._count(transaction, [run for some in runs.values() for run in some]) >= count:
            return True
        return not self._goes_on(transaction, runs) and max(self._known[transaction].places.values()) < self._passed

    def _goes_on(self, transaction: str, inside: Mapping[Partition, list[Run]]) -> bool:
        """Whether more of it is known than is inside. A run at the same place may be another change, or a repetition."""
        for partition, numbers in self._known[transaction].runs.items():
            newest = max((run.place for run in inside.get(partition, ())), default="")
            outside = [self._logs[partition].runs[n] for n in numbers if n >= self._kept[partition]]
            if any(run.place >= newest for run in outside):
                return True
        return False

    def _count(self, transaction: str, runs: Sequence[Run]) -> int:
        """How many changes of a transaction there are, as far as their numbers tell."""
        if any(run.is_renumbered for run in runs):
            return 0
        behind = [self._behind[transaction]] if transaction in self._behind else []
        return _distinct([*behind, *(run.orders for run in runs)])

    def _cut(self, partition: Partition, count: int) -> list[str]:
        """Leaves a partition no more than so many runs; the transactions that have lost some."""
        count = self._before_repeats(partition, min(count, self._kept[partition]))
        lost = [run.transaction for run in self._logs[partition].runs[count : self._kept[partition]]]
        self._kept[partition] = count
        return list(dict.fromkeys(lost))

    def _before_repeats(self, partition: Partition, count: int) -> int:
        """The same or fewer runs, so that the last one is newer than all before it, or the next one is: a repetition is at
        its end then. Its place alone does not tell, as two changes may be at one.
        """
        runs, highest = self._logs[partition].runs, self._highest[partition]
        while count and runs[count - 1].place <= highest[count - 1]:
            if count < len(runs) and runs[count].place > highest[count]:
                break
            count -= 1
        return count


def _highest(log: Log) -> list[str]:
    """The newest place before each run, and after the last one."""
    found = [log.newest]
    for run in log.runs:
        found.append(max(found[-1], run.place))
    return found


def _distinct(orders: Sequence[array[int]]) -> int:
    """How many numbers there are: in one run each is there once, and another may repeat it."""
    return len(orders[0]) if len(orders) == 1 else np.unique(np.concatenate(orders)).size


def _by_transaction(logs: Mapping[Partition, Log]) -> dict[str, _Known]:
    found: dict[str, _Known] = {}
    for partition, log in logs.items():
        for number, run in enumerate(log.runs):
            known = found.setdefault(run.transaction, _Known())
            known.runs.setdefault(partition, []).append(number)
            known.places[partition] = max(run.place, known.places.get(partition, ""))
    return found


def unknown_of(logs: Iterable[Log], counts: Mapping[str, int]) -> set[str]:
    """Transactions whose number of changes is not known."""
    return {run.transaction for log in logs for run in log.runs if run.transaction not in counts}


@dataclass(frozen=True)
class Held:
    """That from `position` to `ends` there is no transaction that is known to be whole, or no more than the one half of a
    change of the key. until_s: on the monotonic clock,
    when it is worth looking again although nothing has come; pause_s: how long that was after the last look. keeps_run: a
    run that is to end waits as well, and does not leave it to the next one.
    """

    position: Mapping[str, Mapping[int, int]]
    ends: Mapping[Partition, int]
    until_s: float
    pause_s: float
    keeps_run: bool = False
