"""Expressions of proven functions, made by chance: typed, of some depth, with the edge rows' columns as leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

Templates = Mapping[str, Sequence[str]]
LEAF_SHARE = 0.12
LEAVES: Templates = {
    "int": ("i", "j", "0", "1", "-1", "7", "2147483647", "st.x"),
    "long": ("l", "k", "1L", "0L", "9223372036854775807L"),
    "double": ("d", "e", "0.0D", "1.5D", "double('NaN')"),
    "decimal": ("c", "g", "1.50", "0.01"),
    "text": ("s", "t", "n", "'a'", "''", "st.y", "lt[0]"),
    "bool": ("a", "b", "true", "false"),
    "date": ("dt", "du", "date'2026-01-31'"),
    "moment": ("ts", "tu", "timestamp'2026-01-31 12:30:45.5'"),
    "ints": ("li", "array(1, null)"),
}
# What is made of what: each name in braces is an expression of that type.
MADE: Templates = {
    "int": (
        "({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} % {int})", "(- {int})", "abs({int})",
        "cast({text} as int)", "try_cast({text} as int)", "cast({long} as int)", "cast({double} as int)",
        "cast({bool} as int)", "length({text})", "year({date})", "month({date})",
        "hour({moment})",
        "size({ints})", "{ints}[{int}]",
        "if({bool}, {int}, {int})", "coalesce({int}, {int})", "nullif({int}, {int})",
        "case when {bool} then {int} when {bool} then {int} end",
        "pmod({int}, {int})",
    ),
    "long": (
        "({long} + {long})", "({long} - {long})", "({long} * {long})", "({long} % {long})",
        "cast({text} as bigint)", "cast({int} as bigint)", "cast({double} as bigint)",
        "unix_seconds({moment})", "unix_millis({moment})",
        "if({bool}, {long}, {long})", "coalesce({long}, {long})",
    ),
    "double": (
        "({double} + {double})", "({double} * {double})", "({double} / {double})", "({int} / {int})", "(- {double})",
        "cast({int} as double)", "cast({long} as double)", "cast({decimal} as double)", "try_cast({text} as double)",
        "if({bool}, {double}, {double})",
        "coalesce({double}, {double})",
    ),
    "decimal": (
        "cast({decimal} + {decimal} as decimal(10, 2))", "cast({decimal} * {decimal} as decimal(10, 2))",
        "(- {decimal})",
        "cast({int} as decimal(10, 2))", "abs({decimal})",
        "try_cast({text} as decimal(10, 2))", "cast({text} as decimal(10, 2))", "cast({long} as decimal(10, 2))",
        "cast(round({decimal}, 1) as decimal(10, 2))", "coalesce({decimal}, {decimal})",
        "if({bool}, {decimal}, {decimal})",
    ),
    "text": (
        "lower(trim({text}))", "upper({text})", "trim({text})", "substring({text}, 2, 3)",
        "substring({text}, -3, 2)", "right({text}, 2)",
        "concat({text}, {text})", "concat_ws('-', {text}, {text})", "replace({text}, 'a', 'bc')",
        "lpad({text}, 4, 'xy')",
        "cast({int} as string)", "cast({long} as string)", "cast({decimal} as string)",
        "cast({bool} as string)", "cast({date} as string)", "cast({moment} as string)", "md5({text})",
        "sha2({text}, 256)",
        "split_part({text}, ',', 2)", "if({bool}, {text}, {text})", "coalesce({text}, {text})",
        "case {int} when {int} then {text} else {text} end",
    ),
    "bool": (
        "({int} = {int})", "({long} < {long})", "({double} >= {double})", "({decimal} <=> {decimal})",
        "({text} = {text})",
        "({text} < {text})", "({bool} and {bool})", "({bool} or {bool})", "(not {bool})", "({int} is null)",
        "({text} is not null)",
        "({bool} is true)", "({int} in ({int}, {int}, null))", "({text} in ({text}, 'a'))",
        "({int} between {int} and {int})",
        "({text} like 'a%')", "({text} like '%b_')", "startswith({text}, 'a')", "contains({text}, 'b')",
        "({date} < {date})",
        "({moment} >= {moment})", "isnan({double})", "try_cast({text} as boolean)",
    ),
    "date": (
        "cast({moment} as date)",
        "trunc({date}, 'month')",
        "try_cast({text} as date)", "coalesce({date}, {date})", "if({bool}, {date}, {date})",
    ),
    "moment": (
        "date_trunc('hour', {moment})", "date_trunc('month', {moment})", "cast({date} as timestamp)",
        "try_cast({text} as timestamp)", "coalesce({moment}, {moment})", "if({bool}, {moment}, {moment})",
        "timestamp_seconds({int})",
    ),
    "ints": ("array({int}, {int})", "if({bool}, {ints}, {ints})", "coalesce({ints}, {ints})"),
}  # fmt: skip


def expressions(seed: int, count: int, depth: int) -> list[str]:
    """Returns expressions of any type, of at most this depth, none twice: at most `count`."""
    chance = np.random.default_rng(seed)
    kinds = sorted(MADE)
    found = (_expression(chance, _one_of(chance, kinds), depth) for _ in range(count))
    return list(dict.fromkeys(found))


def _one_of(chance: np.random.Generator, choices: Sequence[str]) -> str:
    return choices[int(chance.integers(len(choices)))]


def _expression(chance: np.random.Generator, kind: str, depth: int) -> str:
    choices = MADE[kind] if depth and chance.random() > LEAF_SHARE else LEAVES[kind]
    text, out = _one_of(chance, choices), ""
    while "{" in text:
        before, _, rest = text.partition("{")
        inner, _, text = rest.partition("}")
        out += before + _expression(chance, inner, depth - 1)
    return out + text
