"""`expect` as a stage: it judges the rows that a table's query makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import pyarrow as pa

from frazil.decode.columns import shortened
from frazil.decode.values_as_json import json_text
from frazil.error_classes import ErrorClass
from frazil.queries.evaluate import evaluate
from frazil.queries.program import Expression, Field, Origins, Program, Project, fields_of, origins_of
from frazil.schema.arrow import Bools, Records, Rows
from frazil.stages.findings import QueriedRows, StageFinding, are_any
from frazil.stages.stage import RowCondition, TableStage

if TYPE_CHECKING:
    from frazil.stages.expect_settings import ExpectSpec

_REMEDY = "let Spark compute it: make it a column, `select *, … as NAME from records`, and expect that"
_OUTCOMES: dict[str, Literal["row", "drop", "refuse"]] = {"drop": "drop", "dead_letter": "refuse", "stop": "refuse"}


@dataclass(frozen=True)
class Expectation:
    """A condition that the rows of a table are expected to meet."""

    #: Its name in the pipeline file.
    name: str
    #: The condition as the pipeline file has it.
    text: str
    #: What becomes of a record with a row that does not meet it.
    outcome: Literal["row", "drop", "refuse"]


@dataclass(frozen=True)
class ExpectStage(TableStage):
    """See TableStage."""

    expectations: tuple[Expectation, ...]

    @classmethod
    def make(cls, _name: str, settings: ExpectSpec) -> Self | None:
        """Returns the stage of a table with these settings; None where none of its rows is judged."""
        # A share is judged when all tasks have reported.
        expectations = tuple(
            Expectation(spec.name, spec.that, _OUTCOMES.get(spec.action, "row") if spec.at_most is None else "row")
            for spec in settings.expect
            if spec.is_of_rows
        )
        return cls(expectations) if expectations else None

    def conditions(self) -> Sequence[RowCondition]:
        """See TableStage."""
        return [RowCondition(each.name, each.text, f"expect.{each.name}", remedy=_REMEDY) for each in self.expectations]

    def judge(self, rows: QueriedRows) -> Iterator[StageFinding]:
        """Yields the expectations that records do not meet: the condition is not true, or fails, for a row of theirs."""
        conditions = tuple((each.name, dict(rows.program.conditions)[each.name]) for each in self.expectations)
        columns = {field.name: column for field, column in zip(rows.program.output, rows.columns, strict=True)}
        program = Program((Project(conditions),), tuple(Field(name, pa.bool_()) for name, _ in conditions))
        results = evaluate(program, columns, rows.records.size, "null").columns
        for expectation, (_, condition), result in zip(self.expectations, conditions, results, strict=True):
            is_unmet = ~np.asarray(result.fill_null(False)) & ~_unjudged(rows, condition)
            if is_unmet.any():
                yield _finding(expectation, condition, rows, columns, np.flatnonzero(is_unmet))


@cache
def _origins(program: Program) -> Origins:
    return origins_of(program)


def _unjudged(rows: QueriedRows, condition: Expression) -> Bools:
    """Returns which rows lack a value that the condition is about."""
    columns = _origins(rows.program).columns if rows.unsent else {}
    names = {name for column in fields_of(condition) & columns.keys() for name in columns[column]}
    return are_any((rows.unsent[name] for name in names & rows.unsent.keys()), rows.records.size)


def _finding(
    expectation: Expectation, condition: Expression, rows: QueriedRows, columns: Records, unmet: Rows
) -> StageFinding:
    """Returns the records of the rows `unmet`, int64 of shape (n_unmet,)."""
    records, first = np.unique(rows.records[unmet], return_index=True)
    explained = slice(None) if expectation.outcome == "refuse" else slice(1)
    names = sorted(fields_of(condition))
    reasons = {}
    for record, row in zip(records[explained].tolist(), unmet[first[explained]].tolist(), strict=True):
        values = ", ".join(f"{name} = {shortened(json_text(columns[name][row]))}" for name in names)
        text = f"the record does not meet {expectation.name} ({expectation.text})"
        reasons[record] = f"{text}: {values}" if values else text
    mask = np.zeros(rows.count, np.bool_)
    mask[records] = True
    return StageFinding(expectation.name, mask, reasons, ErrorClass.FAILED_EXPECTATION, expectation.outcome)
