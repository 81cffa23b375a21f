"""A table's query as a step of a task: the changes of its `source`, which the records alone would make, become its own.

Changes of an upsert table need keys and order also where the query makes no row of them, and rows that it drops are deletes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from frazil.cdc.envelope import unsent_names
from frazil.decode.cast import convert_struct
from frazil.decode.columns import Mismatch
from frazil.decode.conversion import Conversion, ValuePlace
from frazil.decode.settings import NO_EVOLUTION, OWN_TYPES, Reading
from frazil.error_classes import ErrorClass
from frazil.queries.evaluate import OnError, Processed, evaluate
from frazil.queries.program import Filter, Origins, Program, one_row_of, origins_of
from frazil.queries.references import references_of
from frazil.schema.arrow import Bools, Ints, Records, Rows, arrow_type, as_written, iceberg_type, pick, spread_mask
from frazil.stages.changes import DELETE, UPSERT, Carried, Changes, ReadRecords
from frazil.stages.findings import QueriedRows, are_any, dropped_by, refuse_found
from frazil.types import EVENT_TIME, FIRST_PLACEHOLDER_ID
from frazil.upsert.records.read_changes import without_ordered
from frazil.write.target import METADATA_TYPES, TableTarget

_BY_NAME = Reading(unknown_fields="drop", evolution=NO_EVOLUTION)
_NOT_SENT = "the change does not have the value of {}, which {} is made from"
_NO_KEY = "the query makes no value of the key column"
_NO_ORDER = "the query makes no value of the column {}, which orders the changes"


def run_query(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes of the table; the given ones while the records need a change of their own schema first.

    changes: of the table's `source`.
    """
    source, program, limit = target.source, target.program, read.limit
    if source is None or program is None or changes.must_read_again:
        return changes
    columns = query_input(source, read.columns, changes) | pick(_spark_values(target, read.columns), changes.records)
    refused = changes.decoded.refused.copy()
    # Deletes have rows where they are subtracted again.
    is_retracted = target.changes is not None and target.changes.retracts
    are_rows = (changes.ops == UPSERT) | ((changes.ops == DELETE) & is_retracted)
    has_row = ~refused[changes.records] & are_rows & ~are_marked(changes)
    unsent = {source.fields[n].name: mask for n, mask in changes.unavailable.items() if mask.any()}
    mismatches = _refuse_unsent(program, unsent, changes, has_row)
    refused[[mismatch.row for mismatch in mismatches]] = True
    rows = np.flatnonzero(has_row & ~refused[changes.records])
    result = _run(target, program, pick(columns, rows), rows.size)
    places, owner = rows[result.parents], changes.records[rows]
    converted, conversion = _table_columns(target, program, result.columns, places.size, limit)
    first = sorted(result.failures, key=lambda failure: failure.row)[:limit]
    mismatches += [Mismatch(int(owner[failure.row]), failure.column, *failure.verdict) for failure in first]
    mismatches += [
        replace(mismatch, row=int(changes.records[places[mismatch.row]])) for mismatch in conversion.mismatches
    ]
    refused[owner[result.failed]] = True
    refused[changes.records[places[conversion.refused]]] = True
    unsent_in_rows = {name: mask[places] for name, mask in unsent.items()}
    queried = QueriedRows(program, result.columns, owner[result.parents], refused.size, unsent_in_rows)
    findings = [finding for stage in target.stages for finding in stage.judge(queried)]
    mismatches += refuse_found(findings, refused, limit)
    dropped = dropped_by(findings)
    ignored = {**changes.ignored, **_without_rows(result, owner, refused.size), **dropped}
    shaped = replace(changes, unavailable=_unavailable(target, program, unsent), ignored=ignored, findings=findings)
    if target.changes is None:
        shaped = replace(shaped, columns=[]).take(places, shaped.ops[places], shaped.records[places])
        shaped = replace(shaped, columns=converted)
        if "unavailable" in shaped.own:
            shaped = replace(shaped, own={**shaped.own, "unavailable": unsent_names(target, shaped)})
    else:
        names = [field.name for field in program.output]
        times = result.columns[names.index(EVENT_TIME)] if EVENT_TIME in names else None
        made = _Made(program, columns, converted, places, has_row, refused, times)
        shaped = _identify(target, made, read.columns, shaped)
    # A record that a stage drops changes nothing: the row of its key stays.
    shaped = shaped.only(~are_any(dropped.values(), refused.size)[shaped.records])
    if target.changes is not None:
        mismatches += _without_key(target, shaped, refused) + _without_order(target, shaped, refused)
    return replace(shaped, decoded=changes.decoded.refusing(refused, mismatches, limit)).without_refused()


def query_input(source: TableTarget, records: Records, changes: Changes) -> dict[str, pa.Array]:
    """Returns the columns that a query can name, one value per change: fields of the records, and metadata."""
    metadata = {name: records[name] for name, _ in source.metadata if name in records} or {"value": records["value"]}
    return input_columns(source, changes.columns, pick(metadata, changes.records), changes.own)


