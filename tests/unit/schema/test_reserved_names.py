"""Names that no column can have: those of Iceberg's metadata columns, and `a.b` beside `a: {b}`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.spec.settings import ColumnSpec
from frazil.spec.syntax.forms import parse_path
from frazil.spec.syntax.types import parse_type
from frazil.types import RESERVED_COLUMNS
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.tables.test_schemas import Scenario, avro
from tests.unit.schema.test_name_case import columns_of, dead_letters_of, make

LONG = parse_type("long")


@pytest.mark.parametrize("name", [*sorted(RESERVED_COLUMNS), "_FILE", "_Row_Id"])
def test_a_field_with_a_reserved_name_gets_no_column_and_the_remedies_work(tmp_path: Path, name: str) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"n": 1}, {"n": 2, name: 3}, {"n": 3, "inner": {name: 4}})
    only(scene.catch_up())
    assert columns_of(scene) == {"n": "long", "inner": f"struct<{name}: long>"}
    [(offset, kind, path, reason)] = dead_letters_of(scene)
    assert (offset, kind, path) == (1, "name_conflict", name)
    assert f"`columns: {{NAME: {{type: TYPE, field: {name}}}}}`" in reason
    assert f"`exclude: [{name}]`" in reason
    for settings in ({"columns": (ColumnSpec(name="other", type=LONG, field=(name,)),)}, {"exclude": ((name,),)}):
        scene.settings = settings
        scene.feed("a", {"n": 4, name: 5})
        only(scene.catch_up())
        assert scene.rows("n.a")[-1]["n"] == 4
    assert [row.get("other") for row in scene.rows("n.a")] == [None, None, 5, None]
    assert len(dead_letters_of(scene)) == 1


def test_a_field_without_a_name_gets_no_column_and_the_remedies_work(tmp_path: Path) -> None:
    """Iceberg's library for Java writes no file with such a column, so the table could never be compacted."""
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"n": 1}, {"n": 2, "": 3}, {"n": 3, "inner": {"": 4, "x": 5}}, {"n": 4, "inner": {"x": 6}})
    only(scene.catch_up())
    assert columns_of(scene) == {"n": "long", "inner": "struct<x: long>"}
    assert [one[:2] for one in dead_letters_of(scene)] == [(1, "name_conflict"), (2, "name_conflict")]
    assert ["field: '[\"\"]'}}`" in dead_letters_of(scene)[0][3], '["inner", ""]' in dead_letters_of(scene)[1][3]] == [
        True,
        True,
    ]
    for settings in ({"columns": (ColumnSpec(name="other", type=LONG, field=("",)),)}, {"exclude": (("",),)}):
        scene.settings = settings
        scene.feed("a", {"n": 5, "": 6})
        only(scene.catch_up())
        assert scene.rows("n.a")[-1]["n"] == 5
    assert [row.get("other") for row in scene.rows("n.a")] == [None, None, 6, None]
    assert len(dead_letters_of(scene)) == 2


def test_avro_fields_with_reserved_names_get_no_column(tmp_path: Path) -> None:
    text = avro(id="int", _deleted=["null", "boolean"])
    scenario = Scenario(tmp_path)
    scenario.produce(scenario.register(text), text, {"id": 1, "_deleted": None}, {"id": 2, "_deleted": True})
    scenario.settle()
    assert (columns_of(scenario, "n.t"), scenario.rows()) == ({"id": "int"}, [{"id": 1}])
    assert [dead_letter[:3] for dead_letter in dead_letters_of(scenario, "n.t")] == [(1, "name_conflict", "_deleted")]


def test_columns_of_our_own_and_of_others_keep_such_names(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b", metadata={"partition": "_partition", "offset": "_offset"})
    make(scene, n="long", _pos="int")
    scene.feed("a", {"n": 1, "_pos": 2}, {"_pos": 2**40})
    scene.feed("b", {"n": 1})
    scene.catch_up()
    assert scene.rows("n.a")[0] == {"n": 1, "_pos": 2, "_partition": 0, "_offset": 0}
    assert scene.rows("n.b") == [{"n": 1, "_partition": 0, "_offset": 0}]


DOTTED: list[tuple[list[dict[str, Any]], str, str]] = [
    ([{"a.b": 1}, {"a": {"b": 2, "c": 3}}], "a.b", "a.b"),
    ([{"a": {"b": 1}}, {"a.b": 2}], "a.b", """'["a.b"]'"""),
    ([{"a": [1]}, {"a.element": 2}], "a.element", """'["a.element"]'"""),
]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("records", "path", "field"), DOTTED)
def test_a_dotted_name_beside_a_nested_one_is_refused_and_the_remedies_work(
    tmp_path: Path, records: list[dict[str, Any]], path: str, field: str, together: bool
) -> None:
    scene = Scene(tmp_path, "a")
    for lot in [[*records, {"z": 1}]] if together else [[record] for record in [*records, {"z": 1}]]:
        scene.feed("a", *lot)
        only(scene.catch_up())
    assert len(scene.rows("n.a")) == 2
    [(offset, kind, where, reason)] = dead_letters_of(scene)
    assert (offset, kind, where) == (1, "name_conflict", path)
    assert f"would both be the column `{path}`" in reason
    assert f"field: {field}}}}}`" in reason
    assert f"`exclude: [{field}]`" in reason

    chosen = parse_path(field.strip("'"))
    scene.settings = {"columns": (ColumnSpec(name="other", type=LONG, field=chosen),)}
    scene.feed("a", records[1])
    only(scene.catch_up())
    assert scene.rows("n.a")[-1]["other"] == 2
    scene.settings = {"exclude": (chosen,)}
    scene.feed("a", {**records[1], "z": 5})
    only(scene.catch_up())
    assert scene.rows("n.a")[-1]["z"] == 5
    assert len(dead_letters_of(scene)) == 1


def test_avro_records_with_a_nested_field_that_is_kept_out_are_refused_alone(tmp_path: Path) -> None:
    """Avro's own names have no dots; a table may have such a column all the same."""
    inner = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "b", "type": ["null", "int"]}, {"name": "c", "type": "int"}],
    }
    text = avro(id="int", a=["null", inner], l={"type": "array", "items": "A"})
    scenario = Scenario(tmp_path)
    make(scenario, "n.t", **{"id": "int", "a.b": "long", "l": "list<long>"})
    one = {"id": 1, "a": {"b": None, "c": 2}, "l": []}
    scenario.produce(
        scenario.register(text), text, one, {"id": 2, "a": {"b": 3, "c": 4}, "l": []}, {"id": 3, "a": None, "l": []}
    )
    scenario.settle()
    assert [row["id"] for row in scenario.rows()] == [1, 3]
    assert scenario.rows()[0]["a"] == {"c": 2}
    assert [dead_letter[:3] for dead_letter in dead_letters_of(scenario, "n.t")] == [(1, "name_conflict", "a.b")]


@pytest.mark.parametrize(
    ("text", "path"), [('["a.b"]', ("a.b",)), ('["a", "b.c"]', ("a", "b.c")), ("a.b.*", ("a", "b"))]
)
def test_paths_in_a_pipeline_file_name_fields_with_dots_too(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path
