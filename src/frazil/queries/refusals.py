"""What a query may consist of, checked on the plan as it is written, before Spark's analyser sees it.

Functions are allowed by name: those whose result is decided by their arguments alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from typing import Any

from frazil.errors import SpecError
from frazil.queries.catalyst import RECORDS, RULES, TOO_DEEP, chain_of, class_of, items_of, position_of

#: The greatest number that a query may give a function that makes text or lists of that length.
LIMIT_COUNT = 10_000
#: How deep expressions may be nested.
LIMIT_DEPTH = 200
FUNCTIONS: dict[str, frozenset[str]] = {
    group: frozenset(names.split())
    for group, names in {
        "conditions": """coalesce nvl ifnull nvl2 nullif nullifzero zeroifnull if greatest least isnull isnotnull isnan nanvl
            equal_null decode in not and or like ilike rlike regexp regexp_like between when""",
        "casts": """bigint binary boolean date decimal double float int smallint string timestamp tinyint typeof
            to_binary try_to_binary to_char to_varchar to_number try_to_number""",
        "text": """ascii bit_length btrim char char_length character_length chr concat concat_ws contains elt endswith
            find_in_set format_number format_string initcap instr is_valid_utf8 lcase left len length levenshtein locate
            lower lpad ltrim luhn_check make_valid_utf8 mask octet_length overlay position printf quote
            regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace
            reverse right rpad rtrim soundex space split split_part startswith substr substring substring_index
            translate trim try_validate_utf8 ucase upper validate_utf8""",
        "numbers": """abs acos acosh asin asinh atan atan2 atanh bin bit_count bround cbrt ceil ceiling conv cos cosh cot
            csc degrees div e exp expm1 factorial floor hypot ln log log10 log1p log2 mod negative pi pmod positive pow
            power radians rint round sec shiftleft shiftright shiftrightunsigned sign signum sin sinh sqrt tan tanh
            try_add try_divide try_mod try_multiply try_subtract width_bucket getbit bit_get""",
        "time": """add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub
            date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime
            from_utc_timestamp hour last_day make_date make_timestamp make_timestamp_ltz make_timestamp_ntz minute month
            monthname months_between next_day quarter second timestamp_micros timestamp_millis timestamp_seconds
            to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
            to_utc_timestamp trunc try_make_timestamp try_to_date try_to_timestamp unix_date unix_micros unix_millis
            unix_seconds unix_timestamp weekday weekofyear year""",
        "hashes and codecs": """base64 crc32 encode hash hex md5 sha sha1 sha2 unbase64 unhex url_decode url_encode
            try_url_decode parse_url try_parse_url xxhash64""",
        "JSON and CSV": """from_csv from_json get_json_object json_array_length json_object_keys parse_json to_csv to_json
            try_parse_json try_variant_get variant_get""",
        "lists, maps and structs": """aggregate array array_append array_compact array_contains array_distinct array_except
            array_insert array_intersect array_join array_max array_min array_position array_prepend array_remove
            array_repeat array_size array_sort array_union arrays_overlap arrays_zip cardinality element_at exists
            filter flatten forall get map map_contains_key map_entries map_filter map_keys map_values map_zip_with
            named_struct reduce reverse size slice sort_array struct transform transform_values try_element_at zip_with""",
        "rows of a list": "explode explode_outer posexplode posexplode_outer",
    }.items()
}
_ALLOWED = frozenset().union(*FUNCTIONS.values())
# `map` does too; it is allowed for the options of `from_json` and the like, which are constants.
_BUILDING_MAPS = ("map_concat", "map_from_arrays", "map_from_entries", "str_to_map", "transform_keys")
#: The place of the count among the arguments of a function that makes something of that length.
_COUNTS = {"repeat": 1, "lpad": 1, "rpad": 1, "space": 0, "array_repeat": 1, "format_number": 1, "array_insert": 1}
_ONE_RECORD = "a row is made of one record: use `merge` in an upsert table, or aggregate what is in the table"
# What else a query may not have, by Spark's classes, with the remedy.
_PLANS = {
    "UnresolvedWith": ("a WITH clause", "write a sub-query in FROM, `select … from (select … from records)`"),
    "Join": ("a join", "a query reads `records` alone: `lookup` joins them with a small table"),
    "LateralJoin": ("a join", "compute the column in a sub-query in FROM"),
    "WithWindowDefinition": ("a window (OVER)", "leave it out"),
    "AsOfJoin": ("a join", "a query reads `records` alone: `lookup` joins them with a small table"),
    "Aggregate": ("GROUP BY", _ONE_RECORD),
    "UnresolvedHaving": ("HAVING", "write the condition after WHERE"),
    "Sort": ("ORDER BY", "leave it out; the order of a table's files is its sort order's"),
    "GlobalLimit": ("LIMIT", "leave it out, and write a condition after WHERE"),
    "LimitAll": ("LIMIT ALL", "leave it out"),
    "Offset": ("OFFSET", "leave it out, and write a condition after WHERE"),
    "Distinct": ("DISTINCT", "leave it out; an upsert table keeps one row for each key"),
    "Union": ("UNION", "write two tables with a query each"),
    "Intersect": ("INTERSECT", "write the condition after WHERE"),
    "Except": ("EXCEPT", "write the condition after WHERE"),
    "Sample": ("TABLESAMPLE", "write a condition after WHERE, such as `_offset % 100 = 0`"),
    "UnresolvedHint": ("a hint", "leave it out"),
    "PipeOperator": ("a pipe (|>)", f"write `select … from {RECORDS} where …`"),
    "UnresolvedTableValuedFunction": ("a function in FROM", f"write `from {RECORDS}`"),
    "OneRowRelation": ("no FROM", f"write `select … from {RECORDS}`, without a comma before FROM"),
    "ScriptTransformation": ("a script", "use Spark's functions"),
    "Pivot": ("PIVOT", "leave it out"),
    "UnresolvedSubqueryColumnAliases": ("names of columns behind an alias", "write `as NAME` behind each column"),
    "RelationTimeTravel": ("VERSION AS OF", f"write `from {RECORDS}`"),
    "CompoundBody": ("a script", f"write one `select … from {RECORDS}`"),
}
_KEPT_PLANS = {"Project", "Filter", "Generate", "SubqueryAlias", "UnresolvedRelation"}
_EXPRESSIONS = {
    "ScalarSubquery": "a sub-query as a value",
    "ListQuery": "a sub-query after IN",
    "InSubquery": "a sub-query after IN",
    "Exists": "a sub-query after EXISTS",
    "WindowExpression": "a window (OVER)",
    "UnresolvedWindowExpression": "a window (OVER)",
    "NamedParameter": "a parameter (:name)",
    "PosParameter": "a parameter (?)",
    "ExpressionWithUnresolvedIdentifier": "IDENTIFIER()",
    "SemiStructuredExtract": "a path of a variant (`column:path`)",
    "Collate": "a collation",
    "UnresolvedCollation": "a collation",
    "UnresolvedRegex": "columns by a pattern",
}
# Dates and times of these names depend on when the query is read.
_TODAY = re.compile(r"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*['\"]\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)


def check_query(query: str, plan: Any, functions: Collection[str] = ()) -> None:
    """Refuses a query that is not one projection and selection of the relation `records`. functions: which it may call
    besides Spark's, in small letters.

    Raises: SpecError that names what is refused, and where.
    """
    _check_words(query)
    for node in chain_of(plan):
        _check_plan(node)
        for expression in items_of(node.expressions()):
            _check_expression(expression, functions)
    top = class_of(plan)
    if top != "Project":
        raise SpecError("the query selects nothing", remedy=f"write `select … from {RECORDS}`")
    for item in items_of(plan.projectList()):
        if class_of(item) == "UnresolvedAlias":
            text = str(item.child().sql())
            names = "(POSITION, NAME)" if text.lower().startswith("posexplode") else "NAME"
            raise SpecError(
                f"the column `{text}` has no name", remedy=f"write `{text} as {names}`", where=position_of(item.child())
            )


def check_condition(condition: str, root: Any, functions: Collection[str] = ()) -> None:
    """Refuses what is not one expression over the columns of `records`. functions: as for `check_query`.

    Raises: SpecError that names what is refused, and where.
    """
    _check_words(condition)
    if class_of(root) in ("Alias", "UnresolvedStar"):
        raise SpecError(f"`{condition.strip()}` is not a condition", remedy="write an expression, such as `amount > 0`")
    _check_expression(root, functions)


def _check_words(query: str) -> None:
    """Refuses `date'today'` and the like, which Spark's parser replaces by the present time."""
    match = _TODAY.search(query)
    if match:
        raise SpecError(
            f"`{match[0]}'` is another time at every run", remedy="use `_timestamp`, the time of the record"
        )


