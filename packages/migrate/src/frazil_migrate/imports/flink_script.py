"""What a script of Flink SQL declares: catalogs, tables, settings, and what is inserted into which table.

Statements are taken apart by their words: no SQL is understood beyond the clauses of DDL and `INSERT INTO … SELECT`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from frazil_migrate.imports.flink_groups import rewritten
from frazil_migrate.imports.sql import (
    HINT,
    HINT_END,
    comma_separated,
    group,
    joined,
    name_at,
    outer,
    plain,
    quoted,
    without_name,
)

_TYPES = {
    "STRING": "string", "VARCHAR": "string", "CHAR": "string", "BOOLEAN": "boolean", "TINYINT": "int", "SMALLINT": "int",
    "INT": "int", "INTEGER": "int", "BIGINT": "long", "FLOAT": "float", "DOUBLE": "double", "DATE": "date", "TIME": "time",
    "TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "timestamptz", "BYTES": "binary", "VARBINARY": "binary",
}  # fmt: skip
_AROUND = ("EXECUTE", "STATEMENT", "SET", "BEGIN", "END")
_OF_MANY_ROWS = (
    "JOIN", "OVER", "UNION", "WINDOW", "DISTINCT", "INTERSECT", "EXCEPT", "MINUS", "LIMIT", "ORDER", "HAVING",
    "MATCH_RECOGNIZE",
)  # fmt: skip
_DEFAULT_DATABASE = "default_database"
"""The database of Flink's own catalog, and so of an Iceberg table with a `connector` and without a `catalog-database`."""


@dataclass
class Table:
    """A table that the script declares."""

    name: str
    options: dict[str, str]
    #: The types of fields of the records, by name.
    columns: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    #: The pieces of metadata, by column.
    metadata: dict[str, str] = field(default_factory=dict)
    #: The expressions of computed columns, by column.
    computed: dict[str, list[str]] = field(default_factory=dict)

    #: The names of all columns, in their order.
    order: list[str] = field(default_factory=list)
    #: The expression of the watermark.
    watermark: list[str] = field(default_factory=list)

    @property
    def is_kafka(self) -> bool:
        return self.options.get("connector", "") in ("kafka", "upsert-kafka")

    @property
    def format(self) -> str:
        return self.options.get("value.format") or self.options.get("format", "json")


@dataclass(frozen=True)
class Insert:
    """What is inserted into a table."""

    #: The name of the Iceberg table, with its database.
    target: str
    #: The names of both as the script has them.
    into: str
    source: str
    #: What is selected, each with the name that it has in the target.
    columns: list[list[str]]
    #: The words after the source's name, such as those of a condition.
    rest: list[str]
    #: Keys of the table that its query has in other words.
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """All words but the names of source and target."""
        return [word for column in (*self.columns, self.rest) for word in column]


