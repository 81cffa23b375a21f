"""Stages of installed packages: they see the rows of a table behind its query, and change, drop or refuse some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.errors import SpecError
from frazil.plugins.stages import STAGES, StageCheck, StageResult
from frazil.process.kernels.functions import WRONG_RESULT
from frazil.process.program import Expression
from frazil.rows.query import are_marked
from frazil.schema.arrow import Bools, Rows, spread_mask
from frazil.stages.changes import UPSERT, Changes, ReadRecords
from frazil.stages.stage import Assembler, RowWriter, TableStage
from frazil.write.target import TableTarget

if TYPE_CHECKING:
    from frazil.spec.models import TableSpec


@dataclass(frozen=True)
class PackageStage(TableStage):
    """See TableStage."""

    #: The key of the table, which is the name of the stage's entry point.
    name: str
    settings_json: str

    def describe(self) -> str:
        """See TableStage."""
        return f"{self.name}: {STAGES.get(self.name).plan(self.settings)}"

    @property
    def settings(self) -> BaseModel:
        """What the key of the table holds."""
        return _settings(self.name, self.settings_json)

    def after_query(self, types: Mapping[str, pa.DataType]) -> Mapping[str, Expression]:
        """See TableStage."""
        columns: Mapping[str, Expression] = STAGES.get(self.name).call("reshape", {}, self.settings, types)
        return columns

    def check_table(self, location: str | None) -> Iterable[StageCheck]:
        """See TableStage."""
        checks: Iterable[StageCheck] = STAGES.get(self.name).call("check", (), self.settings, location)
        return checks

    def new_marks(
        self, _spec: TableSpec, marks: Mapping[str, str], _key_columns: Callable[[], Sequence[str]]
    ) -> Mapping[str, str]:
        """See TableStage."""
        missing: Mapping[str, str] = STAGES.get(self.name).call("marks", {}, self.settings, marks)
        return missing

    @property
    def actions(self) -> Sequence[str]:
        """See TableStage."""
        return STAGES.get(self.name).actions

    @property
    def needs_headers(self) -> bool:
        """See TableStage."""
        return STAGES.get(self.name).call("assemble", None, self.settings, "", 0) is not None

    def assembler(self, target: TableTarget, topic: str) -> Assembler | None:
        """See TableStage."""
        most_bytes = (target.source or target).reading.max_record_bytes
        assembler: Assembler | None = STAGES.get(self.name).call("assemble", None, self.settings, topic, most_bytes)
        return assembler

    @property
    def keeps_aside(self) -> bool:
        """See TableStage."""
        return STAGES.get(self.name).open is not None

    def open(self, target: TableTarget) -> RowWriter | None:
        """See TableStage."""
        writer: RowWriter | None = STAGES.get(self.name).call("open", None, self.settings, target)
        return writer

    def run(self, target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
        """Returns the changes behind the stage; the given ones while the records need another schema first. A delete has no
        row, and no stage of a package sees it.
        """
        if changes.must_read_again or (target.query is not None and target.program is None):
            return changes
        is_row = (changes.ops == UPSERT) & ~are_marked(changes) & ~changes.decoded.refused[changes.records]
        rows = np.flatnonzero(is_row)
        columns = {field.name: column for field, column in zip(target.fields, changes.columns, strict=True)}
        at = pa.array(rows)
        given = columns if rows.size == changes.ops.size else {key: column.take(at) for key, column in columns.items()}
        kind = STAGES.get(self.name)
        result = kind.run(self.settings, given)
        if target.files.location:  # Otherwise the table is not created yet, and no row is written.
            more = kind.call("refuse", (), self.settings, target, given)
            result = replace(result, refused=(*result.refused, *more))
        _check(target, self.name, result, given, rows.size)
        return _apply(target, self.name, result, rows, changes, read.limit)


@lru_cache(maxsize=256)
def _settings(name: str, settings_json: str) -> BaseModel:
    return STAGES.get(name).settings.model_validate_json(settings_json)


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
