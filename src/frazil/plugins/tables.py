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
    #: Of `merge`: `read(query, tokens, places)` returns the `spec.grouping.Grouping` of a query with GROUP BY, as
    #: `module:name`. tokens: `spec.grouping.Token`s. places: the index of the first of each clause.
    read_groups: str | None = None
    #: Of `merge`: `analyse(grouping, analyse)` returns the `process.analysis.Query` of single records for such a query, as
    #: `module:name`. analyse: analyses SQL.
    analyse_groups: str | None = None
    #: Compiles the loops of tasks for such tables, without arguments, as `module:name`: `frazil setup` calls it.
    compile_loops: str | None = None

    @property
    def in_driver(self) -> Any:
        """What the driver asks, imported now."""
        return function_of(self.driver)()

    @property
    def in_task(self) -> Any:
        """What tasks ask, imported now."""
        return function_of(self.task)()

    @property
    def group_reader(self) -> Callable[..., Any]:
        """The function that reads a query with GROUP BY."""
        assert self.read_groups is not None
        return function_of(self.read_groups)

    @property
    def group_analyser(self) -> Callable[..., Any]:
        """The function that analyses such a query."""
        assert self.analyse_groups is not None
        return function_of(self.analyse_groups)


TABLE_KINDS: Registered[TableKind] = Registered("frazil.table_kinds", "kind of table", TableKind, {})
"""Every kind: `merge`, `dedupe` and `history`, by `spec.table_keys.ChangesSpec.kind`."""
