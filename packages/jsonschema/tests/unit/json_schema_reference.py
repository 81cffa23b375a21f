"""Writes docs/reference/json-schema.md from what the reader of JSON Schemas does: `make docs`. The tests compare them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from frazil.registry.port import UnusableSchema
from frazil_jsonschema.types import read_json_schema

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "json-schema.md"

_STRING, _INTEGER, _NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
_CONNECT = "org.apache.kafka.connect.data."


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


ROWS: Mapping[str, Sequence[Any]] = {
    "Types": (
        {"type": "boolean"}, _INTEGER, {"type": "number"}, _STRING, _NULL, {}, True, False, {"type": "any"},
        {"type": ["null", "string"]}, {"type": ["integer", "number"]}, {"type": ["integer", "string"]},
    ),
    "Strings": (
        {"type": "string", "format": "date"}, {"type": "string", "format": "date-time"},
        {"type": "string", "format": "time"}, {"type": "string", "format": "uuid"},
        {"type": "string", "format": "email"}, {"type": "string", "pattern": "^a", "maxLength": 3},
        {"type": "string", "contentEncoding": "base64"}, {"type": "string", "contentEncoding": "base16"},
        {"format": "date"},
    ),
    "Values": (
        {"enum": ["a", "b", None]}, {"enum": [1, 2]}, {"enum": [1, 2.5]}, {"enum": [True]}, {"enum": ["a", 1]},
        {"enum": [[1]]}, {"const": "a"}, {"type": "string", "enum": ["a"]},
    ),
    "Objects": (
        _object(a=_INTEGER, b=_STRING), {"properties": {"a": _INTEGER}}, {**_object(a=_INTEGER), "required": ["a"]},
        {**_object(a=_INTEGER), "additionalProperties": _STRING}, {"type": "object"},
        {"type": "object", "additionalProperties": _INTEGER}, {"additionalProperties": _object(a=_INTEGER)},
        {"type": "object", "additionalProperties": True}, {"type": "object", "patternProperties": {"^a": _INTEGER}},
        {"type": "object", "patternProperties": {"^a": _INTEGER}, "additionalProperties": False},
        {"type": "object", "patternProperties": {"^a": {"type": "number"}}, "additionalProperties": _INTEGER},
        {"type": "object", "patternProperties": {"^a": _STRING}, "additionalProperties": _INTEGER},
        {**_object(a=_INTEGER), "patternProperties": {"^b": _STRING}}, _object(a={}),
    ),
    "Arrays": (
        {"type": "array", "items": _INTEGER}, {"items": _object(a=_INTEGER)},
        {"type": "array", "items": {"type": ["null", "string"]}}, {"type": "array"}, {"type": "array", "items": True},
        {"type": "array", "items": [_INTEGER, {"type": "number"}]}, {"type": "array", "items": [_INTEGER, _STRING]},
        {"type": "array", "prefixItems": [_STRING], "items": False}, {"type": "array", "prefixItems": [_STRING]},
    ),
    "Alternatives": (
        {"oneOf": [_NULL, _STRING]}, {"anyOf": [_STRING, _NULL, _STRING]}, {"oneOf": [_INTEGER, {"type": "number"}]},
        {"oneOf": [_INTEGER, _STRING]}, {"oneOf": [_object(a=_INTEGER), _object(b=_STRING)]},
        {"oneOf": [_object(a=_INTEGER), _object(a=_STRING, b=_STRING)]}, {"oneOf": [_object(a=_INTEGER), _INTEGER]},
        {**_object(a=_INTEGER), "anyOf": [{"required": ["a"]}, {"properties": {"b": _STRING}}]},
        {"allOf": [_object(a=_INTEGER), _object(b=_STRING)]}, {"allOf": [_STRING, {"maxLength": 3}]},
        {"allOf": [_STRING, {"type": "string", "format": "date"}]}, {"allOf": [_INTEGER, _STRING]},
        {"if": _object(a=_INTEGER), "then": _object(b=_STRING)}, {"not": _STRING},
        {**_object(a=_INTEGER), "if": {"required": ["a"]}, "then": _object(b=_STRING)},
        {**_object(a=_INTEGER), "dependentSchemas": {"a": _object(b=_STRING)}},
    ),
    "References": (
        {"$ref": "#/definitions/address"}, {"$ref": "#/$defs/city"}, {"$ref": "#town"}, {"$ref": "other.json"},
        {"$ref": "http://example.org/other.json#/definitions/n"}, {"$ref": "#/definitions/tree"}, {"$ref": "#"},
        {"$ref": "#/definitions/nothing"}, {"$ref": "http://169.254.169.254/latest"}, {"$ref": "file:///etc/passwd"},
        {"$dynamicRef": "#node"},
    ),
    "Connect": (
        {"type": "integer", "connect.type": "int8"}, {"type": "integer", "connect.type": "int16"},
        {"type": "integer", "connect.type": "int32"}, {"type": "integer", "connect.type": "int64"},
        {"type": "number", "connect.type": "float32"}, {"type": "number", "connect.type": "float64"},
        {"type": "string", "connect.type": "bytes"},
        {"type": "number", "title": f"{_CONNECT}Decimal", "connect.type": "bytes"},
        {"type": "integer", "title": f"{_CONNECT}Date", "connect.type": "int32"},
        {"type": "integer", "title": f"{_CONNECT}Time", "connect.type": "int32"},
        {"type": "integer", "title": f"{_CONNECT}Timestamp", "connect.type": "int64"},
        {
            "type": "integer",
            "connect.type": "int64",
            "connect.parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"},
        },
        {"oneOf": [_NULL, {"type": "integer", "connect.type": "int32"}]},
        {"type": "object", "connect.type": "map", "additionalProperties": _INTEGER},
        {"type": "array", "connect.type": "map", "items": _object(key=_INTEGER, value=_STRING)},
    ),
}  # fmt: skip
DEFINITIONS = {
    "definitions": {
        "address": _object(street=_STRING),
        "tree": _object(name=_STRING, left={"$ref": "#/definitions/tree"}),
    },
    "$defs": {"city": _STRING, "place": {"$anchor": "town", **_STRING}},
}
_OTHER = {"$id": "http://example.org/other.json", **_object(x=_INTEGER), "definitions": {"n": _INTEGER}}
OTHER = ("other.json", json.dumps(_OTHER))

_NOTE = "\nGenerated from the schema reader by `make docs`; a test verifies it."

_INTRODUCTION = """\
# JSON Schema types

