"""What is wrong with a pipeline file, collected so that one run names more than the first mistake.

Messages are made here and in the readers, never by the validation library: its messages would show input values, and
some of those are secrets.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from frazil.errors import SpecError

if TYPE_CHECKING:
    from frazil.spec.syntax.document import Entry, Node

_Given = ParamSpec("_Given")
_Read = TypeVar("_Read")
_Fallback = TypeVar("_Fallback")


def place(path: Path, line: int) -> str:
    """FILE:LINE, the form that editors and terminals make a link of."""
    return f"{path}:{line}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name of `known` that `name` most probably was meant to be."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    # Characters that have changed places are far apart by the measure of difflib in a short name.
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6) or [
        one for one in by_lower if sorted(one) == sorted(name.lower())
    ]
    return by_lower[close[0]] if close else None


def advice(name: str, known: Iterable[str], built: Iterable[str] | None = None) -> str:
    """A remedy for the unknown `name`: the nearest known one, or all of them that are `built`."""
    names = list(known)
    close = nearest(name, names)
    return f"did you mean `{close}`?" if close else f"write one of: {', '.join(built or names)}"


class Problems:
    """The problems of the file `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: The folder of the file, whole.
        self.folder = str(path.resolve().parent)
        #: The known word that an unknown one is nearest to, by the id() of its entry or scalar in the document.
        self.meant: dict[int, str] = {}
        self._found: dict[tuple[bool, int, str, str], None] = {}

    def add(self, line: int, message: str, remedy: str, *, is_cause: bool = False) -> None:
        """Notes a problem at the 1-based `line`, once: the keys of `defaults` are read for every table. is_cause: others,
        such as a missing key, may come of it.
        """
        self._found[not is_cause, line, message, remedy] = None

    def add_unknown(self, found: Entry | Node, message: str, name: str, known: Iterable[str]) -> None:
        """Notes that a name is not a known one; others may come of it. found: what has the name as its key or text."""
        names = list(known)
        if close := nearest(name, names):
            self.meant[id(found)] = close
        self.add(found.line, message, advice(name, names), is_cause=True)

    def attempt(
        self,
        line: int,
        fallback: _Fallback,
        read: Callable[_Given, _Read],
        *args: _Given.args,
        **kwargs: _Given.kwargs,
    ) -> _Read | _Fallback:
        """Returns the result of `read`; if it raises a SpecError, notes that at `line` and returns `fallback`."""
        try:
            return read(*args, **kwargs)
        except SpecError as error:
            self.add(line, error.message, error.remedy)
            return fallback

    def keep_effects(self, as_meant: Problems) -> None:
        """Drops problems that others explain: those that are no cause, and that the file read as it was meant has not."""
        self._found = {found: None for found in self._found if not found[0] or found in as_meant._found}

    @property
    def is_empty(self) -> bool:
        """Whether no problem is noted."""
        return not self._found

    @contextmanager
    def in_part(self, lines: Container[int], note: str) -> Iterator[None]:
        """Until the block is left, new problems at these lines concern one part of the file alone: `note` names the part."""
        before = frozenset(self._found)
        yield
        for found in [one for one in self._found if one not in before and one[1] in lines]:
            del self._found[found]
            is_effect, line, message, remedy = found
            self._found[is_effect, line, f"{message}: {note}", remedy] = None

    def raise_any(self) -> None:
        """Raises the problem that is first in the file, causes before all others, with all others in full."""
        if not self._found:
            return
        first, *rest = sorted(self._found, key=lambda problem: problem[:2])
        _, line, message, remedy = first
        if rest:
            message += f" (and {len(rest)} more {'problem' if len(rest) == 1 else 'problems'} in this file)"
        others = [SpecError(words, remedy=advice, where=place(self._path, at)) for _, at, words, advice in rest]
        raise SpecError(message, remedy=remedy, where=place(self._path, line), others=others)
