"""A query with GROUP BY as a table that is its own state: its groups are the key, its aggregates functions of `merge`.

The text is divided into its clauses here. What the clauses of groups mean is read by the package with the kind of table
`merge`, and no further: Spark parses and analyses the query of single records that is made of it (`Grouping.projection`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from frazil.plugins.tables import TABLE_KINDS
from frazil.types import EVENT_TIME

KEY, WINDOW_START, WINDOW_END, AVERAGE, DISTINCT = "key", "window.start", "window.end", "avg", "distinct"
SKETCH, TEXT = "distinct_sketch", "string"
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<name>`(?:[^`]|``)*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_CLAUSES = ("from", "where", "group", "having")
_ENDS = ("order", "sort", "cluster", "distribute", "limit", "offset", "window", "union", "intersect", "except", "minus")


@dataclass(frozen=True)
class Token:
    """One token of a query."""

    #: `text`, `name` (in quotes), `word`, `number` or `sign`.
    kind: str
    text: str
    #: Where it is in the query.
    start: int
    end: int

    @property
    def word(self) -> str:
        """The keyword in small letters; empty for a token that is not a word."""
        return self.text.lower() if self.kind == "word" else ""

    @property
    def plain(self) -> str:
        """What equal tokens have in common, whatever their case and quotes."""
        if self.kind == "name":
            return self.text[1:-1].replace("``", "`").lower()
        return self.text.lower() if self.kind in ("word", "number") else self.text


@dataclass(frozen=True)
class GroupedColumn:
    """One column of the table."""

    name: str
    #: KEY, WINDOW_START, WINDOW_END, or the function of `merge` that merges its values.
    function: str
    #: The value of one record, in Spark SQL; empty for columns of the window and for `count`.
    sql: str = ""


@dataclass(frozen=True)
class TimeWindow:
    """The windows that records are grouped by. All times are in microseconds."""

    #: The time of a record, in Spark SQL.
    time: str
    #: The length of a window.
    size_us: int
    #: The distance between the starts of two windows; the length where windows do not overlap; 0 for sessions, in which
    #: `size_us` is the greatest distance between two records.
    slide_us: int
    #: How far starts are moved from multiples of `slide_us` since 1970-01-01 UTC.
    offset_us: int
    #: The call as the query has it.
    text: str

    @property
    def windows_per_time(self) -> int:
        """The greatest number of windows that a time is in."""
        return 1 if self.is_session else -(-self.size_us // self.slide_us)

    @property
    def is_session(self) -> bool:
        """Whether windows are sessions, which records extend and join."""
        return not self.slide_us


@dataclass(frozen=True)
class Grouping:
    """A query with GROUP BY."""

    #: The table's columns, in the order of the select list, with the columns that averages are made of behind theirs.
    columns: tuple[GroupedColumn, ...]
    #: FROM with everything up to GROUP BY.
    source: str
    #: None where records are not grouped by their time.
    window: TimeWindow | None

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a group; of sessions those that several sessions share."""
        names = [column.name for column in self.columns if column.function == KEY]
        of_window = {column.function: column.name for column in self.columns}
        start = of_window.get(WINDOW_START) or of_window.get(WINDOW_END)
        if self.session is not None:
            return tuple(names)
        return (*names, start) if start else tuple(names)

    @property
    def session(self) -> tuple[str, str] | None:
        """The columns with the start and the end of a session; None where records are in no sessions."""
        if self.window is None or not self.window.is_session:
            return None
        of_window = {column.function: column.name for column in self.columns}
        return of_window[WINDOW_START], of_window[WINDOW_END]

    @property
    def merge(self) -> tuple[tuple[str, str], ...]:
        """The functions of `merge` by column."""
        keys = self.key_columns
        of_bounds = ("latest", "latest") if self.session is None else ("min", "max")
        functions = dict(zip((WINDOW_START, WINDOW_END), of_bounds, strict=True))
        return tuple(
            (column.name, functions.get(column.function, column.function))
            for column in self.columns
            if column.name not in keys
        )

    def projection(self, casts: Mapping[str, str]) -> str:
        """Returns the query that makes the values of one record. casts: the SQL type of columns that need another than their
        expression has; of EVENT_TIME too. Of a sketch's column it is the type of the values that are hashed: that of floats,
        or TEXT for all others.
        """
        items = []
        for column in self.columns:
            if column.function in (WINDOW_START, WINDOW_END, "count"):
                continue
            kind = casts.get(column.name)
            # The average is made of its sum and count, in the row.
            plain = "null" if kind and column.function == AVERAGE else column.sql
            value = f"cast({plain} as {kind})" if kind else column.sql
            if kind and column.function == SKETCH:
                # Added to 0.0, the zero below it is the same value.
                number = column.sql if kind == TEXT else f"({column.sql}) + cast(0 as {kind})"
                value = f"cast(cast({number} as string) as binary)"
            items.append(f"{value} as {_quoted(column.name)}")
        if self.window is not None:
            kind = casts.get(EVENT_TIME)
            value = f"cast({self.window.time} as {kind})" if kind else self.window.time
            items.append(f"{value} as {_quoted(EVENT_TIME)}")
        return f"select {', '.join(items)} {self.source}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@lru_cache(maxsize=256)
def grouping_of(query: str) -> Grouping | None:
    """Returns the groups of a query; None for a query without GROUP BY.

    Raises: SpecError for what groups of records cannot be made of, and where the package that reads them is not installed.
    """
    matches = (match for match in _TOKEN.finditer(query) if match.lastgroup != "space")
    tokens = [Token(str(match.lastgroup), match[0], match.start(), match.end()) for match in matches]
    places = _clauses(tokens)
    if not tokens or tokens[0].word != "select" or "group" not in places or "from" not in places:
        return None
    grouping: Grouping = TABLE_KINDS.get("merge").group_reader(query, tokens, places)
    return grouping


def depths_of(tokens: Sequence[Token]) -> list[int]:
    """Returns how many parentheses are open around each token."""
    depths, depth = [], 0
    for token in tokens:
        depth -= token.text in (")", "]")
        depths.append(depth)
        depth += token.text in ("(", "[")
    return depths


def _clauses(tokens: Sequence[Token]) -> dict[str, int]:
    """Returns the index of the first token of each clause, and of what follows them as `end`."""
    places: dict[str, int] = {}
    for n, (token, depth) in enumerate(zip(tokens, depths_of(tokens), strict=True)):
        if depth or not token.word or (n and tokens[n - 1].text in (".", ",")):
            continue
        if token.word == "group" and (n + 1 == len(tokens) or tokens[n + 1].word != "by"):
            continue
        if token.word in _CLAUSES:
            places.setdefault(token.word, n)
        elif token.word in _ENDS and "group" in places and tokens[n - 1].word != "by":
            places.setdefault("end", n)
    return places
