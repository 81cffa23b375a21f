"""Keys, order and deletes of an upsert table with a query: what the query makes of them, also where it makes no row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.process.evaluate import evaluate
from frazil.process.program import Filter, Lookup, Program
from frazil.process.references import references_of
from frazil.rows.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.rows.query_columns import table_columns
from frazil.schema.arrow import Bools, Ints, Records, Rows, pick
from frazil.upsert.records.read_changes import without_ordered
from frazil.write.target import TableTarget

_NO_KEY = "the query makes no value of the key column"
_NO_ORDER = "the query makes no value of the column {}, which orders the changes"


@dataclass(frozen=True)
class Made:
    """What a query has made of changes. Arrays have the shape `(n_changes,)` unless they say otherwise."""

    program: Program
    #: The input of the query, one value per change.
    columns: Records
    #: The columns of the table, one value for each row that the query makes.
    rows: list[pa.Array]
    #: The change of each row, `(n_rows,)`.
    places: Ints
    #: Which changes have a row after them.
    has_row: Bools
    #: Which records are refused, `(n_records,)`.
    refused: Bools


def identify(target: TableTarget, made: Made, records: Records, changes: Changes) -> Changes:
    """Returns the changes with the rows that the query makes, and with keys and order for those that have none; deletes in
    place of the rows that it drops.
    """
    spread = np.full(changes.ops.size, -1, np.int64)
    spread[made.places] = np.arange(made.places.size)
    others = np.flatnonzero((spread < 0) & (changes.ops != TRUNCATE))
    shaped = replace(changes, columns=[column.take(pa.array(spread, mask=spread < 0)) for column in made.rows])
    shaped = _with_keys(target, made.program, shaped, pick(made.columns, others), others)
    shaped = replace(shaped, old_keys=_old_keys(target, made.program, made.columns, changes))
    shaped = replace(shaped, order=_order(target, shaped, made.has_row))
    is_dropped = made.has_row & (spread < 0) & ~made.refused[changes.records]
    return _keeping_marked(target, _deleting(target, shaped, is_dropped, records["timestamp"]))


def refuse_unidentified(target: TableTarget, changes: Changes, refused: Bools) -> list[Mismatch]:
    """Marks the records in `refused` whose changes lack a key or an ordering value; returns their mismatches."""
    return _without_key(target, changes, refused) + _without_order(target, changes, refused)


def are_marked(changes: Changes) -> Bools:
    """Returns which changes mark their row as deleted, bool of shape (n_changes,)."""
    marks = changes.own.get("deleted")
    found: Bools = np.zeros(changes.ops.size, np.bool_) if marks is None else np.asarray(marks.fill_null(False))
    return found


def _keys_alone(program: Program) -> Program:
    """Returns the program without conditions: a row that it would drop has a key all the same."""
    stages = (
        replace(stage, on_miss="null") if isinstance(stage, Lookup) else stage
        for stage in program.stages
        if not isinstance(stage, Filter)
    )
    return Program(tuple(stages), program.output)


def _key_columns(target: TableTarget, program: Program, columns: Records, count: int) -> list[pa.Array]:
    """Returns the table's columns as the query makes them of changes without a row: null where an expression fails."""
    assert target.query is not None
    made = evaluate(_keys_alone(program), columns, count, "null", references=references_of(target.query.lookups))
    return table_columns(target, program, made.columns, count, 0)[0]


def _with_keys(target: TableTarget, program: Program, changes: Changes, columns: Records, rows: Rows) -> Changes:
    """Returns the changes with the columns of `rows`, which have no row, that identify and order rows. columns: the
    records' columns of these.
    """
    if not rows.size:
        return changes
    converted = _key_columns(target, program, columns, rows.size)
    places = np.arange(changes.ops.size)
    places[rows] = np.arange(rows.size) + changes.ops.size
    assert target.changes is not None
    needed = (*_key_names(target), target.changes.order_by)
    return replace(
        changes,
        columns=[
            pa.concat_arrays([column, other]).take(pa.array(places)) if field.name in needed else column
            for field, column, other in zip(target.fields, changes.columns, converted, strict=True)
        ],
    )


