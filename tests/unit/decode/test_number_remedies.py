"""What the message of a value that no number column holds names, and that it helps."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.columns import Decoded
from frazil.decode.json.records import decode_json
from frazil.spec.settings import ColumnSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import needs
from tests.unit.decode.columns import fields_of, values_of
from tests.unit.rows.test_encodings import message, proto, schema_of, written
from tests.unit.rows.test_shaped_service import Scenario
from tests.unit.rows.test_writer_schemas import decode
from tests.unit.rows.test_writer_schemas import fields_of as columns_of

_CAST = (
    "where the text is a number, `cast: {{v: {}}}` converts it, with `columns: {{v: {{type: string, coerce: true}}}}` if"
    " other records have numbers"
)


def _json(value: Any, kind: str) -> Decoded:
    return decode_json(values_of([json.dumps({"v": value})]), fields_of({"v": kind}))


@pytest.mark.parametrize("kind", ["int", "long", "float", "double"])
@pytest.mark.parametrize("text", ["7", "-7.5", "1e3", " .5 ", "+12"])
def test_json_text_that_is_a_number_names_the_step_that_converts_it(text: str, kind: str) -> None:
    assert [one.reason for one in _json(text, kind).mismatches] == [
        f'string "{text}" does not fit {kind}: {_CAST.format(kind)}'
    ]


@pytest.mark.parametrize("text", ["", "x", "7x", "1,5", "NaN", "0x1F", "-", "."])
def test_other_text_does_not(text: str) -> None:
    assert [one.reason for one in _json(text, "double").mismatches] == [f'string "{text}" does not fit double']


def test_the_step_has_the_path_of_a_member_and_lists_have_none() -> None:
    (of_member,) = _json({"a": {"b": "7"}}, "struct<a: struct<b: long>>").mismatches
    assert of_member.reason == (
        'string "7" does not fit long: where the text is a number, `cast: {v.a.b: long}` converts it'
    )
    (of_element,) = _json(["7"], "list<long>").mismatches
    assert of_element.reason == 'string "7" does not fit long'


@pytest.mark.parametrize("kind", ["int", "long", "double", "decimal(9, 2)"])
def test_text_of_a_schema_names_the_step_for_numbers_alone(kind: str) -> None:
    schema = schema_of("string", "top")
    decoded = decode(written(1, schema, "7", "x"), columns_of(v=kind.replace(" ", "")), {1: schema})
    named = f'"{kind}"' if "(" in kind else kind
    assert [one.reason for one in decoded.mismatches] == [
        f'"7" (string) does not fit {kind}; {_CAST.format(named)}',
        f'"x" (string) does not fit {kind}',
    ]


@pytest.mark.parametrize(
    ("number", "digits"),
    [(2**63, 20), (2**64 - 1, 20), (-(2**63) - 1, 20), (10**20, 38), (10**38 - 1, 38), (10**38, 0)],
)
def test_an_integer_beyond_64_bits_names_a_decimal_that_holds_it(number: int, digits: int) -> None:
    remedy = f': a column `columns: {{NAME: {{type: "decimal({digits},0)", field: v}}}}` takes it' if digits else ""
    (mismatch,) = _json(number, "long").mismatches
    assert (mismatch.kind, mismatch.reason.partition(" is ")[2]) == (
        "out_of_range",
        f"out of the range of long{remedy}",
    )
    if digits:
        assert _json(number, f"decimal({digits},0)").columns[0].to_pylist() == [Decimal(number)]


def test_the_column_takes_later_numbers(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, on_bad_record="dead_letter", dead_letters={"stop_above": 1.0})
    scenario.run({"id": 7}, {"id": 2**64 - 1})
    assert scenario.rows() == [{"id": 7}]
    wide = ColumnSpec(name="wide", type=parse_type("decimal(20,0)"), field=("id",))
    table = scenario.spec.tables[0].model_copy(update={"columns": (wide,)})
    scenario.spec = scenario.spec.model_copy(update={"tables": (table,)})
    scenario.run({"id": 2**64 - 1}, {"id": 8})
    assert [row["wide"] for row in scenario.rows() if row.get("wide")] == [Decimal(2**64 - 1), Decimal(8)]


@needs("protobuf")
def test_a_number_of_protobuf_beyond_64_bits_names_a_column_of_its_own() -> None:
    schema = proto('syntax = "proto3"; message M { uint64 v = 1; }')
    values = [message(schema, 1, {"v": number}) for number in (7, 2**64 - 1)]
    decoded = decode(values, columns_of(v="long"), {1: schema}, format="protobuf")
    assert decoded.columns[0].to_pylist() == [7, None]
    (mismatch,) = decoded.mismatches
    assert mismatch.reason.endswith(
        'give the field a column of its own: `columns: {v_decimal: {type: "decimal(20, 0)", field: v}}`'
    )
