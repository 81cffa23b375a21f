"""Secrets by reference: `${env:NAME}` and `${file:PATH}` inside a string.

Every value that was put in is remembered, so that it can be taken out of anything that is printed. A password that is
written into the file itself is remembered too, where its key or its form gives it away (`secret_patterns`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from frazil.errors import SpecError
from frazil.spec.problems import nearest
from frazil.spec.secret_patterns import secrets_of

MASK = "***"
LIMIT_BYTES = 1024 * 1024
_REFERENCE = re.compile(r"\$\{([A-Za-z]+):([^}]*)\}")


def has_reference(text: str) -> bool:
    """Whether `text` asks for a secret."""
    return any(match[1] in ("env", "file") for match in _REFERENCE.finditer(text))


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` with every secret masked."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


class Secrets:
    """Reads references from `environment` and from files, and remembers what it read in `found`.

    A relative path is relative to the current working directory.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.found: set[str] = set()

    def resolve(self, text: str, key: str = "") -> str:
        """`text`, the value of `key`, with its references replaced; errors name variables and files, never values."""
        resolved = _REFERENCE.sub(self._replace, text)
        self.found |= secrets_of(key, resolved)
        return resolved

    def _replace(self, match: re.Match[str]) -> str:
        source, name = match[1], match[2]
        if source == "env":
            value = self._read_variable(name)
        elif source == "file":
            value = _read_file(name)
        elif nearest(source, ("env", "file")):
            message = f"`${{{source}:…}}` is not a reference to a secret"
            raise SpecError(message, remedy="write `${env:NAME}` or `${file:PATH}`")
        else:
            return match[0]
        self.found.add(value)
        return value

    def _read_variable(self, name: str) -> str:
        value = self._environment.get(name)
        if not value:
            state = "is not set" if value is None else "is empty"
            raise SpecError(f"the environment variable `{name}` {state}", remedy=f"set {name} before starting Frazil")
        if _is_not_utf8(value):
            raise SpecError(f"the environment variable `{name}` is not UTF-8", remedy="set it to UTF-8 text")
        return value


def _is_not_utf8(value: str) -> bool:
    """Whether the text stands for bytes that are no UTF-8, as Python decodes the environment."""
    return any("\ud800" <= letter <= "\udfff" for letter in value)


def _read_file(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
        value = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise SpecError(f"the secret's file `{name}` {reason}", remedy="create it, or correct its path") from None
    except UnicodeDecodeError:
        raise SpecError(f"the secret's file `{name}` is not UTF-8", remedy="save the secret as UTF-8 text") from None
    if not value or len(content) > LIMIT_BYTES:
        state = "is empty" if not value else f"is larger than {LIMIT_BYTES} bytes"
        raise SpecError(f"the secret's file `{name}` {state}", remedy="write the secret, and only it, into the file")
    return value
