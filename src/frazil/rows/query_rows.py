"""The rows that a table's query makes of records: its program, applied to the columns of those that could be read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from frazil.decode.cast import convert_struct
from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.conversion import Conversion, Place
from frazil.decode.settings import OWN_TYPES, Reading
from frazil.error_classes import ErrorClass
from frazil.process.evaluate import LOOKUP_MISS, Failure, OnError, Processed, Unmet, evaluate
from frazil.process.program import Program
from frazil.process.references import references_of
from frazil.schema.arrow import Bools, Ints, Records, Rows, arrow_type, as_written, iceberg_type, pick, spread_mask
from frazil.types import FIRST_PLACEHOLDER_ID
from frazil.write.target import METADATA_TYPES, TableTarget

_BY_NAME = Reading(unknown_fields="drop", may_widen=False)


@dataclass(frozen=True)
class QueryRows:
    """The rows that a query makes of some records."""

    #: One array per field of the table's `fields`, with a value per row.
    columns: list[pa.Array]
    #: The index of each row's record, ascending.
    records: Ints
    #: Which records make no row, by the name of what dropped them: bool of shape (n_records,).
    dropped: Mapping[str, Bools]
    #: The expectations that records do not meet.
    unmet: Sequence[Unmet] = ()

    def without(self, is_out: Bools) -> QueryRows:
        """Returns the rows of the other records. is_out: bool of shape (n_records,)."""
        if not is_out.any():
            return self
        kept = np.flatnonzero(~is_out[self.records])
        columns = [column.take(pa.array(kept)) for column in self.columns]
        return replace(self, columns=columns, records=self.records[kept])


def query_rows(
    target: TableTarget, decoded: Decoded, records: Records, skipped: Bools | None, limit: int
) -> tuple[Decoded, QueryRows | None]:
    """Returns the records with those refused for which the query fails, and the rows of the others; no rows while the
    records need a change of their own schema first. decoded: the columns of the table's `source`. skipped: which records
    make no row anyway. limit: the number of mismatches that are kept.
    """
    assert target.source is not None
    if target.program is None or decoded.requested_fields or decoded.made_optional or decoded.missing:
        return decoded, None
    is_out = decoded.refused if skipped is None else decoded.refused | skipped
    rows = np.flatnonzero(~is_out)
    columns = input_columns(target.source, decoded.columns, records, {}) | spark_values(target, records)
    if rows.size < is_out.size:
        columns = pick(columns, rows)
    found = run(target, target.program, columns, rows.size)
    owner = rows[found.parents]
    converted, conversion = table_columns(target, target.program, found.columns, owner.size, limit)
    refused = np.zeros(is_out.size, np.bool_)
    refused[rows[found.failed]] = True
    refused[owner[conversion.refused]] = True
    unmet = [one.of_records(rows, is_out.size) for one in found.unmet]
    mismatches = [
        *mismatches_of(found.failures, rows, limit),
        *(replace(one, row=int(owner[one.row])) for one in conversion.mismatches),
        *refuse_unmet(unmet, refused, limit),
    ]
    dropped = {name: spread_mask(mask, rows, is_out.size) for name, mask in found.dropped.items()}
    taken = dropped_by(unmet)
    made = QueryRows(converted, owner, dropped | taken, unmet)
    # Of a record with several rows none is written where one of them fails, or does not meet an expectation.
    return decoded.refusing(refused, mismatches, limit), made.without(are_any([refused, *taken.values()], is_out.size))


def refuse_unmet(unmet: Iterable[Unmet], refused: Bools, limit: int) -> list[Mismatch]:
    """Marks the records in `refused` that do not meet an expectation which refuses them; returns their mismatches."""
    found: dict[int, Mismatch] = {}
    for one in unmet:
        if one.expectation.is_refusing:
            refused |= one.records
            for row, values in one.rows.items():
                found.setdefault(row, Mismatch(row, "", ErrorClass.FAILED_EXPECTATION, reason_of(one, values)))
    return [found[row] for row in sorted(found)[:limit]]


def reason_of(unmet: Unmet, values: str) -> str:
    """Returns why a record with these values does not meet an expectation."""
    expectation = unmet.expectation
    return f"the record does not meet {expectation.name} ({expectation.text})" + (f": {values}" if values else "")


def dropped_by(unmet: Iterable[Unmet]) -> dict[str, Bools]:
    """Returns the records that expectations drop, each by the first that does."""
    found: dict[str, Bools] = {}
    for one in unmet:
        if one.expectation.action == "drop":
            found[one.expectation.name] = one.records & ~are_any(found.values(), one.records.size)
    return found


def are_any(masks: Iterable[Bools], count: int) -> Bools:
    """Returns which of `count` records one of the masks has."""
    found: Bools = np.logical_or.reduce([np.zeros(count, np.bool_), *masks])
    return found


def run(
    target: TableTarget,
    program: Program,
    columns: Records,
    count: int,
    unjudged: Mapping[str, Bools] = MappingProxyType({}),
) -> Processed:
    """Evaluates a program as the table's settings say. unjudged: as for `evaluate`."""
    on_error: OnError = "null" if target.fails_to_null else "dead_letter"
    return evaluate(program, columns, count, on_error, unjudged, references_of(target.lookups))


