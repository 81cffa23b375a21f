"""The independent rules for Avro: fastavro reads the bytes, and no branch of a union and no damage escapes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from frazil_verify.model import avro
from frazil_verify.model.faults import NotRead, Unreadable
from frazil_verify.model.rows import Walk
from frazil_verify.model.settings import Settings, table_of
from frazil_verify.model.types import parse_type

Schema = Any
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
KEY_2, KEY_4 = ({"type": "fixed", "name": name, "size": size} for name, size in (("a.Key", 2), ("b.Key", 4)))
EMPTY = {"type": "record", "name": "Empty", "fields": []}


def record(kind: Schema) -> Schema:
    """A record with one field."""
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}


def body_of(schema: Schema, value: Any) -> bytes:
    """A body that fastavro writes."""
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return out.getvalue()


def row_of(schema: Schema, body: bytes, columns: Mapping[str, str]) -> dict[str, Any]:
    """The row of a body in columns of these types."""
    settings = Settings()
    table = table_of({name: parse_type(kind) for name, kind in columns.items()}, {}, settings)
    outcome = Walk(settings, table).run(avro.read_avro(avro.parsed(json.dumps(schema)), body))
    assert outcome.kinds == set()
    return outcome.row


@pytest.mark.parametrize(
    ("branches", "place", "value", "column", "stored"),
    [
        (["int", "long"], 0, 5, "struct<int: int, long: long>", {"int": 5}),
        (["int", "long"], 1, 5, "struct<int: int, long: long>", {"long": 5}),
        (["null", "float", "double"], 1, 0.5, "struct<float: float, double: double>", {"float": 0.5}),
        (["null", "float", "double"], 2, 0.5, "struct<float: float, double: double>", {"double": 0.5}),
        (["string", COLOUR], 1, "RED", "struct<string: string, Colour: string>", {"Colour": "RED"}),
        (["string", COLOUR], 0, "RED", "struct<string: string, Colour: string>", {"string": "RED"}),
        ([KEY_2, "bytes"], 1, b"ab", "struct<Key: fixed[2], bytes: binary>", {"bytes": b"ab"}),
        ([KEY_2, KEY_4], 1, b"abcd", "struct<a_Key: fixed[2], b_Key: fixed[4]>", {"b_Key": b"abcd"}),
        (["null", "int", POINT], 2, {"x": 3}, "struct<int: int, Point: struct<x: int>>", {"Point": {"x": 3}}),
        (["null", "int"], 1, 7, "int", 7),
        (["string", "null"], 0, "a", "string", "a"),
        (["null", "int", "string"], 1, 7, "int", 7),
        (["null", EMPTY], 1, {}, "boolean", True),
    ],
    ids=str,
)
def test_the_branch_of_a_union_is_known(
    branches: list[Schema], place: int, value: Any, column: str, stored: Any
) -> None:
    body = bytes([2 * place]) + body_of(branches[place], value)
    assert row_of(record(branches), body, {"v": column}) == {"v": stored}


def test_null_of_a_union_is_null() -> None:
    for branches in (["null", "int"], ["null", "int", "string"]):
        assert row_of(record(branches), b"\0", {"v": "int"}) == {}


def test_values_of_every_other_kind_are_read() -> None:
    inner = {"type": "map", "values": ["null", "long"]}
    schema = record({"type": "array", "items": inner})
    body = body_of(schema, {"v": [{"a": 1, "b": None}, {}]})
    assert row_of(schema, body, {"v": "list<map<string, long>>"}) == {"v": [[("a", 1), ("b", None)], []]}
    schema = record({"type": "array", "items": POINT})
    assert row_of(schema, body_of(schema, {"v": [{"x": 1}]}), {"v": "list<struct<x: int>>"}) == {"v": [{"x": 1}]}
    assert row_of("long", body_of("long", 9), {"value": "long"}) == {"value": 9}
    assert row_of(["null", POINT], b"\x02\x06", {"x": "int"}) == {"x": 3}
    assert row_of(record("boolean"), b"\1", {"v": "boolean"}) == {"v": True}


def test_names_are_resolved_in_their_namespaces_and_in_schemas_that_are_referred_to() -> None:
    place = {"type": "record", "name": "Place", "namespace": "shop", "fields": [{"name": "zip", "type": "string"}]}
    order = {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": "sent", "type": "Place"}, {"name": "billed", "type": ["null", "shop.Place"]}],
    }
    text = avro.text_of(json.dumps(order), [("shop.Place", json.dumps(place))])
    root = avro.read_avro(avro.parsed(text), b"\x02a\x02\x02b")
    settings = Settings()
    kinds = {name: parse_type("struct<zip: string>") for name in ("sent", "billed")}
    row = Walk(settings, table_of(kinds, {}, settings)).run(root).row
    assert row == {"sent": {"zip": "a"}, "billed": {"zip": "b"}}
    with pytest.raises(NotRead, match="does not define the type Place"):
        avro.parsed(json.dumps(order))


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("long", b"", "malformed"),
        ("double", b"\0" * 7, "malformed"),
        ("long", b"\x02\0", "malformed"),
        ("int", b"\x80\x80\x80\x80\x80\x01", "malformed"),
        ("boolean", b"\x02", "malformed"),
        ("string", b"\x01", "malformed"),
        ("string", b"\x08ab", "malformed"),
        ("bytes", b"\x08ab", "malformed"),
        ("string", b"\x02\xff", "invalid_text"),
        (["null", "int"], b"\x04\x02", "malformed"),
        (["null", "int"], b"\x01\x02", "malformed"),
        (COLOUR, b"\x04", "malformed"),
        (COLOUR, b"\x01", "malformed"),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\x0f\x02", "malformed"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\0", "duplicate_key"),
    ],
    ids=str,
)
def test_damage_is_seen(kind: Schema, body: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as fault:
        avro.read_avro(avro.parsed(json.dumps(record(kind))), body)
    assert reason in fault.value.kinds


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (record(["null", "R"]), "a record of its schemas contains itself: R"),
        (record({"type": "array", "items": "null"}), "an array of its schemas has items without bytes"),
        (record({"type": "array", "items": EMPTY}), "an array of its schemas has items without bytes"),
    ],
    ids=["itself", "nulls", "empty records"],
)
def test_schemas_without_rules_are_named(schema: Schema, words: str) -> None:
    with pytest.raises(NotRead, match=words):
        avro.parsed(json.dumps(schema))
