"""Which columns of the records each column of a query's result is made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from frazil.process.program import BY_SPARK, Call, Explode, Expression, Field, Filter, Lookup, Program, Project

Names = frozenset[str]


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
    known: dict[str, Names] = {}
    deciding: Names = frozenset()
    lookups = frozenset(stage.name for stage in program.stages if isinstance(stage, Lookup))
    for stage in program.stages:
        if isinstance(stage, Filter):
            deciding |= _of(stage.condition, known)
        elif isinstance(stage, Project):
            known = {name: _of(expression, known) for name, expression in stage.columns}
        elif isinstance(stage, Explode):
            found = _of(stage.array, known)
            known |= dict.fromkeys(filter(None, (stage.name, stage.position)), found)
            deciding |= found
        elif isinstance(stage, Lookup):
            found = frozenset().union(*(_of(key, known) for key in stage.keys))
            known[stage.name] = found | {stage.name}
            deciding |= found if stage.on_miss != "null" else frozenset()
    columns = {field.name: known.get(field.name, frozenset((field.name,))) for field in program.output}
    return Origins(
        {name: names - lookups for name, names in columns.items()},
        deciding - lookups,
        frozenset(name for name, names in columns.items() if names & lookups),
    )


def spark_columns(program: Program) -> Names:
    """Returns the columns of the result that have values which Spark has made."""
    made: Names = frozenset()
    for stage in program.stages:
        if isinstance(stage, Project):
            made = frozenset(name for name, expression in stage.columns if _is_made(expression, made))
        elif isinstance(stage, Explode) and _is_made(stage.array, made):
            made |= {stage.name}
    return made


def _is_made(expression: Expression, made: Names) -> bool:
    if isinstance(expression, Field):
        return expression.name in made
    is_own = isinstance(expression, Call) and expression.function == BY_SPARK
    return is_own or (isinstance(expression, Call) and any(_is_made(one, made) for one in expression.arguments))


def _of(expression: Expression, known: Mapping[str, Names]) -> Names:
    if isinstance(expression, Field):
        return known.get(expression.name, frozenset((expression.name,)))
    if isinstance(expression, Call) and expression.function == BY_SPARK:
        return frozenset(json.loads(str(dict(expression.options)["inputs"])))
    if isinstance(expression, Call):
        return frozenset().union(*(_of(argument, known) for argument in expression.arguments))
    return frozenset()
