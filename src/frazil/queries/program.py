"""A query as tasks evaluate it: operators of expressions whose names, types and implicit casts Spark has decided.

Values are of Arrow types (`schema/arrow.py`): text is `string`, a moment `timestamp[us, UTC]`, a time without a zone
`timestamp[us]`, a decimal `decimal128`. Everything here is immutable and can be sent to tasks.

Which columns of the records each column of a query's result is made from is read from the program too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from typing import Literal as Choice

import pyarrow as pa

Names = frozenset[str]


@dataclass(frozen=True)
class Field:
    """A column of an operator's input: a field of the records, of their metadata, or made by an earlier operator."""

    name: str
    type: pa.DataType


@dataclass(frozen=True)
class Literal:
    """One value for every row."""

    #: As `pa.scalar` takes it; None for NULL.
    value: Any
    type: pa.DataType


@dataclass(frozen=True)
class Call:
    """A function of Spark, applied to expressions."""

    #: The simple name of Spark's class of expressions, such as `Add`, `Cast`, `Upper`, `GetStructField`, `CaseWhen`.
    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType
    #: The expression's other arguments, by Spark's names: `evalMode` (ANSI, TRY), `ordinal`, `timeZoneId`.
    options: tuple[tuple[str, str | int | bool], ...] = ()
    #: The expression as Spark prints it, for messages.
    sql: str = ""


Expression = Field | Literal | Call
BY_SPARK = "BySpark"
"""The function of a call whose values Spark has made. Its first argument is their column; the others are the columns that
its expression uses, for messages. Its option `inputs` has the columns of the records that it uses, as JSON.
"""
PYTHON = "PythonFunction"
"""The function of a call of a user's function. Its options `function` and `folder` name it, as in `plugins.functions`."""
INPUT = "\x01input{}"
"""The column with an input of Spark's expressions, by its place among those of `SparkPart.inputs`."""


def shown_arguments(call: Call) -> tuple[Expression, ...]:
    """Returns the arguments of a call that its failure quotes."""
    return call.arguments[1:] if call.function == BY_SPARK else call.arguments


def calls_in(expression: Expression) -> Iterator[Call]:
    """Yields the calls of an expression, each before its arguments."""
    if isinstance(expression, Call):
        yield expression
        for argument in expression.arguments:
            yield from calls_in(argument)


@dataclass(frozen=True)
class Filter:
    """Keeps the rows for which the condition is true: neither false nor null."""

    condition: Expression
    #: What dropped rows are counted as, such as `where`.
    name: str


@dataclass(frozen=True)
class Project:
    """Replaces the columns by these, in this order."""

    columns: tuple[tuple[str, Expression], ...]
    #: Whether each of them stands for the column of its name, whose values it may replace.
    is_in_place: bool = False


@dataclass(frozen=True)
class Explode:
    """A row for each element of an array, beside the columns of the row that has it."""

    array: Expression
    #: The column of the elements.
    name: str
    #: The column of their positions, int32 from 0; empty for none.
    position: str = ""
    #: Whether a row whose array is null or empty stays, with a null element.
    is_outer: bool = False
    #: Whether the further elements of an array make no rows.
    is_of_first: bool = False


@dataclass(frozen=True)
class Lookup:
    """Adds a column with what a reference table has for the row: a struct, null where no row of it has the key."""

    #: The column, which is the lookup's name.
    name: str
    #: What is compared with the key columns of the reference table, in their order.
    keys: tuple[Expression, ...]
    #: The struct.
    type: pa.DataType
    #: What becomes of a row without one in the reference table.
    on_miss: Choice["null", "drop", "dead_letter"]
    #: The comparison as the pipeline file has it, for messages.
    sql: str
    #: Whether such a row waits for the reference table to get one, unless a key is null.
    is_patient: bool = False

    @property
    def is_deciding(self) -> bool:
        """Whether what the reference table has decides which rows there are."""
        return self.is_patient or self.on_miss != "null"

    @property
    def dropped_as(self) -> str:
        """What dropped rows are counted as."""
        return f"lookup {self.name}"


@dataclass(frozen=True)
class Windows:
    """A row for each window of its time that a row is in, with the window's bounds: [start, end). All lengths are in
    microseconds; starts are multiples of `slide_us` from `offset_us` after 1970-01-01 UTC on, or, where it is 0, the times
    themselves: sessions.
    """

    #: The column of the time, a timestamp.
    time: Field
    size_us: int
    slide_us: int
    offset_us: int
    #: The columns of the bounds, which have the type of the time; empty for none.
    start: str
    end: str
    #: The windows as the query has them, for messages.
    sql: str


Operator = Filter | Project | Explode | Lookup | Windows


def one_row_of(operator: Operator) -> Operator:
    """Returns an operator that makes one row of each."""
    if isinstance(operator, Lookup):
        return replace(operator, on_miss="null", is_patient=False)
    if isinstance(operator, Explode):
        return replace(operator, is_outer=True, is_of_first=True)
    return replace(operator, size_us=operator.slide_us) if isinstance(operator, Windows) else operator


