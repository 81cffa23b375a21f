"""What JSON Schemas become, and what hostile ones cannot do."""

from __future__ import annotations

import json
import time
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from frazil.decode.json.records import decode_json
from frazil.registry.port import UnusableSchema
from frazil_jsonschema.types import read_json_schema
from packages.jsonschema.tests.unit.json_schema_reference import OTHER, PAGE, outcome, page
from tests.unit.decode.columns import values_of

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
_WORDS = [
    "type", "properties", "items", "prefixItems", "additionalItems", "additionalProperties", "allOf", "anyOf", "oneOf",
    "$ref", "$id", "id", "$anchor", "$defs", "enum", "const", "title", "format", "contentEncoding", "connect.type",
]  # fmt: skip
_VALUES = st.sampled_from(
    [None, True, False, 5, "string", "object", "array", "integer", "null", "date", "#", "#/properties/items", "#/$defs"]
)
_SCHEMAS = st.recursive(
    _VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=5)
)


def fields(*references: tuple[str, str], **schema: Any) -> dict[str, str]:
    """Name and type of every field."""
    struct = read_json_schema(json.dumps(schema), references).struct
    Schema(*struct.fields)  # The placeholder ids differ.
    assert not any(field.required for field in struct.fields)
    return {field.name: str(field.field_type) for field in struct.fields}


def test_the_page_reports_what_the_reader_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make docs"


def test_a_record_with_everything_is_read_as_its_schema_reports() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": INTEGER,
            "day": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "date-time"},
            "seen": {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp"},
            "raw": {"oneOf": [{"type": "null"}, {"type": "string", "contentEncoding": "base64"}]},
            "small": {"type": "integer", "connect.type": "int32"},
            "tags": {"type": "array", "items": STRING},
            "counts": {"type": "object", "additionalProperties": INTEGER},
            "who": {"$ref": "#/$defs/who"},
        },
        "$defs": {"who": {"type": "object", "properties": {"name": {"type": ["string", "null"]}}}},
    }
    value = {
        "id": 2**60 + 1, "day": "2026-01-31", "at": "2026-01-31T12:00:00+02:00", "seen": 1769817600123, "raw": "AP8=",
        "small": -5, "tags": ["a", None], "counts": {"x": 1}, "who": {"name": "b"},
    }  # fmt: skip
    struct = read_json_schema(json.dumps(schema)).struct
    decoded = decode_json(values_of([json.dumps(value)]), struct.fields)
    assert (decoded.mismatches, decoded.requested_fields) == ([], {})
    row = {field.name: column[0].as_py() for field, column in zip(struct.fields, decoded.columns, strict=True)}
    assert row == {
        **value,
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 10, tzinfo=UTC),
        "seen": datetime(2026, 1, 31, microsecond=123000, tzinfo=UTC),
        "raw": b"\x00\xff",
        "counts": [("x", 1)],
    }


def test_what_is_left_out_is_inferred_from_the_records_at_any_depth() -> None:
    schema = {"properties": {"a": {"properties": {"b": {"oneOf": [STRING, INTEGER]}, "c": STRING}}, "d": {"items": {}}}}
    found = read_json_schema(json.dumps(schema))
    assert [str(field.field_type) for field in found.struct.fields] == [
        str(Schema(*found.struct.fields).find_type("a"))
    ]
    assert found.left_out == {
        "a.b": "its type is long or string",
        "d.element": "its schema allows values of any type",
    }
    decoded = decode_json(values_of(['{"a": {"b": 1, "c": "x"}, "d": [1.5]}']), found.struct.fields)
    assert decoded.mismatches == []
    assert {
        path: {name: str(kind) for name, kind in requested_fields.items()}
        for path, requested_fields in decoded.requested_fields.items()
    } == {
        (): {"d": "list<double>"},
        ("a",): {"b": "long"},
    }


@pytest.mark.parametrize(
    ("patterns", "further", "column", "value"),
    [
        ({"^s_": STRING}, STRING, "map<string, string>", {"s_a": "x", "b": "y"}),
        ({"^n_": {"type": "number"}}, INTEGER, "map<string, double>", {"n_a": 1.5, "b": 1}),
        ({"^n_": {"type": "number"}, "^i_": INTEGER}, False, "map<string, double>", {"n_a": 1.5, "i_b": 1}),
        ({"^s_": STRING}, INTEGER, "", {"s_a": "x", "b": 1}),
        ({"^s_": STRING}, None, "", {"s_a": "x", "b": 1}),
        ({"^s_": STRING}, True, "", {"s_a": "x", "b": 1}),
        ({"^s_": True}, INTEGER, "", {"s_a": "x", "b": 1}),
    ],
)
def test_a_map_holds_the_values_of_every_name_that_its_schema_allows(
    patterns: object, further: object, column: str, value: dict[str, object]
) -> None:
    inner = {"type": "object", "patternProperties": patterns, "additionalProperties": further}
    struct = read_json_schema(json.dumps({"properties": {"id": INTEGER, "v": inner}})).struct
    assert {field.name: str(field.field_type) for field in struct.fields if field.name != "id"} == (
        {"v": column} if column else {}
    )
    decoded = decode_json(values_of([json.dumps({"id": 1, "v": value})]), struct.fields)
    assert decoded.mismatches == []
    assert bool(decoded.requested_fields) is not bool(column)