class Script:
    """What the statements so far declare."""

    def __init__(self) -> None:
        self.catalogs: dict[str, dict[str, str]] = {}
        self.tables: dict[str, Table] = {}
        #: The names of tables that no statement reads or fills but `LIKE` has taken over.
        self.bases: set[str] = set()
        self.inserts: list[Insert] = []
        self.settings: dict[str, str] = {}
        #: Statements that are not read.
        self.unknown: list[str] = []
        #: Tables whose rows are not made of one record each, but by a join or an aggregate.
        self.unsuited: list[str] = []
        self._place: list[str] = []

    def read(self, words: list[str]) -> None:
        """Takes one statement; one that lacks words is unknown."""
        try:
            self._read(words)
        except (IndexError, ValueError):
            self.unknown.append(_beginning(words))

    def _read(self, words: list[str]) -> None:
        while words and words[0].upper() in _AROUND and not _is_set(words):
            words = words[1:]
        upper = [word.upper() for word in words]
        match upper[:3]:
            case ["SET", *_] if "=" in words:
                equals = words.index("=")
                value = words[equals + 1 :]  # It may lack quotes.
                name = "".join(map(plain, words[1:equals]))
                self.settings[name] = joined(value) if len(value) > 1 else plain(value[0])
            case ["CREATE", "CATALOG", *_]:
                self.catalogs[name_at(words, _after_exists(upper, 2))[0]] = _options(group(words, words.index("("))[0])
            case ["CREATE", "TABLE", _] | ["CREATE", _, "TABLE"]:
                self._read_table(words, upper)
            case ["USE", *_]:
                self._place = [plain(words[2])] if upper[1] == "CATALOG" else [*self._place[:1], plain(words[1])]
            case ["INSERT", "INTO", _]:
                self._read_insert(words)
            case [] | ["CREATE", "DATABASE", *_]:
                pass
            case _:
                self.unknown.append(_beginning(words))

    def table(self, name: str) -> Table | None:
        """Returns a table by a name with or without its catalog and database."""
        last = name.rpartition(".")[2]
        return next(
            (table for end in (name, last) for key, table in self.tables.items() if f".{key}".endswith(f".{end}")), None
        )

    def _full(self, name: str) -> str:
        """Returns the name of an Iceberg table with its database, and without its catalog."""
        table, parts = self.table(name), name.split(".")
        if table is not None and table.options.get("connector") == "iceberg":
            database = [*self._place[1:], *parts[-2:-1]] or [_DEFAULT_DATABASE]
            return (
                f"{table.options.get('catalog-database', database[-1])}.{table.options.get('catalog-table', parts[-1])}"
            )
        for catalog in self.catalogs:
            parts = parts[1:] if parts[0] == catalog and len(parts) > 2 else parts
        catalog_options = self.catalogs.get(self._place[0], {}) if self._place else {}
        return ".".join(
            parts
            if len(parts) > 1
            else [*(self._place[1:] or [catalog_options.get("default-database", "default")]), *parts]
        )

    def _read_table(self, words: list[str], upper: list[str]) -> None:
        name, place = name_at(words, _after_exists(upper, upper.index("TABLE") + 1))
        table = self.tables[name] = Table(name, {})
        while place < len(words):
            if words[place] == "(":
                columns, place = group(words, place)
                for item in comma_separated(columns):
                    _read_column(table, item)
            elif upper[place] == "PARTITIONED":
                terms, place = group(words, place + 2)
                table.partitions = [joined(list(map(plain, item))) for item in comma_separated(terms)]
            elif upper[place] == "WITH":
                options, place = group(words, place + 1)
                table.options = _options(options)
            elif upper[place] == "LIKE":
                place = self._read_like(table, words, place + 1)
            elif upper[place] == "SELECT":
                self._read_select(table.name, words[place:], [])
                return
            else:
                place += 1

    def _read_like(self, table: Table, words: list[str], place: int) -> int:
        """Takes what another table has, and returns the place after the clause."""
        name, place = name_at(words, place)
        choices, place = group(words, place) if words[place : place + 1] == ["("] else ([], place)
        base = self.table(name) if name != table.name else None
        if base is None:
            raise ValueError
        chosen = " ".join(choices).upper()
        left_out = {
            choice
            for choice in ("ALL", "OPTIONS", "CONSTRAINTS", "PARTITIONS", "METADATA", "GENERATED")
            if f"EXCLUDING {choice}" in chosen
        }

        def has(part: str) -> bool:
            return f"INCLUDING {part}" in chosen or not {"ALL", part} & left_out

        self.bases.add(base.name)
        empty = Table("", {})
        self.tables[table.name] = replace(
            table,
            columns=base.columns | table.columns,
            options=(base.options if has("OPTIONS") else {}) | table.options,
            keys=table.keys or (base if has("CONSTRAINTS") else empty).keys,
            partitions=table.partitions or (base if has("PARTITIONS") else empty).partitions,
            metadata=(base.metadata if has("METADATA") else {}) | table.metadata,
            order=[*(name for name in base.order if name not in table.order), *table.order],
            computed=(base.computed if has("GENERATED") else {}) | table.computed,
        )
        return place

    def _read_insert(self, words: list[str]) -> None:
        target, place = name_at(words, 2)
        table = self.table(target) or Table(target, {})
        if words[place] == HINT:
            self.tables.setdefault(table.name, table)
        place = _read_hint(table, words, place)
        names = list(table.columns)
        if words[place] == "(":
            listed, place = group(words, place)
            names = [plain(item[0]) for item in comma_separated(listed)]
        self._read_select(target, words[place:], names)

    def _read_select(self, target: str, words: list[str], names: list[str]) -> None:
        """Takes what is inserted into a table. names: those of its columns."""
        if words[0].upper() != "SELECT":
            raise ValueError
        selected = rewritten(words)
        if selected is None:
            self.unsuited.append(target)
            return
        words = selected.words
        upper = [word.upper() for word in words]
        start = next((place for place in outer(words) if upper[place] == "FROM"), len(words))
        source, after = name_at(words, start + 1)
        after = _read_hint(self.table(source), words, after)
        self.bases -= {table.name for table in map(self.table, (target, source)) if table is not None}
        if any(word.upper() in _OF_MANY_ROWS for word in words):
            self.unsuited.append(target)
            return
        chosen = [column for item in comma_separated(words[1:start]) for column in _columns(item, self.table(source))]
        named = list(_named(chosen, names))
        self.inserts.append(Insert(self._full(target), target, source, named, words[after:], selected.settings))


