"""What the SQL of a declarative pipeline declares: tables and views with their queries, and AUTO CDC flows.

Statements are taken apart by their words, as those of Flink SQL are (`flink_script`): Spark reads the queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from frazil_migrate.imports.sql import comma_separated, group, name_at, outer, plain, statements

_OF_FLOW = (
    "FROM", "KEYS", "WHERE", "IGNORE NULL UPDATES", "APPLY AS DELETE WHEN", "APPLY AS TRUNCATE WHEN", "SYSTEM SEQUENCE BY",
    "SEQUENCE BY", "COLUMNS", "STORED AS", "TRACK HISTORY ON",
)  # fmt: skip
_OF_TABLE = (
    "PARTITIONED BY", "CLUSTER BY", "CLUSTERED BY", "COMMENT", "TBLPROPERTIES", "USING", "LOCATION", "SCHEDULE",
    "TRIGGER ON", "ROW FILTER", "WITH ROW FILTER", "DEFAULT COLLATION", "FLOW AUTO CDC", "AS",
)  # fmt: skip
_REMEDIES = {
    "FROM": "write `FROM` and the source of the changes, and import again",
    "KEYS": "write `KEYS` and the columns that identify a row, and import again",
    "SEQUENCE BY": "write `SEQUENCE BY` and the column that orders the changes of a row, and import again",
}
"""What to write for each clause that a flow must have."""
_KINDS = (
    "OR",
    "REFRESH",
    "REPLACE",
    "TEMPORARY",
    "TEMP",
    "PRIVATE",
    "LIVE",
    "STREAMING",
    "INCREMENTAL",
    "MATERIALIZED",
)
_ACTIONS = {"DROP": "drop", "FAIL": "stop"}
_PARAMETER = re.compile(r"\$\{([\w.]+)\}")


@dataclass(frozen=True)
class Flow:
    """One AUTO CDC flow."""

    #: The table that it fills, as the script has its name.
    target: str
    #: The words of each clause by its name; those of FROM are the source.
    clauses: dict[str, list[str]]


class IncompleteFlow(Exception):
    """An AUTO CDC flow lacks a clause without which it has no meaning. target: the table that it fills. reason: the clause,
    and whether it is missing or empty.
    """

    def __init__(self, target: str, clause: str, is_empty: bool) -> None:
        self.target, self.reason = target, f"`{clause}` is {'empty' if is_empty else 'missing'}"
        self.remedy = _REMEDIES.get(clause, "write what is behind the clause, or remove it, and import again")
        super().__init__(f"{self.reason} in the flow into `{target}`")


@dataclass(frozen=True)
class Relation:
    """A table or a view of the pipeline."""

    name: str
    #: The words of its query; none for a table that flows fill.
    query: list[str] = field(default_factory=list)
    #: The types of declared columns by name, in the script's words.
    types: dict[str, str] = field(default_factory=dict)
    #: The words of each expectation by its name, and what becomes of a row that does not meet it.
    expectations: dict[str, tuple[list[str], str]] = field(default_factory=dict)
    #: The words of other clauses by name.
    clauses: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Pipeline:
    """What the statements of a pipeline declare."""

    relations: dict[str, Relation] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    #: Flows that lack a clause.
    incomplete: list[IncompleteFlow] = field(default_factory=list)
    #: The beginning of statements that are not read.
    unknown: list[str] = field(default_factory=list)
    #: The names of parameters, which only the pipeline's settings know.
    parameters: list[str] = field(default_factory=list)

    def find(self, name: str) -> Relation | None:
        """Returns a table or a view by its name with or without its catalog and schema."""
        return next((relation for key, relation in self.relations.items() if are_one(key, name)), None)

    def of_target(self, name: str) -> Relation:
        """Returns the table of this name, or one of which nothing is declared."""
        return self.find(name) or Relation(name)


def are_one(name: str, other: str) -> bool:
    """Whether two names, each with or without catalog and schema, are of one table."""
    longer, shorter = sorted((name.lower(), other.lower()), key=len, reverse=True)
    return f".{longer}".endswith(f".{shorter}")


def read_pipeline(text: str) -> Pipeline:
    """Returns what a script declares."""
    pipeline = Pipeline()
    pipeline.parameters += dict.fromkeys(_PARAMETER.findall(text))
    for words in statements(_PARAMETER.sub(lambda match: match[1].rpartition(".")[2], text)):
        try:
            _read(pipeline, words)
        except IncompleteFlow as flow:
            pipeline.incomplete.append(flow)
        except (IndexError, ValueError, StopIteration):
            # Without its literals, which may be secrets.
            pipeline.unknown.append(" ".join("'…'" if word.startswith(("'", '"')) else word for word in words[:5]))
    return pipeline


def _read(pipeline: Pipeline, words: list[str]) -> None:
    upper = [word.upper() for word in words]
    match upper[:3]:
        case []:
            return
        case ["APPLY", "CHANGES", "INTO"]:
            _add_flow(pipeline, words, 3)
        case ["CREATE", "FLOW", _]:
            start = upper.index("AS") + 1
            if upper[start : start + 2] != ["AUTO", "CDC"] and upper[start : start + 2] != ["APPLY", "CHANGES"]:
                raise ValueError
            is_once = upper[start + 2] == "ONCE"
            _add_flow(pipeline, words, start + 3 + is_once, is_once=is_once)
        case ["CREATE", *_]:
            _read_relation(pipeline, words, upper)
        case _:
            raise ValueError


def _add_flow(pipeline: Pipeline, words: list[str], start: int, *, is_once: bool = False) -> None:
    target, place = name_at(words, start)
    flow = _flow_of(target.removeprefix("LIVE."), words[place:])
    if is_once:
        flow.clauses["ONCE"] = []
    pipeline.flows.append(flow)


def _flow_of(target: str, words: Sequence[str]) -> Flow:
    """Returns the flow that clauses declare. Raises: IncompleteFlow where one is missing, or has no words."""
    clauses = clauses_of(words, _OF_FLOW)
    empty = [name for name, of in clauses.items() if not of and name != "IGNORE NULL UPDATES"]
    for name in (*empty, *(name for name in _REMEDIES if name not in clauses)):
        raise IncompleteFlow(target, name, name in empty)
    return Flow(target, clauses)


def _read_relation(pipeline: Pipeline, words: list[str], upper: list[str]) -> None:
    place = 1
    while upper[place] in _KINDS:
        place += 1
    if upper[place] not in ("TABLE", "VIEW"):
        raise ValueError
    place += 4 if upper[place + 1 : place + 4] == ["IF", "NOT", "EXISTS"] else 1
    name, place = name_at(words, place)
    relation = Relation(name.removeprefix("LIVE."))
    if words[place : place + 1] == ["("]:
        declared, place = group(words, place)
        for item in comma_separated(declared):
            _read_column(relation, item)
    clauses = clauses_of(words[place:], _OF_TABLE)
    query = clauses.pop("AS", [])
    inline = clauses.pop("FLOW AUTO CDC", None)
    while query[:1] == ["("]:
        query = group(query, 0)[0]
    relation.query.extend(query)
    relation.clauses.update(clauses)
    pipeline.relations[relation.name] = relation
    if inline is not None:
        pipeline.flows.append(_flow_of(relation.name, inline))


def _read_column(relation: Relation, words: list[str]) -> None:
    """Takes a declared column, or an expectation of the rows."""
    upper = [word.upper() for word in words]
    if upper[0] != "CONSTRAINT":
        relation.types[plain(words[0])] = upper[1]
    elif upper[2] == "EXPECT":
        condition, end = group(words, 3)
        action = upper[end + 2] if upper[end : end + 2] == ["ON", "VIOLATION"] else ""
        relation.expectations[plain(words[1])] = condition, _ACTIONS.get(action, "warn")


def clauses_of(words: Sequence[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Returns the words of each clause by its name. names: those of the clauses, a longer one before one that it ends
    with.
    """
    upper, places = [word.upper() for word in words], set(outer(words))
    clauses: dict[str, list[str]] = {}
    place, current = 0, list[str]()
    while place < len(words):
        name = next((name for name in names if upper[place : place + name.count(" ") + 1] == name.split()), None)
        if name is not None and place in places and name not in clauses:
            current = clauses[name] = []
            place += name.count(" ") + 1
            if name in ("AS", "FLOW AUTO CDC"):  # The rest is a query, or another statement's clauses.
                current.extend(words[place:])
                break
        else:
            current.append(words[place])
            place += 1
    return clauses


def sources_in(words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yields each relation behind FROM or JOIN, from the place of its first word to that behind its last, with its name; a
    function has its name alone, and its arguments are behind it.
    """
    upper = [word.upper() for word in words]
    common = {word for word, *behind in zip(upper, upper[1:], words[2:], strict=False) if behind == ["AS", "("]}
    for start in [place for place, word in enumerate(upper) if word in ("FROM", "JOIN")]:
        first = place = start + 1
        if place >= len(words):
            continue
        is_stream = upper[place] == "STREAM"
        place += is_stream
        if is_stream and words[place : place + 1] == ["("]:
            inner, end = group(words, place)
            if inner:
                yield first, end, name_at(inner, 0)[0]
        elif words[place : place + 1] != ["("] and place < len(words):
            name, end = name_at(words, place)
            if name.upper() not in common:
                yield first, group(words, end)[1] if words[end : end + 1] == ["("] else end, name
