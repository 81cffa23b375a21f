"""`lookup` as operators of a table's program: what they compare, and the columns that they add to the records. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, StructType

from frazil.column_names import Spellings
from frazil.decode.lossless import format_type
from frazil.errors import SpecError, UnusableType
from frazil.queries.analysis import Query
from frazil.queries.catalyst import NameTaken, UnknownColumn
from frazil.queries.kernels.keys import comparable
from frazil.queries.program import Call, Expression, Field, Filter, Lookup, fields_of
from frazil.queries.references import Reference
from frazil.queries.spark_types import has_fixed_bytes
from frazil.schema.arrow import arrow_type, iceberg_type
from frazil.schema.evolve import extend_schema
from frazil.schema.parts import Path
from frazil.spec.settings import LookupSpec
from frazil.spec.syntax.problems import advice
from frazil.types import FIRST_PLACEHOLDER_ID


def lookup_operator(lookup: LookupSpec, reference: Reference, records: Schema) -> Lookup:
    """Returns the operator of a lookup. records: the columns before it.

    Raises: UnknownColumn for a field that the records lack; SpecError where types differ, or the name is a field's.
    """
    name = lookup.name
    if name.lower() in {field.name.lower() for field in records.fields}:
        message = f"the records have a field `{name}`, as a lookup is called"
        raise NameTaken(message, (name,), remedy="name the lookup otherwise")
    keys = []
    for (path, column), of_reference in zip(lookup.on, reference.on, strict=True):
        key, kind = _field_at(records, path), of_reference.type
        if comparable(key.type) is None or comparable(key.type) != comparable(kind):
            raise UnusableType(
                f"`lookup.{name}` compares {'.'.join(path)}, which is {_type_of(key.type)}, with {column}, which is"
                f" {_type_of(kind)}",
                path,
                remedy="compare values of one type, and no floating-point numbers: declare the type of the field under"
                " `columns`, or add a column of its type to the reference table",
            )
        keys.append(key)
    for member in reference.values.type:
        if has_fixed_bytes(member.type):
            raise SpecError(
                f"`lookup.{name}` takes {member.name}, a uuid or fixed column, which Spark has no type for",
                remedy="leave it out of `take`, or store it as a string",
            )
    sql = " and ".join(f"{'.'.join(path)} = {column}" for path, column in lookup.on)
    return Lookup(name, tuple(keys), reference.values.type, lookup.on_miss, sql, lookup.wait_s is not None)


def _type_of(kind: pa.DataType) -> str:
    """Returns the type in the words of a pipeline file."""
    return format_type(iceberg_type(kind, itertools.count(FIRST_PLACEHOLDER_ID)))


def _field_at(records: Schema, path: Path) -> Expression:
    kind: IcebergType = records.as_struct()
    expression: Expression | None = None
    for name in path:
        fields = kind.fields if isinstance(kind, StructType) else ()
        names = [field.name for field in fields]
        spelled = Spellings(names).find(name)
        if spelled is None:
            message = f"`lookup` names an unknown field {'.'.join(path)}"
            remedy = advice(name, names) if names else "name a field inside of a struct"
            raise UnknownColumn(message, name, remedy=remedy)
        place = names.index(spelled)
        kind = fields[place].field_type
        if expression is None:
            expression = Field(spelled, arrow_type(kind))
        else:
            expression = Call("GetStructField", (expression,), arrow_type(kind), (("ordinal", place),), ".".join(path))
    assert expression is not None
    return expression


def _path_of(key: Expression) -> Path:
    """Returns the path of the field that a key is."""
    if isinstance(key, Field):
        return (key.name,)
    assert isinstance(key, Call)
    (whole,) = key.arguments
    return (*_path_of(whole), whole.type.field(dict(key.options)["ordinal"]).name)


def with_lookups(records: Schema, lookups: Iterable[Lookup]) -> Schema:
    """Returns the columns behind lookups."""
    ids = itertools.count(FIRST_PLACEHOLDER_ID)
    return extend_schema(records, {(): {lookup.name: iceberg_type(lookup.type, ids) for lookup in lookups}})


def joined(query: Query, lookups: Sequence[Lookup], has_where: bool) -> Query:
    """Returns a query with its lookups: behind the condition for records that the table takes, before all else.

    Raises: SpecError where that condition names a lookup.
    """
    assert query.program is not None
    operators = query.program.operators
    first = operators[:1] if has_where else ()
    found_by = {lookup.name: frozenset(map(_path_of, lookup.keys)) for lookup in lookups}
    for operator in first:
        if isinstance(operator, Filter) and not found_by.keys().isdisjoint(fields_of(operator.condition)):
            raise SpecError(
                "`where` cannot use a lookup: lookups run after `where`",
                remedy="write the condition as `filter`, or in `select`",
            )
    deciding = [found_by[lookup.name] for lookup in lookups if lookup.is_deciding]
    columns = (replace(column, sources=_sources(column.sources, found_by)) for column in query.columns)
    return replace(
        query,
        columns=tuple(columns),
        conditions=_sources(query.conditions.union(*deciding), found_by),
        program=replace(query.program, operators=(*first, *lookups, *operators[len(first) :])),
    )


def _sources(paths: frozenset[Path], found_by: Mapping[str, frozenset[Path]]) -> frozenset[Path]:
    """Returns the paths, with the fields by which what is looked up is found."""
    return paths.union(*(found_by.get(path[0], ()) for path in paths))
