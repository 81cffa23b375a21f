"""Names of columns beyond 255 bytes: no table gets one, at any depth, from any source; the records without them are rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import ListType, LongType, NestedField, StructType

from frazil.column_names import MAX_NAME_BYTES, drop_long_names, is_long, long_name_in
from frazil.ingest.tables.state import RunState
from frazil.schema.evolve import NameConflict, extend_schema, new_schema
from frazil.spec import ColumnSpec
from frazil.spec.settings import EnvelopeSpec, FlattenSpec
from frazil.spec.syntax.types import parse_type
from frazil_testing.twins import live_rows
from tests.needs import needs
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.tables import test_schemas

LONG = "n" * 256
FITS = "n" * 255
IN_BYTES = "é" * 128
PLACES: list[Any] = [
    {LONG: 1}, {IN_BYTES: 1}, {"s": {LONG: 1}}, {"s": {"l": [{LONG: [1]}]}}, {"l": [[{"a": 1, LONG: 2}]]},
    {"s": {"t": {LONG: {"a": 1}}}},
]  # fmt: skip


@pytest.mark.parametrize("fields", PLACES)
@pytest.mark.parametrize("before", [0, 20])
def test_a_json_record_with_such_a_name_is_a_dead_letter(tmp_path: Path, fields: dict[str, Any], before: int) -> None:
    scene = Scene(tmp_path, "a")
    known = {"s": {"t": {"b": 1}, "l": [{"b": 1}]}, FITS: 1} if before else {}
    scene.feed(
        "a", *({"n": n, **known} for n in range(before)), {"n": 7, **fields}, *({"n": n} for n in range(before, 40))
    )
    table = only(scene.catch_up())
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert [row["n"] for row in scene.rows("n.a")] == list(range(40))
    (dead_letter,) = live_rows(scene.catalog, "n.a__dead_letters")
    assert (dead_letter["offset"], dead_letter["error_class"]) == (before, "name_too_long")
    assert "has 255 at most" in dead_letter["message"]
    assert len(dead_letter["path"]) < 100
    state = scene.catalog.load("n.a")
    assert state is not None
    assert long_name_in(state.schema.as_struct()) is None


def test_very_many_such_names_in_one_record_cost_the_table_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"n": 0}, {f"{n:03}" + "x" * 12_000: 1 for n in range(300)}, {"n": 1})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert [row["n"] for row in scene.rows("n.a")] == [0, 1]
    assert scene.dead_letters("n.a") == [("a", 0, 1)]


@pytest.mark.parametrize(
    "settings",
    [
        {"exclude": ((LONG,),)},
        {"unknown_fields": "drop", "columns": (ColumnSpec(name="n", type=LongType()),)},
        {"unknown_fields": "rescue", "rescue": True, "columns": (ColumnSpec(name="n", type=LongType()),)},
    ],
)
def test_fields_that_are_left_out_dropped_or_rescued_may_have_any_name(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    scene = Scene(tmp_path, "a", **settings)
    scene.feed("a", {"n": 1}, {"n": 2, LONG: 1})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert [row["n"] for row in scene.rows("n.a")] == [1, 2]
    assert scene.catalog.load("n.a__dead_letters") is None


def test_a_name_that_is_long_only_when_it_is_flattened_is_refused_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", flatten=FlattenSpec())
    scene.feed("a", {"n": 1}, {"n": 2, "a" * 150: {"b" * 150: 1}}, {"n": 3})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert [row["n"] for row in scene.rows("n.a")] == [1, 3]
    assert scene.dead_letters("n.a") == [("a", 0, 1)]


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("form", ['{{"n": {}, "m": {{{}}}}}', '{{"n": {}, "m": [{{{}}}]}}'])
def test_a_member_s_name_that_is_long_only_in_its_column_s_case_is_refused_too(
    tmp_path: Path, form: str, is_known: bool
) -> None:
    scene = Scene(tmp_path, "a", column_case="snake")
    if is_known:
        scene.feed("a", form.format(0, '"k": 1').encode())
        scene.catch_up()
    bad, good = form.format(1, f'"{"aB" * 100}": 1'), form.format(2, '"k": 1')
    scene.feed("a", bad.encode(), good.encode())
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert [row["n"] for row in scene.rows("n.a")] == [0, 2] if is_known else [2]
    assert scene.dead_letters("n.a") == [("a", 0, int(is_known))]


@pytest.mark.parametrize("inside", [False, True])
def test_an_avro_schema_with_such_a_name_brings_the_other_columns(tmp_path: Path, inside: bool) -> None:
    scenario = test_schemas.Scenario(tmp_path)
    optional = ["null", "long"]
    fields: dict[str, Any] = {LONG: optional}
    if inside:
        nested = {"type": "record", "name": "s", "fields": [
            {"name": "a", "type": "long"}, {"name": LONG, "type": optional, "default": None}]}  # fmt: skip
        fields = {"s": ["null", nested]}
    text = test_schemas.avro(id="long", **fields)
    value = {"s": {"a": 1, LONG: 5}} if inside else {LONG: 5}
    number = scenario.register(text)
    scenario.produce(
        number, text, {"id": 1, **dict.fromkeys(value)}, {"id": 2, **value}, {"id": 3, **dict.fromkeys(value)}
    )
    scenario.settle()
    assert [row["id"] for row in scenario.rows()] == [1, 3]
    (dead_letter,) = scenario.rows("n.t__dead_letters")
    assert (dead_letter["offset"], dead_letter["error_class"]) == (1, "name_too_long")


def _connect(row: dict[str, Any]) -> dict[str, Any]:
    fields = [{"type": "int64", "optional": True, "field": name} for name in row]
    return {"schema": {"type": "struct", "optional": False, "fields": fields}, "payload": row}


def _debezium(row: dict[str, Any]) -> dict[str, Any]:
    return {"before": None, "after": row, "source": {"lsn": 1}, "op": "c", "ts_ms": 1}


@pytest.mark.parametrize(
    ("written", "settings"), [(_connect, {}), (_debezium, {"envelope": EnvelopeSpec(kind="debezium")})]
)
def test_a_message_of_a_connector_with_such_a_name_is_a_dead_letter(
    tmp_path: Path, written: Any, settings: dict[str, Any]
) -> None:
    scene = Scene(tmp_path, "a", **settings)
    scene.feed("a", *(written(row) for row in ({"id": 1}, {"id": 2, LONG: 5}, {"id": 3})))
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert [row["id"] for row in scene.rows("n.a")] == [1, 3]
    assert scene.dead_letters("n.a") == [("a", 0, 1)]


PROTO = 'syntax = "proto3"; message R { optional int64 id = 1; optional int64 %s = 2; }'
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, LONG: {"type": "integer"}}}


@pytest.mark.parametrize(
    ("kind", "schema", "bodies"),
    [
        pytest.param(
            "protobuf",
            PROTO % LONG,
            [b"\0\x08\x01", b"\0\x08\x02\x10\x05", b"\0\x08\x03"],
            marks=needs("protobuf"),
        ),
        pytest.param(
            "json_schema",
            json.dumps(JSON_SCHEMA),
            [b'{"id": 1}', b'{"id": 2, "%s": 5}' % LONG.encode(), b'{"id": 3}'],
            marks=needs("jsonschema"),
        ),
    ],
)
def test_another_schema_with_such_a_name_brings_the_other_columns(
    tmp_path: Path, kind: Any, schema: str, bodies: list[bytes]
) -> None:
    scenario = test_schemas.Scenario(tmp_path, value={"format": kind})
    number = scenario.registry.register(kind, schema, subject="a-value")
    for body in bodies:
        scenario.source.produce("a", 0, b"\0" + number.to_bytes(4, "big") + body)
    scenario.settle()
    assert [row["id"] for row in scenario.rows()] == [1, 3]
    (dead_letter,) = scenario.rows("n.t__dead_letters")
    assert (dead_letter["offset"], dead_letter["error_class"]) == (1, "name_too_long")


def test_no_schema_gets_one_from_whatever_wants_it() -> None:
    schema = new_schema({"id": parse_type("long")}.items())
    inside = StructType(NestedField(0, LONG, LongType(), required=False))
    for requested_fields in (
        {LONG: LongType()},
        {IN_BYTES: LongType()},
        {"s": inside},
        {"l": ListType(0, inside, False)},
    ):
        with pytest.raises(NameConflict, match="255 at most"):
            extend_schema(schema, {(): requested_fields})
    assert extend_schema(schema, {(): {FITS: LongType()}}).find_field(FITS).field_type == LongType()


def test_lengths_are_those_of_utf_8() -> None:
    names = {
        "n" * MAX_NAME_BYTES: False,
        "n" * (MAX_NAME_BYTES + 1): True,
        "é" * 127: False,
        "é" * 128: True,
        "😀" * 64: True,
    }
    assert {name: is_long(name) for name in names} == names


def test_a_struct_without_them_has_what_is_left() -> None:
    kind = parse_type("struct<a: long, s: struct<b: long, c: long>, t: struct<d: long>, l: list<struct<e: long>>>")
    assert isinstance(kind, StructType)
    text = kind.model_dump_json()
    renamed = StructType.model_validate_json(
        json.dumps(json.loads(text)).replace('"c"', f'"{LONG}"').replace('"d"', f'"{LONG}"').replace('"e"', f'"{LONG}"')
    )
    assert str(drop_long_names(renamed)).count(":") < str(renamed).count(":")
    assert [field.name for field in drop_long_names(renamed).fields] == ["a", "s"]
