"""Masks secrets in everything that the process writes: results, errors, logs and stack traces."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from frazil.catalog.vended import VENDED, Vended

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

HIDDEN = "***"


def _spell(secret: str) -> set[str]:
    return {
        secret,
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        urllib.parse.quote(secret.encode("utf-8", "surrogatepass"), safe=""),
    }


class Redaction:
    """The secrets of this process, those vended by its catalog included. Text returned by `text` contains none of them,
    in no known spelling.
    """

    def __init__(self, vended: Vended = VENDED) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._vended = vended
        self._spelt: tuple[frozenset[str], frozenset[str], list[str]] = (frozenset(), frozenset(), [])

    def hide(self, secrets: Iterable[str]) -> None:
        """Adds `secrets`, except the empty one."""
        self._secrets |= {*filter(None, secrets)}

    def _spellings(self) -> list[str]:
        """Returns the spellings of all secrets, the longest first; computed again when secrets are added. Thread-safe."""
        of, given, spellings = self._spelt
        if of is not self._secrets or given is not self._vended.values:
            of, given = self._secrets, self._vended.values
            spellings = sorted(
                {spelling for secret in of | given for spelling in _spell(secret)}, key=len, reverse=True
            )
            self._spelt = (of, given, spellings)
        return spellings

    def text(self, text: str) -> str:
        """Returns the text with secrets masked."""
        for spelling in self._spellings():
            text = text.replace(spelling, HIDDEN)
        return text

    def document(self, value: Json) -> Json:
        """Returns `value` with secrets masked in every text and key; a value that is no JSON becomes its text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.document(held) for key, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(held) for held in value]
        return self.text(str(value))