@pytest.mark.parametrize("schema", [{}, True, {"type": "object"}, {"additionalProperties": STRING}])
def test_a_schema_that_reports_nothing_leaves_everything_to_the_records(schema: object) -> None:
    found = read_json_schema(json.dumps(schema))
    assert found.struct == StructType()
    assert list(found.left_out) == [""]


def test_a_record_may_be_null_or_one_of_several_objects() -> None:
    variants = [{"type": "null"}, {"properties": {"a": STRING}}, {"properties": {"b": INTEGER, "a": STRING}}]
    assert fields(oneOf=variants) == {"a": "string", "b": "long"}


# ---- references


def test_a_reference_is_found_by_its_name_by_its_id_and_by_a_relative_address() -> None:
    assert fields(OTHER, **{"$ref": "other.json"}) == {"x": "long"}
    assert fields(OTHER, **{"$ref": "http://example.org/other.json"}) == {"x": "long"}
    assert fields(OTHER, **{"$id": "http://example.org/top.json", "$ref": "other.json#"}) == {"x": "long"}
    named = ("http://example.org/deep/named.json", json.dumps({"properties": {"y": {"$ref": "more.json"}}}))
    more = ("http://example.org/deep/more.json", json.dumps(STRING))
    assert fields(more, named, **{"$id": "http://example.org/", "$ref": "deep/named.json"}) == {"y": "string"}


def test_a_pointer_counts_from_the_document_it_is_in() -> None:
    other = ("o", json.dumps({"definitions": {"t": STRING}, "properties": {"a": {"$ref": "#/definitions/t"}}}))
    assert fields(other, **{"$ref": "o", "definitions": {"t": INTEGER}}) == {"a": "string"}
    embedded = {"$id": "http://e/x", "definitions": {"t": STRING}, "properties": {"a": {"$ref": "#/definitions/t"}}}
    assert fields(allOf=[embedded], definitions={"t": INTEGER}) == {"a": "string"}
    assert fields(**{"$ref": "http://e/x", "$defs": {"e": embedded}}) == {"a": "string"}


def test_ids_at_every_level_as_some_tools_write_them_do_no_harm() -> None:
    inner = {"$id": "/properties/a", "$ref": "#/definitions/t"}
    odd = {"$id": "#/properties/b", "type": "string"}
    assert fields(properties={"a": inner, "b": odd}, definitions={"t": INTEGER}) == {"a": "long", "b": "string"}


def test_a_pointer_s_escapes_are_read() -> None:
    definitions = {"a/b": STRING, "c~d": INTEGER, "e f": {"anyOf": [{"type": "boolean"}]}}
    pointers = {"a": "#/definitions/a~1b", "c": "#/definitions/c~0d", "e": "#/definitions/e%20f/anyOf/0"}
    properties = {name: {"$ref": pointer} for name, pointer in pointers.items()}
    assert fields(properties=properties, definitions=definitions) == {"a": "string", "c": "long", "e": "boolean"}


@pytest.mark.parametrize(
    "ref",
    ["http://h/x", "file:///etc/passwd", "x.json", "#nowhere", "#/a", "#/properties/v/", "#/type", "http://[", "ü:"],
)
def test_nothing_is_fetched(ref: str) -> None:
    assert outcome({"$ref": ref}).startswith("the schema is rejected: ")


def test_no_expression_of_a_producer_is_ever_tried() -> None:
    patient = {"type": "string", "pattern": "^(a+)+$"}
    schema = {"properties": {"v": patient}, "patternProperties": {"^(a+)+$": INTEGER}}
    started = time.monotonic()
    assert fields(**schema) == {"v": "string"}
    text = json.dumps({"v": "a" * 100 + "!", "a" * 100 + "!": 1})
    decoded = decode_json(pa.array([text.encode()], pa.binary()), read_json_schema(json.dumps(schema)).struct.fields)
    assert (decoded.columns[0].to_pylist(), decoded.mismatches) == (["a" * 100 + "!"], [])
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("name", ["__proto__", "constructor", "$ref", "type", "properties", "", "a.b", "é"])
def test_any_name_is_a_field(name: str) -> None:
    assert fields(properties={name: STRING}) == {name: "string"}


