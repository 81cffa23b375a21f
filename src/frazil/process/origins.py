"""Which columns of the records each column of a query's result is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frazil.process.program import Call, Explode, Expression, Field, Filter, Program, Project

Names = frozenset[str]


@dataclass(frozen=True)
class Origins:
    """The columns of the input that a program uses."""

    #: By column of the result, the columns that its values are made from.
    columns: Mapping[str, Names]
    #: The columns that decide which rows there are: those of conditions and of exploded arrays.
    rows: Names


def origins_of(program: Program) -> Origins:
    """Returns what the program uses of its input."""
    known: dict[str, Names] = {}
    deciding: Names = frozenset()
    for stage in program.stages:
        if isinstance(stage, Filter):
            deciding |= _of(stage.condition, known)
        elif isinstance(stage, Project):
            known = {name: _of(expression, known) for name, expression in stage.columns}
        elif isinstance(stage, Explode):
            found = _of(stage.array, known)
            known |= dict.fromkeys(filter(None, (stage.name, stage.position)), found)
            deciding |= found
    return Origins({field.name: known.get(field.name, frozenset((field.name,))) for field in program.output}, deciding)


def _of(expression: Expression, known: Mapping[str, Names]) -> Names:
    if isinstance(expression, Field):
        return known.get(expression.name, frozenset((expression.name,)))
    if isinstance(expression, Call):
        return frozenset().union(*(_of(argument, known) for argument in expression.arguments))
    return frozenset()


def plain_origins(program: Program) -> Mapping[str, str]:
    """Returns the columns of the result that are columns of the input, unchanged: the former by the latter."""
    known: dict[str, str | None] = {}
    for stage in program.stages:
        if isinstance(stage, Project):
            known = {name: _plain(expression, known) for name, expression in stage.columns}
        elif isinstance(stage, Explode):
            known |= dict.fromkeys(filter(None, (stage.name, stage.position)))
    found: dict[str, str] = {}
    for field in program.output:
        origin = known.get(field.name, field.name)
        if origin is not None:
            found.setdefault(origin, field.name)
    return found


def _plain(expression: Expression, known: Mapping[str, str | None]) -> str | None:
    return known.get(expression.name, expression.name) if isinstance(expression, Field) else None
