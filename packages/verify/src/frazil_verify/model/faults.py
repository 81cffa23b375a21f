"""What is wrong with a value: a class of error of docs/reference/dead-letters.md."""

from __future__ import annotations


class Fault(Exception):
    """A value that its column cannot have. kinds: the classes that the documentation allows for it."""

    def __init__(self, *kinds: str, because: str = "") -> None:
        super().__init__(", ".join(kinds))
        self.kinds = frozenset(kinds)
        self.because = because


class Unreadable(Fault):
    """An entire record that cannot be read."""


class NotRead(Exception):
    """Why records of a schema are not read by these rules."""
