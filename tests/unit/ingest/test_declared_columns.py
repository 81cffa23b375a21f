"""Declared columns beside those that a table has already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import IcebergType

from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec.settings import ColumnSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.schema.test_name_case import columns_of, make


def kind(word: str) -> IcebergType:
    return parse_type(word)


def run(scene: Scene, *columns: ColumnSpec, **record: Any) -> Table:
    """A run with these declared columns, after one more record."""
    scene.settings = {"columns": columns}
    scene.feed("a", record)
    return only(scene.catch_up())


@pytest.mark.parametrize(
    ("there", "declared"),
    [
        ("string", "long"),
        ("long", "string"),
        ("long", "double"),
        ("timestamp", "timestamptz"),
        ("decimal(9,2)", "decimal(9,3)"),
        ("list<long>", "list<string>"),
        ("struct<a: long>", "struct<a: string, b: long>"),
        ("map<string, int>", "struct<a: int>"),
        ("struct<a: long>", "string"),
    ],
)
def test_a_column_of_another_type_stops_the_table_and_the_remedies_work(
    tmp_path: Path, there: str, declared: str
) -> None:
    scene = Scene(tmp_path, "a")
    make(scene, v=there, n="long")
    table = run(scene, ColumnSpec(name="v", type=kind(declared)), n=1)
    assert table.status.run_state is RunState.STOPPED
    assert "`columns` declares `v` as" in table.status.reason
    assert "Iceberg cannot widen" in table.status.reason
    assert (table.status.where, scene.rows("n.a")) == ("n.a", [])
    assert "take `v` out of `columns`" in table.status.remedy
    assert "field: v}}`" in table.status.remedy
    assert run(scene, n=2).status.run_state is RunState.WAITING
    other = ColumnSpec(name="v_2", type=kind(declared), field=("v",))
    assert run(scene, other, n=3).status.run_state is RunState.WAITING
    assert [row["n"] for row in scene.rows("n.a")] == [1, 2, 3]
    assert list(columns_of(scene)) == ["v", "n", "v_2"]


@pytest.mark.parametrize(
    ("there", "declared", "after"),
    [
        ("int", "long", "long"),
        ("float", "double", "double"),
        ("decimal(9,2)", "decimal(18,2)", "decimal(18, 2)"),
        ("struct<a: int>", "struct<b: string, a: long>", "struct<a: long, b: string>"),
        ("list<struct<a: int>>", "list<struct<a: long>>", "list<struct<a: long>>"),
        ("map<string, int>", "map<string, long>", "map<string, long>"),
        ("long", "int", "long"),
        ("struct<a: long, b: int>", "struct<a: int>", "struct<a: long, b: int>"),
    ],
)
def test_a_column_is_widened_to_its_declared_type_and_stays_where_it_is_wider(
    tmp_path: Path, there: str, declared: str, after: str
) -> None:
    scene = Scene(tmp_path, "a")
    make(scene, v=there, n="long")
    for number in range(2):
        assert run(scene, ColumnSpec(name="v", type=kind(declared)), n=number).status.run_state is RunState.WAITING
    assert columns_of(scene) == {"v": after, "n": "long"}


def test_a_declared_column_that_differs_in_capitals_alone_stops_the_table_and_the_remedies_work(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    make(scene, ID="long")
    table = run(scene, ColumnSpec(name="id", type=kind("long")), id=1)
    assert (table.status.run_state, table.status.remedy) == (
        RunState.STOPPED,
        "write `ID` under `columns`, as the table has it",
    )
    assert run(scene, ColumnSpec(name="ID", type=kind("long"))).status.run_state is RunState.WAITING
    assert scene.rows("n.a") == [{"ID": 1}, {"ID": None}]

    scene = Scene(tmp_path / "new", "a")
    both = (ColumnSpec(name="id", type=kind("long")), ColumnSpec(name="ID", type=kind("long")))
    table = run(scene, *both, id=1, ID=2)
    assert table.status.run_state is RunState.STOPPED
    assert "declares `id` and `ID`, which differ only in letter case" in table.status.reason
    assert "`ID_2: {type: …, field: ID}`" in table.status.remedy
    assert (
        run(scene, both[0], ColumnSpec(name="ID_2", type=kind("long"), field=("ID",))).status.run_state
        is RunState.WAITING
    )
    assert scene.rows("n.a")[0] == {"id": 1, "ID_2": 2}


def test_a_table_that_has_both_may_declare_both(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    make(scene, id="long", ID="long")
    both = (ColumnSpec(name="id", type=kind("long")), ColumnSpec(name="ID", type=kind("long")))
    assert run(scene, *both, id=1, ID=2).status.run_state is RunState.WAITING
    assert scene.rows("n.a") == [{"id": 1, "ID": 2}]


@pytest.mark.parametrize(
    ("declared", "around"),
    [
        ("struct<a: int, A: int>", "v"),
        ("list<struct<a: int, A: int>>", "v.element"),
        ("map<string, struct<a: int, A: int>>", "v.value"),
        ("struct<x: list<struct<a: int, b: int, A: int>>>", "v.x.element"),
    ],
)
def test_declared_members_that_differ_in_capitals_alone_stop_the_table(
    tmp_path: Path, declared: str, around: str
) -> None:
    scene = Scene(tmp_path, "a")
    table = run(scene, ColumnSpec(name="v", type=kind(declared)), n=1)
    assert table.status.run_state is RunState.STOPPED
    assert f"declares `a` and `A` in `{around}`" in table.status.reason
    assert table.status.remedy.startswith("take `A` out of the declared type")
    without = kind(declared.replace(", A: int", ""))
    assert run(scene, ColumnSpec(name="v", type=without)).status.run_state is RunState.WAITING


def test_a_declared_member_that_is_alike_another_may_have_a_column_of_its_own(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    both = ColumnSpec(name="s", type=kind("struct<a: long, A: long>"))
    table = run(scene, both, s={"a": 1, "A": 2})
    assert "; the column `s_A: {type: …, field: s.A}` takes its values" in table.status.remedy
    columns = (
        ColumnSpec(name="s", type=kind("struct<a: long>")),
        ColumnSpec(name="s_A", type=kind("long"), field=("s", "A")),
    )
    assert run(scene, *columns).status.run_state is RunState.WAITING
    assert scene.rows("n.a")[0] == {"s": {"a": 1}, "s_A": 2}


def test_members_that_the_table_has_both_may_be_declared_both(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    make(scene, s="struct<a: long, A: long>")
    table = run(scene, ColumnSpec(name="s", type=kind("struct<a: long, A: long>")), s={"a": 1, "A": 2})
    assert (table.status.run_state, scene.rows("n.a")) == (RunState.WAITING, [{"s": {"a": 1, "A": 2}}])
