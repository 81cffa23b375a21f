"""Schema texts: names, references, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.decode.avro.reader import UnusableSchema, avro_reader
from tests.unit.decode.avro_bodies import Node, bodies_of, number, reader_of, record_of, rows, spell


def _types(schema: Node, *references: Node) -> list[str]:
    return [f"{field.name}: {spell(field.field_type)}" for field in reader_of(schema, *references).struct.fields]


def _record(name: str, *fields: tuple[str, Node], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f, "type": node} for f, node in fields], **more}


def test_names_are_found_in_the_namespace_around_them() -> None:
    inner = _record("In", ("x", "int"))
    other = _record("In", ("y", "string"), namespace="other")
    node = _record("Out", ("a", inner), ("b", "In"), ("c", "n.In"), ("d", other), ("e", "other.In"), namespace="n")
    assert _types(node) == [
        "a: struct<x: int>", "b: struct<x: int>", "c: struct<x: int>", "d: struct<y: string>", "e: struct<y: string>",
    ]  # fmt: skip


def test_a_full_name_brings_its_own_namespace() -> None:
    node = _record(
        "a.b.Out", ("e", {"type": "enum", "name": "E", "symbols": ["X"]}), ("f", "a.b.E"), namespace="not.this"
    )
    assert _types(node) == ["e: string", "f: string"]


@pytest.mark.parametrize("namespace", ["db-1.shop.orders", "my team", "2nd.über", "a..b", "int"])
def test_a_namespace_may_be_anything(namespace: str) -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["X"]}
    node = _record("Value", ("e", enum), ("f", f"{namespace}.E"), ("u", ["int", "E"]), namespace=namespace)
    assert _types(node) == ["e: string", "f: string", "u: struct<int: int, E: string>"]


def test_names_may_be_in_any_alphabet() -> None:
    enum = {"type": "enum", "name": "Größe", "symbols": ["groß", "klein"]}
    assert _types(_record("Änderung", ("größe", enum), ("名前", ["null", "string"]), ("_1", "int"))) == [
        "größe: string", "名前: string", "_1: int",
    ]  # fmt: skip


def test_references_bring_the_types_that_a_schema_uses() -> None:
    point = _record("geo.Point", ("x", "double"))
    line = _record("geo.Line", ("from", "geo.Point"), ("to", "Point"))
    node = _record("Shape", ("line", "geo.Line"))
    assert _types(node, point, line) == ["line: struct<from: struct<x: double>, to: struct<x: double>>"]
    assert _types("geo.Line", point, line) == ["from: struct<x: double>", "to: struct<x: double>"]


def test_types_may_be_wrapped_and_attributes_are_not_looked_at() -> None:
    node = _record(
        "r",
        ("a", {"type": {"type": "string", "avro.java.string": "String", "java-class": "java.io.File"}}),
        ("b", {"type": "int", "connect.default": 0, "logicalType": 7}),
        doc="words", aliases=["s"],
    )  # fmt: skip
    node["fields"][1] |= {"default": 5, "order": "ignore", "doc": "words"}
    assert _types(node) == ["a: string", "b: int"]


def test_a_logical_type_beside_a_field_s_type_is_not_the_type_s() -> None:
    field = {"name": "t", "type": "long", "logicalType": "timestamp-millis"}
    assert _types({"type": "record", "name": "r", "fields": [field]}) == ["t: long"]


def test_an_error_is_a_record() -> None:
    assert _types({"type": "error", "name": "e", "fields": [{"name": "x", "type": "int"}]}) == ["x: int"]


def _nested(levels: int) -> Node:
    node: Node = "int"
    for _ in range(levels):
        node = {"type": "array", "items": node}
    return node


def _doubling(depth: int) -> Node:
    """A record of two records of two records: small as a text, 2 ** depth fields."""
    node: Node = _record("r0", ("x", "int"))
    for n in range(1, depth):
        node = _record(f"r{n}", ("a", node), ("b", f"r{n - 1}"))
    return node


def _field(node: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": "v", "type": node}]}


_UNUSABLE: list[tuple[Any, str]] = [
    ("nothing", "unknown type `nothing`: it is defined neither before nor in a reference, at the top of the schema"),
    (_field("ns.Later"), "unknown type `ns.Later`: it is defined neither before nor in a reference, at `v`"),
    (7, "a type is neither a name nor an object nor a union, at the top of the schema"),
    (_field({"items": "int"}), "a type has no `type`, at `v`"),
    (_field({"type": "array"}), "an array has no `items`, at `v`"),
    (_field({"type": "map"}), "a map has no `values`, at `v`"),
    (_field([]), "a union has no branches, or a union among them, at `v`"),
    (_field(["null", ["int"]]), "a union has no branches, or a union among them, at `v`"),
    (_field(["int", "null", "int"]), "a union has the same type twice, at `v`"),
    ({"type": "record", "name": "r"}, "the record `r` has no list of `fields`, at the top of the schema"),
    ({"type": "record", "fields": []}, "a type of kind record has no name, at the top of the schema"),
    (_record("a b"), "`a b` cannot be the name of a type, at the top of the schema"),
    (_record("int"), "`int` cannot be the name of a type, at the top of the schema"),
    (_record("db-1"), "`db-1` cannot be the name of a type, at the top of the schema"),
    (_record("", namespace="a"), "`a.` cannot be the name of a type, at the top of the schema"),
    (_record("r", ("1st", "int")), "a field of the record `r` has no name that Avro allows, at the top of the schema"),
    (_record("r", ("a-b", "int")), "a field of the record `r` has no name that Avro allows, at the top of the schema"),
    (_record("r", ("a", "int"), ("a", "int")), "the record `r` has the same field twice, at the top of the schema"),
    ({"type": "record", "name": "r", "fields": [{"name": "a"}]}, "the field has no type, at `a`"),
    (
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int", "aliases": "b"}]},
        "the aliases of the field are not a list of names, at `a`",
    ),
    (_field(_record("r")), "the type `r` is defined twice, at `v`"),
    (_field({"type": "enum", "name": "e", "symbols": "A"}), "the enum `e` has no list of names as its `symbols`, at `v`"),
    (_field({"type": "enum", "name": "e", "symbols": []}), "the enum `e` has no symbols, or the same one twice, at `v`"),
    (
        _field({"type": "enum", "name": "e", "symbols": ["A", "A"]}),
        "the enum `e` has no symbols, or the same one twice, at `v`",
    ),
    (_field({"type": "fixed", "name": "f", "size": 0}), "the fixed `f` has no `size` from 1 to 65,536 bytes, at `v`"),
    (_field({"type": "fixed", "name": "f", "size": True}), "the fixed `f` has no `size` from 1 to 65,536 bytes, at `v`"),
    (_field("r"), "the record `r` always contains another one of itself, without end, at `v`"),
    (
        _field({"type": "record", "name": "s", "fields": [{"name": "back", "type": "r"}]}),
        "the record `r` always contains another one of itself, without end, at `v.back`",
    ),
    (
        [_record("a.b_c", ("x", "int")), _record("a_b.c", ("x", "int")), _record("z.c"), _record("z.b_c")],
        "two branches of a union have one name, at `value`",
    ),
    (
        _record("r", *((f"f{n}", "int") for n in range(2001))),
        "the record `r` has more than 2,000 fields, at the top of the schema",
    ),
    (
        _field(_record("s", *((f"f{n}", "int") for n in range(2000)))),
        "the schema has more than 2,000 fields, at `v.f1999`",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "message"), _UNUSABLE, ids=range(len(_UNUSABLE)))
def test_an_unusable_schema_is_refused_with_its_place(schema: Any, message: str) -> None:
    with pytest.raises(UnusableSchema) as refused:
        reader_of(schema)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["", "string", "{", '"int" "int"', "[" * 100_000, "1" * 5000, '{"type": NaN}'])
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(UnusableSchema) as refused:
        avro_reader(text)
    assert str(refused.value)[0].islower()


def test_schemas_nested_64_levels_deep_are_read_and_deeper_ones_refused() -> None:
    body = number(1) * 64 + b"\x02" + bytes(64)
    value: Any = 1
    for _ in range(64):
        value = [value]
    assert rows(_nested(64), [body]) == [{"value": value}]
    for levels in (65, 300, 3000):
        with pytest.raises(UnusableSchema, match="nested more than 64 levels deep"):
            avro_reader('{"type":"array","items":' * levels + '"int"' + "}" * levels)


def test_levels_that_references_add_count_too() -> None:
    chain = [_record("r0", ("x", "int")), *(_record(f"r{n}", ("x", f"r{n - 1}")) for n in range(1, 70))]
    assert len(_types("r63", *chain)) == 1
    with pytest.raises(UnusableSchema, match=r"nested more than 64 levels deep, at `x\.x"):
        reader_of("r69", *chain)


def test_a_small_text_of_very_many_fields_is_refused_at_once() -> None:
    with pytest.raises(UnusableSchema, match="the schema has more than 2,000 fields"):
        reader_of(_doubling(30))


def test_texts_beyond_a_mebibyte_are_refused_with_their_references() -> None:
    long = json.dumps({"type": "string", "doc": "x" * 600_000})
    assert len(avro_reader(long).struct.fields) == 1
    with pytest.raises(UnusableSchema, match="more than 1,048,576 bytes of text"):
        avro_reader(long, (long,))


def test_a_reference_that_is_wrong_is_named() -> None:
    with pytest.raises(UnusableSchema, match="an array has no `items`, at `reference 2`"):
        reader_of("int", "string", {"type": "array"})


def test_two_thousand_fields_are_read() -> None:
    node = record_of(**{f"f{n}": "int" for n in range(2000)})
    columns = reader_of(node).read(bodies_of([bytes(2000), b"\x02" * 2000, b"\x02" * 1999]))
    assert columns.fault.tolist()[:2] == [0, 0]
    assert columns.paths == {2: "f1999"}
    assert all(array.to_pylist() == [0, 1, None] for array in columns.arrays)
