"""Histories of services among which tables move at random, and which learn of it late: two may work on a table at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from frazil.ingest.loop.leadership import Leadership
from tests.simulation.faults import Fate
from tests.simulation.history import History
from tests.simulation.upserts import UpsertHistory
from tests.unit.ingest.leaders import Script, Scripted


class Late(Scripted):
    """A service that learns now and then what it owns."""

    def __init__(self, script: Script, name: str, fate: Fate) -> None:
        super().__init__(script, name)
        self._script = script
        self._fate = fate
        self._known: tuple[dict[str, str], str | None] = dict(script.owners), script.leader

    def owns(self, table: str) -> bool:
        owners, leader = self._known
        return owners.get(table, leader) == self._name

    def offer(self, loads: Mapping[str, float | None], is_warm: bool) -> None:
        super().offer(loads, is_warm)
        if self._fate.is_fault_free or self._fate.maybe(0.3):
            self._known = dict(self._script.owners), self._script.leader

    def fenced(self, table: str) -> bool:
        self._known = {**self._known[0], table: ""}, self._known[1]
        return super().fenced(table)


class StandbyHistory(History):
    """The history of append tables, among services that elect."""

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed, root)
        self.script = Script()

    def _something(self) -> None:
        move(self.fate, self.script, [table.name for table in self.spec.tables], self.started)
        super()._something()

    def _leadership(self, name: str) -> Leadership:
        return leadership_of(self.fate, self.script, name)


class UpsertStandbyHistory(UpsertHistory):
    """The same of upsert tables."""

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed, root)
        self.script = Script()

    def _something(self) -> None:
        move(self.fate, self.script, [table.name for table in self.spec.tables], self.started)
        super()._something()

    def _leadership(self, name: str) -> Leadership:
        return leadership_of(self.fate, self.script, name)


def move(fate: Fate, script: Script, tables: list[str], started: int) -> None:
    """Gives all tables, or one, to another of the newest services, which may have ended."""
    names = [f"run-{number:04}" for number in range(max(1, started - 2), started + 1)]
    if fate.maybe(0.1) or script.leader is None:
        script.leader = names[fate.pick(0, len(names) - 1)] if names else None
        script.owners.clear()
    if fate.maybe(0.1) and names:
        script.owners[tables[fate.pick(0, len(tables) - 1)]] = names[fate.pick(0, len(names) - 1)]


def leadership_of(fate: Fate, script: Script, name: str) -> Late:
    """Returns the leadership of a service; the last one, which finishes in peace, leads."""
    if fate.is_fault_free:
        script.leader = name
        script.owners.clear()
    return Late(script, name, fate)