def test_a_name_that_is_no_text_is_left_out() -> None:
    found = read_json_schema('{"properties": {"\\ud800": {"type": "string"}, "a": {"type": "string"}}}')
    assert [field.name for field in found.struct.fields] == ["a"]
    assert found.left_out == {"\\ud800": "its name has half of a surrogate pair, which is not text"}


# ---- limits


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = STRING
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def doubling(keyword: str, levels: int) -> dict[str, Any]:
    """Every definition uses the next one twice."""
    definitions: dict[str, Any] = {f"d{levels}": {"properties": {"z": STRING}}}
    for n in range(levels):
        twice = [{"$ref": f"#/definitions/d{n + 1}"}] * 2
        branches = dict(zip("xy", twice, strict=True)) if keyword == "properties" else twice
        definitions[f"d{n}"] = {keyword: branches}
    return {"$ref": "#/definitions/d0", "definitions": definitions}


def chain(length: int) -> dict[str, Any]:
    links = {f"d{n}": {"$ref": f"#/definitions/d{n + 1}"} for n in range(length)}
    return {"$ref": "#/definitions/d0", "definitions": {**links, f"d{length}": {"properties": {"a": STRING}}}}


def test_64_levels_and_2000_fields_are_read() -> None:
    assert str(read_json_schema(json.dumps(nested(64))).struct).count("struct") == 64
    assert len(fields(properties={f"f{n}": STRING for n in range(2000)})) == 2000
    assert fields(**chain(100)) == {"a": "string"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not JSON: "),
        ("{", "it is not JSON: "),
        ('{"properties": {"a": {"enum": [' + "9" * 5000 + "]}}}", "it is not JSON: "),
        ("[" * 200_000, "it is nested too deeply"),
        (json.dumps(nested(65)), "it is nested more than 64 levels deep"),
        (json.dumps(nested(300)), "it is nested more than 64 levels deep"),
        (json.dumps(chain(5000)), "it is nested more than 64 levels deep"),
        (json.dumps(doubling("allOf", 40)), "it has more than 20000 parts"),
        (json.dumps(doubling("oneOf", 40)), "it has more than 20000 parts"),
        (json.dumps(doubling("properties", 40)), "it has more than 20000 parts"),
        (json.dumps(doubling("properties", 11)), "it has more than 2000 fields"),
        (json.dumps({"properties": {f"f{n}": STRING for n in range(2001)}}), "it has more than 2000 fields"),
        (json.dumps({"properties": {"a" * 2**20: STRING}}), "it is longer than 1 MiB"),
        ("5", "it has something else where a schema should be"),
        ('{"properties": {"a": 5}}', "it has something else where a schema should be"),
        ('{"properties": []}', "it has `properties` that are not an object"),
        ('{"allOf": {}}', "it has `allOf` that is not a list"),
        ('{"type": 5}', "it has a `type` that is neither a word nor a list of words"),
        ('{"type": "string"}', "it describes something else than an object"),
        ('{"type": "array", "items": {}}', "it describes something else than an object"),
        ('{"type": "null"}', "it describes something else than an object"),
    ],
)
def test_a_schema_that_is_none_or_beyond_the_limits_is_refused_in_time(text: str, reason: str) -> None:
    started = time.monotonic()
    with pytest.raises(UnusableSchema) as caught:
        read_json_schema(text)
    assert str(caught.value).startswith(reason)
    assert time.monotonic() - started < 5


def test_a_wide_schema_costs_no_more_than_its_size() -> None:
    branches = [{"properties": {f"f{n}": STRING, "a": {"oneOf": [INTEGER, STRING]}}} for n in range(1500)]
    started = time.monotonic()
    assert len(fields(anyOf=branches)) == 1500
    assert time.monotonic() - started < 5


@given(_SCHEMAS, _SCHEMAS)
def test_whatever_a_schema_holds_it_is_read_or_refused(schema: object, reference: object) -> None:
    try:
        found = read_json_schema(json.dumps(schema), (("#/$defs", json.dumps(reference)), ("o", json.dumps(reference))))
    except UnusableSchema:
        return
    Schema(*found.struct.fields)
    assert all(found.left_out.values())


def test_a_reference_that_is_no_json_is_named() -> None:
    with pytest.raises(UnusableSchema, match="its reference `o` is not JSON"):
        read_json_schema('{"properties": {}}', (("o", "{"),))
