"""A union of Avro that gets a second type, or is left with one: what its values are in the column that is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import IcebergType, ListType, LongType

from docs.scan import ROOT
from frazil.decode.columns import Decoded
from frazil.decode.lossless import format_type
from frazil.decode.settings import NO_EVOLUTION, WriterSchema
from frazil.schema.evolve import extend_schema, new_schema
from frazil.schema.selection import Selection
from frazil.spec import ColumnSpec
from frazil.spec.settings import EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.tables.test_schemas import Scenario, avro
from tests.unit.rows.test_writer_schemas import decode, faults, fields_of, framed, rows

_ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
_POINT = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
_MORE = ["null", "int", "string"]


def _read(kind: Any, column: str, *values: Any, **reading: Any) -> tuple[Decoded, list[Any]]:
    """Values of a type in a column; with what becomes of them."""
    schema, fields = WriterSchema("avro", avro(v=kind)), fields_of(v=column)
    records = framed(2, schema, *({"v": value} for value in values))
    decoded = decode(records, fields, {2: schema}, **reading)
    return decoded, [row["v"] for row in rows(decoded, fields)]


@pytest.mark.parametrize(
    ("kind", "column", "good", "bad", "refused"),
    [
        (_MORE, "int", [5, None, -1], ["x"], "v: string does not fit int"),
        (_MORE, "string", ["x", None, ""], [5], "v: int does not fit string"),
        (_MORE, "decimal(9,2)", [5], ["x"], "v: string does not fit decimal(9, 2)"),
        (["null", "int", _POINT], "int", [5, None], [{"x": 1}], "v: struct does not fit int"),
        (["string", _ENUM], "string", [("string", "x"), ("E", "A")], [], ""),
        (["long", "int"], "long", [("int", 5), ("long", 2**40)], [], ""),
        ([{"type": "array", "items": "int"}, "string"], "list<int>", [[1], []], ["x"], "v: string does not fit list"),
        ([{"type": "map", "values": "int"}, "int"], "map<string, int>", [{"a": 1}], [7], "v: int does not fit map"),
        ({"type": "array", "items": _MORE}, "list<int>", [[1, None], [], [2]], [["x"]], "v.element: string does not"),
        ({"type": "map", "values": _MORE}, "map<string, int>", [{"a": 1, "b": None}], [{"a": "x"}], "v.value: string"),
    ],
)
def test_of_a_union_the_branch_goes_over_that_the_column_holds(
    kind: Any, column: str, good: list[Any], bad: list[Any], refused: str
) -> None:
    decoded, found = _read(kind, column, *good, *bad, *good)
    plain = [value[1] if isinstance(value, tuple) else value for value in good]
    assert [dict(value) if column.startswith("map") else value for value in found] == plain * 2
    assert [mismatch.row for mismatch in decoded.mismatches] == [n + len(good) for n in range(len(bad))]
    assert {mismatch.kind for mismatch in decoded.mismatches} <= {"type_mismatch"}
    assert [reported.startswith(f"schema 2: column {refused}") for reported in decoded.refusals] == [True] * bool(
        refused
    )
    assert decoded.requested_fields == {}


@pytest.mark.parametrize(
    ("kind", "column", "values", "wider", "wanted"),
    [
        (["null", "int", "long"], "int", [("int", 5), ("long", 2**40)], "long", LongType()),
        ({"type": "array", "items": ["int", "long"]}, "list<int>", [[("int", 5)], [("long", 2**40)]], "list<long>",
         ListType(0, LongType(), False)),
    ],
)  # fmt: skip
def test_a_wider_branch_makes_the_column_wider(
    kind: Any, column: str, values: list[Any], wider: str, wanted: IcebergType
) -> None:
    assert _read(kind, column, *values)[0].requested_fields == {(): {"v": wanted}}
    after, found = _read(kind, wider, *values)
    assert (after.requested_fields, after.mismatches, len(found)) == ({}, [], 2)
    narrow, _ = _read(kind, column, *values, evolution=NO_EVOLUTION)
    assert [reported.endswith("int is not widened to long") for reported in narrow.refusals] == [True]
    assert [mismatch.row for mismatch in narrow.mismatches] == [1]


def test_a_branch_that_does_not_fit_is_rescued() -> None:
    decoded, found = _read(_MORE, "int", 5, "x", is_rescuing=True)
    assert found == [5, None]
    assert decoded.rescued is not None
    assert decoded.rescued.to_pylist() == [None, '{"v":{"value":"x","reason":"\\"x\\" (string) does not fit int"}}']


@pytest.mark.parametrize(
    ("kind", "column", "left_out", "values", "expected"),
    [
        (_MORE, "int", ("v", "string"), [5, "x", None], [5, None, None]),
        (["null", "int", _POINT], "int", ("v", "P", "x"), [5, None], [5, None]),
        ({"type": "array", "items": _MORE}, "list<int>", ("v", "element", "string"), [[1, "x"]], [[1, None]]),
    ],
)
def test_a_union_of_which_something_is_left_out_is_one(
    kind: Any, column: str, left_out: tuple[str, ...], values: list[Any], expected: list[Any]
) -> None:
    decoded, found = _read(kind, column, *values, selection=Selection(exclude=(left_out,)))
    assert (found, decoded.mismatches) == (expected, [])


@pytest.mark.parametrize(
    ("kind", "column", "values", "expected"),
    [
        ("int", "struct<int: int, string: string>", [5], [{"int": 5, "string": None}]),
        (["null", "int"], "struct<int: int, string: string>", [5, None], [{"int": 5, "string": None}, None]),
        ("int", "struct<int: long, string: string>", [5], [{"int": 5, "string": None}]),
        (_ENUM, "struct<string: string, E: string>", ["A"], [{"string": None, "E": "A"}]),
        ({"type": "array", "items": "int"}, "struct<array: list<int>, int: int>", [[1]], [{"array": [1], "int": None}]),
        ({"type": "array", "items": "int"}, "list<struct<int: int, string: string>>", [[1], []],
         [[{"int": 1, "string": None}], []]),
    ],
)  # fmt: skip
def test_a_plain_value_goes_to_its_branch(kind: Any, column: str, values: list[Any], expected: list[Any]) -> None:
    decoded, found = _read(kind, column, *values)
    assert (found, decoded.requested_fields, decoded.mismatches, decoded.refusals) == (expected, {}, [], set())


@pytest.mark.parametrize(
    ("kind", "column"), [("boolean", "struct<int: int, string: string>"), ("int", "struct<x: int>")]
)
def test_a_plain_value_without_a_branch_does_not_fit(kind: str, column: str) -> None:
    decoded, found = _read(kind, column, 1)
    assert (found, faults(decoded)) == ([], [(0, "type_mismatch", "v")])
    assert decoded.refusals == {f"schema 2: column v: {kind} does not fit struct"}


@pytest.mark.parametrize("column", ["", "struct<int: int, string: string>"])
def test_records_before_and_after_a_union_got_its_second_type_are_rows(tmp_path: Path, column: str) -> None:
    columns = (ColumnSpec(name="v", type=parse_type(column)),) if column else ()
    scenario = Scenario(tmp_path, columns=columns, dead_letters={"stop_above": 1.0})
    old, new = avro(v=["null", "int"]), avro(v=_MORE)
    one, two = scenario.register(old), scenario.register(new)
    for schema_id, text, value in ((one, old, 1), (two, new, 2), (two, new, "x"), (one, old, 3)):
        scenario.produce(schema_id, text, {"v": value})
        scenario.settle(scenario.start())
    if column:
        expected: list[Any] = [{"int": 1}, {"int": 2}, {"string": "x"}, {"int": 3}]
        assert [
            {name: held for name, held in row["v"].items() if held is not None} for row in scenario.rows()
        ] == expected
    else:
        assert [row["v"] for row in scenario.rows()] == [1, 2, 3]
        assert [dead_letter["offset"] for dead_letter in scenario.rows("n.t__dead_letters")] == [2]


_OPERATION = EnvelopeSpec(kind="operation", operation="what")


@pytest.mark.parametrize(
    ("envelope", "beside"), [(EnvelopeSpec(kind="debezium"), {"__op": "c"}), (_OPERATION, {"what": "I"})]
)
def test_rows_of_changes_that_are_not_wrapped_take_plain_values_and_renamed_fields(
    tmp_path: Path, envelope: EnvelopeSpec, beside: dict[str, str]
) -> None:
    columns = (ColumnSpec(name="v", type=parse_type("struct<int: int, string: string>")),)
    scenario = Scenario(tmp_path, columns=columns, envelope=envelope, changelog=True)
    told = [{"name": name, "type": "string"} for name in beside]
    for name, aliases in (("old", []), ("new", ["old"])):
        fields = [{"name": "v", "type": "int"}, {"name": name, "type": "int", "aliases": aliases}, *told]
        text = json.dumps({"type": "record", "name": "R", "fields": fields})
        scenario.produce(scenario.register(text), text, {"v": 1, name: 2, **beside})
        scenario.settle(scenario.start())
    assert [(row["v"], row["old"], "new" in row) for row in scenario.rows()] == [
        ({"int": 1, "string": None}, 2, False)
    ] * 2


_NAMED: dict[str, Any] = {
    "E": _ENUM,
    "a.E": {**_ENUM, "namespace": "a"},
    "P": _POINT,
    "Q": {**_POINT, "name": "Q", "aliases": ["P"]},
    "a.Key": {**_POINT, "name": "a.Key"},
    "b.Key": {**_POINT, "name": "b.Key"},
}
_BAD = object()
_POINTS, _KEYS = "struct<int: int, P: struct<x: int>", "struct<int: int, Key: struct<x: int>"
_FOLLOWS: dict[tuple[str, str], tuple[list[tuple[Any, Any]], str]] = {
    ("int", '["null", "int", "string"]'): ([(5, 5), ("x", _BAD), (None, None)], ""),
    ("int", '["int", "long"]'): ([(("int", 5), 5), (("long", 2**40), 2**40)], "long"),
    ("string", '["string", "E"]'): ([(("string", "x"), "x"), (("E", "A"), "A")], ""),
    ("list<int>", '[{"type": "array", "items": "int"}, "string"]'): ([([1], [1]), ("x", _BAD)], ""),
    ("list<int>", '{"type": "array", "items": ["int", "string"]}'): ([([1], [1]), ([1, "x"], _BAD)], ""),
    ("struct<int: int, string: string>", '"int"'): ([(5, {"int": 5})], ""),
    ("map<string, struct<int: int, string: string>>", '{"type": "map", "values": "int"}'): (
        [({"a": 5}, [("a", {"int": 5, "string": None})])], ""
    ),
    ("struct<long: long, string: string>", '"int"'): ([(5, _BAD)], ""),
    ("struct<int: int, string: string>", '["long", "string"]'): (
        [(5, {"long": 5}), ("x", {"string": "x"})], "struct<int: int, string: string, long: long>"
    ),
    ("struct<int: int, P: struct<x: int>>", '["int", "Q"]'): (
        [({"x": 1}, {"Q": {"x": 1}}), (5, {"int": 5})], f"{_POINTS}, Q: struct<x: int>>"
    ),
    ("struct<int: int, Key: struct<x: int>>", '["int", "a.Key", "b.Key"]'): (
        [(("a.Key", {"x": 1}), {"a_Key": {"x": 1}}), (("b.Key", {"x": 2}), {"b_Key": {"x": 2}})],
        f"{_KEYS}, a_Key: struct<x: int>, b_Key: struct<x: int>>",
    ),
    ("struct<int: int, a_E: string, b_E: string>", '"a.E"'): ([("A", _BAD)], ""),
    ("struct<x: int>", '["int", "P"]'): (
        [(5, {"int": 5}), ({"x": 1}, {"P": {"x": 1}})], "struct<x: int, int: int, P: struct<x: int>>"
    ),
    ("struct<int: int, P: struct<x: int>>", '"P"'): ([({"x": 1}, {"x": 1})], f"{_POINTS}, x: int>"),
}  # fmt: skip
"""By column and written type: values with what is in the column, and the column's type where that is another one then."""


