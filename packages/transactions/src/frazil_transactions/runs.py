"""The furthest end of a batch, for each partition, before which every transaction is complete. Pure.

A topic repeats changes when its connector has crashed, from any earlier change on. A batch may not end inside such a
repetition, where rows have earlier values. Places (`cdc.positions.format_commit_position`) sort in the order of the source's
commits; those of one transaction sort after those of every earlier transaction.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from frazil.kafka.port import Partition

_NOTHING: Mapping[str, array[int]] = {}


@dataclass(frozen=True, slots=True)
class Mark:
    """A change, with its offset in Kafka and its transaction in the source."""

    #: Topic and partition.
    partition: Partition
    #: The record's offset.
    offset: int
    #: The record's timestamp, in milliseconds since the epoch.
    timestamp_ms: int
    #: The transaction's id.
    transaction: str
    #: The position of the change in the source's commit order.
    place: str
    #: The number of the change in its transaction; None where the record does not have it.
    order: int | None = None


@dataclass(slots=True)
class Run:
    """Consecutive changes of one transaction in a partition. Records between and behind them that are no change of a
    transaction (a tombstone, a row of a snapshot) do not count.
    """

    #: The offset of the first change.
    start: int
    #: The offset of the last change.
    last: int
    #: The transaction's id.
    transaction: str
    #: The place of the last change.
    place: str
    #: The timestamp of the first change, in milliseconds since the epoch.
    since_ms: int
    #: The numbers of the changes in the transaction, where records have them.
    orders: array[int] = field(default_factory=lambda: array("q"))
    #: Whether the connector has restarted inside the run and numbers the changes from one again.
    is_renumbered: bool = False


@dataclass
class Log:
    """The transactions of one partition, from `start` up to `end`."""

    #: The offset of the first record in the log.
    start: int
    #: The next offset to read.
    end: int
    #: The place of the newest change before `start`; empty where it is not known.
    newest: str = ""
    #: The runs, by offset.
    runs: list[Run] = field(default_factory=list)

    def add(self, mark: Mark) -> None:
        """Adds a change. Within a run places do not go back."""
        run = self.runs[-1] if self.runs else None
        if run is None or run.transaction != mark.transaction or mark.place < run.place:
            run = Run(mark.offset, mark.offset, mark.transaction, mark.place, mark.timestamp_ms)
            self.runs.append(run)
        if mark.order is not None and (not run.orders or (mark.place, mark.order) != (run.place, run.orders[-1])):
            run.is_renumbered |= bool(run.orders) and mark.order <= run.orders[-1]
            run.orders.append(mark.order)
        run.last, run.place = mark.offset, mark.place

    def forget(self, before: int, newest: str) -> list[Run]:
        """Moves the start to the end of a batch, with the newest place there; returns the removed runs."""
        count = next((n for n, run in enumerate(self.runs) if run.last >= before), len(self.runs))
        done, self.runs = self.runs[:count], self.runs[count:]
        self.start, self.newest = before, newest
        return done


@dataclass(frozen=True)
class End:
    """The end of a partition's part of a batch."""

    #: The offset of the end.
    offset: int
    #: The place of the newest change before the end.
    newest: str


def find_ends(
    logs: Mapping[Partition, Log],
    bounds: Mapping[Partition, int],
    counts: Mapping[str, int],
    behind: Mapping[str, array[int]] = _NOTHING,
) -> dict[Partition, End]:
    """Returns the furthest ends, none beyond its bound, before which every transaction is complete; the log's start
    where there is no complete transaction.

    A transaction is complete when all of its changes are before the ends by their number; or when every partition has a
    change of a later transaction, so that no change of it can follow.

    counts: the number of changes of a transaction in these partitions together, where it is known. behind: numbers of
    changes before the logs' starts, of transactions that may continue after them.
    """
    prefixes = _Prefixes(logs, bounds, counts, behind)
    prefixes.shrink()
    return {partition: prefixes.end(partition) for partition in logs}


@dataclass(frozen=True)
class _Known:
    """All runs of a transaction."""

    #: The indexes of its runs, by partition.
    runs: dict[Partition, list[int]] = field(default_factory=dict)
    #: The place of its newest change, by partition.
    places: dict[Partition, str] = field(default_factory=dict)


