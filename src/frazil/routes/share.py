"""Which table takes the records with some values, or why none but the rest does.

Here is also where the values come from, and the template that makes the name of the table. Pure, for the driver and tasks
alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Literal

from frazil.column_names import fold_case
from frazil.errors import SpecError
from frazil.types import DerivedTable, NewValues, Offsets

SourceKind = Literal["field", "header", "topic", "capture"]
_VARIABLE = re.compile(r"\$\{([^}]*)\}|\$([0-9]+)")
_REMEDY = 'name its tables with values in `${…}`, such as `to: "shop.${type}"`'


@dataclass(frozen=True)
class ValueSource:
    """Where a value of a record comes from."""

    #: A field of the record's value, a header, the topic's name, or a group of the expression that selects the topic.
    kind: SourceKind
    #: The path of the field; the name of the header, or the number of the group, alone; empty for the topic.
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Template:
    """The name of a table, with values in it."""

    #: The texts around the values, one more than there are values.
    texts: tuple[str, ...]
    #: The values.
    sources: tuple[ValueSource, ...]

    def fill(self, values: Sequence[str]) -> str:
        """Returns the name with these values."""
        return self.texts[0] + "".join(value + text for value, text in zip(values, self.texts[1:], strict=True))

    def may_make(self, name: str) -> bool:
        """Whether the name is the template with any values."""
        return self._names.fullmatch(name) is not None

    @cached_property
    def _names(self) -> re.Pattern[str]:
        return re.compile(".+".join(map(re.escape, self.texts)), re.DOTALL)


def parse_source(text: str) -> ValueSource:
    """Returns the source that the pipeline file names: `topic`, `header.NAME`, or the path of a field.

    Raises: SpecError where it is none of them.
    """
    if text == "topic":
        return ValueSource("topic")
    name = text.removeprefix("header.")
    if name != text and name:
        return ValueSource("header", (name,))
    path = tuple(text.split("."))
    if not all(path) or any("*" in part for part in path):
        remedy = "write the path of a field, `header.NAME` or `topic`"
        raise SpecError(f"`{text}` is not a value of a record", remedy=remedy)
    return ValueSource("field", path)


def parse_template(text: str) -> Template:
    """Returns the template that the pipeline file has under `to`.

    Raises: SpecError where it has no value, or names one wrongly.
    """
    texts, sources, end = [], [], 0
    for match in _VARIABLE.finditer(text):
        texts.append(text[end : match.start()])
        name, group = match.groups()
        sources.append(ValueSource("capture", (group,)) if name is None else parse_source(name))
        end = match.end()
    if not sources:
        raise SpecError(f"`to: {text}` makes one table of all records", remedy=_REMEDY)
    texts.append(text[end:])
    if "$" in "".join(texts):
        raise SpecError(f"`to: {text}` has a `$` that belongs to no value", remedy=_REMEDY)
    if "." not in texts[0][1:]:
        raise SpecError(f"`to: {text}` begins with no namespace", remedy=f"write `to: <namespace>.{text}`")
    return Template(tuple(texts), tuple(sources))


MAX_NAME_BYTES = 200
"""The longest name of a table that values may make, in bytes of UTF-8: file systems and catalogs take 255 for a part of it,
and the dead-letter table has a longer one.
"""
# Clients of stores read `?` and `#` in a location differently.
_PART = re.compile(r"[^\s`'\"/\\?#]+")
_LOWERED = re.compile(r"[a-z0-9_]+\.[a-z0-9_]+")
_DEAD_LETTERS = "__dead_letters"
Values = tuple[str | None, ...]


@dataclass(frozen=True)
class Division:
    """How records of some topics are divided among tables by their values: an entry under `routes`."""

    #: The table of the records that no other table takes.
    rest: str
    #: What names the tables.
    to: Template
    #: The largest number of tables besides `rest`.
    limit: int
    #: Names that tables of the pipeline file have already.
    taken: frozenset[str] = frozenset()
    #: Whether the catalog keeps names in lower case alone (see `CatalogKind`).
    lowers_names: bool = False


@dataclass(frozen=True)
class Share:
    """Which of its topics' records a table takes."""

    #: What messages call such a table.
    kind: ClassVar[str] = "of a route"
    division: Division
    #: The values of the table's records, of a derived table; empty for the table of the rest.
    values: tuple[str, ...] = ()
    #: The tables that were derived so far, of the table of the rest.
    derived: tuple[DerivedTable, ...] = ()

    @property
    def rest(self) -> str:
        """The name of the table of the rest, by which tables that divide the same records are known."""
        return self.division.rest

    @property
    def is_rest(self) -> bool:
        """Whether the table takes the records that no other table takes."""
        return not self.values

    @property
    def needs_headers(self) -> bool:
        """Whether a header decides which records the table takes."""
        return any(source.kind == "header" for source in self.division.to.sources)

    def without_declared(self, tables: Iterable[DerivedTable]) -> tuple[DerivedTable, ...]:
        """Returns derived tables of the table of the rest, without those that the pipeline file declares now."""
        return tuple(table for table in tables if table.name not in self.division.taken) if self.is_rest else ()


