"""The types in an Avro schema's text by path of the value, as `plan` names the columns; for attributes that Avro
ignores.

Attributes such as `connect.name` are no part of Avro, and the parsed schema (`schema.py`) does not have them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from frazil.decode.avro.schema import MAX_LEVELS, PRIMITIVES, logical_of

Path = tuple[str, ...]
_NAMED = ("record", "error", "enum", "fixed")


@dataclass(frozen=True)
class TypeAt:
    """One type of a schema, where a value of it may occur."""

    #: Path of the value: names of fields, `element` and `value` below lists and maps, names of branches below unions.
    path: Path
    #: The JSON object of the type; of a named type its declaration, wherever the name is used.
    node: Mapping[str, Any]


@dataclass(frozen=True)
class _Place:
    """A place in a schema text."""

    path: Path = ()
    namespace: str = ""
    level: int = 0
    #: The full names of the types around the place.
    inside: frozenset[str] = frozenset()

    def at(self, *path: str) -> _Place:
        return replace(self, path=(*self.path, *path), level=self.level + 1)


def types_of(schema: str, references: tuple[str, ...] = ()) -> Iterator[TypeAt]:
    """Yields every type that `schema` declares as a JSON object, by path; a record inside itself only once.

    Both are texts that `parse_avro` accepts.
    """
    walk = _Walk({})
    for text in references:
        for _ in walk.types(json.loads(text), _Place()):
            pass
    yield from walk.types(json.loads(schema), _Place())


@dataclass
class _Walk:
    """Finds types."""

    #: The types declared so far, by full name, with the namespace inside each.
    named: dict[str, tuple[Mapping[str, Any], str]]

    def types(self, node: Any, place: _Place) -> Iterator[TypeAt]:
        if place.level > MAX_LEVELS:
            return
        if isinstance(node, str):
            yield from self._again(node, place)
        elif isinstance(node, list):
            yield from self._union(node, place)
        elif isinstance(node, dict):
            yield TypeAt(place.path, node)
            yield from self._declared(node, place)

    def _again(self, name: str, place: _Place) -> Iterator[TypeAt]:
        """Yields a named type where its name is used."""
        full = f"{place.namespace}.{name}" if place.namespace and "." not in name else name
        full = full if full in self.named else name
        if name in PRIMITIVES or full not in self.named or full in place.inside:
            return
        node, namespace = self.named[full]
        yield TypeAt(place.path, node)
        yield from self._members(node, replace(place, namespace=namespace, inside=place.inside | {full}))

    def _declared(self, node: Mapping[str, Any], place: _Place) -> Iterator[TypeAt]:
        kind = node.get("type")
        if kind in _NAMED and isinstance(node.get("name"), str):
            name, own = node["name"], node.get("namespace")
            namespace = own if isinstance(own, str) else place.namespace
            full = (name if "." in name or not namespace else f"{namespace}.{name}").removeprefix(".")
            self.named[full] = (node, full.rpartition(".")[0])
            place = replace(place, namespace=full.rpartition(".")[0], inside=place.inside | {full})
            yield from self._members(node, place)
        elif kind == "array":
            yield from self.types(node.get("items"), place.at("element"))
        elif kind == "map":
            yield from self.types(node.get("values"), place.at("value"))
        else:
            yield from self.types(kind, replace(place, level=place.level + 1))

    def _members(self, node: Mapping[str, Any], place: _Place) -> Iterator[TypeAt]:
        for member in node.get("fields", ()) if node.get("type") in ("record", "error") else ():
            yield from self.types(member["type"], place.at(member["name"]))

    def _union(self, branches: list[Any], place: _Place) -> Iterator[TypeAt]:
        there = [branch for branch in branches if branch != "null"]
        names = [self._name(branch, place) for branch in there]
        short = [name.rpartition(".")[2] for name in names]
        for branch, name, brief in zip(there, names, short, strict=True):
            own = brief if short.count(brief) == 1 else name.replace(".", "_")
            yield from self.types(branch, place if len(there) == 1 else place.at(own))

    def _name(self, branch: Any, place: _Place) -> str:
        """Returns the name that a union gives to one of its branches."""
        if isinstance(branch, str):
            full = f"{place.namespace}.{branch}" if place.namespace and "." not in branch else branch
            return full if full in self.named else branch
        kind = branch.get("type") if isinstance(branch, dict) else ""
        if kind in _NAMED and isinstance(branch.get("name"), str):
            name, own = branch["name"], branch.get("namespace")
            namespace = own if isinstance(own, str) else place.namespace
            return name if "." in name or not namespace else f"{namespace}.{name}"
        return kind if isinstance(kind, str) else self._name(kind, place)


_OF_LOGICAL = ("logicalType", "precision", "scale")


@dataclass(frozen=True)
class Misplaced:
    """A logical type beside the type that it would apply to."""

    #: Names of the fields that lead there, with dots between.
    path: str
    #: The type, and the logical type that it would have.
    kind: str
    #: The logical type.
    logical: str


@functools.lru_cache(maxsize=256)
def find_misplaced(schema: str, references: tuple[str, ...] = ()) -> tuple[Misplaced, ...]:
    """Returns the misplaced logical types in valid schema texts; not those that could not apply to their type."""
    found: list[Misplaced] = []
    for text in (*references, schema):
        _move_logical_types(json.loads(text), (), found)
    return tuple(dict.fromkeys(found))


@functools.lru_cache(maxsize=256)
def with_moved_logical_types(schema: str) -> str:
    """Returns the schema's text with misplaced logical types moved into their type."""
    found: list[Misplaced] = []
    moved = _move_logical_types(json.loads(schema), (), found)
    return json.dumps(moved) if found else schema