@cache
def _origins(program: Program) -> Origins:
    return origins_of(program)


def _refuse_unsent(program: Program, unsent: Mapping[str, Bools], changes: Changes, has_row: Bools) -> list[Mismatch]:
    """Refuses changes without a value that a condition needs, or a column beside values that were sent: what the column
    would be can then be neither computed nor taken from the row that is replaced. unsent: by field of the records, which
    changes do not have its value.
    """
    if not unsent:
        return []
    mismatches: list[Mismatch] = []
    origins = _origins(program)
    for column, names in {"": origins.rows, **origins.columns}.items():
        masks = [unsent[name] for name in names if name in unsent]
        if not masks:
            continue
        lacks = np.logical_or.reduce(masks) & has_row
        if column and len(masks) == len(names):
            lacks &= ~np.logical_and.reduce(masks)
        first = min(name for name in names if name in unsent)
        reason = _NOT_SENT.format(first, f"the column {column}" if column else "the query's condition")
        mismatches += [
            Mismatch(row, column, ErrorClass.UNAVAILABLE_VALUE, reason) for row in changes.records[lacks].tolist()
        ]
    return mismatches


def _without_rows(result: Processed, owner: Rows, count: int) -> dict[str, Bools]:
    """Returns which records have no row left, by the name of what dropped the first of their rows."""
    is_done = spread_mask(np.ones(result.parents.size, np.bool_), owner[result.parents], count)
    dropped = {}
    for name, mask in result.dropped.items():
        dropped[name] = spread_mask(mask, owner, count) & ~is_done
        is_done = is_done | dropped[name]
    return dropped


def _unavailable(target: TableTarget, program: Program, unsent: Mapping[str, Bools]) -> dict[int, Bools]:
    """Returns by index of the table's column the changes that keep the value of the row that they replace."""
    unavailable = {}
    for n, field in enumerate(target.fields if unsent else ()):
        names = _origins(program).columns.get(field.name, frozenset())
        if names and names <= unsent.keys():
            unavailable[n] = np.logical_and.reduce([unsent[name] for name in names])
    return unavailable


