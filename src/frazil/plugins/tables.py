"""Kinds of tables by name: what becomes of their records depends on more of their rows than the latest one of a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class TableKind:
    """One kind of table. The driver and tasks import their own part of it alone."""

    #: What the driver asks: a subclass of `upsert.kinds.TableRows`, as `module:name`.
    driver: str
    #: What tasks ask: a subclass of `upsert.task_kinds.TaskRows`, as `module:name`.
    task: str
    #: Of `merge`: `analyse(grouping, analyse)` returns the `process.analysis.Query` of single records for a query with GROUP
    #: BY, a `spec.grouping.Grouping`, as `module:name`. analyse: analyses SQL.
    group_by: str | None = None

    @property
    def in_driver(self) -> Any:
        """What the driver asks, imported now."""
        return function_of(self.driver)()

    @property
    def in_task(self) -> Any:
        """What tasks ask, imported now."""
        return function_of(self.task)()

    @property
    def group_analyser(self) -> Callable[..., Any]:
        """The function that analyses a query with GROUP BY."""
        assert self.group_by is not None
        return function_of(self.group_by)


TABLE_KINDS: Registered[TableKind] = Registered("frazil.table_kinds", "kind of table", TableKind, {})
"""Every kind: `merge`, `dedupe` and `history`, by `spec.table_keys.ChangesSpec.kind`."""
