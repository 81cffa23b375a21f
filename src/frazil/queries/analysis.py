"""A query's SQL to what tasks evaluate, by Spark's own parser and analyser.

In the driver, once for each schema of the records.

The one relation is `records`: the fields of the records and their metadata (`METADATA`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyiceberg import types as t
from pyiceberg.schema import Schema

from frazil.column_names import fold_case, is_long, long_name_in, long_name_reason, shorten
from frazil.errors import SpecError
from frazil.queries.catalyst import (
    RECORDS,
    RULES,
    Catalyst,
    NameTaken,
    UnknownColumn,
    chain_of,
    class_of,
    ids_of,
    items_of,
)
from frazil.queries.expressions import Expressions, Path, Value, element_type
from frazil.queries.in_spark import InSpark, Outside
from frazil.queries.program import (
    Explode,
    Expression,
    Field,
    Filter,
    Operator,
    Program,
    Project,
    expressions_of,
    fields_of,
)
from frazil.queries.refusals import aliases_used, check_condition, check_query, star_of
from frazil.queries.spark_types import iceberg_type
from frazil.schema.arrow import arrow_type
from frazil.schema.parts import parts_of
from frazil.stages.notes import StageNote
from frazil.types import RESERVED_COLUMNS

#: What a query may name besides the fields of the records; `*` stands for the fields alone.
METADATA = ("_key", "_headers", "_topic", "_kafka_partition", "_offset", "_timestamp")


# No column of a query has such a name.
_HANDED_ON = "\x01handed on"


@dataclass(frozen=True)
class Column:
    """A column of a query's result."""

    name: str
    #: Its Iceberg type; ids of nested fields are placeholders where Spark has made the type.
    type: t.IcebergType
    #: Whether Spark has shown that it is never null.
    is_required: bool
    #: The fields of the records that its values are made of, each as a path.
    sources: frozenset[Path]


@dataclass(frozen=True)
class Query:
    """What Spark's analysis finds in a query."""

    columns: tuple[Column, ...]
    #: The fields of the records that decide which rows there are.
    conditions: frozenset[Path]
    #: None where `outside` names an expression.
    program: Program | None
    #: The expression that cannot be a part of a program, and why.
    outside: Outside | None
    #: What stages do to the fields of the records before the query.
    notes: tuple[StageNote, ...] = ()
    #: The names of columns that later columns of the select list use, in small letters.
    aliases: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Condition:
    """What Spark's analysis finds in a condition."""

    #: None where `outside` names an expression.
    operator: Filter | None
    #: The fields of the records that it is made of, each as a path.
    sources: frozenset[Path]
    #: The expression that cannot be a part of a program, and why.
    outside: Outside | None


def analyse(
    catalyst: Catalyst,
    query: str,
    records: Schema,
    where: str = "",
    steps: str = "",
    metadata: Container[str] = METADATA,
) -> Query:
    """Returns what a query makes of records. records: the columns of `records`, with metadata. where: the condition for
    records that the query takes; empty for all. steps: the query whose result `records` is; empty for the records.
    metadata: the columns of `records` that `*` does not stand for.

    Dropped records are counted as `where`, and as `filter` where the steps drop them.

    Raises: SpecError for a query that is not a single select of `records`, that has a function which is not allowed, that
    Spark refuses, or whose result Iceberg has no types for.
    """
    parsed, plans, names = catalyst.parse(query), [], []
    check_query(query, parsed, catalyst.functions)
    if where:
        taken = catalyst.parse_condition(where)
        check_condition(where, taken.condition(), catalyst.functions)
        plans.append(taken)
        names.append("where")
    if steps:
        plans.append(catalyst.parse(steps))
        check_query(steps, plans[-1], catalyst.functions)
        names += ["filter" for node in chain_of(plans[-1]) if class_of(node) == "Filter"]
    analysed = catalyst.analyse([*plans, parsed], records)
    operators = _read(catalyst, analysed, records, itertools.chain(names, itertools.repeat("where")), metadata)
    columns = operators.select(analysed, star_of(parsed))
    fields = tuple(Field(name, expression.type) for name, expression in operators.result)
    outside = operators.expressions.outside
    spark_part = operators.in_spark.part(records)
    values = spark_part.values if spark_part is not None else ()
    carried = tuple((value.name, value) for value in values)
    carrying = [
        Project((*operator.columns, *carried))
        if isinstance(operator, Project) and operator is not operators.in_order[-1]
        else operator
        for operator in operators.in_order
    ]
    program = None if outside else Program(_pruned(carrying), fields, spark_part)
    return Query(columns, frozenset(operators.conditions), program, outside, aliases=aliases_used(parsed))


