"""Bad records that are none of the table's: a condition of its query drops them by fields that can be read.

A topic of many kinds of records has fields of one name that differ between the kinds. The fields that the condition names
decide whether the table takes a record, whatever is wrong with the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from pyiceberg.schema import Schema

from frazil.decode.columns import Decoded, Mismatch, first_mismatches
from frazil.process.evaluate import evaluate
from frazil.process.program import BY_SPARK, Filter, Program, Project, Stage, calls_in, fields_of
from frazil.rows.decoder import has_value
from frazil.rows.project import decode_rows
from frazil.rows.query_rows import QueryRows, input_columns, query_rows
from frazil.schema.arrow import Records, Rows, pick, spread_mask
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class _Condition:
    """The first condition of a query, where it is one over fields of the records."""

    #: What dropped rows are counted as.
    name: str
    #: The stages that decide it, without output.
    program: Program
    #: The columns of the records that these use.
    fields: frozenset[str]


def _first_condition(program: Program | None) -> _Condition | None:
    """Returns the first condition of a query; None where it has none, where it comes behind rows of lists or look-ups, and
    where Spark computes it, from records that could be read.
    """
    if program is None:
        return None
    place = next((n for n, stage in enumerate(program.stages) if not isinstance(stage, Project)), None)
    last = program.stages[place] if place is not None else None
    if not isinstance(last, Filter):
        return None
    names, kept, stages = fields_of(last.condition), [last.condition], list[Stage]([last])
    for stage in reversed(program.stages[:place]):
        assert isinstance(stage, Project)
        columns = tuple(column for column in stage.columns if column[0] in names)
        expressions = [expression for _, expression in columns]
        names, kept = set().union(*map(fields_of, expressions)), [*kept, *expressions]
        stages.insert(0, Project(columns))
    if any(call.function == BY_SPARK for expression in kept for call in calls_in(expression)):
        return None
    return _Condition(last.name, Program(tuple(stages), ()), frozenset(names))


def drop_unread(
    target: TableTarget, decoded: Decoded, made: QueryRows | None, records: Records, limit: int
) -> tuple[Decoded, QueryRows | None]:
    """Returns the results of `query_rows` with the refused records dropped that the query's first condition drops; those
    too for which only another expression fails. limit: the number of mismatches that are kept.
    """
    source, condition = target.source, _first_condition(target.program)
    rows = np.flatnonzero(decoded.refused)
    if source is None or condition is None or made is None or not rows.size:
        return decoded, made
    rows = rows[has_value(source.reading, pick(records, rows)["value"])]
    if not rows.size:
        return decoded, made
    some, narrow = pick(records, rows), _only(source, condition.fields)
    read = decode_rows(narrow, some, 0)
    columns = input_columns(narrow, read.columns, some, {})
    found = evaluate(condition.program, columns, rows.size).dropped.get(condition.name, np.zeros(rows.size, np.bool_))
    dropped = spread_mask(found & ~read.refused, rows, decoded.refused.size)
    if not dropped.any():
        return decoded, made
    left = decoded.refused & ~dropped
    known = [one for one in decoded.mismatches if not dropped[one.row]]
    # Those of dropped records may have left no place for theirs.
    unexplained = np.setdiff1d(np.flatnonzero(left)[:limit], [one.row for one in known])
    more = _mismatches(target, source, records, unexplained.astype(np.int32)) if unexplained.size else []
    dropped_before = made.dropped.get(condition.name, np.False_)
    return (
        replace(decoded, refused=left, mismatches=first_mismatches([*known, *more], limit)),
        replace(made, dropped={**made.dropped, condition.name: dropped_before | dropped}),
    )


def _mismatches(target: TableTarget, source: TableTarget, records: Records, rows: Rows) -> list[Mismatch]:
    """Returns why these records cannot become rows."""
    some = pick(records, rows)
    again, _ = query_rows(target, decode_rows(source, some, rows.size), some, None, rows.size)
    return [replace(one, row=int(rows[one.row])) for one in again.mismatches]


def _only(source: TableTarget, names: frozenset[str]) -> TableTarget:
    """Returns the table with these columns of the records alone."""
    schema = Schema(*(field for field in source.schema.fields if field.name in names))
    reading = replace(source.reading, unknown_fields="drop", rejected=(), may_widen=False, on_bad="skip", keys=())
    return replace(source, reading=reading).with_schema(schema)
