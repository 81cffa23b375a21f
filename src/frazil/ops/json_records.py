"""Dataclasses as JSON: each is written as it is, read without the values that are wrong in it, and described as a schema.

The key of a field is its name, or its alias where it is declared with `Field(alias=…)`.
"""

from __future__ import annotations

import json
from functools import reduce
from operator import getitem
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

_Record = TypeVar("_Record")
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
_UNSTATED = frozenset(("title", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def to_json(record: Any, *left_out: str) -> dict[str, Any]:
    """Returns the JSON object of a dataclass without the fields `left_out`."""
    document: dict[str, Any] = _adapter(type(record)).dump_python(
        record, mode="json", by_alias=True, exclude=set(left_out)
    )
    return document


def read_record(kind: type[_Record], document: Any) -> _Record | None:
    """Returns the dataclass of a JSON document; None for a document that is not an object.

    The document may have been written by another version, or edited by hand: a value of another type is removed from it, and
    so is an object that lacks a key without a default. What is removed has its default in the record.
    """
    while True:
        try:
            record: _Record = _adapter(kind).validate_json(json.dumps(document), strict=True)
            return record
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
        places = {problem["loc"][: -1 if problem["type"] == "missing" else None] for problem in problems}
        if () in places:
            return None
        for *outer, key in sorted(places, reverse=True):
            del reduce(getitem, outer, document)[key]


def schema_of(*kinds: type) -> dict[str, Any]:
    """Returns the JSON Schema of an object with the keys of all these dataclasses, without references: every key is there,
    and no other.
    """
    properties: dict[str, Any] = {}
    for kind in kinds:
        schema = _adapter(kind).json_schema()
        properties |= _expanded(schema["properties"], schema.get("$defs", {}))
    return object_schema(properties)


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON Schema of an object that has all these keys and no other."""
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(properties)}


def _expanded(schema: Any, definitions: dict[str, Any]) -> Any:
    """Returns a schema with its definitions in place of references to them, and without limits of numbers."""
    if isinstance(schema, list):
        return [_expanded(member, definitions) for member in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _expanded(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if isinstance(schema.get("properties"), dict):
        return object_schema(_expanded(schema["properties"], definitions))
    return {name: _expanded(member, definitions) for name, member in schema.items() if name not in _UNSTATED}
