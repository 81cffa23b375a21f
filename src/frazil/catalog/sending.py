"""Commits of snapshots of which an attempt may have landed though its answer never came.

Iceberg makes a refused commit again, and removes what it wrote for it once it is refused for good. But something on the way
may have sent an attempt twice, as some proxies do: then the first time has landed, it is what all later ones are refused
for, and what Iceberg removes are the manifests of the table's own snapshot. So here it removes nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from frazil.catalog.java import Collector
from frazil.catalog.java_errors import java_errors


def send(update: Any, java: Any) -> None:
    """Commits an update of `java` whose validator lets it into the table once. Raises what Iceberg raises: then all that was
    written for it stays, and what no snapshot names of that is an orphan like any other.
    """
    left = Collector()
    update.deleteWith(left)
    update.commit()
    remove(java, left.words)


def remove(java: Any, paths: Iterable[str]) -> None:
    """Removes files that no snapshot names, as far as possible: an orphan costs space, not truth."""
    for path in set(paths):
        with suppress(*java_errors()):
            java.io().deleteFile(path)
