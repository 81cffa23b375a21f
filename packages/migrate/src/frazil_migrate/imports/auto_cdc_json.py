"""Queries of flows that parse records with `from_json`, as what the pipeline file has in their place.

`SELECT r.* FROM (SELECT from_json(CAST(value AS STRING), 'id BIGINT') AS r FROM …)` takes the fields of records in JSON: so
do `value: {format: json}` and `columns`, without Spark. The queries up to the one that takes them apart become one over
`records`; those around it stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from frazil.errors import SpecError
from frazil_migrate.imports.sql import (
    comma_separated,
    group,
    name_at,
    outer,
    plain,
    quoted,
    spelled,
    without_name,
    words_of,
)

_TYPES = {
    "STRING": "string", "VARCHAR": "string", "CHAR": "string", "BOOLEAN": "boolean", "TINYINT": "int", "BYTE": "int",
    "SMALLINT": "int", "SHORT": "int", "INT": "int", "INTEGER": "int", "BIGINT": "long", "LONG": "long", "FLOAT": "float",
    "REAL": "float", "DOUBLE": "double", "DATE": "date", "TIMESTAMP": "timestamptz", "TIMESTAMP_LTZ": "timestamptz",
    "TIMESTAMP_NTZ": "timestamp", "BINARY": "binary",
}  # fmt: skip
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_LITERALS = ("TIMESTAMP", "DATE", "INTERVAL", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "X")
"""Words that a literal may follow: no columns there."""
_REMEDY = "write the records' fields and their types under `columns`, and what is made of them as `select`"


@dataclass(frozen=True)
class JsonRecords:
    """The records of a flow as objects in JSON."""

    #: The types of their fields by name, in Iceberg's words.
    columns: dict[str, str]
    #: The clause FROM of the query over them.
    source: str


class _Opaque(Enum):
    """A column that the pipeline file does not have."""

    BYTES = "the record's value"
    FIELDS = "the parsed record"


_Meaning = str | _Opaque
"""What a column is: an expression over the fields and the metadata of records, or a column that the file does not have."""


@dataclass(frozen=True)
class _Open:
    """A query that has columns which the pipeline file does not have. columns: what each is, by name in small letters."""

    columns: Mapping[str, _Meaning]
    conditions: tuple[str, ...] = ()


def json_records(source: str, metadata: Mapping[str, str]) -> JsonRecords:
    """Returns what a clause FROM whose queries use `from_json` reads. metadata: what Kafka's columns are called here.

    Raises: SpecError for queries that have no such form.
    """
    reader = _Reader(metadata)
    words = list(words_of(source))
    relation, _ = reader.relation(words, 1)
    if isinstance(relation, _Open):
        raise SpecError("the flow takes the parsed record as one column", remedy=_REMEDY)
    return JsonRecords(reader.columns, f" from {relation}")


def columns_of(schema: str) -> dict[str, str]:
    """Returns the types of the columns that DDL declares, in Iceberg's words.

    Raises: SpecError for a type that tables do not have.
    """
    words = list(words_of(schema))
    try:
        if words[0].upper() == "STRUCT" and words[1] == "<":
            words = words[2:-1]
        return {plain(name): kind for name, kind in _members(words)}
    except (IndexError, ValueError):
        raise SpecError(f"the schema of `from_json` is not read: {schema[:60]}", remedy=_REMEDY) from None


def _members(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for item in comma_separated(words):
        yield plain(item[0]), _type(item[1:] if item[1] != ":" else item[2:])


def _type(words: Sequence[str]) -> str:
    """Returns a type in Iceberg's words. Raises: ValueError, IndexError for another one."""
    name = words[0].upper()
    if name in _TYPES:
        return _TYPES[name]
    if name in _DECIMALS:
        inner = group(words, 1)[0] if words[1:2] == ["("] else ["10"]
        return f"decimal({inner[0]},{inner[-1] if len(inner) > 1 else 0})"
    if name not in ("ARRAY", "MAP", "STRUCT") or words[1] != "<":
        raise ValueError
    inner = list(words[2 : max(place for place, word in enumerate(words) if word == ">")])
    if name == "STRUCT":
        return f"struct<{', '.join(f'{member}: {kind}' for member, kind in _members(inner))}>"
    kinds = [_type(item) for item in comma_separated(inner)]
    return f"list<{kinds[0]}>" if name == "ARRAY" else f"map<{kinds[0]},{kinds[1]}>"


