"""Settings that name fields or columns find them in any case: one rule for all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.catalog.layout import partition_terms, sort_terms
from frazil.ingest.tables.state import RunState
from frazil.schema.parts import Path as FieldPath
from frazil.schema.selection import Selection
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.spec.settings import ColumnSpec, EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.tables.test_schemas import Scenario, avro
from tests.unit.schema.test_name_case import columns_of, dead_letters_of

RECORD: dict[str, Any] = {"Id": 1, "Email": "e", "User": {"Phone": "p", "Name": "n"}, "Rows": [{"Card": "c", "N": 1}]}
LEFT = {"Id": 1, "User": {"Name": "n"}, "Rows": [{"N": 1}]}
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"exclude": (("email",), ("USER", "phone"), ("rows", "element", "card"))}, LEFT),
    ({"include": (("ID",), ("user", "NAME"), ("ROWS", "element", "n"))}, LEFT),
    ({"include": (("id",), ("user",)), "exclude": (("uSER", "PHONE"),)}, {"Id": 1, "User": {"Name": "n"}}),
]
MANY = {f"other{n}": n for n in range(300)}


@pytest.mark.parametrize(("settings", "row"), CASES)
@pytest.mark.parametrize("unknown", ["add", "rescue"])
def test_fields_of_json_are_taken_and_left_out_in_any_case(
    tmp_path: Path, settings: dict[str, Any], row: dict[str, Any], unknown: str
) -> None:
    scene = Scene(tmp_path, "a", **settings)
    scene.feed("a", RECORD)
    only(scene.catch_up())
    assert scene.rows("n.a") == [row]
    scene.settings = {**settings, "unknown_fields": unknown}
    others = MANY if "include" in settings else {}
    spelled = json.loads(json.dumps(RECORD).lower())
    scene.feed("a", {**spelled, **others}, {**RECORD, **others}, {**json.loads(json.dumps(RECORD).upper()), **others})
    only(scene.catch_up())
    assert dead_letters_of(scene) == []
    rows = [{name: value for name, value in row.items() if name != "_rescued"} for row in scene.rows("n.a")]
    assert [json.dumps(row).lower() for row in rows] == [json.dumps(row).lower()] * 4
    assert all(row.get("_rescued") is None for row in scene.rows("n.a"))


@pytest.mark.parametrize(("settings", "row"), CASES)
def test_fields_of_rows_in_envelopes_and_of_avro_are_found_in_any_case(
    tmp_path: Path, settings: dict[str, Any], row: dict[str, Any]
) -> None:
    scene = Scene(tmp_path / "json", "a", envelope=EnvelopeSpec(kind="debezium"), **settings)
    scene.feed("a", {"op": "c", "before": None, "after": RECORD, "source": {}})
    only(scene.catch_up())
    assert scene.rows("n.a") == [row]
    user = {"type": "record", "name": "U", "fields": [{"name": n, "type": "string"} for n in ("Phone", "Name")]}
    card = {"type": "record", "name": "C", "fields": [{"name": "Card", "type": "string"}, {"name": "N", "type": "int"}]}
    text = avro(Id="int", Email="string", User=user, Rows={"type": "array", "items": card})
    scenario = Scenario(tmp_path / "avro", **settings)
    scenario.produce(scenario.register(text), text, RECORD)
    scenario.settle()
    assert scenario.rows() == [row]


def test_an_included_name_that_a_record_has_exactly_is_taken_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", include=(("id",),))
    scene.feed("a", {"id": 1, "ID": "x"}, {"ID": 2}, {"Id": 3, "other": 1}, {"ID": "y", "id": 4})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    scene.feed("a", {"id": 5, "ID": "x"}, {"ID": 6})
    only(scene.catch_up())
    assert (dead_letters_of(scene), [row["id"] for row in scene.rows("n.a")]) == ([], [1, 2, 3, 4, 5, 6])
    text = avro(id="int", ID="string")
    scenario = Scenario(tmp_path / "avro", include=(("id",),))
    scenario.produce(scenario.register(text), text, {"id": 1, "ID": "x"})
    scenario.settle()
    assert scenario.rows() == [{"id": 1}]


@pytest.mark.parametrize(
    "kept",
    [
        {"columns": (ColumnSpec(name="id", type=parse_type("long")),)},
        {"include": (("id",), ("v",))},
        {"key_columns": ("id",), "mode": "upsert", "format_version": 3},
    ],
)
def test_a_field_that_the_file_names_is_not_left_out_with_another(tmp_path: Path, kept: dict[str, Any]) -> None:
    envelope = EnvelopeSpec(kind="operation", operation="op", insert=("I",), update=("U",), delete=("D",))
    scene = Scene(tmp_path, "a", exclude=(("ID",),), envelope=envelope, **kept)
    scene.feed("a", {"id": 1, "ID": "x", "v": 1, "op": "I"}, {"id": 2, "v": 2, "op": "I"})
    only(scene.catch_up())
    assert dead_letters_of(scene) == []
    assert [(row["id"], row["v"]) for row in scene.rows("n.a")] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        (("a",), "none"),
        (("A", "x"), "none"),
        (("B",), "all"),
        (("b",), "none"),
        (("B", "c"), "none"),
        (("B", "C"), "none"),
        (("B", "D"), "all"),
    ],
)
def test_what_is_kept_is_a_path(path: FieldPath, taken: str) -> None:
    assert Selection((), (("A",), ("b",), ("b", "C")), (("B",),)).takes(path) == taken


def test_partitions_and_orders_find_columns_in_any_case(tmp_path: Path) -> None:
    settings = {
        "partition_by": (parse_term("REGION"), parse_term("bucket(User.ID, 4)")),
        "sort_by": (parse_sort("truncate(name, 2) desc"), parse_sort("user.Id")),
    }
    scene = Scene(tmp_path, "a", **settings)
    for _ in range(2):  # The second start compares the table's layout with the file's.
        scene.feed("a", {"Region": "eu", "Name": "n", "user": {"id": 1}})
        assert only(scene.catch_up()).status.run_state is RunState.WAITING
    state = scene.catalog.load("n.a")
    assert state is not None
    assert partition_terms(state.partitioning, state.schema) == ("Region", "bucket(user.id, 4)")
    assert [field.name for field in state.partitioning.fields] == ["Region", "user.id_bucket_4"]
    assert sort_terms(state.sorting, state.schema) == ("truncate(Name, 2) desc nulls last", "user.id asc nulls first")
    assert len(state.layout.older_specs) == 0
    assert columns_of(scene)["Region"] == "string"
