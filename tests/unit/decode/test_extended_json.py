"""MongoDB's extended JSON: which objects are read as what they hold, and in which columns."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import IcebergType, StructType

from frazil.decode.columns import Decoded
from frazil.decode.json.records import decode_json
from frazil.decode.settings import JsonTypes, Reading
from frazil.schema.selection import DeclaredValues
from tests.unit.decode.columns import fields_of

_AT = datetime(2026, 11, 22, 0, 0, 0, 250_000, tzinfo=UTC)


def _read(texts: list[str], kind: str = "", is_extended: bool = True, **options: Any) -> Decoded:
    raw = pa.array([f'{{"v": {text}}}'.encode() for text in texts], pa.binary())
    fields = fields_of({"v": kind}) if kind else ()
    return decode_json(raw, fields, Reading(json=JsonTypes(is_extended), **options))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ('{"$numberLong": "5000000000"}', "long", 5_000_000_000),
        ('{"$numberInt": "-5"}', "long", -5),
        ('{"$numberDouble": "1.5"}', "double", 1.5),
        ('{"$numberDouble": "2"}', "double", 2.0),
        ('{"$numberDouble": "Infinity"}', "double", math.inf),
        ('{"$numberDouble": "-Infinity"}', "double", -math.inf),
        ('{ "$numberDouble" : "Infinity" }', "double", math.inf),
        ("Infinity", "double", math.inf),
        ("-Infinity", "double", -math.inf),
        ('{"$numberDecimal": "1E+3"}', "string", "1E+3"),
        ('{"$oid": "596e275826f08b2730779e01"}', "string", "596e275826f08b2730779e01"),
        ('{"$date": 1795305600250}', "timestamptz", _AT),
        ('{"$date": {"$numberLong": "1795305600250"}}', "timestamptz", _AT),
        ('{"$date": "2026-11-22T00:00:00.250Z"}', "timestamptz", _AT),
        (' { "$numberLong"\n:\t"7" } ', "long", 7),
    ],
)
def test_a_new_field_has_the_type_of_what_is_held(text: str, kind: str, value: Any) -> None:
    (found,) = _read([text, "null"]).requested_fields[()].values()
    assert str(found) == kind
    assert _read([text, "null"], kind).columns[0].to_pylist() == [value, None]
    if "{" in text:
        assert str(_read([text], is_extended=False).requested_fields[()]["v"]).startswith("struct<")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ('{"$numberLong": "7"}', "int", 7),
        ('{"$numberLong": "7"}', "double", 7.0),
        ('{"$numberLong": "7"}', "decimal(9,2)", Decimal(7)),
        ('{"$numberDecimal": "7.25"}', "decimal(9,2)", Decimal("7.25")),
        ('{"$date": 1795305600250}', "timestamp", _AT.replace(tzinfo=None)),
        ('[{"$numberLong": "7"}, 8]', "list<long>", [7, 8]),
        ('{"$numberDouble": "-Infinity"}', "float", -math.inf),
        ('[1.5, {"$numberDouble": "Infinity"}, -Infinity]', "list<double>", [1.5, math.inf, -math.inf]),
        ('{"a": {"$numberDouble": "Infinity"}}', "struct<a: double>", {"a": math.inf}),
        ('{"a": {"b": Infinity}}', "struct<a: struct<b: double>>", {"a": {"b": math.inf}}),
        ('{"a": {"$numberDouble": "Infinity"}}', "map<string,double>", [("a", math.inf)]),
        ('{"$numberDouble": "NaN"}', "struct<$numberDouble: string>", {"$numberDouble": "NaN"}),
        ('{"a": {"$oid": "x"}}', "map<string,string>", [("a", "x")]),
        ('{"$oid": "x"}', "struct<$oid: string>", {"$oid": "x"}),
        ('{"$oid": "x"}', "map<string,string>", [("$oid", "x")]),
    ],
)
def test_a_column_takes_what_is_held_where_it_takes_such_values(text: str, kind: str, value: Any) -> None:
    found = _read([text], kind)
    assert (found.columns[0].to_pylist(), found.mismatches) == ([value], [])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"$numberLong": "7"}', "string"),
        ('{"$numberLong": "5000000000"}', "int"),
        ('{"$oid": "QUJD"}', "binary"),
        ('{"$oid": "7"}', "long"),
        ('{"$date": 5}', "long"),
        ('{"$date": 5}', "string"),
        ('{"$numberDecimal": "7"}', "double"),
        ('{"$numberDouble": "NaN"}', "string"),
        ('{"$numberDouble": "NaN"}', "long"),
        ('{"$numberDouble": "NaN"}', "decimal(9,2)"),
        ('"NaN"', "double"),
        ('{"$numberDecimal": "NaN"}', "double"),
        ('{"$numberDecimal": "Infinity"}', "decimal(9,2)"),
    ],
)
def test_a_column_of_another_type_takes_it_no_more_than_the_plain_value(text: str, kind: str) -> None:
    assert [(one.path, one.row) for one in _read([text, "null"], kind).mismatches] == [("v", 0)]


def test_a_time_is_no_number_of_another_unit() -> None:
    units = ((("v",), "s"),)
    assert len(_read(['{"$date": 5}'], "timestamptz", declared=DeclaredValues(units=units)).mismatches) == 1
    (millis,) = _read(['{"$date": 5}'], "timestamptz", declared=DeclaredValues(units=((("v",), "ms"),))).columns
    assert millis.cast("int64").to_pylist() == [5000]


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"$numberLong": 7}',
        '{"$numberLong": "7.5"}',
        '{"$numberLong": "07"}',
        '{"$numberLong": ""}',
        '{"$numberLong": "true"}',
        '{"$numberLong": "7", "more": 1}',
        '{"$numberDouble": "nan"}',
        '{"$numberDouble": "inf"}',
        '{"$numberDouble": "+Infinity"}',
        '{"$numberDouble": " NaN"}',
        '{"$numberDouble": "NaN", "more": 1}',
        '{"$numberLong": "NaN"}',
        '{"$oid": "a", "b": "c"}',
        '{"$oid": 5}',
        '{"$oids": "a"}',
        '{"$date": 1.5}',
        '{"$date": [5]}',
        '{"oid": "a"}',
        '{"$binary": "AQ==", "$type": "00"}',
        '{"": "$oid"}',
        '{"$": "a"}',
    ],
)
def test_every_other_object_is_an_object(text: str) -> None:
    (extended, plain) = (_read([text], is_extended=is_extended).requested_fields for is_extended in (True, False))
    assert extended == plain


def test_an_object_in_another_one_is_read_by_itself() -> None:
    found = _read(['{"$numberLong": {"$numberLong": "7"}, "b": {"$date": 5}}']).requested_fields[()]["v"]
    assert isinstance(found, StructType)
    assert [(one.name, str(one.field_type)) for one in found.fields] == [("$numberLong", "long"), ("b", "timestamptz")]


def test_what_stands_in_a_text_is_a_text() -> None:
    inner = json.dumps('{"$numberLong": "7"}')
    assert _read([inner], "string").columns[0].to_pylist() == [json.loads(inner)]


def test_of_times_and_other_values_under_one_name_the_first_kind_has_the_column() -> None:
    found = _read(['{"$date": 5}', "7", '{"$date": 6}'])
    assert str(found.requested_fields[()]["v"]) == "timestamptz"
    assert found.refused.tolist() == [False, True, False]
    found = _read(["7", '{"$date": 5}', '{"$numberLong": "8"}'])
    assert str(found.requested_fields[()]["v"]) == "long"
    assert [(one.row, one.reason.split(" meets")[0]) for one in found.mismatches] == [(1, "moment 5")]


@pytest.mark.parametrize("text", ['{"$numberDouble": "NaN"}', "NaN"])
@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("V", "double"),
        ("[1.5, V]", "list<double>"),
        ('{"m": V}', "struct<m: double>"),
        ('{"m": [{"n": V}]}', "struct<m: list<struct<n: double>>>"),
    ],
)
def test_a_double_that_is_not_finite_has_the_type_of_the_numbers_that_come_later(
    text: str, shape: str, kind: str
) -> None:
    first, later = shape.replace("V", text), shape.replace("V", "0.5")
    told = fields_of({"v": kind})[0].field_type
    for texts in ([first], [first, later], [later, first]):
        assert _bare(_read(texts).requested_fields[()]["v"]) == _bare(told)
    found = _read([first, later], kind)
    assert found.mismatches == []
    assert str(found.columns[0].to_pylist()) == str([json.loads(first.replace(text, "NaN")), json.loads(later)])


def test_whole_numbers_and_a_double_that_is_not_finite_are_doubles() -> None:
    assert str(_read(["7", '{"$numberDouble": "NaN"}']).requested_fields[()]["v"]) == "double"


@pytest.mark.parametrize("text", ['{"$numberDouble": "NaN"}', "-Infinity", '{"$numberDouble": "0.5"}'])
@pytest.mark.parametrize("kind", ["int", "long"])
def test_a_double_that_comes_to_whole_numbers_names_a_column_that_takes_it(text: str, kind: str) -> None:
    (found,) = _read(["7", text], kind).mismatches
    assert (found.row, found.kind) == (1, "type_mismatch")
    assert f"is not a whole number, as {kind} needs" in found.reason
    assert "`columns: {NAME: {type: double, field: v}}`" in found.reason


def test_a_bare_word_in_a_text_or_a_key_is_text() -> None:
    found = _read(['{"NaN": "-Infinity", "b\\"NaN": NaN}'], 'struct<NaN: string, b"NaN: double>')
    assert str(found.columns[0].to_pylist()) == str([{"NaN": "-Infinity", 'b"NaN': math.nan}])


@pytest.mark.parametrize("text", ["nan", "-NaN", "+Infinity", "Infin", "NaN1", "--Infinity", "[NaN", "NaN NaN"])
def test_another_word_is_no_json(text: str) -> None:
    assert [one.kind for one in _read([text, "1.5"], "double").mismatches] == ["malformed"]


def test_outside_of_documents_bare_words_are_no_json() -> None:
    assert [one.kind for one in _read(["NaN"], "double", is_extended=False).mismatches] == ["malformed"]


def _bare(kind: IcebergType) -> str:
    """The type without ids of fields, which say nothing here."""
    return re.sub(r"\d+: ", "", str(kind))