def analyse_condition(catalyst: Catalyst, condition: str, records: Schema, name: str) -> Condition:
    """Returns the operator that keeps the records for which a condition is true. name: what dropped records are counted as.

    Raises: SpecError for what is not a condition, and as `analyse` does.
    """
    parsed = catalyst.parse_condition(condition)
    check_condition(condition, parsed.condition(), catalyst.functions)
    try:
        analysed = catalyst.analyse([parsed], records)
    except UnknownColumn as error:
        if error.name.lower() not in METADATA:
            raise
        # Records bring no field of this name: there is nothing to wait for.
        remedy = f"select it: `select *, {error.name} from {RECORDS}`"
        raise SpecError(error.message, remedy=remedy, where=error.where) from None
    operators = _read(catalyst, analysed, records, itertools.repeat(name))
    (operator,) = operators.in_order
    outside = operators.expressions.outside or operators.in_spark.first
    return Condition(
        operator if isinstance(operator, Filter) and not outside else None, frozenset(operators.conditions), outside
    )


def handing_on(query: Query, column: Column) -> Query:
    """Returns the query with a column of `records` in its result, as it is, whatever the query selects. column: as the
    result has it; its one source is the column of `records`.
    """
    ((name,),) = column.sources
    handed, kind = Field(name, arrow_type(column.type)), arrow_type(column.type)
    assert query.program is not None
    operators, last = (
        list(query.program.operators),
        max(n for n, operator in enumerate(query.program.operators) if isinstance(operator, Project)),
    )
    for n, operator in enumerate(operators):
        if isinstance(operator, Project):
            handed_name = column.name if n == last else _HANDED_ON
            operators[n], handed = Project((*operator.columns, (handed_name, handed))), Field(handed_name, kind)
    program = replace(query.program, operators=tuple(operators), output=(*query.program.output, handed))
    return replace(query, columns=(*query.columns, column), program=program)


def _read(
    catalyst: Catalyst, analysed: Any, records: Schema, names: Iterator[str], metadata: Container[str] = METADATA
) -> _Operators:
    source, *above = reversed(list(chain_of(analysed)))
    operators = _Operators(source, records, names, metadata, catalyst)
    for node in above:
        operators.add(node)
    return operators


class _Operators:
    """The operators of a query, read from the source to the result."""

    def __init__(
        self, source: Any, records: Schema, names: Iterator[str], metadata: Container[str], catalyst: Catalyst
    ) -> None:
        """source: the relation. records: its columns. names: by filter, what the records are counted as that it drops.
        metadata: the columns that `*` does not stand for.
        """
        ids = ids_of(source.output())
        self.in_spark = InSpark(catalyst, dict(zip(ids, (column.name for column in records.fields), strict=True)))
        self.expressions = Expressions(self.in_spark, catalyst.functions)
        self.in_order: list[Operator] = []
        #: The fields of the records that decide which rows there are.
        self.conditions: set[Path] = set()
        self._names = names
        self._metadata: set[int] = set()
        for column_id, column in zip(ids, records.fields, strict=True):
            name, kind = column.name, column.field_type
            input_field = Field(name, arrow_type(kind))
            self.expressions.columns[column_id] = Value(
                input_field, frozenset({(name,)}), is_path=True, kind=kind, name=name, is_required=column.required
            )
            if name in metadata:
                self._metadata.add(column_id)

    @property
    def result(self) -> tuple[tuple[str, Expression], ...]:
        """The columns of the last projection."""
        last = self.in_order[-1]
        return last.columns if isinstance(last, Project) else ()

    def add(self, node: Any) -> None:
        """Adds the operator of an analysed node.

        Raises: SpecError for a node that has none.
        """
        kind = class_of(node)
        if kind == "Filter":
            condition = self.expressions.whole(node.condition())
            self.conditions |= condition.sources
            self.in_order.append(Filter(condition.expression, next(self._names)))
        elif kind == "Project":
            self._project(node)
        elif kind == "Generate":
            self._explode(node)
        elif kind != "SubqueryAlias":
            raise SpecError(
                f"the query needs more than one record for a row ({kind})", remedy=f"correct the query; {RULES}"
            )

    def _project(self, node: Any) -> None:
        values: dict[int, Value] = {}
        columns: list[tuple[str, Expression]] = []
        taken: set[str] = set()
        for column_id, value in self.expressions.read_columns(node.projectList()):
            name = _free(value.name, taken)
            taken.add(name)
            columns.append((name, value.expression))
            values[column_id] = replace(value, expression=Field(name, value.expression.type))
        self.expressions.columns = values
        self.in_order.append(Project(tuple(columns)))

    def _explode(self, node: Any) -> None:
        generator = node.generator()
        exploded = self.expressions.whole(generator.child())
        taken = {
            known_value.expression.name
            for known_value in self.expressions.columns.values()
            if isinstance(known_value.expression, Field)
        }
        outputs = items_of(node.generatorOutput())
        values: list[Value] = []
        for attribute in outputs:
            spark = json.loads(str(attribute.dataType().json()))
            column = Field(_free(str(attribute.name()), taken), self.expressions.type_of(attribute))
            taken.add(column.name)
            value = Value(column, exploded.sources, kind=iceberg_type(spark), name=str(attribute.name()))
            values.append(replace(value, is_required=not attribute.nullable()))
        array = exploded.expression
        if pa.types.is_list(array.type):
            *position, element = (value.expression.name for value in values if isinstance(value.expression, Field))
            self.in_order.append(Explode(array, element, "".join(position), bool(node.outer())))
            element_field = Field(element, array.type.value_type)
            kind = element_type(exploded.kind) or values[-1].kind
            values[-1] = replace(values[-1], expression=element_field, is_path=exploded.is_path, kind=kind)
        else:
            self.expressions.note(str(generator.sql()), "rows of a map")
        self.expressions.columns |= zip(map(_id, outputs), values, strict=True)

    def select(self, analysed: Any, named: frozenset[str] | None) -> tuple[Column, ...]:
        """Returns the columns of the result, without the metadata that only `*` stands for. named: the columns that a
        select with a `*` names besides; None where it has no `*`.

        Raises: SpecError where two have one name, at any depth, a name is not a column's, or Iceberg lacks the type of one.
        """
        kept: list[tuple[str, Expression]] = []
        columns: dict[str, Column] = {}
        taken: set[str] = set()
        ids = ids_of(analysed.projectList())
        for n, (column_id, (_, expression)) in enumerate(zip(ids, self.result, strict=True)):
            value = self.expressions.columns[column_id]
            name = value.name
            is_hidden = named is not None and column_id in self._metadata
            is_twin = fold_case(name) in taken
            if is_hidden and (is_twin or name.lower() not in (named or ())):
                continue
            if is_twin:
                message = f"the query has two columns `{name}`"
                raise NameTaken(message, (name,), remedy="name one of them otherwise: `as NAME`")
            if value.kind is None:
                raise _no_type(name, str(analysed.projectList().apply(n).dataType().sql()))
            _check_names(value, is_metadata=column_id in self._metadata and value.sources == {(name,)})
            taken.add(fold_case(name))
            columns[name] = Column(name, value.kind, value.is_required, value.sources)
            kept.append((name, expression))
        self.in_order[-1] = Project(tuple(kept))
        return tuple(columns.values())