def _check_plan(node: Any) -> None:
    kind = class_of(node)
    if kind == "Distinct":  # Of UNION too.
        kind = {"Union": "Union"}.get(class_of(node.children().head()), kind)
    if kind not in _KEPT_PLANS or node.children().size() > 1:
        what, remedy = _PLANS.get(kind, (f"a statement of another kind ({kind})", f"write `select … from {RECORDS}`"))
        raise SpecError(f"the query has {what}", remedy=remedy, where=position_of(node))
    if kind != "UnresolvedRelation":
        return
    name = [str(part) for part in items_of(node.multipartIdentifier())]
    if [part.lower() for part in name] != [RECORDS]:
        message = f"the query reads `{'.'.join(name)}`"
        raise SpecError(message, remedy=f"write `from {RECORDS}`, the only relation", where=position_of(node))


def _check_expression(node: Any, functions: Collection[str], depth: int = 0) -> None:
    """Refuses sub-queries, windows, and functions that are not allowed, in an expression as it is written.

    Raises: SpecError that names what is refused, and where.
    """
    if depth > LIMIT_DEPTH:
        raise SpecError(f"an expression is nested in more than {LIMIT_DEPTH} levels", remedy=TOO_DEEP)
    kind = class_of(node)
    if kind in _EXPRESSIONS:
        remedy = "use columns, literals and functions alone"
        raise SpecError(f"the query has {_EXPRESSIONS[kind]}", remedy=remedy, where=position_of(node))
    if kind in ("UnresolvedFunction", "UnresolvedGenerator"):
        _check_function(kind, node, functions)
    for child in items_of(node.children()):
        _check_expression(child, functions, depth + 1)


