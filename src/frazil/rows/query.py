"""A table's query as a stage: the changes of its `source`, the table that the records alone would make, become its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa

from frazil.cdc.envelope import unsent_names
from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.process.evaluate import LOOKUP_MISS, Failure, Processed
from frazil.process.program import Origins, Program, fields_of, origins_of
from frazil.rows.changes import UPSERT, Changes, ReadRecords
from frazil.rows.expectations import are_any, dropped_by, refuse_unmet
from frazil.rows.query_columns import input_columns, run, spark_values, table_columns
from frazil.schema.arrow import Bools, Records, Rows, pick, spread_mask
from frazil.upsert.query_keys import Made, are_marked, identify, refuse_unidentified
from frazil.write.target import TableTarget

_NOT_SENT = "the change does not have the value of {}, which {} is made from"


def run_query(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes of the table; the given ones while the records need a change of their own schema first.

    changes: of the table's `source`.
    """
    source, program, limit = target.source, target.program, read.limit
    if source is None or program is None or changes.must_read_again:
        return changes
    columns = query_input(source, read.columns, changes) | pick(spark_values(target, read.columns), changes.records)
    refused = changes.decoded.refused.copy()
    has_row = ~refused[changes.records] & (changes.ops == UPSERT) & ~are_marked(changes)
    unsent = {source.fields[n].name: mask for n, mask in changes.unavailable.items() if mask.any()}
    mismatches = _refuse_unsent(program, unsent, changes, has_row)
    refused[[one.row for one in mismatches]] = True
    rows = np.flatnonzero(has_row & ~refused[changes.records])
    made = run(target, program, pick(columns, rows), rows.size, _unjudged(program, unsent, rows))
    places, owner = rows[made.parents], changes.records[rows]
    converted, conversion = table_columns(target, program, made.columns, places.size, limit)
    mismatches += _mismatches(made.failures, owner, limit)
    mismatches += [replace(one, row=int(changes.records[places[one.row]])) for one in conversion.mismatches]
    refused[owner[made.failed]] = True
    refused[changes.records[places[conversion.refused]]] = True
    unmet = [one.of_records(owner, refused.size) for one in made.unmet]
    mismatches += refuse_unmet(unmet, refused, limit)
    dropped = dropped_by(unmet)
    ignored = {**changes.ignored, **_without_rows(made, owner, refused.size), **dropped}
    shaped = replace(changes, unavailable=_unavailable(target, program, unsent), ignored=ignored, unmet=unmet)
    if target.changes is None:
        shaped = replace(shaped, columns=[]).take(places, shaped.ops[places], shaped.records[places])
        shaped = replace(shaped, columns=converted)
        if "unavailable" in shaped.own:
            shaped = replace(shaped, own={**shaped.own, "unavailable": unsent_names(target, shaped)})
    else:
        shaped = identify(target, Made(program, columns, converted, places, has_row, refused), read.columns, shaped)
    # A record that an expectation drops changes nothing: the row of its key stays.
    shaped = shaped.only(~are_any(dropped.values(), refused.size)[shaped.records])
    if target.changes is not None:
        mismatches += refuse_unidentified(target, shaped, refused)
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
    found: list[Mismatch] = []
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


def _without_rows(made: Processed, owner: Rows, count: int) -> dict[str, Bools]:
    """Returns which records have no row left, by the name of what dropped the first of their rows."""
    is_done = spread_mask(np.ones(made.parents.size, np.bool_), owner[made.parents], count)
    found = {}
    for name, mask in made.dropped.items():
        found[name] = spread_mask(mask, owner, count) & ~is_done
        is_done = is_done | found[name]
    return found


def _unavailable(target: TableTarget, program: Program, unsent: Mapping[str, Bools]) -> dict[int, Bools]:
    """Returns by index of the table's column the changes that keep the value of the row that they replace."""
    found = {}
    for n, field in enumerate(target.fields if unsent else ()):
        names = _origins(program).columns.get(field.name, frozenset())
        if names and names <= unsent.keys():
            found[n] = np.logical_and.reduce([unsent[name] for name in names])
    return found


def _mismatches(failures: Iterable[Failure], records: Rows, limit: int) -> list[Mismatch]:
    """Returns the failures as mismatches of their records. records: the index of each row's record."""
    first = sorted(failures, key=lambda failure: failure.row)[:limit]
    return [_mismatch(failure, int(records[failure.row])) for failure in first]


def _mismatch(failure: Failure, record: int) -> Mismatch:
    values = ", ".join(failure.values)
    if failure.error_class == LOOKUP_MISS:
        reason = f"the reference table has no row for {failure.expression} of {values}"
        return Mismatch(record, failure.column, ErrorClass.LOOKUP_MISS, reason)
    reason = f"{failure.error_class}: {failure.expression}{' of ' if values else ''}{values}"
    return Mismatch(record, failure.column, ErrorClass.FAILED_EXPRESSION, reason)
