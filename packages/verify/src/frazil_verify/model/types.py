"""Iceberg's types as the documentation writes them, read from their text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Plain:
    """A type without parts. unit: of the numbers that a declared time takes. is_declared: numbers may be days and times."""

    name: str
    args: tuple[int, ...] = ()
    unit: str = ""
    is_declared: bool = False


@dataclass(frozen=True)
class ListOf:
    """A list."""

    element: Type


@dataclass(frozen=True)
class MapOf:
    """A map."""

    key: Type
    value: Type


@dataclass(frozen=True)
class StructOf:
    """A struct with its members in order."""

    members: tuple[tuple[str, Type], ...]


Type = Plain | ListOf | MapOf | StructOf
_PLAIN = re.compile(r"(\w+?)\s*(?:[(\[]\s*([\w, ]*?)\s*[)\]])?")


@cache
def parse_type(text: str) -> Type:
    """Returns the type that a pipeline file declares with this text."""
    text = text.strip()
    if text.startswith("list<"):
        return ListOf(parse_type(text[5:-1]))
    if text.startswith("map<"):
        key, value = _parts(text[4:-1])
        return MapOf(parse_type(key), parse_type(value))
    if text.startswith("struct<"):
        pairs = (part.split(":", 1) for part in _parts(text[7:-1]))
        return StructOf(tuple((name.strip(), parse_type(kind)) for name, kind in pairs))
    result = _PLAIN.fullmatch(text)
    if result is None:
        raise ValueError(text)
    name, inside = result[1], result[2] or ""
    if inside in ("s", "ms", "us", "ns"):
        return Plain(name, unit=inside, is_declared=True)
    return Plain(name, tuple(int(number) for number in inside.split(",") if number), is_declared=True)


def _parts(text: str) -> list[str]:
    """Returns the parts between commas that are not inside of brackets."""
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "<([") - (sign in ">)]")
        if sign == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def declared_as(actual: Type, declared: Type | None) -> Type:
    """Returns a table's type with the units of its declaration: the table knows none."""
    match actual, declared:
        case Plain(name, args), Plain() as other:
            return Plain(name, args, other.unit, is_declared=True)
        case ListOf(element), ListOf(inner):
            return ListOf(declared_as(element, inner))
        case MapOf(key, value), MapOf(other_key, inner):
            return MapOf(declared_as(key, other_key), declared_as(value, inner))
        case StructOf(members), StructOf(others):
            known = dict(others)
            return StructOf(tuple((name, declared_as(kind, known.get(name))) for name, kind in members))
    return actual


def leaf_count(kind: Type) -> int:
    """Returns the columns of a type, nested ones counted."""
    match kind:
        case StructOf(members):
            return 1 + sum(leaf_count(member) for _, member in members)
        case ListOf(element):
            return 1 + leaf_count(element)
        case MapOf(key, value):
            return 1 + leaf_count(key) + leaf_count(value)
    return 1