def _move_logical_types(node: Any, path: tuple[str, ...], found: list[Misplaced]) -> Any:
    """Returns the type with misplaced logical types moved; adds them to `found`."""
    if isinstance(node, list):
        return [_move_logical_types(branch, path, found) for branch in node]
    if not isinstance(node, dict):
        return node
    made = dict(node)
    kind = node.get("type")
    if kind in ("record", "error"):
        made["fields"] = [_field(member, path, found) for member in node.get("fields", ())]
    for inner, name in (("items", "element"), ("values", "value")):
        if kind in ("array", "map") and inner in node:
            made[inner] = _move_logical_types(node[inner], (*path, name), found)
    if isinstance(kind, dict | list):
        made["type"] = _inside(node, path, found)
    return made


def _field(member: Mapping[str, Any], path: tuple[str, ...], found: list[Misplaced]) -> dict[str, Any]:
    return {**member, "type": _inside(member, (*path, str(member["name"])), found)}


def _inside(owner: Mapping[str, Any], path: tuple[str, ...], found: list[Misplaced]) -> Any:
    """Returns the type of a field, or of an object around another type, with the owner's logical type."""
    attributes = {name: owner[name] for name in _OF_LOGICAL if name in owner}
    kind = _move_logical_types(owner["type"], path, found)
    if "logicalType" not in attributes:
        return kind
    if isinstance(kind, list):
        return [_with(branch, attributes, path, found) for branch in kind]
    return _with(kind, attributes, path, found)


def _with(kind: Any, attributes: Mapping[str, Any], path: tuple[str, ...], found: list[Misplaced]) -> Any:
    """Returns the type with a logical type, where it has none of its own and this one applies to it."""
    node = {"type": kind} if isinstance(kind, str) else kind
    is_open = isinstance(node, dict) and "logicalType" not in node and isinstance(node.get("type"), str)
    if not is_open or not logical_of({**node, **attributes}):
        return kind
    found.append(Misplaced(".".join(path), node["type"], str(attributes["logicalType"])))
    return {**node, **attributes}
