"""The changes that a table's query makes of changes of its records.

A row is what the query makes of it. In an upsert table a row that the query drops is no row any more: its change deletes
the row of its key. A delete needs only the columns of the key, which the query must make from the key of the records
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.cdc.envelope import unsent_names
from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.process.evaluate import Processed
from frazil.process.program import Filter, Lookup, Origins, Program, fields_of, origins_of
from frazil.rows.protected import without_values
from frazil.rows.query_rows import (
    are_any,
    dropped_by,
    input_columns,
    mismatches_of,
    refuse_unmet,
    run,
    spark_values,
    table_columns,
)
from frazil.rows.storable import refuse_unstorable
from frazil.schema.arrow import Bools, Ints, Records, Rows, pick, spread_mask
from frazil.upsert.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.upsert.records.read_changes import read_checked, without_ordered
from frazil.write.target import TableTarget

_NO_KEY = "the query makes no value of the key column"
_NO_ORDER = "the query makes no value of the column {}, which orders the changes"
_NOT_SENT = "the change does not have the value of {}, which {} is made from"


def read_upserts(
    target: TableTarget, topic: str, records: Records, limit: int, of_source: Changes | None = None
) -> Changes:
    """Returns the changes of an upsert table in records of one topic, those that its query makes. A record without a key,
    or that no table could store, is a bad record. of_source: the changes of the table's `source`, where they are known.
    """
    if target.source is None:
        changes = read_checked(target, topic, records, limit)
    else:
        found = of_source or read_upserts(target.source, topic, records, limit)
        changes = query_changes(target, found, records, limit)
    near = refuse_unstorable(target, records, changes.decoded, changes, limit)
    return replace(changes, decoded=without_values(target, near))


def query_changes(target: TableTarget, changes: Changes, records: Records, limit: int) -> Changes:
    """Returns the changes of the table; the given ones while the records need a change of their own schema first.

    changes: of the table's `source`. limit: the number of mismatches that are kept.
    """
    source, program, found = target.source, target.program, changes.decoded
    assert source is not None
    if program is None or found.requested_fields or found.made_optional or found.missing or changes.key_columns:
        return changes
    metadata = {name: records[name] for name, _ in source.metadata if name in records} or {"value": records["value"]}
    own = pick(metadata, changes.records)
    columns = input_columns(source, changes.columns, own, changes.own) | pick(
        spark_values(target, records), changes.records
    )
    is_good = ~found.refused[changes.records]
    has_row = is_good & (changes.ops == UPSERT) & ~_are_marked(changes)
    origins, unsent = _origins(program), _unsent(source, changes)
    mismatches = _refuse_unsent(origins, unsent, changes, has_row)
    refused = found.refused.copy()
    refused[[one.row for one in mismatches]] = True
    rows = np.flatnonzero(has_row & ~refused[changes.records])
    made = run(target, program, pick(columns, rows), rows.size, _unjudged(program, unsent, rows))
    places, owner = rows[made.parents], changes.records[rows]
    converted, conversion = table_columns(target, program, made.columns, places.size, limit)
    mismatches += mismatches_of(made.failures, owner, limit)
    mismatches += [replace(one, row=int(changes.records[places[one.row]])) for one in conversion.mismatches]
    refused[changes.records[rows[made.failed]]] = True
    refused[changes.records[places[conversion.refused]]] = True
    unmet = [one.of_records(owner, refused.size) for one in made.unmet]
    mismatches += refuse_unmet(unmet, refused, limit)
    taken = dropped_by(unmet)
    is_taken = are_any(taken.values(), refused.size)
    shaped = replace(
        changes,
        unavailable=_unavailable(target, origins, unsent),
        ignored={**changes.ignored, **_dropped(made, owner, refused.size), **taken},
        unmet=unmet,
    )
    if target.changes is None:
        moved = _moved(target, shaped, converted, places).only(~is_taken[changes.records[places]])
        return _refusing(moved, refused, mismatches, limit)
    spread = np.full(changes.ops.size, -1, np.int64)
    spread[places] = np.arange(places.size)
    others = np.flatnonzero((spread < 0) & (changes.ops != TRUNCATE))
    shaped = replace(shaped, columns=[column.take(pa.array(spread, mask=spread < 0)) for column in converted])
    shaped = _with_keys(target, program, shaped, pick(columns, others), others)
    shaped = replace(shaped, old_keys=_old_keys(target, program, columns, changes))
    shaped = replace(shaped, order=_order(target, shaped, has_row))
    is_dropped = has_row & (spread < 0) & ~refused[changes.records]
    # A record that an expectation drops changes nothing: the row of its key stays.
    shaped = _keeping_marked(target, _deleting(target, shaped, is_dropped, records["timestamp"]))
    shaped = shaped.only(~is_taken[changes.records])
    mismatches += _without_key(target, shaped, refused) + _without_order(target, shaped, refused)
    return _refusing(shaped, refused, mismatches, limit)


def _moved(target: TableTarget, changes: Changes, columns: list[pa.Array], places: Ints) -> Changes:
    """Returns the changes at these places with the columns that the query makes of them."""
    moved = replace(
        replace(changes, columns=[]).take(places, changes.ops[places], changes.records[places]), columns=columns
    )
    own = {"unavailable": unsent_names(target, moved)} if "unavailable" in moved.own else {}
    return replace(moved, own={**moved.own, **own})


@cache
def _origins(program: Program) -> Origins:
    return origins_of(program)


def _are_marked(changes: Changes) -> Bools:
    """Returns which changes mark their row as deleted, bool of shape (n_changes,)."""
    marks = changes.own.get("deleted")
    found: Bools = np.zeros(changes.ops.size, np.bool_) if marks is None else np.asarray(marks.fill_null(False))
    return found


def _unsent(source: TableTarget, changes: Changes) -> dict[str, Bools]:
    """Returns by field of the records which changes do not have its value."""
    return {source.fields[n].name: mask for n, mask in changes.unavailable.items() if mask.any()}


def _refuse_unsent(origins: Origins, unsent: Mapping[str, Bools], changes: Changes, has_row: Bools) -> list[Mismatch]:
    """Refuses changes without a value that a condition needs, or a column beside values that were sent: what the column
    would be can then be neither computed nor taken from the row that is replaced.
    """
    found: list[Mismatch] = []
    needed = {"": origins.rows, **origins.columns}
    for column, names in needed.items() if unsent else ():
        masks = [unsent[name] for name in names if name in unsent]
        if not masks:
            continue
        lacks = np.logical_or.reduce(masks) & has_row
        if column and len(masks) == len(names):
            lacks &= ~np.logical_and.reduce(masks)
        first = min(name for name in names if name in unsent)
        reason = _NOT_SENT.format(first, f"the column {column}" if column else "the query's condition")
        found += [
            Mismatch(row, column, ErrorClass.UNAVAILABLE_VALUE, reason) for row in changes.records[lacks].tolist()
        ]
    return found


def _unjudged(program: Program, unsent: Mapping[str, Bools], rows: Rows) -> dict[str, Bools]:
    """Returns by expectation which of the rows lack a value that it names: the row has the value of the one it replaces,
    which was judged when it came.
    """
    found = {}
    for expectation in program.expectations if unsent else ():
        names = frozenset().union(*(_origins(program).columns[one] for one in fields_of(expectation.condition)))
        masks = [unsent[name][rows] for name in names if name in unsent]
        if masks:
            found[expectation.name] = np.logical_or.reduce(masks)
    return found


def _dropped(made: Processed, owner: Rows, count: int) -> dict[str, Bools]:
    """Returns which records have no row left, by the name of what dropped the first of their rows."""
    is_done = spread_mask(np.ones(made.parents.size, np.bool_), owner[made.parents], count)
    found = {}
    for name, mask in made.dropped.items():
        found[name] = spread_mask(mask, owner, count) & ~is_done
        is_done = is_done | found[name]
    return found


def _unavailable(target: TableTarget, origins: Origins, unsent: Mapping[str, Bools]) -> dict[int, Bools]:
    """Returns by index of the table's column the changes that keep the value of the row that they replace."""
    found = {}
    for n, field in enumerate(target.fields):
        names = origins.columns.get(field.name, frozenset())
        if names and names <= unsent.keys():
            found[n] = np.logical_and.reduce([unsent[name] for name in names])
    return found