def _spelt_out(node: Any) -> Any:
    if isinstance(node, list):
        return [_spelt_out(branch) for branch in node]
    if isinstance(node, dict):
        return {name: _spelt_out(held) if name in ("items", "values") else held for name, held in node.items()}
    return _NAMED.get(node, node)


def _told(held: Any) -> Any:
    """A value without the members that are null."""
    return {name: one for name, one in held.items() if one is not None} if isinstance(held, dict) else held


@pytest.mark.parametrize(("column", "written"), _FOLLOWS)
def test_what_follows_when_a_union_changes(column: str, written: str) -> None:
    pairs, after = _FOLLOWS[column, written]
    values, kind = [value for value, _ in pairs], _spelt_out(json.loads(written))
    before = new_schema([("v", parse_type(column))])
    changed = extend_schema(before, _read(kind, column, *values)[0].requested_fields)
    assert format_type(changed.find_type("v")) == format_type(parse_type(after or column))
    decoded, found = _read(kind, after or column, *values)
    assert (decoded.requested_fields, decoded.refused.tolist()) == ({}, [expected is _BAD for _, expected in pairs])
    assert [_told(held) for held in found] == [expected for _, expected in pairs if expected is not _BAD]


def test_the_page_on_conversions_has_the_same_rows() -> None:
    page = (ROOT / "docs" / "reference" / "conversions.md").read_text(encoding="utf-8")
    part = page.partition("## Unions that change")[2]
    rows_of_page = re.findall(r"^\| `([^`]+)` \| `([^`]+)`[^|]* \| [a-z][^|]* \|$", part, re.MULTILINE)
    assert rows_of_page == list(_FOLLOWS)


