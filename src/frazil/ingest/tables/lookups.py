"""The port of `lookup`: reference tables read in the driver, and the operators that join them. A package implements it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pyiceberg.schema import Schema

from frazil.catalog.port import Catalog, TableState
from frazil.ingest.tables.table import Table
from frazil.plugins.driver import TABLE_KEYS
from frazil.queries.analysis import Query
from frazil.queries.program import Lookup
from frazil.queries.references import Reference
from frazil.spec.settings import LookupSpec


class Lookups(Protocol):
    """Reads reference tables with the access of one catalog."""

    def refresh(self, table: Table, states: dict[str, TableState | None]) -> None:
        """Gives the table the newest rows of its reference tables. states: reference tables as the catalog has them now, to
        which those that are loaded are added.

        Raises: UnavailableError for a reference table that is not there, cannot be read, or cannot be joined as it is;
        SpecError for a column that it lacks.
        """

    def find(self, table: Table, lookup: LookupSpec, states: dict[str, TableState | None]) -> Reference:
        """Returns the newest rows of the reference table of one lookup.

        Raises: as `refresh`.
        """

    def operators(self, table: Table, records: Schema) -> Sequence[Lookup]:
        """Returns the table's lookups as operators of its program. records: the columns before them.

        Raises: UnknownColumn for a field that the records lack; SpecError where types differ, or the name is a field's.
        """

    def columns_behind(self, records: Schema, lookups: Sequence[Lookup]) -> Schema:
        """Returns the columns of records behind lookups."""

    def joined(self, query: Query, lookups: Sequence[Lookup], has_where: bool) -> Query:
        """Returns a query with its lookups: behind the condition for records that the table takes, before all else.

        Raises: SpecError where that condition names a lookup.
        """


class Waits(Protocol):
    """Replays the records that wait for their row of a reference table, beside ingestion."""

    def note(self, tables: Iterable[Table]) -> None:
        """Takes the tables of the process, and gives them the numbers of their records that wait; returns at once. Only the
        loop's thread calls it.
        """

    def stop(self, timeout_s: float) -> None:
        """Begins no further replay, and waits for the current one. A replay that is left is finished by the next run."""

    def run_last(self) -> None:
        """Replays what is due at the end of a run that has only caught up."""


def open_lookups(catalog: Catalog) -> Lookups:
    """Returns what looks up. Raises: SpecError where the package that has it is not installed."""
    lookups: Lookups = TABLE_KEYS.get("lookup").opener(catalog)
    return lookups