def expressions_of(operator: Operator) -> tuple[Expression, ...]:
    """Returns the expressions that an operator evaluates."""
    match operator:
        case Filter():
            return (operator.condition,)
        case Project():
            return tuple(expression for _, expression in operator.columns)
        case Explode():
            return (operator.array,)
        case Lookup():
            return operator.keys
        case Windows():
            return (operator.time,)


@dataclass(frozen=True)
class Program:
    """The operators of a query, in the order in which they are applied. The last Project has the result's names."""

    operators: tuple[Operator, ...]
    #: The result's columns, with types.
    output: tuple[Field, ...]
    #: What Spark evaluates before; None where tasks evaluate every expression.
    spark_part: SparkPart | None = None
    #: Conditions over the result's columns by which stages judge rows, by name.
    conditions: tuple[tuple[str, Expression], ...] = ()

    def without_waits(self) -> Program:
        """Returns the program whose lookups have null where they would wait for a row."""
        operators = (
            replace(operator, on_miss="null", is_patient=False)
            if isinstance(operator, Lookup) and operator.is_patient
            else operator
            for operator in self.operators
        )
        return replace(self, operators=tuple(operators))


@dataclass(frozen=True)
class SparkPart:
    """The expressions of a program that Spark evaluates, for each record, before a task evaluates the rest."""

    #: Makes the columns that they use from those of the records.
    inputs: Program
    #: The columns of their values, in their order: a struct whose member is the value, or null where the expression fails.
    values: tuple[Field, ...]
    #: Spark's expressions, as Java serializes them.
    expressions: bytes
    #: Why the first of them is Spark's.
    reason: str


def fields_of(expression: Expression) -> set[str]:
    """Returns the columns that an expression uses."""
    if isinstance(expression, Field):
        return {expression.name}
    arguments = expression.arguments if isinstance(expression, Call) else ()
    return set().union(*map(fields_of, arguments))


@dataclass(frozen=True)
class Origins:
    """The columns of the input that a program uses."""

    #: By column of the result, the columns that its values are made from.
    columns: Mapping[str, Names]
    #: The columns that decide which rows there are: those of conditions, exploded arrays and lookups.
    rows: Names
    #: The columns of the result that have values of reference tables; `columns` names what these are found by.
    looked_up: Names = frozenset()


def origins_of(program: Program) -> Origins:
    """Returns what the program uses of its input."""
    origins: dict[str, Names] = {}
    deciding: Names = frozenset()
    lookups = frozenset(operator.name for operator in program.operators if isinstance(operator, Lookup))
    for operator in program.operators:
        if isinstance(operator, Filter):
            deciding |= _of(operator.condition, origins)
        elif isinstance(operator, Project):
            origins = {name: _of(expression, origins) for name, expression in operator.columns}
        elif isinstance(operator, Explode):
            names = _of(operator.array, origins)
            origins |= dict.fromkeys(filter(None, (operator.name, operator.position)), names)
            deciding |= names
        elif isinstance(operator, Windows):
            origins |= dict.fromkeys(filter(None, (operator.start, operator.end)), _of(operator.time, origins))
        elif isinstance(operator, Lookup):
            names = frozenset().union(*(_of(key, origins) for key in operator.keys))
            origins[operator.name] = names | {operator.name}
            deciding |= names if operator.is_deciding else frozenset()
    columns = {field.name: origins.get(field.name, frozenset((field.name,))) for field in program.output}
    return Origins(
        {name: names - lookups for name, names in columns.items()},
        deciding - lookups,
        frozenset(name for name, names in columns.items() if names & lookups),
    )


def exploded_columns(program: Program) -> Names:
    """Returns the columns of the result that are made of the elements of a list, of which each has a row."""
    exploded: Names = frozenset()
    for operator in program.operators:
        if isinstance(operator, Project):
            exploded = frozenset(name for name, expression in operator.columns if fields_of(expression) & exploded)
        elif isinstance(operator, Explode):
            exploded |= frozenset(filter(None, (operator.name, operator.position)))
    return exploded


def spark_columns(program: Program) -> Names:
    """Returns the columns of the result that have values which Spark has made."""
    spark_names: Names = frozenset()
    for operator in program.operators:
        if isinstance(operator, Project):
            spark_names = frozenset(name for name, expression in operator.columns if _is_made(expression, spark_names))
        elif isinstance(operator, Explode) and _is_made(operator.array, spark_names):
            spark_names |= {operator.name}
    return spark_names


def _is_made(expression: Expression, spark_names: Names) -> bool:
    if isinstance(expression, Field):
        return expression.name in spark_names
    is_own = isinstance(expression, Call) and expression.function == BY_SPARK
    return is_own or (
        isinstance(expression, Call) and any(_is_made(argument, spark_names) for argument in expression.arguments)
    )


def _of(expression: Expression, origins: Mapping[str, Names]) -> Names:
    if isinstance(expression, Field):
        return origins.get(expression.name, frozenset((expression.name,)))
    if isinstance(expression, Call) and expression.function == BY_SPARK:
        return frozenset(json.loads(str(dict(expression.options)["inputs"])))
    if isinstance(expression, Call):
        return frozenset().union(*(_of(argument, origins) for argument in expression.arguments))
    return frozenset()
