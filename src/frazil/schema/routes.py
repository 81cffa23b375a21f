"""Which table of a route takes the records with some values, or why none does. Pure, for the driver and tasks alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from frazil.name_case import fold_case
from frazil.routing import Route
from frazil.types import Offsets, RoutedTable

MAX_NAME_BYTES = 200
"""The longest name of a table that values may make, in bytes of UTF-8: file systems and catalogs take 255 for a part of it,
and the dead-letter table has a longer one.
"""
# Clients of stores read `?` and `#` in a location differently.
_PART = re.compile(r"[^\s`'\"/\\?#]+")
_LOWERED = re.compile(r"[a-z0-9_]+\.[a-z0-9_]+")
_DEAD_LETTERS = "__dead_letters"


class Rest(StrEnum):
    """Why a record goes to the table of the rest."""

    #: One of the values is missing, null, or cannot be read.
    MISSING = "no value"
    #: The values make no name of a table, or one that is too long.
    NAME = "no table name"
    #: The values make the name of another table, letter case aside.
    TAKEN = "name of another table"
    #: The route has as many tables as it may.
    LIMIT = "limit"


class Router:
    """The tables of one route, and those that it may still get."""

    def __init__(self, route: Route, tables: Iterable[RoutedTable]) -> None:
        self._route = route
        self._tables: dict[tuple[str | None, ...], RoutedTable] = {table.values: table for table in tables}
        names = (*route.taken, route.rest, *(table.name for table in self._tables.values()))
        self._names = set(map(fold_case, names))

    @property
    def tables(self) -> tuple[RoutedTable, ...]:
        """The tables, in the order in which they were found."""
        return tuple(self._tables.values())

    @property
    def free(self) -> int:
        """How many more tables there may be."""
        return max(0, self._route.limit - len(self._tables))

    def has_table(self, values: tuple[str | None, ...]) -> bool:
        """Whether records with these values have a table of their own."""
        return values in self._tables

    def refuse(self, values: Sequence[str | None]) -> Rest | None:
        """Returns why records with these values get no table; None where they get one."""
        present = [value for value in values if value is not None]
        if len(present) < len(values):
            return Rest.MISSING
        name = self._route.to.fill(present)
        if not is_table_name(name, self._route.lowers_names):
            return Rest.NAME
        if fold_case(name) in self._names:
            return Rest.TAKEN
        return None if self.free else Rest.LIMIT

    def add(self, values: tuple[str, ...], start: Offsets) -> None:
        """Adds the table of these values, which `refuse` has not refused. start: where its records begin."""
        name = self._route.to.fill(values)
        self._tables[values] = RoutedTable(name, values, start)
        self._names.add(fold_case(name))


def is_table_name(name: str, lowers_names: bool = False) -> bool:
    """Whether a table can have the name. lowers_names: whether the catalog keeps names in lower case alone."""
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES or fold_case(name).endswith(_DEAD_LETTERS):
        return False
    if lowers_names:
        return _LOWERED.fullmatch(name) is not None
    return name.isprintable() and all(map(_PART.fullmatch, name.split(".")))
