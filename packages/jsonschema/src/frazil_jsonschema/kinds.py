"""The kinds of value that a JSON Schema allows, before they become an Iceberg type.

A schema may allow several, or leave the type open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from pyiceberg import types as t

from frazil.registry.port import UnusableSchema
from frazil.schema.parts import Path
from frazil.types import FIRST_PLACEHOLDER_ID

MAX_FIELDS = 2000
# Each type holds the values of those before it, as JSON writes numbers.
_NUMBERS: Sequence[type[t.IcebergType]] = (t.IntegerType, t.LongType, t.FloatType, t.DoubleType)


@dataclass(frozen=True)
class Open:
    """No single type: the field is left out, and its type is inferred from the records."""

    #: The reason why the type is open.
    reason: str


@dataclass(frozen=True)
class Null:
    """Only null."""


@dataclass(frozen=True)
class Plain:
    """A value of one primitive type."""

    type: t.IcebergType
    #: The name that the schema gives the type; two schemas of one type may have different names.
    title: str = field(default="", compare=False)


@dataclass(frozen=True)
class Record:
    """An object with known members."""

    members: Mapping[str, Kind]


@dataclass(frozen=True)
class Array:
    """An array whose elements are of one kind."""

    element: Kind


@dataclass(frozen=True)
class Dictionary:
    """An object with arbitrary names and values of one kind."""

    value: Kind


Kind = Open | Null | Plain | Record | Array | Dictionary

_STRING = Plain(t.StringType())
_TEXTS = ("string", "date", "timestamptz", "uuid", "binary")  # Types that JSON writes as strings.

ANY = Open("its schema allows values of any type")
_Merge = Callable[[Sequence["Kind"]], "Kind"]


def either(kinds: Sequence[Kind]) -> Kind:
    """Returns the kind that holds every value of each (`anyOf`): all members of objects, the wider of two numbers, or
    Open.
    """
    typed = [kind for kind in kinds if not isinstance(kind, Null)]
    if not typed:
        return Null()
    for kind in typed:
        if isinstance(kind, Open):
            return kind
    return _merge(typed, either, _wider, "or")


def both(kinds: Sequence[Kind]) -> Kind:
    """Returns the kind of values that match all of them (`allOf`): an open kind restricts nothing."""
    typed = [kind for kind in kinds if not isinstance(kind, (Open, Null))]
    if any(isinstance(kind, Record) for kind in typed):
        typed = [kind for kind in typed if not isinstance(kind, Dictionary)]
    if typed:
        return _merge(typed, both, _narrower, "and")
    return next((kind for kind in kinds if kind != ANY), ANY)


def _merge(kinds: Sequence[Kind], merge: _Merge, choose: Callable[[Plain, Plain], Plain | None], joiner: str) -> Kind:
    records = [kind for kind in kinds if isinstance(kind, Record)]
    if len(records) == len(kinds):
        return Record(_merge_members(records, merge))
    elements = [kind.element for kind in kinds if isinstance(kind, Array)]
    if len(elements) == len(kinds):
        return Array(merge(elements))
    values = [kind.value for kind in kinds if isinstance(kind, Dictionary)]
    if len(values) == len(kinds):
        return Dictionary(merge(values))
    plain = [kind for kind in kinds if isinstance(kind, Plain)]
    chosen = plain[0] if len(plain) == len(kinds) else None
    for kind in plain:
        chosen = chosen and choose(chosen, kind)
    return chosen or Open(f"its type is {f' {joiner} '.join(_describe(kinds))}")


def _merge_members(records: Iterable[Record], merge: _Merge) -> dict[str, Kind]:
    named: dict[str, list[Kind]] = {}
    for record in records:
        for name, kind in record.members.items():
            named.setdefault(name, []).append(kind)
    return {name: merge(kinds) if len(kinds) > 1 else kinds[0] for name, kinds in named.items()}


def _wider(first: Plain, other: Plain) -> Plain | None:
    ranks = _ranks(first, other)
    if first == other or not ranks:
        return first if first == other else None
    if t.FloatType in ranks and t.DoubleType not in ranks:
        return Plain(t.DoubleType())  # A float does not hold every int.
    return max(first, other, key=lambda kind: ranks[type(kind.type)])


def _narrower(first: Plain, other: Plain) -> Plain | None:
    if first == other:
        return first
    if _STRING in (first, other) and str(first.type) in _TEXTS and str(other.type) in _TEXTS:
        return other if first == _STRING else first
    ranks = _ranks(first, other)
    return min(first, other, key=lambda kind: ranks[type(kind.type)]) if ranks else None


def _ranks(*kinds: Plain) -> dict[type[t.IcebergType], int]:
    """Returns the indexes of numbers in _NUMBERS; empty when one of them is no number."""
    types = [type(kind.type) for kind in kinds]
    return {kind: _NUMBERS.index(kind) for kind in types} if all(kind in _NUMBERS for kind in types) else {}


def _describe(kinds: Iterable[Kind]) -> list[str]:
    names = {Record: "struct", Array: "list", Dictionary: "map"}
    names_found = (str(kind.type) if isinstance(kind, Plain) else names.get(type(kind), "null") for kind in kinds)
    return sorted(set(names_found))


@dataclass
class Drawing:
    """Makes Iceberg types."""

    #: Paths of fields without a type, with the reason.
    left_out: dict[str, str] = field(default_factory=dict)
    #: The names that the schema gives the types of fields, by path.
    titles: dict[Path, str] = field(default_factory=dict)
    _ids: count[int] = field(default_factory=lambda: count(FIRST_PLACEHOLDER_ID))
    _field_count: int = 0

    def struct(self, record: Record, path: tuple[str, ...] = ()) -> t.StructType:
        """Returns a struct of all members that have a type, every one optional."""
        fields = []
        for name, kind in record.members.items():
            self._field_count += 1
            if self._field_count > MAX_FIELDS:
                raise UnusableSchema(f"it has more than {MAX_FIELDS} fields")
            drawn = self._type(kind, (*path, name))
            if drawn is not None:
                fields.append(t.NestedField(next(self._ids), name, drawn, required=False))
        return t.StructType(*fields)

    def _type(self, kind: Kind, path: tuple[str, ...]) -> t.IcebergType | None:
        if isinstance(kind, Plain):
            if kind.title:
                self.titles[path] = kind.title
            return kind.type
        if isinstance(kind, Record) and (struct := self.struct(kind, path)).fields:
            return struct
        if isinstance(kind, Array):
            element = self._type(kind.element, (*path, "element"))
            return element and t.ListType(next(self._ids), element, False)
        if isinstance(kind, Dictionary):
            value = self._type(kind.value, (*path, "value"))
            return value and t.MapType(next(self._ids), t.StringType(), next(self._ids), value, False)
        # A name may contain a single surrogate, and then could not be printed.
        self.left_out[".".join(path).encode("utf-8", "backslashreplace").decode()] = _why(kind)
        return None


def _why(kind: Kind) -> str:
    if isinstance(kind, Open):
        return kind.reason
    return "it is always null" if isinstance(kind, Null) else "none of its fields has a type"
