"""Who works on which tables, where several processes run one pipeline (the port that elections of packages implement).

Leadership decides who tries, never what is right: a table lets one of two writers commit, whatever they believe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field


@dataclass(frozen=True)
class Member:
    """One running process of the pipeline."""

    #: Unique among the processes: host, pid and a random part.
    name: str
    #: Frazil's version.
    version: str
    #: When the process started, in milliseconds since 1970.
    started_at_ms: int
    #: Whether it can take over at once: tables loaded, Spark session and Python workers there.
    is_warm: Annotated[bool, Field(alias="warm")]


@dataclass(frozen=True)
class LeadershipState:
    """Who leads, for `status`, metrics and the console."""

    #: `kafka`, `kubernetes`, `postgres` or `none`.
    elect: str
    #: `lead`: one process works on all tables; `spread`: each process works on some of them.
    mode: str
    #: The name of this process.
    name: str
    #: The known processes, this one included: `name`, `version`, `started_at_ms` and `warm` (whether it could take over at
    #: once).
    members: tuple[Member, ...]
    #: The name of the process that leads; null while none does. With `spread` it divides the tables.
    leader: str | None
    #: Since when it leads.
    since_ms: Annotated[int, "milliseconds since the epoch"] | None = None
    #: Why the last change happened.
    reason: str = ""
    #: With `spread`: the name of the process that works on each table.
    owners: Mapping[str, str] | None = None


class Leadership(Protocol):
    """This process among those of one pipeline. The service calls it in its thread, and no call waits for the network."""

    def start(self, wake: Callable[[], None]) -> None:
        """Joins the other processes. wake: to be called, from any thread, when what `owns` answers may have changed."""

    def owns(self, table: str) -> bool:
        """Whether this process is to work on the table now. The table stays this process's until `release` is called after
        an answer of False.

        Raises: SpecError where another pipeline of the same name is at work.
        """

    def offer(self, loads: Mapping[str, float | None], is_warm: bool) -> None:
        """Reports this process to the others, every turn. loads: the records per second of every table, None where unknown.
        is_warm: whether it could take over now. Also the sign that the service's thread turns.
        """

    def fenced(self, table: str) -> bool:
        """Notes that a later run has written a table that this process owned. Returns whether this process becomes a
        standby; otherwise no other process is there and it ends.
        """

    def stand_down(self, reason: str, is_final: bool = False) -> None:
        """Releases what this process owns, once the service has no batch of it in hand (see `release`). Another process
        takes it; where there is none, this one continues. is_final: this process takes no table any more.
        """

    def release(self, in_hand: Collection[str] = ()) -> None:
        """Notes that the service has no batch in hand of any table for which `owns` has answered False, but for these."""

    @property
    def state(self) -> LeadershipState:
        """What is known of all processes."""

    def close(self) -> None:
        """Leaves the other processes. Ends with the process at the latest."""


class Alone:
    """No election (`elect: none`): this process works on every table; the newest run of a pipeline fences the others."""

    def __init__(self, name: str, version: str, started_at_ms: int) -> None:
        self._me = Member(name, version, started_at_ms, is_warm=True)

    def start(self, wake: Callable[[], None]) -> None:
        """Nobody is joined."""

    def owns(self, table: str) -> bool:  # noqa: ARG002
        return True

    def offer(self, loads: Mapping[str, float | None], is_warm: bool) -> None:
        """Nobody is there to read it."""

    def fenced(self, table: str) -> bool:  # noqa: ARG002
        return False

    def stand_down(self, reason: str, is_final: bool = False) -> None:
        """Nobody takes over."""

    def release(self, in_hand: Collection[str] = ()) -> None:
        """Nobody waits."""

    @property
    def state(self) -> LeadershipState:
        return LeadershipState("none", "lead", self._me.name, (self._me,), self._me.name, self._me.started_at_ms)

    def close(self) -> None:
        """Nobody is left."""
