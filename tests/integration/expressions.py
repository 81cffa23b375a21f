"""Expressions of the table of proven functions, made by chance: typed, of some depth, with the edge rows' columns as leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

Templates = Mapping[str, Sequence[str]]
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
        "({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} % {int})", "(-{int})", "abs({int})", "({int} & {int})",
        "(~{int})", "cast({text} as int)", "try_cast({text} as int)", "cast({long} as int)", "cast({double} as int)",
        "cast({decimal} as int)", "cast({bool} as int)", "length({text})", "year({date})", "month({date})", "hour({moment})",
        "dayofweek({date})", "weekofyear({date})", "datediff({date}, {date})", "size({ints})", "{ints}[{int}]",
        "element_at({ints}, 1)", "if({bool}, {int}, {int})", "coalesce({int}, {int})", "nullif({int}, {int})",
        "greatest({int}, {int})", "case when {bool} then {int} when {bool} then {int} end", "instr({text}, 'a')", "pmod({int}, {int})",
    ),
    "long": (
        "({long} + {long})", "({long} - {long})", "({long} * {long})", "({int} div {int})", "({long} % {long})",
        "cast({text} as bigint)", "cast({int} as bigint)", "cast({double} as bigint)", "cast({decimal} as bigint)",
        "unix_seconds({moment})", "unix_millis({moment})", "ceil({double})", "floor({double})", "crc32({text})",
        "if({bool}, {long}, {long})", "coalesce({long}, {long})", "least({long}, {long})",
    ),
    "double": (
        "({double} + {double})", "({double} * {double})", "({double} / {double})", "({int} / {int})", "(-{double})",
        "cast({int} as double)", "cast({long} as double)", "cast({decimal} as double)", "try_cast({text} as double)",
        "greatest({double}, {double})", "if({bool}, {double}, {double})", "sign({double})", "coalesce({double}, {double})",
    ),
    "decimal": (
        "cast({decimal} + {decimal} as decimal(10, 2))", "cast({decimal} * {decimal} as decimal(10, 2))", "(-{decimal})",
        "try_cast({decimal} / {decimal} as decimal(10, 2))", "cast({int} as decimal(10, 2))", "abs({decimal})",
        "try_cast({text} as decimal(10, 2))", "cast({text} as decimal(10, 2))", "cast({long} as decimal(10, 2))",
        "cast(round({decimal}, 1) as decimal(10, 2))", "coalesce({decimal}, {decimal})", "if({bool}, {decimal}, {decimal})",
    ),
    "text": (
        "lower(trim({text}))", "upper(reverse({text}))", "trim({text})", "substring({text}, 2, 3)", "substring({text}, -3, 2)", "right({text}, 2)",
        "concat({text}, {text})", "concat_ws('-', {text}, {text})", "replace({text}, 'a', 'bc')", "lpad({text}, 4, 'xy')",
        "reverse({text})", "cast({int} as string)", "cast({long} as string)", "cast({decimal} as string)",
        "cast({bool} as string)", "cast({date} as string)", "cast({moment} as string)", "md5({text})", "sha2({text}, 256)",
        "hex({text})", "split_part({text}, ',', 2)", "if({bool}, {text}, {text})", "coalesce({text}, {text})",
        "case {int} when {int} then {text} else {text} end", "translate({text}, 'ab', 'x')", "base64({text})",
    ),
    "bool": (
        "({int} = {int})", "({long} < {long})", "({double} >= {double})", "({decimal} <=> {decimal})", "({text} = {text})",
        "({text} < {text})", "({bool} and {bool})", "({bool} or {bool})", "(not {bool})", "({int} is null)", "({text} is not null)",
        "({bool} is true)", "({int} in ({int}, {int}, null))", "({text} in ({text}, 'a'))", "({int} between {int} and {int})",
        "({text} like 'a%')", "({text} like '%b_')", "startswith({text}, 'a')", "contains({text}, 'b')", "({date} < {date})",
        "({moment} >= {moment})", "isnan({double})", "array_contains({ints}, {int})", "try_cast({text} as boolean)",
        "cast({int} as boolean)",
    ),
    "date": (
        "cast({moment} as date)", "date_add({date}, 1)", "date_sub({date}, 40)", "last_day({date})", "trunc({date}, 'month')",
        "try_cast({text} as date)", "coalesce({date}, {date})", "if({bool}, {date}, {date})", "least({date}, {date})",
    ),
    "moment": (
        "date_trunc('hour', {moment})", "date_trunc('month', {moment})", "cast({date} as timestamp)", "({moment} + interval 1 hour)",
        "try_cast({text} as timestamp)", "coalesce({moment}, {moment})", "if({bool}, {moment}, {moment})",
        "timestamp_seconds({int})",
    ),
    "ints": ("array({int}, {int})", "if({bool}, {ints}, {ints})", "coalesce({ints}, {ints})"),
}  # fmt: skip


def expressions(depth: int) -> st.SearchStrategy[str]:
    """Returns expressions of any type, of at most this depth."""
    return st.sampled_from(sorted(LEAVES)).flatmap(lambda kind: expression(kind, depth))


def expression(kind: str, depth: int) -> st.SearchStrategy[str]:
    """Returns expressions of this type, of at most this depth."""
    if not depth:
        return st.sampled_from(LEAVES[kind])
    return st.one_of(
        st.sampled_from(LEAVES[kind]), st.sampled_from(MADE[kind]).flatmap(lambda text: _filled(text, depth))
    )


def _filled(template: str, depth: int) -> st.SearchStrategy[str]:
    """Returns a template with an expression in each place."""
    first, brace, rest = template.partition("{")
    if not brace:
        return st.just(template)
    kind, _, rest = rest.partition("}")
    return st.tuples(expression(kind, depth - 1), _filled(rest, depth)).map(lambda parts: first + "".join(parts))
