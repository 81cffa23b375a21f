"""A query's program on the columns of records: its input, and its output as columns of the table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from frazil.decode.cast import convert_struct
from frazil.decode.conversion import Conversion, Place
from frazil.decode.settings import OWN_TYPES, Reading
from frazil.process.evaluate import OnError, Processed, evaluate
from frazil.process.program import Program
from frazil.process.references import references_of
from frazil.schema.arrow import Bools, Records, arrow_type, as_written, iceberg_type
from frazil.types import FIRST_PLACEHOLDER_ID
from frazil.write.target import METADATA_TYPES, TableTarget

_BY_NAME = Reading(unknown_fields="drop", may_widen=False)


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


def run(
    target: TableTarget,
    program: Program,
    columns: Records,
    count: int,
    unjudged: Mapping[str, Bools] = MappingProxyType({}),
) -> Processed:
    """Evaluates a program as the table's settings say. unjudged: as for `evaluate`."""
    assert target.query is not None
    on_error: OnError = "null" if target.query.fails_to_null else "dead_letter"
    return evaluate(program, columns, count, on_error, unjudged, references_of(target.query.lookups))


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
