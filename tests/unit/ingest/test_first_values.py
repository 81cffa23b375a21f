"""Queries, and fields whose first value is of another type than the query needs: where other records have the type, the
first ones are bad records alone.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.types import LongType, NestedField, StructType

from frazil.ingest.tables.state import RunState
from frazil.spec import ColumnSpec
from tests.unit.ingest.service_scene import only

_QUERIES: tuple[tuple[str, dict[str, Any], dict[str, Any], int], ...] = (
    ("select id, o.x as y from records", {"o": [1]}, {"o": {"x": 5}}, 5),
    ("select id, o.x as y from records", {"o": [{"z": 1}]}, {"o": {"x": 5}}, 5),
    ("select id, O.X as y from records", {"o": "text"}, {"o": {"x": 5}}, 5),
    ("select id, p.o.x as y from records", {"p": {"o": [1]}}, {"p": {"o": {"x": 5}}}, 5),
    ("select id, a + 1 as y from records", {"a": [1]}, {"a": 4}, 5),
    ("select id, explode(l) as y from records", {"l": "text"}, {"l": [5]}, 5),
    ("select id, l[0].x as y from records", {"l": 5}, {"l": [{"x": 5}]}, 5),
)


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize(("select", "odd", "good", "y"), _QUERIES)
def test_an_odd_first_value_stops_no_table(
    scene: Any, select: str, odd: dict[str, Any], good: dict[str, Any], y: int, mode: str
) -> None:
    made = scene(select=select, mode=mode, **({"key_columns": ("id",)} if mode == "upsert" else {}))
    made.feed("a", {"id": 0} | odd, {"id": 1} | good, {"id": 2} | good)
    table = only(made.catch_up())
    assert table.status.run_state is RunState.WAITING, table.status
    assert [(row["id"], row["y"]) for row in made.rows("n.a")] == [(1, y), (2, y)]
    assert made.dead_letters("n.a") == [("a", 0, 0)]


def test_of_several_fields_only_the_one_that_the_query_needs_otherwise_changes_its_type(scene: Any) -> None:
    made = scene(select="select id, o.x as y, s from records", dead_letters={"stop_above": 1.0})
    made.feed("a", {"id": 0, "o": 7, "s": "b"}, {"id": 1, "o": {"x": 5}, "s": "a"}, {"id": 2, "s": [1]})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "y": 5, "s": "a"}]
    assert made.dead_letters("n.a") == [("a", 0, 0), ("a", 0, 2)]


@pytest.mark.parametrize("mixed", [{}, {"o": "text"}], ids=str)
def test_a_query_that_no_record_suits_stops_until_the_field_is_declared(scene: Any, mixed: dict[str, Any]) -> None:
    made = scene(select="select id, o.x as y from records", dead_letters={"stop_above": 1.0})
    made.feed("a", {"id": 0, "o": [1]}, {"id": 1} | mixed)
    status = only(made.catch_up()).status
    assert status.run_state is RunState.STOPPED
    assert status.reason.startswith("Spark refuses the query: ")
    assert status.reason.endswith(f"the first records have `o` as {'string' if mixed else 'list<long>'}")
    assert status.remedy.endswith("; or declare what most records have, `columns: {o: TYPE}`")
    made.settings |= {"columns": (ColumnSpec(name="o", type=StructType(NestedField(1, "x", LongType()))),)}
    made.feed("a", {"id": 2, "o": {"x": 5}})
    assert only(made.catch_up()).status.run_state is RunState.WAITING
    assert {"id": 2, "y": 5} in made.rows("n.a")
