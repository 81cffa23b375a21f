"""Secrets that a catalog vends, with its configuration and with its tables: never to be written anywhere.

They are not part of the pipeline file, change while a process runs, and are kept for the whole process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from frazil.secrets import is_secret_key

MOST_KEPT = 1000
_SHORTEST = 6


class Vended:
    """The newest vended secrets, at most MOST_KEPT: a catalog may vend other credentials at every load. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[str, None] = {}
        self._values: frozenset[str] = frozenset()

    @property
    def values(self) -> frozenset[str]:
        """The secrets; the same object as long as none is added."""
        return self._values

    def note(self, properties: Mapping[str, str]) -> None:
        """Adds the values of properties whose names mark them as secret."""
        secrets = secrets_among(properties)
        if secrets <= self._values:
            return
        with self._lock:
            for secret in sorted(secrets):
                self._secrets.pop(secret, None)
                self._secrets[secret] = None
            for oldest in list(self._secrets)[: max(0, len(self._secrets) - MOST_KEPT)]:
                del self._secrets[oldest]
            self._values = frozenset(self._secrets)


def secrets_among(properties: Mapping[str, str]) -> set[str]:
    """Returns the secret values of a catalog's properties, and of a pair `id:secret` the secret alone too."""
    secrets = set()
    for name, value in properties.items():
        if is_secret_key(name):
            _, _, after = value.partition(":")
            secrets |= {part for part in (value, after) if len(part) >= _SHORTEST}
    return secrets


VENDED = Vended()
"""The vended secrets of this process."""
