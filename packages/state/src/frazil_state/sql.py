"""The clauses of a query with GROUP BY: which columns are keys, windows and aggregates, and what merges their values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from frazil.column_names import fold_case
from frazil.errors import SpecError
from frazil.spec.grouping import (
    AVERAGE,
    DISTINCT,
    KEY,
    SKETCH,
    WINDOW_END,
    WINDOW_START,
    GroupedColumn,
    Grouping,
    TimeWindow,
    Token,
    depths_of,
)
from frazil.spec.syntax.problems import advice

_MICROS_OF = {
    "microsecond": 1, "millisecond": 1000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
_SESSION = "session_window"
_FUNCTIONS: Mapping[str, str] = {
    "sum": "sum", "min": "min", "max": "max", "avg": AVERAGE, "mean": AVERAGE, "first": "first", "first_value": "first",
    "any_value": "first", "last": "latest", "last_value": "latest", "bool_and": "bool_and", "every": "bool_and",
    "bool_or": "bool_or", "some": "bool_or", "any": "bool_or", "collect_set": "collect_set",
    "collect_list": "collect_list", "array_agg": "collect_list", "approx_count_distinct": DISTINCT,
    "theta_sketch_agg": SKETCH, "kll_sketch_agg_double": "quantile_sketch",
}  # fmt: skip
"""The function of `merge` for each aggregate of Spark that is more than a call with another argument."""
_OF_ONE_ROW = ("first", "first_value", "any_value", "last", "last_value")
"""The aggregates that may leave nulls out or not."""
_LISTED = ("collect_set", "collect_list")
_OTHERS: Mapping[str, str] = {
    "hll_sketch_agg": "write `theta_sketch_agg(…)`, or `approx_count_distinct(…)` for the number",
    **dict.fromkeys(("kll_sketch_agg_bigint", "kll_sketch_agg_float"), "write `kll_sketch_agg_double(…)`"),
    **dict.fromkeys(
        ("percentile", "percentile_approx", "approx_percentile", "median"),
        "write `kll_sketch_agg_double(…) as NAME`, and read it with `kll_sketch_get_quantile_double`",
    ),
    **dict.fromkeys(
        (
            "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", "skewness", "kurtosis", "corr",
            "covar_pop", "covar_samp", "mode",
            "try_sum", "try_avg", "max_by", "min_by", "listagg", "string_agg", "product", "bit_and", "bit_or", "bit_xor",
            "grouping", "grouping_id", "histogram_numeric", "count_min_sketch", "regr_slope",
        ),
        "write sum, count, count_if, avg, min, max, first, last, bool_and, bool_or, collect_set or collect_list",
    ),
}  # fmt: skip
"""Further aggregates of Spark, with what to write."""
_OPERATORS = frozenset(
    ("and", "or", "not", "is", "in", "like", "ilike", "rlike", "between", "then", "else", "when", "div")
)
_VALUES = frozenset(("end", "null", "true", "false"))
_OF_CASE = frozenset(("case", "as"))
_AGGREGATES = frozenset({*_FUNCTIONS, *_OTHERS, "count", "count_if"})
_OWN_COLUMN = "give each aggregate a column of its own, and compute with the columns when reading, such as in a view"
_SELECT_WINDOW = "select `window.start as NAME`, and `window.end as NAME` if need be"


def read_groups(query: str, tokens: Sequence[Token], places: Mapping[str, int]) -> Grouping:
    """Returns the groups of a query. tokens: of its text. places: the index of the first token of each clause.

    Raises: SpecError for what groups of records cannot be made of.
    """
    return _Reader(query, tokens, places).grouping()


@dataclass(frozen=True)
class _Item:
    """One entry of a list."""

    tokens: tuple[Token, ...]
    #: The name behind AS; empty where it has none.
    alias: str = ""

    @property
    def plain(self) -> tuple[str, ...]:
        return tuple(token.plain for token in self.tokens)

    @property
    def function(self) -> str:
        """The name of the function that the whole of the entry is a call of; empty for other entries."""
        if len(self.tokens) < 3 or not self.tokens[0].word or self.tokens[1].text != "(":
            return ""
        closing = next(n for n, depth in enumerate((*depths_of(self.tokens)[2:], 0), start=2) if depth == 0)
        return self.tokens[0].word if closing == len(self.tokens) - 1 else ""


@dataclass
class _Reader:
    """Reads the clauses of one query."""

    query: str
    tokens: Sequence[Token]
    places: Mapping[str, int]
    window: TimeWindow | None = None
    #: The entries of GROUP BY that are neither a window nor the place or the alias of a column.
    groups: list[_Item] = field(default_factory=list)

    def grouping(self) -> Grouping:
        select, group = self.places["from"], self.places["group"]
        end = self.places.get("end", len(self.tokens))
        if "having" in self.places:
            raise SpecError(
                "the query has HAVING: a group that does not meet the condition yet is needed by later records",
                remedy="write the condition where the table is read, such as in a view over it",
            )
        if self.tokens[1].word in ("distinct", "all"):
            raise SpecError("the query has DISTINCT behind SELECT", remedy="leave it out: each group is one row")
        items = [self._item(entry) for entry in _split(self.tokens[1:select])]
        self._read_groups(items, [_Item(tuple(entry)) for entry in _split(self.tokens[group + 2 : end])])
        columns = [column for item in items for column in self._columns(item)]
        self._check(columns)
        rest = self._text(self.tokens[end:])
        text = self._text(self.tokens[select:group])
        return Grouping(tuple(columns), f"{text}\n{rest}" if rest else text, self.window)

    def _text(self, tokens: Sequence[Token]) -> str:
        bounds = [(token.start, token.end) for token in tokens] or [(0, 0)]
        return self.query[bounds[0][0] : bounds[-1][1]]

    def _item(self, tokens: Sequence[Token]) -> _Item:
        """Returns an entry of the select list with its alias."""
        depths = depths_of(tokens)
        name = tokens[-1]
        if len(tokens) > 1 and name.kind in ("word", "name") and depths[-1] == 0:
            before = tokens[-2]
            if before.word == "as":
                return _Item(tuple(tokens[:-2]), _name_of(name))
            is_value = before.kind != "sign" or before.text in (")", "]")
            if is_value and before.word not in _OPERATORS and name.word not in _VALUES:
                return _Item(tuple(tokens[:-1]), _name_of(name))
        return _Item(tuple(tokens))

    def _read_groups(self, items: Sequence[_Item], entries: Sequence[_Item]) -> None:
        for entry in entries:
            words = [token.word for token in entry.tokens]
            if {"rollup", "cube", "sets"} & {*words}:
                raise SpecError(
                    f"the query groups by {self._text(entry.tokens)}",
                    remedy="declare a table for each combination of groups: all tables of a topic share one read of it",
                )
            if words == ["all"]:
                remedy = "name the columns behind GROUP BY"
                raise SpecError("the query has GROUP BY ALL", remedy=remedy)
            if len(entry.tokens) == 1 and entry.tokens[0].kind == "number":
                place = int(entry.tokens[0].text) if entry.tokens[0].text.isdigit() else 0
                if not 1 <= place <= len(items):
                    raise SpecError(
                        f"the query groups by {place}, and selects {len(items)} columns",
                        remedy="name the column behind GROUP BY",
                    )
                self.groups.append(_without_alias(items[place - 1]))
            elif entry.function in ("window", _SESSION):
                self._read_window(entry)
            else:
                self._group_by(items, entry)

    def _group_by(self, items: Sequence[_Item], entry: _Item) -> None:
        if any(item.plain == entry.plain for item in items):
            self.groups.append(entry)
            return
        named = [item for item in items if (item.alias.lower(),) == entry.plain]
        if not named:
            text = self._text(entry.tokens)
            raise SpecError(
                f"the query groups by `{text}`, and does not select it: groups are rows that it identifies",
                remedy=f"add `{text} as NAME` behind SELECT"
                if len(entry.tokens) > 1
                else f"add `{text}` behind SELECT",
            )
        fields = ("", *(token.text for token in named[0].tokens))  # What is before each token.
        is_field = (
            token.plain == entry.plain[0] and before != "."
            for token, before in zip(named[0].tokens, fields, strict=False)
        )
        if any(is_field):
            text = self._text(named[0].tokens)
            raise SpecError(
                f"`{entry.plain[0]}` behind GROUP BY is both a field and the name of `{text}`",
                remedy=f"write `{text}` behind GROUP BY",
            )
        self.groups.append(_without_alias(named[0]))

    def _read_window(self, entry: _Item) -> None:
        text = self._text(entry.tokens)
        if self.window is not None:
            raise SpecError("the query has two windows behind GROUP BY", remedy="declare a table for each")
        time, *durations = _split(entry.tokens[2:-1])
        if entry.function == _SESSION:
            self._read_session(text, self._text(time), durations)
            return
        if not 1 <= len(durations) <= 3:
            remedy = "write `window(TIME, '1 minute')`, or `window(TIME, '10 minutes', '5 minutes')`"
            raise SpecError(f"`{text}` has {len(durations)} durations", remedy=remedy)
        size, slide, offset = (*(_micros_of(self._text(tokens), text) for tokens in durations), None, None)[:3]
        assert size is not None
        slide = size if slide is None else slide
        offset = offset or 0
        if not 0 < slide <= size or abs(offset) >= slide:
            remedy = "write durations of more than 0, the second up to the first, and the third less than the second"
            raise SpecError(f"`{text}` has durations that make no windows", remedy=remedy)
        self.window = TimeWindow(self._text(time), size, slide, offset, text)
        if self.window.windows_per_time > _MOST_WINDOWS:
            raise SpecError(
                f"`{text}` puts each record into {self.window.windows_per_time} windows",
                remedy=f"write a longer second duration, so that there are {_MOST_WINDOWS} or less",
            )

    def _read_session(self, text: str, time: str, durations: Sequence[Sequence[Token]]) -> None:
        gaps = [_micros_of(self._text(tokens), text) for tokens in durations]
        if len(gaps) != 1 or gaps[0] <= 0:
            remedy = "write `session_window(TIME, '5 minutes')`, with one duration of more than 0"
            raise SpecError(f"`{text}` does not have one duration, after which a session ends", remedy=remedy)
        self.window = TimeWindow(time, gaps[0], 0, 0, text)

    def _columns(self, item: _Item) -> Iterator[GroupedColumn]:
        """Yields the column of an entry of the select list, and the columns that an average is made of."""
        text, plain = self._text(item.tokens), item.plain
        name = _SESSION if self._is_session else "window"
        if plain in ((name, ".", "start"), (name, ".", "end")) and self.window is not None:
            yield GroupedColumn(item.alias or plain[2], f"window.{plain[2]}")
        elif plain[:1] == (name,) and self.window is not None:
            raise SpecError(f"the query selects `{text}`", remedy=_SELECT_WINDOW.replace("window", name))
        elif plain in [group.plain for group in self.groups]:
            yield GroupedColumn(item.alias or self._name(item), KEY, text)
        elif aggregate := self._aggregate(item):
            yield from aggregate
        elif any(_is_call(item.tokens, n) for n in range(len(item.tokens))):
            raise SpecError(f"the query computes with aggregates: `{text}`", remedy=_OWN_COLUMN)
        elif self._is_of_group(item):
            yield GroupedColumn(item.alias or self._name(item), "latest", text)
        else:
            raise SpecError(
                f"the query selects `{text}`, which is neither behind GROUP BY nor an aggregate",
                remedy=f"add it behind GROUP BY, or write `first({text}) as NAME`",
            )

    @property
    def _is_session(self) -> bool:
        return self.window is not None and self.window.is_session

    def _name(self, item: _Item) -> str:
        """Returns the name of a field that is selected without an alias."""
        is_path = all(token.kind in ("word", "name") or token.text == "." for token in item.tokens)
        if not is_path:
            text = self._text(item.tokens)
            raise SpecError(f"the column `{text}` has no name", remedy=f"write `{text} as NAME`")
        return _name_of(item.tokens[-1])

    def _is_of_group(self, item: _Item) -> bool:
        """Whether a column has one value for each group: it is made of columns behind GROUP BY, and of constants."""
        names = {group.plain[0] for group in self.groups if len(group.plain) == 1}
        calls = {n for n in range(len(item.tokens) - 1) if item.tokens[n + 1].text == "("}
        words = (token for n, token in enumerate(item.tokens) if token.kind in ("word", "name") and n not in calls)
        return {token.plain for token in words} <= {*names, *_OPERATORS, *_VALUES, *_OF_CASE}

    def _aggregate(self, item: _Item) -> tuple[GroupedColumn, ...]:
        """Returns the columns of an entry that is one aggregate; none for another entry."""
        call, condition, ignores_nulls = self._call(item)
        if call.function not in _AGGREGATES:
            return ()
        text = self._text(item.tokens)
        if not item.alias:
            raise SpecError(f"the column `{text}` has no name", remedy=f"write `{text} as NAME`")
        if call.function in _OTHERS:
            raise SpecError(f"the query has `{call.function}`, which groups cannot have", remedy=_OTHERS[call.function])
        inner = call.tokens[2:-1]
        if inner and inner[0].word == "distinct":
            remedy = "write `approx_count_distinct(…)`; or `collect_set(…)`, and take its `size` when reading"
            raise SpecError(f"the query has `{text}`: DISTINCT needs all values", remedy=remedy)
        arguments = _split(inner)
        if ignores_nulls and call.function not in _OF_ONE_ROW:
            message = f"`{text}` has IGNORE NULLS, which is for first and last"
            raise SpecError(message, remedy="leave it out: other aggregates ignore null anyway")
        if call.function in _OF_ONE_ROW and len(arguments) == 2:
            ignores_nulls, arguments = self._text(arguments[1]).lower() == "true", arguments[:1]
        if len(arguments) != 1:
            raise SpecError(f"`{text}` has {len(arguments)} arguments", remedy=f"write `{call.function}(VALUE)`")
        return self._merged(item.alias, call.function, self._text(arguments[0]), condition, ignores_nulls)

    def _call(self, item: _Item) -> tuple[_Item, str, bool]:
        """Returns the call of an entry, the condition of `filter (where …)`, and whether it has `ignore nulls`."""
        tokens, depths = item.tokens, depths_of(item.tokens)
        condition, ignores_nulls = "", False
        if tokens[-1].text == ")" and len(tokens) > 4:
            opening = max(n for n, token in enumerate(tokens) if token.text == "(" and depths[n] == 0)
            if tokens[opening - 1].word == "filter" and tokens[opening + 1].word == "where":
                condition = self._text(tokens[opening + 2 : -1])
                tokens = tokens[: opening - 1]
        if len(tokens) > 2 and tokens[-1].word == "nulls" and tokens[-2].word in ("ignore", "respect"):
            ignores_nulls, tokens = tokens[-2].word == "ignore", tokens[:-2]
        return _Item(tokens), condition, ignores_nulls

    def _merged(
        self, name: str, function: str, value: str, condition: str, ignores_nulls: bool
    ) -> tuple[GroupedColumn, ...]:
        """Returns the columns of an aggregate of one value. condition: of the records that count; empty for all."""
        counted = f"({condition})" if condition else ""
        if function == "count" and (value == "*" or re.fullmatch(r"[0-9]+", value)):
            of_some = GroupedColumn(name, "sum", f"if({counted}, 1L, 0L)")
            return (of_some if counted else GroupedColumn(name, "count"),)
        if function == "count_if":
            return (GroupedColumn(name, "sum", f"if({_both(f'({value})', counted)}, 1L, 0L)"),)
        if function == "count":
            return (GroupedColumn(name, "sum", f"if({_both(f'({value}) is not null', counted)}, 1L, 0L)"),)
        merged = _FUNCTIONS[function]
        if self._is_session and merged in ("first", "latest"):
            message = f"`{name}` is `{function}`, and records of two sessions that become one have no order"
            raise SpecError(message, remedy="write `min` or `max`, such as of the time, or `collect_set`")
        if counted and merged in ("first", "latest"):
            remedy = f"write `{function}(if({condition}, {value}, null), true)`"
            raise SpecError(f"`{name}` is `{function}` with FILTER", remedy=remedy)
        sql = f"if({counted}, {value}, null)" if counted else value
        if merged == AVERAGE:
            present = f"if(({sql}) is not null, 1L, 0L)"
            return (
                GroupedColumn(name, AVERAGE, sql),
                GroupedColumn(f"{name}_sum", "sum", sql),
                GroupedColumn(f"{name}_count", "sum", present),
            )
        if merged == DISTINCT:
            is_value = f"if(({sql}) is not null, 1L, 0L)"
            return (GroupedColumn(name, DISTINCT, is_value), GroupedColumn(f"{name}_sketch", SKETCH, sql))
        if merged == "quantile_sketch":
            return (GroupedColumn(name, merged, f"cast(cast(cast({sql} as double) as string) as binary)"),)
        if merged == SKETCH:
            return (GroupedColumn(name, SKETCH, sql),)
        if merged in _LISTED:
            sql = f"if({counted}, array({value}), null)" if counted else f"array({value})"
        return (GroupedColumn(name, f"{merged}_non_null" if ignores_nulls else merged, sql),)

    def _check(self, columns: Sequence[GroupedColumn]) -> None:
        selected = {column.function for column in columns}
        if not any(column.function not in (KEY, WINDOW_START, WINDOW_END) for column in columns):
            remedy = "select one, such as `count(*) as n`, or declare the table with `mode: upsert` and `key_columns`"
            raise SpecError("the query groups records, and selects no aggregate", remedy=remedy)
        if self.window is not None and self._is_session:
            _check_session(selected, self.window.text)
        if self.window is not None and not {WINDOW_START, WINDOW_END} & selected:
            message = f"the query groups by `{self.window.text}`, and does not select it"
            raise SpecError(message, remedy=_SELECT_WINDOW)
        names = [fold_case(column.name) for column in columns]
        twin = next((column.name for column in columns if names.count(fold_case(column.name)) > 1), None)
        if twin is not None:
            message = f"the query has two columns `{twin}`; `avg(…) as a` makes `a_sum` and `a_count` too"
            raise SpecError(message, remedy="name one of them otherwise: `as NAME`")


def _check_session(selected: Collection[str], text: str) -> None:
    """Checks that sessions can be found by a key, and joined by their bounds.

    Raises: SpecError where they cannot.
    """
    if KEY not in selected:
        message = f"the query groups by `{text}` alone, and a session is found by another column"
        raise SpecError(
            message, remedy="group by a column too, such as the user: `group by user_id, session_window(…)`"
        )
    if not {WINDOW_START, WINDOW_END} <= {*selected}:
        message = f"the query does not select start and end of `{text}`, by which sessions are joined"
        remedy = "select `session_window.start as NAME` and `session_window.end as NAME`"
        raise SpecError(message, remedy=remedy)


_MOST_WINDOWS = 1000
"""The greatest number of windows that a record may be in."""


def _without_alias(item: _Item) -> _Item:
    """Returns the entry without its alias."""
    return _Item(item.tokens)


def _both(condition: str, other: str) -> str:
    return f"{condition} and {other}" if other else condition


def _is_call(tokens: Sequence[Token], place: int) -> bool:
    """Whether an aggregate is called at this place."""
    return tokens[place].word in _AGGREGATES and place + 1 < len(tokens) and tokens[place + 1].text == "("


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Returns the entries between commas that no parentheses surround; none without tokens."""
    parts: list[list[Token]] = [[]]
    for token, depth in zip(tokens, depths_of(tokens), strict=True):
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    if len(parts) > 1 and not all(parts):
        raise SpecError("a list of the query has an empty entry", remedy="take the comma out")
    return parts if parts[0] else []


def _name_of(token: Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text


def _micros_of(text: str, window: str) -> int:
    """Returns the length of an interval such as `'1 minute'` or `'1 hour 30 minutes'`."""
    words = text.strip().strip("'\"").lower().split()
    words = words[1:] if words[:1] == ["interval"] else words
    remedy = "write a number and one of: microseconds, milliseconds, seconds, minutes, hours, days, weeks"
    if not words or len(words) % 2:
        raise SpecError(f"`{window}` has the duration {text}", remedy=remedy)
    total = 0
    for number, unit in zip(words[::2], words[1::2], strict=True):
        micros = _MICROS_OF.get(unit.removesuffix("s"))
        if micros is None or not re.fullmatch(r"-?[0-9]{1,12}", number):
            if unit.removesuffix("s") in ("month", "year"):
                remedy = "months have no fixed length: group by `date_trunc('month', TIME) as month`"
            elif micros is None:
                remedy = advice(unit, [f"{known}s" for known in _MICROS_OF])
            raise SpecError(f"`{window}` has the duration {text}", remedy=remedy)
        total += int(number) * micros
    return total