class _Reader:
    """Reads queries inside out. metadata: see `json_records`."""

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self.columns: dict[str, str] = {}
        self._records = _Open({"value": _Opaque.BYTES, **metadata})

    def relation(self, words: Sequence[str], place: int) -> tuple[_Open | str, int]:
        """Returns what is behind FROM at a place, as words of the new query where it has no opaque column, and the place
        after it.
        """
        if words[place] != "(":
            if words[place].lower() != "records":
                raise SpecError(f"`{words[place]}` is read in addition to the records", remedy=_REMEDY)
            return self._records, place + 1
        inner, end = group(words, place)
        return self._query(inner), end

    def _query(self, words: list[str]) -> _Open | str:
        start = next((place for place in outer(words) if words[place].upper() == "FROM"), None)
        if start is None or words[0].upper() != "SELECT":
            raise SpecError("a query around `from_json` is not a plain SELECT", remedy=_REMEDY)
        below, end = self.relation(words, start + 1)
        if isinstance(below, str):
            return f"({_text(words[: start + 1])} {below} {_text(words[end:])}".rstrip() + ")"
        rest = words[end:]
        if rest and rest[0].upper() not in ("WHERE", "AS"):
            rest = ["AS", *rest]
        alias = ""
        if rest and rest[0].upper() == "AS":
            alias, rest = plain(rest[1]), rest[2:]
        is_plain = not rest or rest[0].upper() == "WHERE"
        if not is_plain or any(
            rest[n].upper() in ("GROUP", "ORDER", "LIMIT", "HAVING", "QUALIFY") for n in outer(rest)
        ):
            raise SpecError("a query around `from_json` has more than a condition", remedy=_REMEDY)
        level = _Level(self, below.columns, alias)
        items = [entry for item in comma_separated(words[1:start]) for entry in level.item(item)]
        conditions = (*below.conditions, *([level.expression(rest[1:])] if rest else []))
        if any(isinstance(meaning, _Opaque) for _, meaning in items):
            return _Open({name.lower(): meaning for name, meaning in items}, conditions)
        shown = ", ".join(name if name == meaning else f"{meaning} as {name}" for name, meaning in items)
        if shown == "*" and not conditions:
            return "records"
        condition = conditions[0] if len(conditions) == 1 else " and ".join(f"({text})" for text in conditions)
        return f"(select {shown} from records{f' where {condition}' if condition else ''})"

    def parsed(self, schema: str) -> _Opaque:
        """Takes the schema of a `from_json`."""
        columns = columns_of(schema)
        if self.columns not in ({}, columns):
            raise SpecError("records are parsed with two schemas", remedy=_REMEDY)
        self.columns = columns
        return _Opaque.FIELDS