def _keys_alone(program: Program) -> Program:
    """Returns the program without conditions: a row that it would drop has a key all the same."""
    stages = (
        replace(stage, on_miss="null") if isinstance(stage, Lookup) else stage
        for stage in program.stages
        if not isinstance(stage, Filter)
    )
    return Program(tuple(stages), program.output)


def _with_keys(target: TableTarget, program: Program, changes: Changes, columns: Records, rows: Rows) -> Changes:
    """Returns the changes with the columns of `rows`, which have no row, that identify and order rows. columns: the
    records' columns of these.
    """
    if not rows.size:
        return changes
    made = run(replace(target, fails_to_null=True), _keys_alone(program), columns, rows.size)
    converted, _ = table_columns(target, program, made.columns, rows.size, 0)
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
    count = changes.ops.size
    made = run(replace(target, fails_to_null=True), _keys_alone(program), before, count)
    converted, _ = table_columns(target, program, made.columns, count, 0)
    by_name = {field.name: column for field, column in zip(target.fields, converted, strict=True)}
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
    marked, keys = _are_marked(changes), _key_names(target)
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


def _refusing(changes: Changes, refused: Bools, mismatches: list[Mismatch], limit: int) -> Changes:
    return replace(changes, decoded=changes.decoded.refusing(refused, mismatches, limit)).without_refused()
