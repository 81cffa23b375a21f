"""A catalog that the first run is yet to create: it has no table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from frazil.catalog.port import Catalog


class _Unmade:
    """Answers the questions that come before a table is loaded; the others follow a table that was."""

    def __init__(self, reach: Callable[[str], Mapping[str, str]]) -> None:
        self._reach = reach

    def load(self, table: str) -> None:  # noqa: ARG002
        return None

    def on_main(self, table: str) -> Catalog:  # noqa: ARG002
        return cast(Catalog, self)

    def store_properties(self, location: str) -> Mapping[str, str]:
        return self._reach(location)


def catalog_without_tables(reach: Callable[[str], Mapping[str, str]] = lambda _: {}) -> Catalog:
    """Returns a catalog without tables, for reading. reach: `store_properties`."""
    return cast(Catalog, _Unmade(reach))