class Rest(StrEnum):
    """Why a record goes to the table of the rest."""

    #: One of the values is missing, null, or cannot be read.
    MISSING = "no value"
    #: The values make no name of a table, or one that is too long.
    NAME = "no table name"
    #: The values make the name of another table, letter case aside.
    TAKEN = "name of another table"
    #: There are as many tables as there may be.
    LIMIT = "limit"


class Owners:
    """The tables that were derived by one division, and those that may still be."""

    def __init__(self, division: Division, tables: Iterable[DerivedTable]) -> None:
        self._division = division
        self._tables: dict[Values, DerivedTable] = {table.values: table for table in tables}
        names = (*division.taken, division.rest, *(table.name for table in self._tables.values()))
        self._names = set(map(fold_case, names))

    @property
    def free(self) -> int:
        """How many more tables there may be."""
        return max(0, self._division.limit - len(self._tables))

    def has_table(self, values: Values) -> bool:
        """Whether records with these values have a table of their own."""
        return values in self._tables

    def refuse(self, values: Values) -> Rest | None:
        """Returns why records with these values get no table; None where they get one."""
        present = [value for value in values if value is not None]
        if len(present) < len(values):
            return Rest.MISSING
        name = self._division.to.fill(present)
        if not is_table_name(name, self._division.lowers_names):
            return Rest.NAME
        if fold_case(name) in self._names:
            return Rest.TAKEN
        return None if self.free else Rest.LIMIT

    def derive(self, every: Iterable[NewValues], start: Offsets) -> tuple[DerivedTable, ...]:
        """Returns the tables that some values get, as far as they get one: those that come first behind `start`, where the
        records of the tables begin. Of several that make one name the values of most records get the table, so that an odd
        record takes no other's table.
        """
        counts, places = Counter[tuple[str, ...]](), dict[tuple[str, ...], tuple[int, str, int]]()
        for new in every:
            counts[new.values] += new.count
            behind = new.offset - start.get(new.topic, {}).get(new.partition, 0)
            place = (behind, new.topic, new.partition)
            places[new.values] = min(place, places.get(new.values, place))
        of_name: dict[str, list[tuple[str, ...]]] = {}
        for values in sorted(places, key=lambda values: (places[values], values)):
            of_name.setdefault(fold_case(self._division.to.fill(values)), []).append(values)
        tables = []
        for same in of_name.values():
            values = max(same, key=lambda values: counts[values])
            if self.refuse(values) is None:
                self._tables[values] = DerivedTable(self._division.to.fill(values), values, start)
                self._names.add(fold_case(self._tables[values].name))
                tables.append(self._tables[values])
        return tuple(tables)


def is_table_name(name: str, lowers_names: bool = False) -> bool:
    """Whether a table can have the name. lowers_names: whether the catalog keeps names in lower case alone."""
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES or fold_case(name).endswith(_DEAD_LETTERS):
        return False
    if lowers_names:
        return _LOWERED.fullmatch(name) is not None
    return name.isprintable() and all(map(_PART.fullmatch, name.split(".")))
