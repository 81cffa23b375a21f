"""What pieces of work in lanes are about, besides batches: by it the service knows what to do with the answer."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.catalog.port import TableState
from frazil.errors import ConflictError
from frazil.ingest.batch import Planned
from frazil.ingest.failures import TaskFailedError
from frazil.ingest.table import Table


@dataclass(frozen=True)
class Look:
    """The batch of a table with `atomic` whose end is looked for."""

    planned: Planned


@dataclass(frozen=True)
class Search:
    """The batch that is searched for records that end tasks, and how it failed."""

    planned: Planned
    error: TaskFailedError


@dataclass(frozen=True)
class Asking:
    """The table that the catalog or the registry is asked for, and its state before. conflict: why it is loaded again, where
    a commit was refused.
    """

    table: Table
    before: TableState | None = None
    conflict: ConflictError | None = None


@dataclass(frozen=True)
class Topics:
    """Kafka is asked which topics there are."""
