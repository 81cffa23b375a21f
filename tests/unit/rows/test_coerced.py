"""Columns that are declared to take more than their type: values of every kind as text, and days and times of day as
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from frazil.decode.columns import Decoded
from frazil.decode.json.records import decode_json
from frazil.decode.settings import Reading, WriterSchema
from frazil.schema.parts import counted_in
from frazil.schema.selection import DeclaredValues
from frazil.spec import TableSpec
from frazil.spec.load import load_spec
from frazil.spec.settings import ColumnSpec, EnvelopeSpec
from frazil.spec.syntax.types import parse_column_type, parse_type
from tests.needs import has_package, needs
from tests.unit.decode.columns import fields_of, values_of
from tests.unit.ingest.tables.test_schemas import Scenario as Registered
from tests.unit.ingest.tables.test_schemas import avro
from tests.unit.rows.test_encodings import SHAPES, found, message, proto, schema_of, written
from tests.unit.rows.test_shaped_service import Scenario
from tests.unit.rows.test_writer_schemas import decode, framed
from tests.unit.rows.test_writer_schemas import fields_of as columns_of
from tests.unit.spec.pipeline_file import with_table
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario

if has_package("jsonschema"):
    from frazil_jsonschema.types import refused_changes

_KEPT = {
    "7": "7",
    "-1.50": "-1.50",
    "1E400": "1E400",
    "123456789012345678901234567890": "123456789012345678901234567890",
    "true": "true",
    "false": "false",
    '"a\\u00e9"': "a\u00e9",
    "null": None,
    "[1,  2.0 ]": "[1,  2.0 ]",
    '{"b": 1, "a":\t[null]}': '{"b": 1, "a":\t[null]}',
    "{}": "{}",
}
"""Values in JSON, and as what a column of text keeps them."""
_DEPTHS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "string": ("V", lambda one: one),
    "struct<a: string>": ('{"a": V}', lambda one: {"a": one}),
    "list<string>": ("[V, V]", lambda one: [one, one]),
    "map<string,string>": ('{"k": V}', lambda one: [("k", one)]),
    "struct<a: list<struct<b: string>>>": ('{"a": [{"b": V}]}', lambda one: {"a": [{"b": one}]}),
}


def _json(text: str, kind: str, **options: Any) -> Decoded:
    return decode_json(values_of([f'{{"v": {text}}}']), fields_of({"v": kind}), Reading(**options))


@pytest.mark.parametrize("kind", _DEPTHS)
@pytest.mark.parametrize("text", _KEPT)
def test_text_of_json_is_kept_as_it_is_sent(kind: str, text: str) -> None:
    shape, put = _DEPTHS[kind]
    decoded = _json(shape.replace("V", text), kind, declared=DeclaredValues(coerced=(("v",),)))
    assert (decoded.mismatches, decoded.columns[0].to_pylist()) == ([], [put(_KEPT[text])])


def test_only_the_declared_column_takes_other_values() -> None:
    fields = fields_of({"v": "string", "w": "string"})
    decoded = decode_json(values_of(['{"v": 1, "w": 1}']), fields, Reading(declared=DeclaredValues(coerced=(("v",),))))
    assert [(one.path, one.kind) for one in decoded.mismatches] == [("w", "type_mismatch")]


def test_text_that_is_none_stays_a_bad_record() -> None:
    assert [
        one.kind for one in _json('"\\ud800"', "string", declared=DeclaredValues(coerced=(("v",),))).mismatches
    ] == ["invalid_text"]


def test_an_object_beside_an_escaped_key_is_kept_as_it_is_sent() -> None:
    text = '{"v": {"\\u0061": 1, "b/": "\\u0061"}, "\\u0077": 2}'
    decoded = decode_json(
        values_of([text, '{"v": {"\\u0061":2}}']),
        fields_of({"v": "string", "w": "long"}),
        Reading(declared=DeclaredValues(coerced=(("v",),))),
    )
    assert decoded.columns[0].to_pylist() == ['{"\\u0061": 1, "b/": "\\u0061"}', '{"\\u0061":2}']
    assert decoded.columns[1].to_pylist() == [2, None]


def test_thousands_of_objects_beside_an_escaped_key_take_one_pass_over_their_record() -> None:
    objects = [f'{{"\\u00e9": {n}}}' for n in range(2000)]
    text = '{"\\u0077": 2, "v": [' + ", ".join(objects) + "]}"
    started = process_time()
    decoded = decode_json(
        values_of(["{}", text]), fields_of({"v": "list<string>"}), Reading(declared=DeclaredValues(coerced=(("v",),)))
    )
    assert decoded.columns[0].to_pylist() == [None, objects]
    assert process_time() - started < 5  # One pass for each object takes 20 s, and no record may take that long.


_RECORD = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}
_WRITTEN: list[tuple[Any, Any, str]] = [
    ("int", 7, "7"),
    ("long", -(2**63), str(-(2**63))),
    ("boolean", True, "true"),
    ("double", 1.5, "1.5"),
    ("double", 1.0, "1.0"),
    ("float", 0.1, "0.1"),
    ("double", float("-inf"), "-Infinity"),
    (_RECORD, {"x": 1, "y": 'a"'}, '{"x":1,"y":"a\\""}'),
    ({"type": "array", "items": "int"}, [1, 2], "[1,2]"),
    ({"type": "map", "values": "int"}, {"a": 1}, '{"a":1}'),
    ("string", '"quoted"', '"quoted"'),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", "A"),
]


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "union"])
@pytest.mark.parametrize(("kind", "value", "text"), _WRITTEN)
def test_values_of_avro_are_kept_as_text(kind: Any, value: Any, text: str, shape: str) -> None:
    schema = schema_of(kind, shape)
    fields, put = columns_of(v=SHAPES[shape][1].format("string")), SHAPES[shape][2]
    assert found(
        decode(written(1, schema, put(value)), fields, {1: schema}, declared=DeclaredValues(coerced=(("v",),)))
    ) == [put(text)]


def test_days_and_decimals_of_avro_are_kept_as_their_words() -> None:
    kinds: list[tuple[Any, Any, str]] = [
        ({"type": "int", "logicalType": "date"}, 1, "1970-01-02"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 12}, b"\1", "0.000000000001"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1500, "1970-01-01T00:00:01.500000+00:00"),
    ]
    for kind, value, text in kinds:
        schema, plain = schema_of(kind, "top"), schema_of(kind["type"], "top")
        record = written(1, plain, value)
        assert found(
            decode(record, columns_of(v="string"), {1: schema}, declared=DeclaredValues(coerced=(("v",),)))
        ) == [text]


def test_bytes_are_no_text_that_a_declaration_keeps() -> None:
    schema = schema_of({"type": "fixed", "name": "F", "size": 2}, "top")
    decoded = decode(
        written(1, schema, b"ab"), columns_of(v="string"), {1: schema}, declared=DeclaredValues(coerced=(("v",),))
    )
    assert [(one.kind, "coerce" in one.reason) for one in decoded.mismatches] == [("type_mismatch", False)]


@needs("protobuf")
def test_values_of_protobuf_are_kept_as_text() -> None:
    schema = proto(
        'syntax = "proto3"; message R { int32 a = 1; bool b = 2; S c = 3; repeated int64 d = 4; } message S { int32 x = 1; }'
    )
    record = message(schema, 1, {"a": 5, "b": True, "c": {"x": 1}, "d": [1, 2]})
    fields = columns_of(a="string", b="string", c="string", d="string")
    coerced = tuple((name,) for name in "abcd")
    decoded = decode([record], fields, {1: schema}, format="protobuf", declared=DeclaredValues(coerced=coerced))
    assert [column[0].as_py() for column in decoded.columns] == ["5", "true", '{"x":1}', "[1,2]"]


@needs("jsonschema")
def test_a_schema_of_json_asks_for_no_change_of_a_column_that_is_declared_so() -> None:
    table = parse_type("struct<v: string, d: date, t: time>")
    written_as = parse_type("struct<v: double, d: long, t: long>")
    plain, declared = (
        Reading(),
        Reading(declared=DeclaredValues(coerced=(("v",),), units=((("d",), "d"), (("t",), "ms")))),
    )
    assert len(refused_changes(plain, table, written_as, "1")) == 3  # type: ignore[arg-type]
    assert refused_changes(declared, table, written_as, "1") == set()  # type: ignore[arg-type]


# ---- days and times of day as numbers

_COUNTS: list[tuple[str, str, str, Any]] = [
    ("date", "d", "20484", date(2026, 1, 31)),
    ("date", "d", "0", date(1970, 1, 1)),
    ("date", "d", "-719162", date(1, 1, 1)),
    ("date", "d", "2932896", date(9999, 12, 31)),
    ("date", "d", "1e1", date(1970, 1, 11)),
    ("date", "d", '"2026-01-31"', date(2026, 1, 31)),
    ("date", "d", "null", None),
    ("date", "d", "2932897", "out_of_range"),
    ("date", "d", "-719163", "out_of_range"),
    ("date", "d", "99999999999999999999", "out_of_range"),
    ("date", "d", "1.5", "type_mismatch"),
    ("date", "d", '"20484"', "type_mismatch"),
    ("date", "d", "true", "type_mismatch"),
    ("time", "ms", "45000123", time(12, 30, 0, 123_000)),
    ("time", "ms", "0", time(0)),
    ("time", "ms", "86399999", time(23, 59, 59, 999_000)),
    ("time", "ms", "86400000", "out_of_range"),
    ("time", "ms", "-1", "out_of_range"),
    ("time", "ms", '"12:30:00"', time(12, 30)),
    ("time", "ms", "0.5", "type_mismatch"),
    ("time", "s", "86399", time(23, 59, 59)),
    ("time", "us", "86399999999", time(23, 59, 59, 999_999)),
    ("time", "ns", "1999", time(0, 0, 0, 1)),
    ("time", "ns", "86400000000000", "out_of_range"),
]


@pytest.mark.parametrize(
    ("shape", "inner"), [("V", ()), ('{"a": V}', ("a",)), ("[V]", ("element",)), ('{"k": V}', ("value",))]
)
@pytest.mark.parametrize(("kind", "unit", "text", "value"), _COUNTS)
def test_numbers_in_declared_dates_and_times_count_the_unit(
    kind: str, unit: str, text: str, value: Any, shape: str, inner: tuple[str, ...]
) -> None:
    column = {(): kind, ("a",): f"struct<a: {kind}>", ("element",): f"list<{kind}>", ("value",): f"map<string,{kind}>"}[
        inner
    ]
    decoded = _json(shape.replace("V", text), column, declared=DeclaredValues(units=((("v", *inner), unit),)))
    if isinstance(value, str):
        assert [one.kind for one in decoded.mismatches] == [value]
    else:
        put = {(): value, ("a",): {"a": value}, ("element",): [value], ("value",): [("k", value)]}[inner]
        assert (decoded.mismatches, decoded.columns[0].to_pylist()) == ([], [put])


@pytest.mark.parametrize(
    ("kind", "column", "unit", "value", "told"),
    [
        ("int", "date", "d", 1, date(1970, 1, 2)),
        ("long", "date", "d", -719162, date(1, 1, 1)),
        ("int", "time", "ms", 1, time(0, 0, 0, 1000)),
        ("long", "time", "us", 1, time(0, 0, 0, 1)),
        ("long", "date", "d", 2**40, "out_of_range"),
        ("int", "time", "ms", -1, "out_of_range"),
    ],
)
def test_numbers_of_a_registry_format_count_the_same(kind: str, column: str, unit: str, value: int, told: Any) -> None:
    schema = schema_of(kind, "top")
    decoded = decode(
        written(1, schema, value), columns_of(v=column), {1: schema}, declared=DeclaredValues(units=((("v",), unit),))
    )
    assert ([one.kind for one in decoded.mismatches] or decoded.columns[0].to_pylist()) == [told]


def test_dates_and_times_inside_a_declared_column_are_found() -> None:
    kind = parse_type(
        "struct<d: date, l: list<struct<t: time>>, m: map<string,date>, k: map<time,int>, ts: timestamptz>"
    )
    members = [(("d",), "d"), (("l", "element", "t"), "ms"), (("m", "value"), "d"), (("k", "key"), "ms")]
    assert list(counted_in(kind)) == members
    assert list(counted_in(parse_column_type("time(us)"), "us")) == [((), "us")]


# ---- from the pipeline file to the table


def table_of(root: Path, settings: str) -> TableSpec:
    """The table with these settings, as the pipeline file reads it."""
    path = root / "pipeline.yaml"
    path.write_text(with_table(settings))
    (spec,) = load_spec(path).tables
    return spec


_SETTINGS = "columns: {v: {type: string, coerce: true}, d: date, t: time, s: 'struct<d: date>', ts: timestamptz(ms)}"


def test_records_of_json_come_to_the_table(tmp_path: Path) -> None:
    spec = table_of(tmp_path, _SETTINGS)
    scenario = Scenario(tmp_path, columns=spec.shape.columns)
    for value in (7, "x", [1], {"a": None}):
        scenario.run({"v": value, "d": 1, "t": 1000, "s": {"d": 2}, "ts": 0})
    assert [row["v"] for row in scenario.rows()] == ["7", "x", "[1]", '{"a": null}']
    assert {(row["d"], row["t"], row["s"]["d"]) for row in scenario.rows()} == {
        (date(1970, 1, 2), time(0, 0, 1), date(1970, 1, 3))
    }


def test_records_of_a_renamed_and_of_a_flattened_field_come_to_the_table(tmp_path: Path) -> None:
    settings = "flatten: true, columns: {v: {type: string, coerce: true, field: a.b}, c_d: date}"
    spec = table_of(tmp_path, settings)
    scenario = Scenario(tmp_path, columns=spec.shape.columns, flatten=spec.shape.flatten)
    scenario.run({"a": {"b": 7}, "c": {"d": 1}})
    assert [(row["v"], row["c_d"]) for row in scenario.rows()] == [("7", date(1970, 1, 2))]


def test_changes_in_an_envelope_come_to_the_table(tmp_path: Path) -> None:
    spec = table_of(tmp_path, "envelope: debezium, columns: {v: {type: string, coerce: true}, d: date}")
    scenario = Scenario(tmp_path, columns=spec.shape.columns, envelope=spec.changes.envelope)
    scenario.run({"op": "c", "before": None, "after": {"id": 1, "v": {"x": 1}, "d": 1}, "source": {}})
    assert [(row["v"], row["d"]) for row in scenario.rows()] == [('{"x": 1}', date(1970, 1, 2))]


_DAYS = "columns: {m: 'map<date, string>', t: 'map<time, string>', l: 'list<map<date, string>>'}"
_TOLD = [(date(1970, 1, 6), "x")], [(time(0, 0, 0, 5000), "x")], [[(date(1970, 1, 6), "x")]]


def test_keys_of_maps_count_as_such_columns_do(tmp_path: Path) -> None:
    spec = table_of(tmp_path, _DAYS)
    scenario = Scenario(tmp_path, columns=spec.shape.columns)
    scenario.run({"id": 1, "m": [[5, "x"]], "t": [[5, "x"]], "l": [[[5, "x"]]]})
    (row,) = scenario.rows()
    assert (row["m"], row["t"], row["l"]) == _TOLD


def test_a_column_of_names_of_an_enum_takes_the_numbers_that_came(tmp_path: Path) -> None:
    spec = table_of(tmp_path, "columns: {v: {type: string, coerce: true}}")
    scenario = Registered(tmp_path, columns=spec.shape.columns)
    for number, (kind, value) in enumerate([("string", "ONE"), ("int", 1), ("string", "TWO")]):
        text = avro(id="int", v=kind)
        schema_id = scenario.register(text)
        for record in framed(schema_id, WriterSchema("avro", text), {"id": number, "v": value}):
            scenario.source.produce("a", 0, record)
        scenario.settle(scenario.start())
    assert [row["v"] for row in scenario.rows()] == ["ONE", "1", "TWO"]


@pytest.mark.parametrize("envelope", ["debezium", None])
def test_a_number_in_a_key_is_the_text_that_its_column_has(tmp_path: Path, envelope: str | None) -> None:
    settings: dict[str, Any] = {"envelope": EnvelopeSpec(kind="debezium")} if envelope else {}
    text = ColumnSpec(name="id", type=parse_type("string"), coerce=True)
    scenario = UpsertScenario(tmp_path, columns=(text,), key=JSON_KEYS, key_columns=("id",), **settings)
    for number in (7, 8):
        row = {"id": number, "v": 1}
        scenario.put(f'{{"id": {number}}}', {"op": "c", "after": row} if envelope else row)
    scenario.put('{"id": 7}', None)
    scenario.catch_up()
    assert [row["id"] for row in scenario.upsert_table()] == ["8"]
    assert scenario.catalog.load("n.t__dead_letters") is None
