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
    #: Of `lookup`: `wait(running, is_ending)` returns the `ingest.tables.lookups.Waits` of a run, as `module:name`.
    wait: str | None = None

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens it."""
        return function_of(self.open)

    @property
    def wait_opener(self) -> Callable[..., Any]:
        """The function that opens what replays records that wait."""
        assert self.wait is not None
        return function_of(self.wait)


TABLE_KEYS: Registered[TableKeyKind] = Registered("frazil.table_keys", "setting", TableKeyKind, {})
"""By the key of the pipeline file."""