class _Level:
    """The names of a query. columns: what those of the query below are. alias: another name of that query."""

    def __init__(self, reader: _Reader, columns: Mapping[str, _Meaning], alias: str) -> None:
        self._reader, self._columns, self._alias = reader, columns, alias

    def item(self, words: list[str]) -> Iterator[tuple[str, _Meaning]]:
        """Yields the columns that are selected, each with its name and what it is; `*` for all fields of the records."""
        name, end = name_at(words, 0)
        name = self._short(name)
        left_out = [plain(word) for word in words[end:] if word.upper() not in ("EXCEPT", "(", ")", ",")]
        if name == "*":
            without = {column.lower() for column in left_out}
            yield from ((column, meaning) for column, meaning in self._columns.items() if column not in without)
        elif name.endswith(".*") and self._columns.get(name[:-2].lower()) is _Opaque.FIELDS:
            fields = f"* except ({', '.join(map(quoted, left_out))})" if left_out else "*"
            yield fields, fields
        else:
            is_dotted = end == len(words)
            expression = words if is_dotted else without_name(words)
            if expression is words and not is_dotted:
                raise SpecError(f"`{_text(words)[:80]}` has no name", remedy=_REMEDY)
            yield quoted(name.rpartition(".")[2]) if is_dotted else words[-1], self._meaning(expression)

    def _short(self, name: str) -> str:
        """Returns a name without the alias of the query before it."""
        return (
            name[len(self._alias) + 1 :] if self._alias and name.lower().startswith(f"{self._alias.lower()}.") else name
        )

    def _meaning(self, words: list[str]) -> _Meaning:
        """Returns what an expression is."""
        while words[0] == "(" and group(words, 0)[1] == len(words):
            words = group(words, 0)[0]
        name, end = name_at(words, 0)
        if end == len(words) and isinstance(meaning := self._columns.get(self._short(name).lower()), _Opaque):
            return meaning
        if self._is_value(words):
            return _Opaque.BYTES
        if name.lower() == "from_json" and words[1:2] == ["("] and group(words, 1)[1] == len(words):
            value, *arguments = comma_separated(group(words, 1)[0])
            if self._is_value(value) and len(arguments) == 1 and arguments[0][0][0] in "'\"":
                return self._reader.parsed("".join(map(plain, arguments[0])))
            reason = f"`from_json` of this form is not read: {_text(words)[:80]}"
            raise SpecError(reason, remedy=_REMEDY)
        return self.expression(words)

    def _is_value(self, words: list[str]) -> bool:
        """Whether an expression is the record's value, as bytes or as text."""
        name, end = name_at(words, 0)
        if end == len(words):
            return self._columns.get(self._short(name).lower()) is _Opaque.BYTES
        upper = [word.upper() for word in words]
        if upper[-3:] == [":", ":", "STRING"]:
            return self._is_value(words[:-3])
        if upper[1] != "(" or upper[-1] != ")":
            return False
        inner = words[2:-1]
        match upper[0]:
            case "CAST":
                return upper[-3:-1] == ["AS", "STRING"] and self._is_value(inner[:-2])
            case "STRING":
                return self._is_value(inner)
            case "DECODE":
                first, *others = comma_separated(inner)
                is_text = len(others) == 1 and plain(others[0][0]).lower() in ("utf-8", "utf8")
                return is_text and self._is_value(first)
        return False

    def expression(self, words: Sequence[str]) -> str:
        """Returns an expression over fields and metadata of records. Raises: SpecError for one that needs another column."""
        shown, place = list[str](), 0
        while place < len(words):
            word = words[place]
            name, end = name_at(words, place)
            behind, before = words[end : end + 1], words[place - 1].upper() if place else ""
            is_literal = word[0] in "'\"" or (word.upper() in _LITERALS and behind and behind[0][0] == "'")
            if is_literal or behind == ["("] or before in ("AS", ":"):
                end = place + 1
                text = _text([word])
            else:
                text = self._named(name, words[place:end])
            shown.append(f" {text}" if getattr(word, "is_apart", True) else text)
            place = end
        return "".join(shown).strip()

    def _named(self, name: str, words: Sequence[str]) -> str:
        """Returns what a name stands for; other words as they are."""
        first, _, rest = self._short(name).partition(".")
        meaning = self._columns.get(first.lower())
        match meaning:
            case None:
                return _text(words)
            case _Opaque.FIELDS if rest:
                return ".".join(map(quoted, rest.split(".")))
            case _Opaque():
                raise SpecError(f"`{name}` is {meaning.value}, which the query uses as a whole", remedy=_REMEDY)
        text = meaning if plain(meaning).replace(".", "").isidentifier() else f"({meaning})"
        return f"{text}.{rest}" if rest else text


def _text(words: Sequence[str]) -> str:
    return spelled(words).strip()
