"""Leadership as a test writes it: which run works on which tables now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from frazil.errors import SpecError
from frazil.ingest.loop.leadership import LeadershipState, Member


class Script:
    """Who owns the tables of a pipeline. standbys: whether a run that is fenced stands by."""

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.leader: str | None = None
        self.released: list[str] = []
        self.stood_down: list[str] = []
        self.fenced: list[str] = []
        self.warm: dict[str, bool] = {}
        self.rates: dict[str, Mapping[str, float | None]] = {}
        #: The tables that were still in hand at each release.
        self.in_hand: list[set[str]] = []
        #: The runs that take no table any more.
        self.ending: set[str] = set()
        #: Why no run may work or stand by.
        self.refusal: SpecError | None = None

    def owner(self, table: str) -> str | None:
        """The run that works on the table."""
        return self.owners.get(table, self.leader)


class Scripted:
    """What one run knows of it."""

    def __init__(self, script: Script, name: str) -> None:
        self._script = script
        self._name = name

    def start(self, wake: Callable[[], None]) -> None:
        self._script.warm[self._name] = False
        wake()

    def owns(self, table: str) -> bool:
        if self._script.refusal is not None:
            raise self._script.refusal
        return self._script.owner(table) == self._name

    def offer(self, loads: Mapping[str, float | None], is_warm: bool) -> None:
        self._script.warm[self._name] = is_warm
        self._script.rates[self._name] = loads

    def fenced(self, table: str) -> bool:
        self._script.fenced.append(table)
        return True

    def stand_down(self, reason: str, is_final: bool = False) -> None:  # noqa: ARG002
        self._script.stood_down.append(self._name)
        self._script.ending |= {self._name} if is_final else set()

    def release(self, in_hand: Collection[str] = ()) -> None:
        self._script.released.append(self._name)
        self._script.in_hand.append(set(in_hand))

    @property
    def state(self) -> LeadershipState:
        members = tuple(Member(name, "1", 0, is_warm) for name, is_warm in sorted(self._script.warm.items()))
        return LeadershipState("kafka", "lead", self._name, members, self._script.leader)

    def close(self) -> None:
        self._script.warm.pop(self._name, None)
