"""The secrets of a process, and every text without them."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeAlias, TypeVar, cast

from frazil.errors import FrazilError, SpecError
from frazil.secrets import VENDED, Vended, mask

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
_Value = TypeVar("_Value")


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
            text = mask(text, spelling)
        return text

    def document(self, value: Json) -> Json:
        """Returns `value` with secrets masked in every text and key; a value that is not JSON becomes its text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.document(held) for key, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(held) for held in value]
        return self.text(str(value))

    def value(self, value: _Value) -> _Value:
        """Returns a value, such as a dataclass with others in it, with secrets masked in every text. Returns it as it is
        where there are no secrets.
        """
        return cast("_Value", self._masked(value)) if self._spellings() else value

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return value if isinstance(value, Enum) else self.text(value)
        if isinstance(value, Mapping):
            return {self._masked(key): self._masked(held) for key, held in value.items()}
        if isinstance(value, tuple | list) and type(value) in (tuple, list):
            return type(value)(self._masked(held) for held in value)
        if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{part.name: self._masked(getattr(value, part.name)) for part in fields(value)})
        return value

    def _may_show_secret(self, cause: BaseException) -> bool:
        try:
            text = str(cause)
        except Exception:  # noqa: BLE001  (whatever another library's class does there)
            return True
        return self.text(text) != text

    def error(self, error: FrazilError) -> None:
        """Masks secrets in an error that is being raised. Its causes are cut off at the first whose text has a secret, or
        is not to be had: that of Java's exceptions ends with their JVM.
        """
        error.message, error.remedy, error.where = map(self.text, (error.message, error.remedy, error.where))
        error.args = (error.message,)
        for other in error.others if isinstance(error, SpecError) else ():
            self.error(other)
        last: BaseException = error
        while (cause := last.__cause__ or last.__context__) is not None:
            if self._may_show_secret(cause):
                last.__cause__ = last.__context__ = None
                break
            last = cause