def _order(target: TableTarget, changes: Changes, has_row: Bools) -> pa.Array | None:
    """Returns the ordering value of each change, as the query makes it; of metadata as the record has it. has_row: the
    changes with a row after them. Any other change has no ordering value where its record has none, whatever the query
    makes of nulls.
    """
    assert target.changes is not None
    made = next((n for n, field in enumerate(target.fields) if field.name == target.changes.order_by), None)
    if made is None:
        return changes.order
    is_known = pa.array(has_row)
    if changes.order is not None:
        is_known = pc.or_(is_known, changes.order.is_valid())
    return pc.if_else(is_known, changes.columns[made], None)


def _key_names(target: TableTarget) -> list[str]:
    assert target.changes is not None
    return [path[0] for path in target.changes.paths]


def _old_keys(target: TableTarget, program: Program, columns: Records, changes: Changes) -> list[pa.Array] | None:
    """Returns the old keys as the query makes them; null where the key is unchanged."""
    source = target.source
    if changes.old_keys is None or source is None or source.changes is None:
        return None
    names = [path[0] for path in source.changes.paths]
    old = dict(zip(names, changes.old_keys, strict=True))
    before = {name: pc.coalesce(old[name], column) if name in old else column for name, column in columns.items()}
    is_changed = np.logical_or.reduce([np.asarray(key.is_valid()) for key in changes.old_keys])
    made = _key_columns(target, program, before, changes.ops.size)
    by_name = {field.name: column for field, column in zip(target.fields, made, strict=True)}
    mask = pa.array(is_changed)
    return [pc.if_else(mask, by_name[name], pa.scalar(None, by_name[name].type)) for name in _key_names(target)]


def _deleting(target: TableTarget, changes: Changes, is_dropped: Bools, times_of_records: pa.Array) -> Changes:
    """Returns the changes with deletes in place of the rows that the query drops."""
    if not is_dropped.any():
        return changes
    assert target.changes is not None
    if not target.changes.marks_deletes:
        return replace(changes, ops=np.where(is_dropped, DELETE, changes.ops).astype(np.int8))
    mask, times = pa.array(is_dropped), changes.own["deleted_at"]
    of_records = times_of_records.take(pa.array(changes.records)).cast(times.type)
    now = of_records if changes.times is None else pc.coalesce(changes.times, of_records)
    own = {"deleted": pc.if_else(mask, True, changes.own["deleted"]), "deleted_at": pc.if_else(mask, now, times)}
    return replace(changes, own={**changes.own, **own})


def _keeping_marked(target: TableTarget, changes: Changes) -> Changes:
    """Returns the changes, of which those that mark a row as deleted keep its values, whatever these are made of."""
    marked, keys = are_marked(changes), _key_names(target)
    if not marked.any():
        return changes
    unavailable = {
        n: changes.unavailable.get(n, np.zeros(marked.size, np.bool_)) | marked
        for n, field in enumerate(target.fields)
        if field.name not in keys
    }
    changes = replace(changes, unavailable=unavailable)
    return replace(changes, unavailable=without_ordered(target, changes, changes.order))


def _without_key(target: TableTarget, changes: Changes, refused: Bools) -> list[Mismatch]:
    """Refuses the records of changes whose key column has no value."""
    keys, found = _key_names(target), list[Mismatch]()
    for field, column in zip(target.fields, changes.columns, strict=True):
        if field.name in keys:
            lacks = np.asarray(column.is_null()) & (changes.ops != TRUNCATE) & ~refused[changes.records]
            found += [
                Mismatch(row, field.name, ErrorClass.NO_KEY, f"{_NO_KEY} {field.name}")
                for row in changes.records[lacks].tolist()
            ]
            refused[changes.records[lacks]] = True
    return found


def _without_order(target: TableTarget, changes: Changes, refused: Bools) -> list[Mismatch]:
    """Refuses the records of rows without an ordering value."""
    assert target.changes is not None
    name = target.changes.order_by
    if not name or changes.order is None:
        return []
    lacks = np.asarray(changes.order.is_null()) & (changes.ops == UPSERT) & ~refused[changes.records]
    refused[changes.records[lacks]] = True
    return [
        Mismatch(row, name, ErrorClass.NO_ORDER_VALUE, _NO_ORDER.format(name))
        for row in changes.records[lacks].tolist()
    ]
