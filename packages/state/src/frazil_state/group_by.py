"""A query with GROUP BY, analysed as the query of single records that makes what its aggregates are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from pyiceberg import types as t

from frazil.errors import SpecError
from frazil.queries.analysis import Column, Query
from frazil.queries.catalyst import TypeRefused
from frazil.queries.program import Field, Literal, Program, Project, Windows
from frazil.schema.arrow import arrow_type
from frazil.spec.grouping import AVERAGE, SKETCH, TEXT, WINDOW_END, WINDOW_START, Grouping
from frazil.types import EVENT_TIME

_MOST_DIGITS = 38
_SUMS: Mapping[type[t.IcebergType], str] = {t.IntegerType: "bigint", t.FloatType: "double", t.StringType: "double"}
_HASHED: Mapping[type[t.IcebergType], str] = {t.FloatType: "float", t.DoubleType: "double"}


def analyse_grouped(grouping: Grouping, analyse: Callable[[str], Query]) -> Query:
    """Returns the query of single records that makes what groups are made of. analyse: analyses SQL.

    Raises: SpecError for a time that is not one, for an average of what cannot be added, and as `analyse`.
    """
    plain = analyse(grouping.projection({}))
    casts = _casts(grouping, {column.name: column.type for column in plain.columns})
    query = analyse(grouping.projection(casts)) if casts else plain
    sources = {column.name: column.sources for column in plain.columns}
    columns = tuple(replace(column, sources=sources[column.name]) for column in query.columns)
    query = replace(query, columns=columns)
    return query if query.program is None else _with_windows(grouping, query, query.program)


def _casts(grouping: Grouping, types: Mapping[str, t.IcebergType]) -> dict[str, str]:
    """Returns the SQL types that values are to be cast to: those of Spark's sums and of hashed values, and a timestamp for
    windows.
    """
    casts = {}
    for column in grouping.columns:
        kind = types.get(column.name)
        if column.function == "sum" and kind is not None:
            casts[column.name] = _sum_type(kind)
        elif column.function == AVERAGE and kind is not None:
            casts[column.name] = _average_type(column.name, kind)
        elif column.function == SKETCH and kind is not None:
            casts[column.name] = _HASHED.get(type(kind), TEXT)
    kind = types.get(EVENT_TIME)
    if isinstance(kind, t.StringType | t.DateType):
        casts[EVENT_TIME] = "timestamp"
    elif kind is not None and not isinstance(kind, t.TimestampType | t.TimestamptzType):
        assert grouping.window is not None
        raise TypeRefused(
            f"`{grouping.window.text}` is of {kind}, which is not a time",
            remedy="write a time, such as `window(timestamp_millis(ts), '1 minute')` of milliseconds since 1970",
        )
    return {name: kind for name, kind in casts.items() if kind}


def _sum_type(kind: t.IcebergType) -> str:
    """Returns the SQL type of Spark's sum of values of a type; empty for the type itself."""
    if isinstance(kind, t.DecimalType):
        return f"decimal({min(_MOST_DIGITS, kind.precision + 10)},{kind.scale})"
    return _SUMS.get(type(kind), "")


def _average_type(name: str, kind: t.IcebergType) -> str:
    """Returns the SQL type of Spark's average of values of a type."""
    if isinstance(kind, t.DecimalType):
        digits, scale = kind.precision + 4, kind.scale + 4
        # Digits of the fraction make room for the others, but for six (Spark, `DecimalType.adjustPrecisionScale`).
        if digits > _MOST_DIGITS:
            scale = max(_MOST_DIGITS - (digits - scale), min(scale, 6))
        return f"decimal({min(digits, _MOST_DIGITS)},{scale})"
    if isinstance(kind, t.IntegerType | t.LongType | t.FloatType | t.DoubleType | t.StringType):
        return "double"
    raise SpecError(f"`{name}` is the average of {kind}, which cannot be added", remedy="write an average of numbers")


def _with_windows(grouping: Grouping, query: Query, program: Program) -> Query:
    """Returns the query with the columns of windows and counts, in the order of the select list."""
    known = {column.name: column for column in query.columns}
    time = known.get(EVENT_TIME)
    fields = {field.name: field for field in program.output}
    operators, number = list(program.operators), Literal(1, pa.int64())
    counts = [column.name for column in grouping.columns if column.function == "count"]
    last = max(n for n, operator in enumerate(operators) if isinstance(operator, Project))
    operator = operators[last]
    assert isinstance(operator, Project)
    operators[last] = Project((*operator.columns, *((name, number) for name in counts)))
    known |= {name: Column(name, t.LongType(), False, frozenset()) for name in counts}
    fields |= {name: Field(name, number.type) for name in counts}
    names = {column.function: column.name for column in grouping.columns}
    start, end = names.get(WINDOW_START, ""), names.get(WINDOW_END, "")
    if grouping.window is not None and time is not None:
        window, kind = grouping.window, arrow_type(time.type)
        operators.append(
            Windows(Field(EVENT_TIME, kind), window.size_us, window.slide_us, window.offset_us, start, end, window.text)
        )
        known |= {name: replace(time, name=name) for name in (start, end) if name}
        fields |= {name: Field(name, kind) for name in (start, end) if name}
    order = [column.name for column in grouping.columns]
    output = [fields[name] for name in (*order, EVENT_TIME) if name in fields]
    columns = tuple(known[name] for name in order)
    return replace(query, columns=columns, program=replace(program, operators=tuple(operators), output=tuple(output)))