Values are read like [JSON](json.md), with times truncated to microseconds. A schema defines the types of columns before
the first record; other keywords are not validated (`required`, `pattern`, ranges). Every column is optional. A field
that is *left out* has no type in the schema; its type is inferred from its values, as without a schema, unless the
pipeline file declares it.

So is the type of a field that only these keywords describe, because they depend on other fields or names: `if`, `then`,
`else`, `dependentSchemas`, `dependencies`, and `additionalProperties`, `patternProperties` or `unevaluatedProperties` beside
`properties`. Declare the column where the first values may mislead, such as integers where later values have fractions.

A tuple without `"items": false` may have more elements than it describes: they must fit the list's type, or the record
is a [dead letter](dead-letters.md).

`$ref` may refer to the schema itself and to its references in the registry. Nothing is fetched from elsewhere.
A schema is rejected if it is longer than 1 MiB (with its references), deeper than 64 levels, has more than 2,000
fields or more than 20,000 parts, is not JSON, or does not describe an object.

Each schema below is the schema of a field `v`. The definitions of the references are at the end of the page."""


def page() -> str:
    """The page as it should be."""
    lines = [_INTRODUCTION]
    for title, rows in ROWS.items():
        lines += [f"\n## {title}\n", "| JSON Schema | column |", "|---|---|"]
        lines += [f"| `{_cell(json.dumps(row))}` | {_cell(outcome(row))} |" for row in rows]
    lines += ["\n## Definitions\n", "The schema has these definitions:\n", *_code(DEFINITIONS)]
    lines += ["\nIts reference `other.json` has these:\n", *_code(_OTHER)]
    return "\n".join([*lines, _NOTE]) + "\n"


def outcome(field: Any) -> str:
    """What becomes of a field with this schema, in words."""
    text = json.dumps({**_object(v=field), **DEFINITIONS})
    try:
        found = read_json_schema(text, (OTHER,))
    except UnusableSchema as error:
        return f"the schema is rejected: {error}"
    left_out = [f"`{path}` is left out: {reason}" for path, reason in found.left_out.items()]
    return "; ".join([*(f"`{_plain(str(kept.field_type))}`" for kept in found.struct.fields), *left_out])


def _plain(words: str) -> str:
    """A type without ids, and without reporting of every field that it is optional."""
    return re.sub(r"\d+: (\S+): optional ", r"\1: ", words)


def _code(document: Any) -> Iterator[str]:
    yield "```json"
    yield json.dumps(document, indent=2)
    yield "```"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
