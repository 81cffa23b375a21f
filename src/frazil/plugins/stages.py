"""Stages of installed packages: what tasks do with the rows of a table, each by a key of its own in the pipeline file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class Refusal:
    """Rows that become dead letters, with their whole records."""

    #: Which rows: bool of shape (n_rows,).
    rows: NDArray[np.bool_]
    #: The column at fault; empty for the entire row.
    column: str
    #: Why, in lower case and without a full stop.
    reason: str


@dataclass(frozen=True)
class StageResult:
    """What a stage makes of rows."""

    #: The columns that get other values, of their type and with a value per row.
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    #: Rows that are not written, by the name under which their records are counted: bool of shape (n_rows,).
    dropped: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    #: Rows that become dead letters.
    refused: Sequence[Refusal] = ()


@dataclass(frozen=True)
class StageCheck:
    """What `frazil check` finds about a stage of a table."""

    is_ok: bool
    #: What was done.
    tried: str
    #: The result.
    result: str
    #: What to do, where it is not well.
    remedy: str = ""


@dataclass(frozen=True)
class StageKind:
    """One kind of stage."""

    #: What the key of a table holds: a model whose fields are the keys inside it.
    settings: type[BaseModel]
    #: `run(settings, columns)` returns what becomes of some rows, in a task. columns: by name, in Arrow, without metadata of
    #: the records. The answer must not depend on which rows are given together.
    run: Callable[[Any, Mapping[str, pa.Array]], StageResult]
    #: `plan(settings)` returns what the stage does in one line, for `frazil plan`.
    plan: Callable[[Any], str]
    #: `refuse(settings, target, columns)` returns the `Refusal`s of rows for what it finds outside of the records, such as
    #: in the store of the `write.target.TableTarget`. columns: as of `run`. The function, or `module:name` of it.
    refuse: Callable[..., Sequence[Refusal]] | str | None = None
    #: `reshape(settings, types)` returns, by name, the columns that are new or other ones behind the table's query, each as
    #: an expression (`process.program`) of the columns, whose Arrow types these are. The function, or `module:name` of it.
    reshape: Callable[..., Any] | str | None = None
    #: `open(settings, target)` returns what a task writes beside the files of a table, a `stages.stage.RowWriter`; None for
    #: nothing. The function, or `module:name` of it.
    open: Callable[..., Any] | str | None = None
    #: `move(settings, folder)` returns the settings of a copy of the table, whose tasks write beside its files in this
    #: folder: of cases, which are played. The function, or `module:name` of it.
    move: Callable[..., Any] | str | None = None
    #: `check(settings, location)` yields a `StageCheck` for each thing that `frazil check` finds. location: the table's
    #: folder, None where the table does not exist. The function, or `module:name` of it.
    check: Callable[..., Iterable[StageCheck]] | str | None = None
    #: The maintenance actions that a table with the stage has, by their names among `plugins.maintenance_actions`.
    actions: tuple[str, ...] = ()

    def call(self, member: str, nothing: Any, *arguments: Any) -> Any:
        """Returns what one of the optional functions returns; `nothing` where the kind has none."""
        target = getattr(self, member)
        return nothing if target is None else function_of(target)(*arguments)


@dataclass(frozen=True)
class TableStageKind:
    """A kind of stage whose keys the core reads, and which may do all that a `stages.stage.TableStage` does."""

    #: `make(settings)` returns the stage of a table with these `stages.settings.StageSettings`, as `module:name`; None
    #: where none of its rows passes it.
    make: str
    #: The class of a `stages.watch.StageWatch`, as `module:name`; None where the driver remembers nothing for it.
    watch: str | None = None
    #: The functions that its programs call, as `process.kernels.values.Kernel`s by name, as `module:name`.
    kernels: str | None = None

    @property
    def maker(self) -> Callable[..., Any]:
        """The function that makes the stage of a table."""
        return function_of(self.make)

    @property
    def watcher(self) -> Callable[..., Any]:
        """The class of what the driver remembers of a table."""
        assert self.watch is not None
        return function_of(self.watch)


STAGES: Registered[StageKind] = Registered("frazil.stages", "stage", StageKind, {})
"""Stages of packages; the name of the entry point is the key of a table."""
TABLE_STAGES: Registered[TableStageKind] = Registered("frazil.table_stages", "stage", TableStageKind, {})
"""Stages of packages whose keys are in the core's models of the pipeline file, by their `StageSettings.stage`."""
