"""Keys of a table whose settings the core reads, and which packages carry out in the driver: `atomic` and `lookup`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class TableKeyKind:
    """What carries out one key."""

    #: `open(…)` returns what the loop asks, as `module:name`: of `atomic` the `ingest.tables.batch_ends.BatchEnds` for
    #: `(source, reader, schemas)`, of `lookup` the `ingest.tables.lookups.Lookups` for `(catalog)`.
    open: str

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens it."""
        return function_of(self.open)


TABLE_KEYS: Registered[TableKeyKind] = Registered("frazil.table_keys", "setting", TableKeyKind, {})
"""By the key of the pipeline file."""
