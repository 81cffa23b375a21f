"""A whole service on the ports in memory: tables with `flatten` and fields that come where a column already is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec import ColumnSpec
from frazil.spec.settings import FlattenSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.tables.test_schemas import Scenario

_ADDRESS = (ColumnSpec(name="address", type=parse_type("struct<zip: string>")),)
_A_B = (ColumnSpec(name="a_b", type=parse_type("string")),)
_LAT = (ColumnSpec(name="lat", type=parse_type("double"), field=("address", "geo", "lat")),)


def _run(scene: Scene, *values: Any) -> Table:
    scene.feed("a", *values)
    return only(scene.catch_up())


@pytest.mark.parametrize(
    ("settings", "first", "second", "row"),
    [
        ({}, {"l": [{"a": 1}]}, {"l": [{"a": 2, "g": {"x": 1}}]}, {"l": [{"a": 2, "g": {"x": 1}}]}),
        (
            {"columns": _ADDRESS},
            {"address": {"zip": "1"}},
            {"address": {"zip": "2", "geo": {"lat": 1.5}}},
            {"address": {"zip": "2", "geo": {"lat": 1.5}}},
        ),
        (
            {"flatten": FlattenSpec(depth=1)},
            {"a": {"b": {"c": 1}}},
            {"a": {"b": {"c": 2, "d": {"e": {"f": 3}}}}},
            {"a_b": {"c": 2, "d": {"e": {"f": 3}}}},
        ),
        (
            {"columns": (ColumnSpec(name="lat", type=parse_type("double"), field=("a", "geo", "lat")),)},
            {"a": {"geo": {"lat": 1.5}}},
            {"a": {"geo": {"lat": 2.5, "in": {"x": 1}}}},
            {"lat": 2.5, "a_geo_in_x": 1},
        ),
        (
            {"flatten": None, "columns": _LAT},
            {"address": {"zip": "1", "geo": {"lat": 1.5}}},
            {"address": {"zip": "2", "geo": {"lat": 2.5, "lon": 3.5, "in": {"x": 1}}}},
            {"lat": 2.5, "address": {"zip": "2", "geo": {"lon": 3.5, "in": {"x": 1}}}},
        ),
        (
            {"columns": _ADDRESS + _LAT},
            {"address": {"zip": "1", "geo": {"lat": 1.5}}},
            {"address": {"zip": "2", "geo": {"lat": 2.5, "lon": 3.5, "in": {"x": 1}}}},
            {"lat": 2.5, "address": {"zip": "2", "geo": {"lon": 3.5, "in": {"x": 1}}}},
        ),
    ],
)
def test_an_object_inside_a_column_that_is_there_stays_inside_it(
    tmp_path: Path, settings: dict[str, Any], first: Any, second: Any, row: dict[str, Any]
) -> None:
    scene = Scene(tmp_path, "a", **{"flatten": FlattenSpec(), **settings})
    assert _run(scene, first).status.run_state is RunState.WAITING
    assert _run(scene, second).status.run_state is RunState.WAITING
    assert scene.rows("n.a")[-1] == row


def test_flatten_that_is_switched_on_later_leaves_the_structs_that_are_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    _run(scene, {"o": {"p": 1}})
    scene.settings["flatten"] = FlattenSpec()
    table = _run(scene, {"o": {"p": 2, "q": {"r": 3}}, "n": {"s": 4}})
    assert table.status.run_state is RunState.WAITING
    assert scene.rows("n.a")[-1] == {"o": {"p": 2, "q": {"r": 3}}, "n_s": 4}


def test_flatten_that_is_switched_off_and_on_again_feeds_the_columns_of_both(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", flatten=FlattenSpec())
    _run(scene, {"o": {"p": 1, "s": {"t": 1}}})
    scene.settings["flatten"] = None
    _run(scene, {"o": {"p": 2, "q": 2}})
    scene.settings["flatten"] = FlattenSpec()
    for value in ({"o": {"p": 3, "q": 3}}, {"o": {"p": 4, "s": {"t": 4, "u": 4}, "v": {"w": 4}}}):
        table = _run(scene, value)
        assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert [_there(row) for row in scene.rows("n.a")] == [
        {"o_p": 1, "o_s_t": 1},
        {"o": {"p": 2, "q": 2}},
        {"o_p": 3, "o": {"q": 3}},
        {"o_p": 4, "o_s_t": 4, "o": {"s": {"u": 4}, "v": {"w": 4}}},
    ]


def _there(row: dict[str, Any]) -> dict[str, Any]:
    """A row without nulls."""
    there = {name: held for name, held in row.items() if held is not None}
    return {name: _there(held) if isinstance(held, dict) else held for name, held in there.items()}


def test_a_struct_that_waits_for_its_record_gets_it_though_a_member_has_a_column_in_avro_too(tmp_path: Path) -> None:
    def place(*more: str) -> str:
        geo = {"type": "record", "name": "G", "fields": [{"name": name, "type": "double"} for name in ("lat", *more)]}
        fields = [{"name": "zip", "type": "string"}, {"name": "geo", "type": geo}]
        address = {"type": "record", "name": "A", "fields": fields}
        return json.dumps({"type": "record", "name": "P", "fields": [{"name": "address", "type": address}]})

    scenario = Scenario(tmp_path, flatten=FlattenSpec(), columns=_ADDRESS + _LAT)
    for text, geo in ((place(), {"lat": 1.5}), (place("lon"), {"lat": 2.5, "lon": 3.5})):
        scenario.produce(scenario.register(text), text, {"address": {"zip": "1", "geo": geo}})
        scenario.settle(scenario.start())
    assert scenario.rows() == [
        {"address": {"zip": "1"}, "lat": 1.5},
        {"address": {"zip": "1", "geo": {"lon": 3.5}}, "lat": 2.5},
    ]


def test_a_struct_of_which_nothing_is_taken_waits_for_no_field(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    _run(scene, {"id": 1, "o": {"p": 1}})
    scene.settings |= {"flatten": FlattenSpec(), "exclude": (("o", "p"),)}
    for value in ({"id": 2, "o": {"p": 2}}, {"id": 3, "o": {"p": 3, "q": 3}}):
        table = _run(scene, value)
        assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert [row["o"] for row in scene.rows("n.a")[:2]] == [{"p": 1}, None]
    assert scene.rows("n.a")[2] == {"id": 3, "o": {"p": None, "q": 3}}


@pytest.mark.parametrize("flatten", [None, FlattenSpec()])
def test_what_is_no_record_where_nothing_of_the_struct_is_taken_is_a_bad_record(
    tmp_path: Path, flatten: FlattenSpec | None
) -> None:
    columns = (ColumnSpec(name="o", type=parse_type("struct<p: int>")),)
    scene = Scene(tmp_path, "a", columns=columns, flatten=flatten, exclude=(("o", "p"),), on_bad_record="dead_letter")
    table = _run(scene, {"id": 1, "o": {"p": 1}}, {"id": 2, "o": "x"}, {"id": 3})
    assert (table.status.run_state, table.status.reason, table.catalog.dead_letter_count) == (RunState.WAITING, "", 1)
    assert [(row["id"], row["o"]) for row in scene.rows("n.a")] == [(1, None), (3, None)]


def test_a_declared_column_takes_over_the_field_that_another_column_had(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", flatten=FlattenSpec())
    _run(scene, {"c": {"n": 1}})
    scene.settings["columns"] = (ColumnSpec(name="number", type=parse_type("int"), field=("c", "n")),)
    assert _run(scene, {"c": {"n": 2}}).status.run_state is RunState.WAITING
    assert scene.rows("n.a")[-1] == {"c_n": None, "number": 2}


def test_a_record_inside_a_list_of_avro_gets_one_more(tmp_path: Path) -> None:
    def order(*more: dict[str, Any]) -> str:
        item = {"type": "record", "name": "I", "fields": [{"name": "sku", "type": "string"}, *more]}
        return json.dumps(
            {"type": "record", "name": "O", "fields": [{"name": "l", "type": {"type": "array", "items": item}}]}
        )

    scenario = Scenario(tmp_path, flatten=FlattenSpec())
    price = {"type": "record", "name": "P", "fields": [{"name": "amount", "type": "double"}]}
    for text, record in (
        (order(), {"l": [{"sku": "x"}]}),
        (order({"name": "price", "type": ["null", price]}), {"l": []}),
        (order({"name": "price", "type": ["null", price]}), {"l": [{"sku": "y", "price": {"amount": 1.5}}]}),
    ):
        scenario.produce(scenario.register(text), text, record)
        scenario.settle(scenario.start())
    assert [row["l"] for row in scenario.rows()] == [
        [{"sku": "x"}],
        [],
        [{"sku": "y", "price": {"amount": 1.5}}],
    ]


@pytest.mark.parametrize("first", [{"a": "x"}, {"a": [1]}])
def test_a_column_that_waits_for_its_field_gets_none_from_inside_another_column(tmp_path: Path, first: Any) -> None:
    scene = Scene(tmp_path, "a", flatten=FlattenSpec(), columns=_A_B)
    assert _run(scene, first).status.run_state is RunState.WAITING
    table = _run(scene, {"a": {"b": "y"}}, *[first] * 50)
    assert table.status.run_state is RunState.WAITING
    assert scene.dead_letters("n.a") == [("a", 0, 1)]
    assert len(scene.rows("n.a")) == 51


def test_a_column_that_waits_for_its_field_stops_the_table_where_that_is_asked_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", flatten=FlattenSpec(), columns=_A_B, on_bad_record="stop")
    _run(scene, {"a": "x"})
    table = _run(scene, {"a": {"b": "y"}})
    assert (table.status.run_state, table.status.where) == (RunState.STOPPED, "topic a, partition 0, offset 1")
    assert table.status.reason.startswith("field a: object")


_NAMELESS = ColumnSpec(name="nameless", type=parse_type("long"), field=("",))


@pytest.mark.parametrize(
    "settings",
    [
        {"flatten": FlattenSpec()},
        {"column_case": "snake"},
        {"exclude": (("z",),)},
        {"columns": (ColumnSpec(name="at", type=parse_type("timestamptz"), unit="s"),)},
        {"columns": (ColumnSpec(name="of", type=parse_type("string"), constant="eu"),), "flatten": FlattenSpec()},
    ],
)
def test_a_field_without_a_name_gets_no_column_but_a_declared_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    records = ({"x": 1}, {"": 2, "x": 2})
    scene = Scene(tmp_path / "bad", "a", **settings)
    assert _run(scene, *records).status.run_state is RunState.WAITING
    assert ([row["x"] for row in scene.rows("n.a")], scene.dead_letters("n.a")) == ([1], [("a", 0, 1)])
    scene = Scene(tmp_path / "declared", "a", **settings | {"columns": (*settings.get("columns", ()), _NAMELESS)})
    assert _run(scene, *records).status.run_state is RunState.WAITING
    assert [row["nameless"] for row in scene.rows("n.a")] == [None, 2]