def _check_names(column: Value, is_metadata: bool) -> None:
    """Refuses a column whose name no table can have, and members of its structs whose names differ in case alone: a table
    has one column for them, and the values of the others would be lost.
    """
    if not column.name:
        raise SpecError("the query makes a column without a name", remedy="give it a name: `as NAME`")
    if fold_case(column.name) in RESERVED_COLUMNS and not is_metadata:
        message = f"the query's column `{column.name}` has the name of one of Iceberg's metadata columns"
        raise SpecError(message, remedy="name it otherwise: `as NAME`")
    long = column.name if is_long(column.name) else column.kind and long_name_in(column.kind)
    if long:
        raise SpecError(f"the query's column `{shorten(column.name)}`: {long_name_reason(long)}", remedy=_SHORTER)
    twins = _twins_in(column.kind)
    if twins:
        both = " and ".join(f"`{name}`" for name in twins)
        message = f"the query's column `{column.name}` has the members {both}, which differ only in letter case"
        raise SpecError(message, remedy="name one of them otherwise, such as `named_struct('NAME', value)`")


def _twins_in(kind: t.IcebergType | None) -> list[str]:
    """Returns the names of one struct inside a type that differ in case alone; none where there are none."""
    if kind is None:
        return []
    parts, by_folded_name = parts_of(kind), dict[str, list[str]]()
    if isinstance(kind, t.StructType):
        for part in parts:
            by_folded_name.setdefault(fold_case(part.name), []).append(part.name)
    twins = next((names for names in by_folded_name.values() if len(names) > 1), [])
    return twins or next(filter(None, (_twins_in(part.field_type) for part in parts)), [])


def _no_type(name: str, spark: str) -> SpecError:
    remedy = _REMEDIES.get(spark.split()[0], _CAST)
    return SpecError(f"Iceberg has no type for the column `{name}`, whose type is {spark}", remedy=remedy)


def _pruned(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """Returns the operators without the columns of inner projections that no later operator uses, as Spark's optimizer
    leaves them out: what is not used is not read from Kafka, and cannot fail.
    """
    kept_operators = [operators[-1]]
    used = _names_in(operators[-1])
    for operator in reversed(operators[:-1]):
        if isinstance(operator, Project):
            kept = tuple(column for column in operator.columns if column[0] in used)
            # One column at least, which has the number of rows.
            kept_operators.append(Project(kept or operator.columns[:1]))
            used = set()
        else:
            kept_operators.append(operator)
        used |= _names_in(kept_operators[-1])
    return tuple(reversed(kept_operators))


def _names_in(operator: Operator) -> set[str]:
    """Returns the columns that an operator uses."""
    return set().union(*map(fields_of, expressions_of(operator)))


_SHORTER = "give it a shorter name: `as NAME`"
_CAST = "cast it to a type that Iceberg has, such as `cast(… as array<string>)`"
_REMEDIES = {
    "VOID": "give it a type: `cast(null as string)`",
    "INTERVAL": "take its length as a number: `timestampdiff(second, a, b)`, or `datediff(b, a)` of dates",
    "VARIANT": "cast it to another type, or take a member with `get_json_object`",
}


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _free(name: str, taken: Container[str]) -> str:
    """Returns a name that is not taken: it and a number where two columns have one name."""
    return next(
        candidate
        for candidate in itertools.chain((name,), (f"{name}#{n}" for n in itertools.count(1)))
        if candidate not in taken
    )