def _check_function(kind: str, node: Any, functions: Collection[str]) -> None:
    parts = node.nameParts() if kind == "UnresolvedFunction" else None
    name = ".".join(map(str, items_of(parts))) if parts else str(node.name().funcName())
    if name.lower() in _BUILDING_MAPS:
        raise making_a_map(name, position_of(node))
    if name.lower() not in _ALLOWED and name.lower() not in functions:
        raise SpecError(
            f"the function `{name}` is unknown, or not allowed in a query over records",
            remedy=_instead(name.lower()),
            where=position_of(node),
        )
    place = _COUNTS.get(name.lower())
    if place is not None:
        _check_count(name, node, place)


def making_a_map(what: str, where: str = "") -> SpecError:
    """Returns the error for an expression that makes a map: after a key that fails, Spark's builder of maps has entries of
    that record left, which the next record would get.
    """
    return SpecError(
        f"`{what}` makes a map, and Spark does not say for which record that fails",
        remedy="make a list of structs, `array(struct(key, value))`, or a map of JSON: `from_json(…, 'map<…>')`",
        where=where,
    )


def _instead(name: str) -> str:
    if name in _INSTEAD:
        return _INSTEAD[name]
    close = difflib.get_close_matches(name, _ALLOWED, n=1, cutoff=_LIKENESS)
    return f"did you mean `{close[0]}`?" if close else f"use another function; {RULES}"


# A known function that is not allowed, such as `reflect`, is not a misspelt `repeat`.
_LIKENESS = 0.8
_NOW = "use `_timestamp`, the time of the record"
_INSTEAD = {
    **dict.fromkeys(("now", "current_timestamp", "current_date", "curdate", "localtimestamp", "current_time"), _NOW),
    **dict.fromkeys(("count", "sum", "min", "max", "avg", "mean", "first", "last", "any", "collect_list"), _ONE_RECORD),
    **dict.fromkeys(("uuid", "monotonically_increasing_id"), "use `_topic`, `_kafka_partition` and `_offset`"),
    **dict.fromkeys(
        ("rand", "random", "randn", "shuffle"), "use a hash of the record, such as `hash(_kafka_partition, _offset)`"
    ),
    "sequence": "write the list out, `array(1, 2, 3)`",
    "inline": "use `explode`, and select the members of its elements",
    "json_tuple": "use `get_json_object`",
    **dict.fromkeys(("raise_error", "assert_true"), "write the condition after WHERE"),
}


def _check_count(name: str, node: Any, place: int) -> None:
    arguments = items_of(node.arguments())
    if place >= len(arguments):
        return  # Spark names the number of arguments that is wanted.
    count = arguments[place]
    if class_of(count) == "UnaryMinus":  # A place from the end.
        count = count.child()
    if class_of(count) == "Literal" and str(count.dataType().typeName()) == "string":
        return  # The pattern of `format_number`.
    if class_of(count) != "Literal" or not str(count.toString()).isdigit() or int(count.toString()) > LIMIT_COUNT:
        remedy = f"write a number up to {LIMIT_COUNT}"
        raise SpecError(
            f"`{name}` needs a count that is no more than {LIMIT_COUNT}", remedy=remedy, where=position_of(node)
        )


def star_of(plan: Any) -> frozenset[str] | None:
    """Returns the columns that a select with a `*` names besides, in small letters; None where it has no `*`."""
    kinds = [(class_of(item), item) for item in items_of(plan.projectList())]
    if not any(kind.startswith("UnresolvedStar") for kind, _ in kinds):
        return None
    return frozenset(str(item.nameParts().last()).lower() for kind, item in kinds if kind == "UnresolvedAttribute")


def aliases_used(plan: Any) -> frozenset[str]:
    """Returns the names of columns that later columns of their select list use, in small letters: Spark prefers a field of
    such a name.
    """
    used: set[str] = set()
    for node in chain_of(plan):
        aliases: set[str] = set()
        for item in items_of(node.projectList()) if class_of(node) == "Project" else ():
            used |= aliases.intersection(_names_in(item))
            if class_of(item) == "Alias":
                aliases.add(str(item.name()).lower())
    return frozenset(used)


def _names_in(expression: Any) -> Iterator[str]:
    if class_of(expression) == "UnresolvedAttribute":
        yield str(expression.nameParts().head()).lower()
    for child in items_of(expression.children()):
        yield from _names_in(child)
