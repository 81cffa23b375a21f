"""Logical types in the text of an Avro schema beside the type that they would apply to, where Avro ignores them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frazil.decode.avro.schema import logical_of

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