def input_columns(
    source: TableTarget, columns: Iterable[pa.Array], records: Records, own: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Returns the columns that a query can name: fields of the records, and metadata. records: one value per row. own:
    by field of metadata, what the envelope provides.
    """
    # A record's own names of members are not those of the table with `column_case`, and stages find them by name.
    kinds = {arrow_field.name: arrow_field.type for arrow_field in source.arrow_schema}
    inputs = {
        field.name: column if column.type.equals(kinds[field.name]) else as_written(column, kinds[field.name])
        for field, column in zip(source.fields, columns, strict=True)
    }
    for field, column in source.metadata:
        values = own.get(field, records.get(field))
        kind = arrow_type({**METADATA_TYPES, **OWN_TYPES}[field])
        count = len(next(iter(records.values())))
        inputs[column] = pa.nulls(count, kind) if values is None else as_written(values, kind)
    return inputs


def _spark_values(target: TableTarget, records: Records) -> dict[str, pa.Array]:
    """Returns the columns of values that Spark has made of some records, for the program; failures of all where Spark was
    not asked. records: one value per row.
    """
    count = len(next(iter(records.values())))
    part = target.spark_part
    return {
        field.name: as_written(records[field.name], field.type)
        if field.name in records
        else pa.nulls(count, field.type)
        for field in (part.values if part is not None else ())
    }


def _run(target: TableTarget, program: Program, columns: Records, count: int) -> Processed:
    """Evaluates a program as the table's settings say."""
    assert target.query is not None
    on_error: OnError = "null" if target.query.fails_to_null else "dead_letter"
    return evaluate(program, columns, count, on_error, references_of(target.query.lookups))


def _table_columns(
    target: TableTarget, program: Program, result_columns: Sequence[pa.Array], count: int, limit: int
) -> tuple[list[pa.Array], Conversion]:
    """Returns the columns of the table, null where the query has no such column, and the values that do not fit.

    result_columns: one array per column of the program's result, with `count` values.
    """
    conversion = Conversion(_BY_NAME, "", count, limit)
    place = ValuePlace((), np.arange(count, dtype=np.int32), np.ones(count, np.bool_))
    written = _result_type(program, target.schema_json)
    return convert_struct(conversion, written, result_columns, target.fields, place), conversion


@cache
def _result_type(program: Program, schema_json: str) -> StructType:
    """Returns the columns of a query's result as Iceberg's fields, with placeholders for ids. schema_json: of the table; a
    column that has the same Arrow type there has its Iceberg type: Arrow has no type of its own for a UUID.
    """
    table = {field.name: field.field_type for field in Schema.model_validate_json(schema_json).fields}
    ids = itertools.count(FIRST_PLACEHOLDER_ID)
    fields = []
    for column in program.output:
        table_type = table.get(column.name)
        is_same = table_type is not None and arrow_type(table_type) == column.type
        kind = table_type if table_type is not None and is_same else iceberg_type(column.type, ids)
        fields.append(NestedField(next(ids), column.name, kind, required=False))
    return StructType(*fields)


@dataclass(frozen=True)
class _Made:
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
    #: The time of the event of each row, `(n_rows,)`; None where rows have none.
    times: pa.Array | None = None


def _each_with_one_row(target: TableTarget, result: _Made, changes: Changes) -> tuple[_Made, Changes]:
    """Returns changes of a table that counts every row of a record, once for each of their rows."""
    counts = np.bincount(result.places, minlength=changes.ops.size)
    if target.changes is None or not target.changes.counts_every_row or counts.max(initial=0) <= 1:
        return result, changes
    at = np.repeat(np.arange(counts.size), np.maximum(counts, 1))
    places, has_row = np.flatnonzero(counts[at]), result.has_row[at]
    result = replace(result, columns=pick(result.columns, at), places=places, has_row=has_row)
    return result, changes.take(at, changes.ops[at], changes.records[at])


def _identify(target: TableTarget, result: _Made, records: Records, changes: Changes) -> Changes:
    """Returns the changes with the rows that the query makes, and with keys and order for those that have none; deletes in
    place of the rows that it drops.
    """
    result, changes = _each_with_one_row(target, result, changes)
    spread = np.full(changes.ops.size, -1, np.int64)
    spread[result.places] = np.arange(result.places.size)
    others = np.flatnonzero((spread < 0) & changes.have_keys)
    of_rows = pa.array(spread, mask=spread < 0)
    shaped = replace(changes, columns=[column.take(of_rows) for column in result.rows])
    if result.times is not None:
        shaped = replace(shaped, own={**shaped.own, EVENT_TIME: result.times.take(of_rows)})
    shaped = _with_keys(target, result.program, shaped, pick(result.columns, others), others)
    shaped = replace(shaped, carried=_carried(target, result.program, result.columns, changes))
    shaped = replace(shaped, order=_order(target, shaped, result.has_row))
    is_dropped = result.has_row & (spread < 0) & ~result.refused[changes.records]
    if target.changes is not None and target.changes.counts_every_row:
        return shaped.only(~is_dropped)  # A record that the query drops does not count, and deletes nothing.
    return _keeping_marked(target, _deleting(target, shaped, is_dropped, records["timestamp"]))


def are_marked(changes: Changes) -> Bools:
    """Returns which changes mark their row as deleted, bool of shape (n_changes,)."""
    marks = changes.own.get("deleted")
    marked: Bools = np.zeros(changes.ops.size, np.bool_) if marks is None else np.asarray(marks.fill_null(False))
    return marked


def _key_columns(target: TableTarget, program: Program, columns: Records, count: int) -> list[pa.Array]:
    """Returns the table's columns as the query makes them of changes without a row: null where an expression fails."""
    assert target.query is not None
    # Without the conditions: a row that they would drop has a key all the same.
    operators = tuple(one_row_of(operator) for operator in program.operators if not isinstance(operator, Filter))
    keys_alone = Program(operators, program.output)
    result = evaluate(keys_alone, columns, count, "null", references=references_of(target.query.lookups))
    return _table_columns(target, program, result.columns, count, 0)[0]


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
    order_index = next((n for n, field in enumerate(target.fields) if field.name == target.changes.order_by), None)
    if order_index is None:
        return changes.order
    is_known = pa.array(has_row)
    if changes.order is not None:
        is_known = pc.or_(is_known, changes.order.is_valid())
    return pc.if_else(is_known, changes.columns[order_index], None)


def _key_names(target: TableTarget) -> list[str]:
    assert target.changes is not None
    return [path[0] for path in target.changes.paths]


def _carried(target: TableTarget, program: Program, columns: Records, changes: Changes) -> Carried | None:
    """Returns what is carried with the changes, with the keys that the query makes."""
    source = target.source
    if changes.carried is None or source is None or source.changes is None:
        return None

    def make(before: Records) -> list[pa.Array]:
        keys = _key_columns(target, program, before, changes.ops.size)
        by_name = {field.name: column for field, column in zip(target.fields, keys, strict=True)}
        return [by_name[name] for name in _key_names(target)]

    return changes.carried.in_query([path[0] for path in source.changes.paths], columns, make)


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
    keys, mismatches = _key_names(target), list[Mismatch]()
    for field, column in zip(target.fields, changes.columns, strict=True):
        if field.name in keys:
            lacks = np.asarray(column.is_null()) & changes.have_keys & ~refused[changes.records]
            mismatches += [
                Mismatch(row, field.name, ErrorClass.NO_KEY, f"{_NO_KEY} {field.name}")
                for row in changes.records[lacks].tolist()
            ]
            refused[changes.records[lacks]] = True
    return mismatches


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
