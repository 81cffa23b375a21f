"""Which columns of other people's tables can be written, by Iceberg's own JSON of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.catalog.table_metadata import read_schema
from frazil.errors import SpecError


def schema(kind: Any) -> str:
    """Of a table with one good column and `v`."""
    good = {"id": 1, "name": "id", "required": True, "type": "long"}
    return json.dumps(
        {"type": "struct", "schema-id": 3, "fields": [good, {"id": 2, "name": "v", "required": False, "type": kind}]}
    )


def struct(kind: Any) -> Any:
    return {"type": "struct", "fields": [{"id": 3, "name": "in", "required": False, "type": kind}]}


def listed(kind: Any) -> Any:
    return {"type": "list", "element-id": 4, "element": kind, "element-required": False}


def mapped(key: Any, value: Any) -> Any:
    return {"type": "map", "key-id": 5, "key": key, "value-id": 6, "value": value, "value-required": False}


@pytest.mark.parametrize(
    "kind",
    [
        *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid"),
        *("binary", "fixed[16]", "decimal(9, 2)"),
        struct(listed(mapped("int", "timestamptz"))),
    ],
)
def test_what_can_be_written_is_read_as_it_is(kind: Any) -> None:
    found = read_schema(schema(kind), "n.t")
    assert json.loads(found.model_dump_json())["fields"][1]["type"] == kind
    assert found.schema_id == 3


@pytest.mark.parametrize("word", ["timestamp_ns", "timestamptz_ns", "variant", "unknown", "geometry", "geography"])
@pytest.mark.parametrize(
    ("around", "path"),
    [
        (lambda kind: kind, "v"),
        (struct, "v.in"),
        (lambda kind: listed(struct(kind)), "v.element.in"),
        (lambda kind: mapped("string", kind), "v.value"),
        (lambda kind: mapped(kind, "string"), "v.key"),
    ],
)
def test_a_column_of_another_type_is_named_with_it(word: str, around: Any, path: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_schema(schema(around(word)), "n.t")
    assert refused.value.message == f"the column {path} has the type {word}, which this version cannot write"
    assert (refused.value.where, bool(refused.value.remedy)) == ("n.t", True)


def test_a_type_with_a_parameter_that_nobody_knows_is_named_too() -> None:
    with pytest.raises(SpecError, match=r"geometry\(srid:4326\)"):
        read_schema(schema("geometry(srid:4326)"), "n.t")
