"""Each limit of JSON Schema: at the limit and one below it the record is a row, one above it a dead letter, and its
neighbours are rows in all three cases.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil_jsonschema import kinds, refs
from frazil_jsonschema import types as json_schema
from tests.unit.rows.test_at_limits import Case, SchemaCase, check_record, check_schema, frame, reading, sized

JSON_TEXT = {"type": "object", "properties": {"id": {"type": "integer"}, "s": {"type": "string"}}}


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_record_of_too_many_bytes_is_a_dead_letter_and_its_neighbours_are_rows(tmp_path: Path, more: int) -> None:
    how = reading("json_schema", JSON_TEXT, max_record_bytes=1000)
    record = sized(frame(1) + b'{"id": %d, "s": "', b'"}')
    check_record(tmp_path, Case("bytes of a record's value", 1000, "too_large", how, record), more)


def many_fields(count: int) -> dict[str, Any]:
    """A schema with so many fields, one of them the id."""
    names = ("id", *(f"f{n}" for n in range(count - 1)))
    return {"type": "object", "properties": {name: {"type": "integer"} for name in names}}


def deep_schema(levels: int) -> dict[str, Any]:
    """A schema of so many levels."""
    inside: Any = {"type": "integer"}
    for _ in range(levels - 1):
        inside = {"type": "object", "properties": {"x": inside}}
    return {"type": "object", "properties": {"id": {"type": "integer"}, "x": inside}}


def long_schema(size: int) -> dict[str, Any]:
    """A schema of so many bytes."""
    plain = many_fields(1) | {"description": ""}
    return plain | {"description": "x" * (size - len(json.dumps(plain)))}


SCHEMAS = [
    SchemaCase("fields of a JSON Schema", many_fields, kinds.MAX_FIELDS),
    SchemaCase("levels of a JSON Schema", deep_schema, json_schema.MAX_DEPTH),
    SchemaCase("bytes of a JSON Schema with its references", long_schema, refs.MAX_BYTES),
]


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("case", SCHEMAS, ids=[case.limit for case in SCHEMAS])
def test_a_schema_above_a_limit_is_unusable_for_its_own_records_alone(
    tmp_path: Path, case: SchemaCase, more: int
) -> None:
    check_schema(tmp_path, "json_schema", case, many_fields(1), lambda number: b'{"id": %d}' % number, more)
