"""Stages of installed packages: what tasks do with the rows of a table, each by a key of its own in the pipeline file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel

from frazil.plugins.registration import Registered


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
class StageKind:
    """One kind of stage."""

    #: What the key of a table holds: a model whose fields are the keys inside it.
    settings: type[BaseModel]
    #: `run(settings, columns)` returns what becomes of some rows, in a task. columns: by name, in Arrow, without metadata of
    #: the records. The answer must not depend on which rows are given together.
    run: Callable[[Any, Mapping[str, pa.Array]], StageResult]
    #: `plan(settings)` returns what the stage does in one line, for `frazil plan`.
    plan: Callable[[Any], str]


STAGES: Registered[StageKind] = Registered("frazil.stages", "stage", StageKind, {})
"""Stages of packages; the name of the entry point is the key of a table."""
