"""Stages that see the rows of a table behind its query as columns, and change, drop or refuse some, as packages' do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.errors import SpecError
from frazil.plugins.stages import STAGES, Refusal, StageResult
from frazil.queries.kernels.functions import WRONG_RESULT
from frazil.rows.query import are_marked
from frazil.schema.arrow import Bools, Rows, spread_mask
from frazil.stages.changes import UPSERT, Changes, ReadRecords
from frazil.stages.stage import TableStage
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class RowStage(TableStage):
    """A stage that sees the rows of a table as columns, and returns other values, rows to drop and refusals."""

    #: The name of its kind, which is the key of the table.
    name: str
    #: What the key holds, as JSON: tables are compared, and sent to tasks.
    settings_json: str

    @classmethod
    def make(cls, name: str, settings: BaseModel) -> Self:
        """See TableStage."""
        return cls(name, settings.model_dump_json(by_alias=True))

    @property
    def settings(self) -> Any:
        """What the key of the table holds, as the kind's model."""
        return _settings(self.name, self.settings_json)

    def change(self, _columns: Mapping[str, pa.Array], /) -> StageResult:
        """Returns what becomes of some rows, in a task. _columns: by name, in Arrow, with a value per row and without
        metadata of the records. The answer must not depend on which rows are given together.
        """
        return StageResult()

    def refuse(self, _target: TableTarget, _columns: Mapping[str, pa.Array], /) -> Sequence[Refusal]:
        """Returns more refusals, for what is found outside of the records, such as in the table's store; never while the
        table is to be created. _columns: as of `change`.
        """
        return ()

    def run(self, target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
        """Returns the changes behind the stage; the given ones while the records need another schema first. A delete has no
        row, and the stage does not see it.
        """
        if changes.must_read_again or (target.query is not None and target.program is None):
            return changes
        is_row = (changes.ops == UPSERT) & ~are_marked(changes) & ~changes.decoded.refused[changes.records]
        rows = np.flatnonzero(is_row)
        columns = {field.name: column for field, column in zip(target.fields, changes.columns, strict=True)}
        at = pa.array(rows)
        given = columns if rows.size == changes.ops.size else {key: column.take(at) for key, column in columns.items()}
        result = self.change(given)
        if target.files.location:  # Otherwise the table is not created yet, and no row is written.
            result = replace(result, refused=(*result.refused, *self.refuse(target, given)))
        _check(target, self.name, result, given, rows.size)
        return _apply(target, self.name, result, rows, changes, read.limit)


@lru_cache(maxsize=256)
def _settings(name: str, settings_json: str) -> BaseModel:
    settings: BaseModel = STAGES.get(name).load("settings").model_validate_json(settings_json)
    return settings


def _check(target: TableTarget, name: str, result: StageResult, given: dict[str, pa.Array], count: int) -> None:
    """Raises: SpecError for a result that is not one of these rows."""
    fixed = {path[0] for path in target.changes.paths} | {target.changes.order_by} if target.changes else set()
    masks = [*result.dropped.values(), *(refusal.rows for refusal in result.refused)]
    wrong = [key for key, column in result.columns.items() if key not in given or column.type != given[key].type]
    wrong += [key for key, column in result.columns.items() if len(column) != count]
    if wrong or fixed & result.columns.keys() or any(mask.shape != (count,) for mask in masks):
        what = f"column={wrong[0]}" if wrong else f"rows={count}"
        raise SpecError(
            f"the stage `{name}` returns values that are not those of the table: {what}", remedy=WRONG_RESULT
        )


def _apply(target: TableTarget, name: str, result: StageResult, rows: Rows, changes: Changes, limit: int) -> Changes:
    columns, records = list(changes.columns), changes.records[rows]
    for n, field in enumerate(target.fields):
        if field.name in result.columns:
            columns[n] = _put(columns[n], result.columns[field.name], rows)
    count = changes.decoded.refused.size
    refused, mismatches = np.zeros(count, np.bool_), []
    for refusal in result.refused:
        refused[records[refusal.rows]] = True
        refused_rows = np.unique(records[refusal.rows]).tolist()
        mismatches += [
            Mismatch(row, refusal.column, ErrorClass.REFUSED_BY_STAGE, f"{name}: {refusal.reason}")
            for row in refused_rows
        ]
    kept: Bools = np.ones(changes.ops.size, np.bool_)
    ignored = dict(changes.ignored)
    for drop, mask in result.dropped.items():
        kept[rows[mask]] = False
        is_gone = spread_mask(mask, records, count)
        is_gone[changes.records[kept]] = False
        ignored[drop] = ignored.get(drop, np.False_) | is_gone
    decoded = changes.decoded.refusing(refused, mismatches, limit)
    return replace(changes, columns=columns, decoded=decoded, ignored=ignored).only(kept)


def _put(column: pa.Array, values: pa.Array, rows: Rows) -> pa.Array:
    """Returns the column with other values in these rows."""
    if rows.size == len(column):
        return values
    places = np.arange(len(column))
    places[rows] = len(column) + np.arange(rows.size)
    return pa.concat_arrays([column, values]).take(pa.array(places))