def _beginning(words: Sequence[str]) -> str:
    """Returns what names a statement in the report, without its literals, which may be secrets."""
    return " ".join("'…'" if word.startswith("'") else word for word in words[:4])


def _is_set(words: list[str]) -> bool:
    return words[0].upper() == "SET" and "=" in words and words[1].upper() != "BEGIN"


def _after_exists(upper: list[str], start: int) -> int:
    return start + 3 if upper[start : start + 3] == ["IF", "NOT", "EXISTS"] else start


def _options(words: Sequence[str]) -> dict[str, str]:
    return {plain(item[0]): plain(item[2]) for item in comma_separated(words) if len(item) == 3 and item[1] == "="}


def _read_hint(table: Table | None, words: Sequence[str], place: int) -> int:
    """Takes the options of a hint behind a table's name, and returns the place after it."""
    if words[place : place + 1] != [HINT]:
        return place
    if table is None or words[place + 1].upper() != "OPTIONS":
        raise ValueError
    table.options |= _options(group(words, place + 2)[0])
    return words.index(HINT_END, place) + 1


def _columns(item: list[str], source: Table | None) -> list[list[str]]:
    """Returns what is selected, with the columns of a table in place of `*`: the script declares all that it reads."""
    if item != ["*"] or source is None or source.options.get("value.fields-include") == "EXCEPT_KEY":
        return [item]
    return [[quoted(name)] for name in source.order] or [item]


def _named(chosen: list[list[str]], names: list[str]) -> Iterator[list[str]]:
    """Yields what is selected under the names of the target's columns: Flink inserts by place, Frazil by name."""
    for item, name in zip_longest(chosen, names if len(names) == len(chosen) else []):
        is_named = name is None or item == ["*"] or plain(item[-1]) == name
        yield item if is_named else [*without_name(item), "as", quoted(name)]


def _read_column(table: Table, words: list[str]) -> None:
    """Takes a column, a computed or a metadata column, or the primary key, or the watermark."""
    upper = [word.upper() for word in words]
    name = plain(words[0])
    if upper[0] not in ("PRIMARY", "CONSTRAINT", "WATERMARK"):
        table.order.append(name)
    if upper[0] in ("PRIMARY", "CONSTRAINT"):
        table.keys = [plain(word) for word in group(words, words.index("("))[0] if word != ","]
    elif upper[0] == "WATERMARK":
        table.watermark = words[upper.index("AS") + 1 :]
    elif upper[1] == "AS":
        end = upper.index("COMMENT") if "COMMENT" in upper else len(words)
        table.computed[name] = words[2:end]
    elif "METADATA" in upper:
        table.metadata[name] = plain(words[upper.index("FROM") + 1]) if "FROM" in upper else name
    else:
        table.columns[name] = _column_type(upper[1:])
        if "PRIMARY" in upper:
            table.keys = [name]


def _column_type(upper: list[str]) -> str:
    """Returns the type in Iceberg's words; empty for a nested one, which the records decide."""
    if upper[0] in ("DECIMAL", "NUMERIC"):
        return f"decimal({upper[2]},{upper[4]})" if len(upper) > 4 and upper[3] == "," else "decimal(10,0)"
    is_local = "LOCAL" in upper
    return "timestamptz" if is_local and upper[0] == "TIMESTAMP" else _TYPES.get(upper[0], "")
