"""Stages of tables by name, Frazil's own and those of installed packages: what they do to rows, and their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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
    """One kind of stage. A class that takes long to import may be named, `module:name`."""

    #: The keys of a table for it: a subclass of `stages.settings.StageSettings`.
    settings: type[Any] | str
    #: What a table with these settings is asked: a subclass of `stages.stage.TableStage`, such as a `RowStage`.
    stage: type[Any] | str
    #: What the driver remembers of a table's batches: a subclass of `stages.watch.StageWatch`; None for nothing.
    watch: type[Any] | str | None = None
    #: What the documents of plan and lineage have: a subclass of `stages.notes.StageNote`; None for nothing.
    note: type[Any] | str | None = None
    #: The functions that the stage's programs call, as `process.kernels.values.Kernel`s by name, as `module:name`; None for
    #: none.
    kernels: str | None = None

    def __post_init__(self) -> None:
        """Raises: TypeError for settings that are another model."""
        if isinstance(self.settings, type) and not hasattr(self.settings, "of_records"):
            raise TypeError(f"{self.settings.__name__} is not a subclass of StageSettings")

    def load(self, member: str) -> Any:
        """Returns one of the classes, imported now where it is named; None for none."""
        target = getattr(self, member)
        return None if target is None else function_of(target)


STAGES: Registered[StageKind] = Registered("frazil.stages", "stage", StageKind, {})
"""The kinds of stages whose settings are a key of a table of their own: the name of the entry point."""
TABLE_STAGES: Registered[StageKind] = Registered("frazil.table_stages", "stage", StageKind, {})
"""The kinds of stages whose keys are a group of the core's models, a field of `spec.models.TableSpec`: they see rows behind
the others.
"""
