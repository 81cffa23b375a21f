"""Records with very many different names: each record is judged alone, whatever its neighbours in a chunk have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.decode import limits
from frazil.ingest.tables.state import RunState
from frazil.spec import ColumnSpec
from frazil.spec.settings import DeadLettersSpec, LimitsSpec
from frazil.spec.syntax.types import parse_type
from tests.fixtures.slices import sliced
from tests.unit.ingest.service_scene import Scene, only

COUNT = 2000
ID = ColumnSpec(name="id", type=parse_type("long"))
PLACES: dict[str, Callable[[int, Any], dict[str, Any]]] = {
    "top": lambda n, value: {f"user_{n}": value},
    "struct": lambda n, value: {"s": {"x": 1, f"user_{n}": value}},
    "list": lambda n, value: {"l": [{"x": 1}, {f"user_{n}": value}]},
}
PREFIX = {"top": "", "struct": "s.", "list": "l.element."}
STRUCTS = (
    ID,
    ColumnSpec(name="s", type=parse_type("struct<x: long>")),
    ColumnSpec(name="l", type=parse_type("list<struct<x: long>>")),
)


def scene_of(tmp_path: Path, **settings: Any) -> Scene:
    return Scene(tmp_path, "a", dead_letters=DeadLettersSpec(stop_above=1.0), **settings)


def run(scene: Scene) -> None:
    table = only(scene.catch_up())
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")


def dead_letters(scene: Scene) -> list[int]:
    """The offsets of the dead letters."""
    there = scene.catalog.load("n.a__dead_letters") is not None
    return [offset for _, _, offset in scene.dead_letters("n.a")] if there else []


def value_in(row: dict[str, Any], place: str, n: int) -> Any:
    if place == "top":
        return row[f"user_{n}"]
    return row["s"][f"user_{n}"] if place == "struct" else row["l"][1][f"user_{n}"]


@pytest.mark.parametrize("place", sliced(["struct", "list", "top"], 1))
def test_each_of_thousands_of_names_gets_its_column_and_its_value(tmp_path: Path, place: str) -> None:
    scene = scene_of(tmp_path, limits=LimitsSpec(columns=4000))
    for part in (range(COUNT // 2), range(COUNT // 2, COUNT)):  # The second run meets the columns of the first one.
        scene.feed("a", *({"id": n, **PLACES[place](n, n + 0.5)} for n in part))
        run(scene)
    rows = scene.rows("n.a")
    assert [row["id"] for row in rows] == list(range(COUNT))
    assert [value_in(row, place, row["id"]) for row in rows] == [n + 0.5 for n in range(COUNT)]
    assert dead_letters(scene) == []


@pytest.mark.parametrize("place", PLACES)
def test_each_of_thousands_of_names_without_a_column_is_rescued(tmp_path: Path, place: str) -> None:
    scene = scene_of(tmp_path, unknown_fields="rescue", columns=STRUCTS)
    scene.feed("a", *({"id": n, **PLACES[place](n, n)} for n in range(COUNT)))
    run(scene)
    rescued = {row["id"]: json.loads(row["_rescued"]) for row in scene.rows("n.a")}
    assert rescued == {n: {f"{PREFIX[place]}user_{n}": {"value": n, "reason": "unknown_field"}} for n in range(COUNT)}
    assert dead_letters(scene) == []


@pytest.mark.parametrize("place", PLACES)
def test_each_record_with_one_of_thousands_of_names_is_refused_by_a_frozen_table(tmp_path: Path, place: str) -> None:
    scene = scene_of(tmp_path, schema_evolution="freeze", columns=STRUCTS)
    scene.feed("a", *({"id": n, **(PLACES[place](n, n) if n % 3 else {})} for n in range(COUNT)))
    run(scene)
    assert [row["id"] for row in scene.rows("n.a")] == list(range(0, COUNT, 3))
    assert dead_letters(scene) == [n for n in range(COUNT) if n % 3]


@pytest.mark.parametrize("settings", [{"unknown_fields": "drop"}, {"include": (("id",), ("total",))}])
def test_a_column_in_another_case_is_found_behind_thousands_of_other_names(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    scene = scene_of(tmp_path, columns=(ID, ColumnSpec(name="total", type=parse_type("long"))), **settings)
    many = {f"k{n}": n for n in range(limits.MAX_NEW_FIELDS + 1)}
    scene.feed("a", {"id": 0, "total": 0}, {**many, "id": 1, "TOTAL": 1}, {**many, "ID": 2, "Total": 2})
    run(scene)
    assert [(row["id"], row["total"]) for row in scene.rows("n.a")] == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("before", sliced([20, 0], 1))
def test_a_record_with_more_names_than_its_table_may_have_columns_is_a_dead_letter_alone(
    tmp_path: Path, before: int
) -> None:
    scene = scene_of(tmp_path)
    wide = {f"k{n}": n for n in range(2500)}
    scene.feed("a", *({"id": n} for n in range(before)), wide, *({"id": n} for n in range(before, 20)))
    run(scene)
    assert [row["id"] for row in scene.rows("n.a")] == list(range(20))
    assert dead_letters(scene) == [before]


@pytest.mark.parametrize(("more", "is_dead"), [(-1, False), (0, False), (1, True)])
@pytest.mark.parametrize("unknown_fields", ["add", "rescue"])
def test_the_limit_of_a_records_new_fields_does_not_concern_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, is_dead: bool, unknown_fields: str
) -> None:
    monkeypatch.setattr(limits, "MAX_NEW_FIELDS", 300)
    columns = (ID,) if unknown_fields == "rescue" else ()
    scene = scene_of(tmp_path, unknown_fields=unknown_fields, columns=columns, limits=LimitsSpec(columns=300))
    scene.feed("a", {"id": 0})
    run(scene)
    names = 299 + more if unknown_fields == "add" else 300 + more  # The table has a column already.
    wide = {"id": 7, **{f"k{n}": n for n in range(names)}}
    scene.feed("a", {"id": 1}, wide, {"id": 2, "k0": 3})
    run(scene)
    assert [row["id"] for row in scene.rows("n.a")] == ([0, 1, 2] if is_dead else [0, 1, 7, 2])
    assert dead_letters(scene) == ([2] if is_dead else [])
    kept = scene.rows("n.a")[-1]
    assert kept["k0"] == 3 if unknown_fields == "add" else json.loads(kept["_rescued"])["k0"]["value"] == 3
