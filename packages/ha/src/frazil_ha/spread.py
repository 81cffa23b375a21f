"""Which process is to work on which table (`ha: {mode: spread}`): evenly by load, with few moves. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

_UNEVEN = 0.25
"""The difference between two processes, in shares of their mean load, from which on tables are moved."""


def divide(
    tables: Iterable[str], loads: Mapping[str, float], members: Collection[str], owners: Mapping[str, str]
) -> dict[str, str]:
    """Returns the owner of each table. loads: records per second, as far as known; other tables count as the mean of these.
    members: those that can own, at least one. owners: those of before; a table stays with its owner unless the owner is
    gone or has much more to do than others.
    """
    # A table without records costs something too: a tenth of the mean, so that idle tables are spread as well.
    names = sorted(tables)
    known_loads = {table: max(0.0, loads[table]) for table in names if table in loads}
    mean = sum(known_loads.values()) / max(1, len(known_loads))
    least = max(mean / 10, 0.1)
    weights = {table: least + known_loads.get(table, mean) for table in names}
    assigned = {table: owners[table] for table in weights if owners.get(table) in members}
    total = dict.fromkeys(sorted(members), 0.0)
    for table, owner in assigned.items():
        total[owner] += weights[table]
    for table in sorted(weights.keys() - assigned.keys(), key=lambda table_: (-weights[table_], table_)):
        assigned[table] = min(total, key=lambda member: (total[member], member))
        total[assigned[table]] += weights[table]
    _even_out(assigned, weights, total)
    return assigned


def _even_out(owners: dict[str, str], weights: Mapping[str, float], total: dict[str, float]) -> None:
    """Moves the largest table that narrows the gap, from the process with the most load to the one with the least, until
    the gap is small or nothing narrows it by half of the table's own load.
    """
    mean = sum(total.values()) / len(total)
    while True:
        most = max(total, key=lambda member: (total[member], member))
        least = min(total, key=lambda member: (total[member], member))
        gap = total[most] - total[least]
        if gap <= _UNEVEN * mean:
            return
        movable = [table for table, owner in owners.items() if owner == most and weights[table] <= gap * 2 / 3]
        if not movable:
            return
        table = max(movable, key=lambda table_: (weights[table_] <= gap / 2, weights[table_], table_))
        owners[table] = least
        total[most] -= weights[table]
        total[least] += weights[table]


@dataclass(frozen=True)
class Holding:
    """What a process has last reported."""

    #: The newest version of the division that it acts by.
    seen: int
    #: The tables that it may have batches of.
    tables: frozenset[str]


class Division:
    """Which tables the leader has given to whom. A table that changes hands is first taken back: it has no owner until the
    former one has reported, knowing of that, that it holds the table no more, or is gone.
    """

    def __init__(self, owners: Mapping[str, str]) -> None:
        """owners: those that the former leader made."""
        self._given = dict(owners)
        #: Tables that are taken back, each since which version.
        self._taken: dict[str, int] = {}
        #: Grows when `owners` changes; 0 stands for no division of this leader.
        self.version = 1
        self.owners: dict[str, str] = {}

    @property
    def given(self) -> Mapping[str, str]:
        """The process that has or last had each table."""
        return self._given

    def turn(self, wanted: Mapping[str, str], members: Mapping[str, Holding]) -> bool:
        """Takes a step towards the owners that are wanted. members: the processes that are known to live. Returns whether
        `owners` has changed.
        """
        for table, owner in wanted.items():
            former = self._given.get(table)
            if former is None or former == owner or former not in members:
                self._give(table, owner)
            elif table not in self._taken:
                self._taken[table] = self.version + 1
            elif members[former].seen >= self._taken[table] and table not in members[former].tables:
                self._give(table, owner)
        owners = {table: self._given[table] for table in wanted if self._is_free(table, members)}
        if owners == self.owners:
            return False
        self.owners = owners
        self.version += 1
        return True

    def _give(self, table: str, owner: str) -> None:
        self._given[table] = owner
        self._taken.pop(table, None)

    def _is_free(self, table: str, members: Mapping[str, Holding]) -> bool:
        """A process may still hold what an earlier leader gave it."""
        owner = self._given[table]
        others = (holding for name, holding in members.items() if name != owner)
        return table not in self._taken and not any(table in holding.tables for holding in others)