def test_of_a_list_with_a_union_the_one_value_that_does_not_fit_is_rescued() -> None:
    decoded, found = _read({"type": "array", "items": ["int", "string"]}, "list<int>", [1, "x"], is_rescuing=True)
    assert found == [[1, None]]
    assert decoded.rescued is not None
    assert list(json.loads(decoded.rescued[0].as_py())) == ["v.element"]


def test_a_union_with_a_type_that_has_a_meaning_is_still_one(tmp_path: Path) -> None:
    """As Kafka Connect's converter names types, inside of a branch."""
    meant = {"type": "long", "connect.name": "org.apache.kafka.connect.data.Timestamp"}
    record = {"type": "record", "name": "R", "fields": [{"name": "at", "type": meant}]}
    row = {"type": "record", "name": "Row", "fields": [
        {"name": "id", "type": "int"}, {"name": "v", "type": ["null", "int", record]},
    ]}  # fmt: skip
    text = json.dumps({"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": "null"}, {"name": "after", "type": row}, {"name": "op", "type": "string"},
    ]})  # fmt: skip
    columns = (ColumnSpec(name="id", type=parse_type("int")), ColumnSpec(name="v", type=parse_type("int")))
    scenario = Scenario(
        tmp_path, columns=columns, envelope=EnvelopeSpec(kind="debezium"), dead_letters={"stop_above": 1.0}
    )
    scenario.produce(scenario.register(text), text, {"before": None, "after": {"id": 1, "v": 5}, "op": "c"})
    service = scenario.start()
    scenario.settle(service)
    assert [table.status.reason for table in service.tables] == [""]
    assert scenario.rows() == [{"id": 1, "v": 5}]


def test_the_rows_of_an_optional_struct_of_kafka_connect_are_those_of_its_record(tmp_path: Path) -> None:
    """Its converter writes a union of null and the record, and the next version may be the record alone."""
    scenario = Scenario(tmp_path, dead_letters={"stop_above": 1.0})
    placed = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
    plain = avro(id="int", placed=placed)
    optional = json.dumps(["null", json.loads(plain)])
    lots: list[tuple[str, list[Any]]] = [
        (optional, [{"id": 1, "placed": 5}, None]),
        (plain, [{"id": 2, "placed": 6}]),
    ]
    for text, records in lots:
        scenario.produce(scenario.register(text), text, *records)
    scenario.settle(scenario.start())
    state = scenario.catalog.load("n.t")
    assert state is not None
    assert [(field.name, str(field.field_type)) for field in state.schema.fields] == [
        ("id", "int"),
        ("placed", "timestamp"),
    ]
    assert [row["id"] for row in scenario.rows()] == [1, 2]
    assert [(row["offset"], row["error_class"]) for row in scenario.rows("n.t__dead_letters")] == [(1, "tombstone")]
