"""Bad records that are none of the table's: a condition of its query drops them by fields that can be read.

A topic of many kinds of records has fields of one name that differ between the kinds. The fields that the condition names
decide whether the table takes a record, whatever is wrong with the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from pyiceberg.schema import Schema

from frazil.decode.columns import Mismatch, first_mismatches
from frazil.decode.settings import NO_EVOLUTION
from frazil.queries.evaluate import evaluate
from frazil.queries.program import BY_SPARK, Filter, Operator, Program, Project, calls_in, fields_of
from frazil.rows.decoder import has_value
from frazil.rows.project import decode_rows
from frazil.rows.query import input_columns, run_query
from frazil.schema.arrow import Rows, pick, spread_mask
from frazil.stages.changes import Changes, ReadRecords, appended
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class _Condition:
    """The first condition of a query, where it is one over fields of the records."""

    #: What dropped rows are counted as.
    name: str
    #: The operators that decide it, without output.
    program: Program
    #: The columns of the records that these use.
    fields: frozenset[str]


def _first_condition(program: Program | None) -> _Condition | None:
    """Returns the first condition of a query; None where it has none, where it comes behind rows of lists or look-ups, and
    where Spark computes it, from records that could be read.
    """
    if program is None:
        return None
    place = next((n for n, operator in enumerate(program.operators) if not isinstance(operator, Project)), None)
    last = program.operators[place] if place is not None else None
    if not isinstance(last, Filter):
        return None
    names, kept, operators = fields_of(last.condition), [last.condition], list[Operator]([last])
    for operator in reversed(program.operators[:place]):
        assert isinstance(operator, Project)
        columns = tuple(column for column in operator.columns if column[0] in names)
        expressions = [expression for _, expression in columns]
        names, kept = set().union(*map(fields_of, expressions)), [*kept, *expressions]
        operators.insert(0, Project(columns))
    if any(call.function == BY_SPARK for expression in kept for call in calls_in(expression)):
        return None
    return _Condition(last.name, Program(tuple(operators), ()), frozenset(names))


def drop_unread(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the rows of a query with the refused records dropped that the query's first condition drops; those too for
    which only another expression fails. Changes, in an envelope or of a key, are not dropped unread.
    """
    source, decoded, records = target.source, changes.decoded, read.columns
    rows = np.flatnonzero(decoded.refused)
    if source is None or source.envelope is not None or target.changes is not None or not rows.size:
        return changes
    condition = _first_condition(target.program)
    if condition is None or changes.must_read_again:
        return changes
    rows = rows[has_value(source.reading, pick(records, rows)["value"])]
    if not rows.size:
        return changes
    some, narrow = pick(records, rows), _only(source, condition.fields)
    decided = decode_rows(narrow, some, 0)
    columns = input_columns(narrow, decided.columns, some, {})
    drops = evaluate(condition.program, columns, rows.size).dropped.get(condition.name, np.zeros(rows.size, np.bool_))
    dropped = spread_mask(drops & ~decided.refused, rows, decoded.refused.size)
    if not dropped.any():
        return changes
    left = decoded.refused & ~dropped
    mismatches = [mismatch for mismatch in decoded.mismatches if not dropped[mismatch.row]]
    # Those of dropped records may have left no place for theirs.
    unexplained = np.setdiff1d(np.flatnonzero(left)[: read.limit], [mismatch.row for mismatch in mismatches])
    more = _mismatches(target, source, read, unexplained.astype(np.int32)) if unexplained.size else []
    dropped_before = changes.ignored.get(condition.name, np.False_)
    return replace(
        changes,
        decoded=replace(decoded, refused=left, mismatches=first_mismatches([*mismatches, *more], read.limit)),
        ignored={**changes.ignored, condition.name: dropped_before | dropped},
    )


def _mismatches(target: TableTarget, source: TableTarget, read: ReadRecords, rows: Rows) -> list[Mismatch]:
    """Returns why these records cannot become rows."""
    some = ReadRecords(read.topic, pick(read.columns, rows), rows.size)
    again = run_query(target, some, appended(decode_rows(source, some.columns, some.limit)))
    return [replace(mismatch, row=int(rows[mismatch.row])) for mismatch in again.decoded.mismatches]


def _only(source: TableTarget, names: frozenset[str]) -> TableTarget:
    """Returns the table with these columns of the records alone."""
    schema = Schema(*(field for field in source.schema.fields if field.name in names))
    reading = replace(source.reading, unknown_fields="drop", evolution=NO_EVOLUTION, on_bad="skip", keys=())
    return replace(source, reading=reading).with_schema(schema)