class _Prefixes:
    """The first runs of each partition, reduced until every transaction in them is complete."""

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
        # Every partition has a change that is not earlier than this place.
        self._passed = min((places[-1] for places in self._highest.values()), default="")

    def shrink(self) -> None:
        """Removes incomplete transactions from the prefixes, and those that become incomplete by it."""
        waiting = deque(self._known)
        for partition, count in self._kept.items():
            self._kept[partition] = self._before_repeats(partition, count)
        while waiting:
            transaction = waiting.popleft()
            kept = (
                (partition, [number for number in numbers if number < self._kept[partition]])
                for partition, numbers in self._known[transaction].runs.items()
            )
            inside = {partition: numbers for partition, numbers in kept if numbers}
            if inside and not self._is_whole(transaction, inside):
                for partition, numbers in inside.items():
                    waiting.extend(self._cut(partition, numbers[0]))

    def end(self, partition: Partition) -> End:
        """Returns the end of a partition's prefix, including records behind its last run that belong to no transaction."""
        log, count = self._logs[partition], self._kept[partition]
        offset = log.runs[count].start if count < len(log.runs) else log.end
        return End(max(log.start, min(offset, self._bounds[partition])), self._highest[partition][count])

    def _is_whole(self, transaction: str, inside: Mapping[Partition, list[int]]) -> bool:
        runs = {partition: [self._logs[partition].runs[n] for n in numbers] for partition, numbers in inside.items()}
        if all(run.place <= self._logs[partition].newest for partition, some in runs.items() for run in some):
            return True  # A repetition of committed changes.
        count = self._counts.get(transaction)
        if count is not None and self._count(transaction, [run for some in runs.values() for run in some]) >= count:
            return True
        return not self._continues(transaction, runs) and max(self._known[transaction].places.values()) < self._passed

    def _continues(self, transaction: str, inside: Mapping[Partition, list[Run]]) -> bool:
        """Whether known runs are outside; a run at the same place may be another change, or a repetition."""
        for partition, numbers in self._known[transaction].runs.items():
            newest = max((run.place for run in inside.get(partition, ())), default="")
            outside = [self._logs[partition].runs[n] for n in numbers if n >= self._kept[partition]]
            if any(run.place >= newest for run in outside):
                return True
        return False

    def _count(self, transaction: str, runs: Sequence[Run]) -> int:
        """Returns the number of distinct changes of a transaction; 0 where the connector has numbered them twice."""
        if any(run.is_renumbered for run in runs):
            return 0
        behind = [self._behind[transaction]] if transaction in self._behind else []
        # One run has each number once, and another run may repeat it.
        orders = [*behind, *(run.orders for run in runs)]
        return len(orders[0]) if len(orders) == 1 else np.unique(np.concatenate(orders)).size

    def _cut(self, partition: Partition, count: int) -> list[str]:
        """Reduces a partition to at most `count` runs; returns the transactions that have lost runs."""
        count = self._before_repeats(partition, min(count, self._kept[partition]))
        lost = [run.transaction for run in self._logs[partition].runs[count : self._kept[partition]]]
        self._kept[partition] = count
        return list(dict.fromkeys(lost))

    def _before_repeats(self, partition: Partition, count: int) -> int:
        """Returns `count` or fewer runs, so that the last run is newer than all before it, or the next one is, as a
        repetition ends there. The place of a run alone does not identify it, as two changes may be at one place.
        """
        runs, highest = self._logs[partition].runs, self._highest[partition]
        while count and runs[count - 1].place <= highest[count - 1]:
            if count < len(runs) and runs[count].place > highest[count]:
                break
            count -= 1
        return count


def _highest(log: Log) -> list[str]:
    """Returns the newest place before each run, and after the last one."""
    places = [log.newest]
    for run in log.runs:
        places.append(max(places[-1], run.place))
    return places


def _by_transaction(logs: Mapping[Partition, Log]) -> dict[str, _Known]:
    by_name: dict[str, _Known] = {}
    for partition, log in logs.items():
        for number, run in enumerate(log.runs):
            transaction = by_name.setdefault(run.transaction, _Known())
            transaction.runs.setdefault(partition, []).append(number)
            transaction.places[partition] = max(run.place, transaction.places.get(partition, ""))
    return by_name


def unknown_of(logs: Iterable[Log], counts: Mapping[str, int]) -> set[str]:
    """Returns the transactions whose number of changes is not known."""
    return {run.transaction for log in logs for run in log.runs if run.transaction not in counts}
