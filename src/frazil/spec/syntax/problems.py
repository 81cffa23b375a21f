"""What is wrong with a pipeline file, collected so that one run names more than the first mistake.

A validator raises `Mistakes`, or any SpecError; `reading` finds their places. The validation library's own messages are
never shown: they would quote input values, and some of those are secrets.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from pydantic_core import PydanticCustomError

from frazil.errors import SpecError

_Given = ParamSpec("_Given")
_Item = TypeVar("_Item")
_Read = TypeVar("_Read")
LABEL = "{label}"
"""Stands for the path of the wrong key in the texts of a mistake: a validator does not know it."""
NAME = "{name}"
"""Stands for the last part of the path."""

REFUSED = "refused"
"""The type of the validation library's error whose message and remedy a package has written."""


class OptionLine(int):
    """Stands for the line of a value that an option of the command line sets. Negative: the file has no such line."""

    def __new__(cls, number: int, option: str) -> OptionLine:
        """number: of the option, from 1 on. option: as messages name it, such as `--set commit.interval`."""
        line = super().__new__(cls, -number)
        line.option = option
        return line

    option: str


def place(path: Path, line: int) -> str:
    """FILE:LINE, the form that editors and terminals make a link of; the option, for a value that an option sets."""
    return line.option if isinstance(line, OptionLine) else f"{path}:{line}"


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The name of `known` that `name` most probably was meant to be. likeness: of the names at least, 1 for equal ones."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    # Characters that have changed places are far apart by the measure of difflib in a short name.
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=likeness) or [
        candidate for candidate in by_lower if sorted(candidate) == sorted(name.lower())
    ]
    return by_lower[close[0]] if close else None


def advice(name: str, known: Iterable[str], built: Iterable[str] | None = None) -> str:
    """A remedy for the unknown `name`: the nearest known one, or all of them that are `built`."""
    names = list(known)
    close = nearest(name, names)
    return f"did you mean `{close}`?" if close else f"write one of: {', '.join(built or names)}"


class Mistake(NamedTuple):
    """One thing that is wrong with a part of the file."""

    #: The key, or the path of keys and of indices in lists, from that part on; empty for the part itself.
    where: str | tuple[str | int, ...]
    message: str
    remedy: str
    #: The 1-based line, where it is not that of the key.
    line: int = 0


class Mistakes(ValueError):
    """Raised by a validator."""

    def __init__(self, mistakes: Iterable[Mistake], *, is_cause: bool = False, are_rules: bool = False) -> None:
        """is_cause: others, such as a missing key, may come of it. are_rules: they are between keys, and at their lines."""
        super().__init__()
        self.mistakes = tuple(mistakes)
        self.is_cause = is_cause
        self.are_rules = are_rules


def refused(message: str, remedy: str) -> PydanticCustomError:
    """Returns the error that a validator of a package raises. message: a sentence; the key is written before it."""
    return PydanticCustomError(REFUSED, "{message}", {"message": message, "remedy": remedy})


def read_setting(parse: Callable[[str], _Read], text: str) -> _Read:
    """Returns what `parse` makes of a text, in a validator of a package: a SpecError is not an error of its library."""
    try:
        return parse(text)
    except SpecError as error:
        raise refused(error.message, error.remedy) from None


def try_check(
    where: str | tuple[str | int, ...], check: Callable[_Given, object], *args: _Given.args, **kwargs: _Given.kwargs
) -> Iterator[Mistake]:
    """Yields the SpecError of a check, if there is one, as a mistake."""
    try:
        check(*args, **kwargs)
    except SpecError as error:
        yield Mistake(where, error.message, error.remedy)


def read_each(items: Iterable[tuple[str | int, _Item]], read: Callable[[_Item], _Read]) -> list[_Read]:
    """Returns what `read` makes of each item. items: with their key or index.

    Raises: Mistakes, all of them.
    """
    results, mistakes = [], []
    for where, item in items:
        try:
            results.append(read(item))
        except SpecError as error:
            mistakes.append(Mistake((where,), error.message, error.remedy))
    if mistakes:
        raise Mistakes(mistakes)
    return results


class Problems:
    """The problems of the file `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problems: dict[tuple[bool, int, str, str], None] = {}

    def add(self, line: int, message: str, remedy: str, *, is_cause: bool = False, note: str = "") -> None:
        """Notes a problem at the 1-based `line`, once: the keys of `defaults` are read for every table. is_cause: others
        may come of it. note: which part of the file it is for, where it is not noted for the whole file.
        """
        if (not is_cause, line, message, remedy) not in self._problems:
            self._problems[not is_cause, line, f"{message}: {note}" if note else message, remedy] = None

    def raise_any(self) -> None:
        """Raises the problem that is first in the file, causes before all others, with all others in full."""
        if not self._problems:
            return
        first, *rest = sorted(self._problems, key=lambda problem: problem[:2])
        _, line, message, remedy = first
        if rest:
            message += f" (and {len(rest)} more {'problem' if len(rest) == 1 else 'problems'} in this file)"
        others = [SpecError(words, remedy=advice, where=place(self._path, at)) for _, at, words, advice in rest]
        raise SpecError(message, remedy=remedy, where=place(self._path, line), others=others)
