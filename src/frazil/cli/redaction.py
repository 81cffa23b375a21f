"""Takes secrets out of everything the process writes: results, errors, logs and stack traces."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

HIDDEN = "***"


class Redaction:
    """The secrets of this process; a text that went through `text` holds none of them, in no spelling known here."""

    def __init__(self) -> None:
        self._spellings: list[str] = []

    def hide(self, secrets: Iterable[str]) -> None:
        """Adds `secrets`, the empty one aside."""
        spellings = {*self._spellings}
        for secret in filter(None, secrets):
            spellings |= {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], urllib.parse.quote(secret, safe="")}
        self._spellings = sorted(spellings, key=len, reverse=True)

    def text(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, HIDDEN)
        return text

    def document(self, value: Json) -> Json:
        """`value` with every text in it redacted, keys included; what is no JSON becomes its text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.document(held) for key, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(held) for held in value]
        return self.text(str(value))