def mismatches_of(failures: Iterable[Failure], records: Rows, limit: int) -> list[Mismatch]:
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


def input_columns(
    source: TableTarget, columns: Iterable[pa.Array], records: Records, own: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Returns the columns that a query can name: fields of the records, and metadata. records: one value per row. own:
    by field of metadata, what the envelope provides.
    """
    # A record's own names of members are not those of the table with `column_case`, and `protect` finds them by name.
    kinds = {one.name: one.type for one in source.arrow_schema}
    found = {
        field.name: column if column.type.equals(kinds[field.name]) else as_written(column, kinds[field.name])
        for field, column in zip(source.fields, columns, strict=True)
    }
    for field, column in source.metadata:
        values = own.get(field, records.get(field))
        kind = arrow_type({**METADATA_TYPES, **OWN_TYPES}[field])
        count = len(next(iter(records.values())))
        found[column] = pa.nulls(count, kind) if values is None else as_written(values, kind)
    return found


def spark_values(target: TableTarget, records: Records) -> dict[str, pa.Array]:
    """Returns the columns of values that Spark has made of some records, for the program; failures of all where Spark was
    not asked. records: one value per row.
    """
    count = len(next(iter(records.values())))
    part = target.spark_part
    return {
        one.name: as_written(records[one.name], one.type) if one.name in records else pa.nulls(count, one.type)
        for one in (part.values if part is not None else ())
    }


def table_columns(
    target: TableTarget, program: Program, made: Sequence[pa.Array], count: int, limit: int
) -> tuple[list[pa.Array], Conversion]:
    """Returns the columns of the table, null where the query has no such column, and the values that do not fit.

    made: one array per column of the program's result, with `count` values.
    """
    conversion = Conversion(_BY_NAME, "", count, limit)
    place = Place((), np.arange(count, dtype=np.int32), np.ones(count, np.bool_))
    written = _result_type(program, target.schema_json)
    return convert_struct(conversion, written, made, target.fields, place), conversion


@cache
def _result_type(program: Program, schema_json: str) -> StructType:
    """Returns the columns of a query's result as Iceberg's fields, with placeholders for ids. schema_json: of the table; a
    column that has the same Arrow type there has its Iceberg type: Arrow has no type of its own for a UUID.
    """
    table = {field.name: field.field_type for field in Schema.model_validate_json(schema_json).fields}
    ids = itertools.count(FIRST_PLACEHOLDER_ID)
    fields = []
    for column in program.output:
        known = table.get(column.name)
        is_same = known is not None and arrow_type(known) == column.type
        kind = known if known is not None and is_same else iceberg_type(column.type, ids)
        fields.append(NestedField(next(ids), column.name, kind, required=False))
    return StructType(*fields)
