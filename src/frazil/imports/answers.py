"""What becomes of each setting of another tool; a table of these per tool feeds both its import and its page in the docs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Answer(StrEnum):
    """What becomes of a setting."""

    CARRIED = "carried over"
    UNNEEDED = "not needed"
    UNSUPPORTED = "not supported"


@dataclass(frozen=True)
class PeerKey:
    """A setting of another tool."""

    #: As the tool spells it; `*` for any text.
    name: str
    answer: Answer
    #: Where it goes, why it is not needed, or why it is not supported.
    note: str
    #: Of a setting that is not supported: what to do.
    instead: str = ""
    #: Values with which a setting that is not supported changes nothing.
    harmless: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Tool:
    """Another tool that writes topics to Iceberg tables."""

    #: As in the name of the command.
    name: str
    #: As its makers spell it.
    title: str
    #: Every known setting, the first that matches decides.
    keys: tuple[PeerKey, ...]

    def find(self, key: str) -> PeerKey | None:
        """Returns the answer for a setting; None for an unknown one."""
        return next((one for one in self.keys if fnmatchcase(key, one.name)), None)


def carried(to: str, *names: str) -> Iterable[PeerKey]:
    """Yields settings that are carried over. to: where, in the pipeline file's words."""
    return (PeerKey(name, Answer.CARRIED, to) for name in names)


def unneeded(why: str, *names: str) -> Iterable[PeerKey]:
    """Yields settings that are not needed."""
    return (PeerKey(name, Answer.UNNEEDED, why) for name in names)


def unsupported(why: str, instead: str, *names: str, harmless: Iterable[str] = ()) -> Iterable[PeerKey]:
    """Yields settings that are not supported. instead: what to do."""
    return (PeerKey(name, Answer.UNSUPPORTED, why, instead, frozenset(harmless)) for name in names)
