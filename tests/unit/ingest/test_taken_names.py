"""A new field whose name is one that the table's query makes: its records are bad records, as those of other column-name
conflicts, and all others become rows.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest

from frazil.ingest.tables.state import RunState
from tests.unit.ingest.service_scene import only

_QUERIES: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    ({"select": "select *, n as y from records"}, {"y": 5}, "y"),
    ({"select": "select *, n as Y from records"}, {"y": 5}, "y"),
    ({"select": "select id, y from (select *, n as y from records)"}, {"y": 5}, "y"),
    ({"select": "select *, explode(array(n)) as y from records"}, {"y": 5}, "y"),
    ({"select": "select *, n as `s.y` from records"}, {"s": {"a": 1, "y": 5}}, "s.y"),
    ({"select": "select id, n + 1 as y, y * 2 as z from records"}, {"Y": 5}, "Y"),
    ({"rename": ((("n",), "y"),)}, {"y": 5}, "y"),
    ({"rename": ((("s", "a"), "y"),)}, {"s": {"a": 1, "y": 5}}, "s.y"),
    ({"add_fields": (("y", "_offset"),)}, {"y": 5}, "y"),
    ({"where": "id > 0", "metadata": {"offset": "y"}}, {"y": 5}, "y"),
)


@pytest.mark.parametrize(("settings", "more", "path"), _QUERIES)
def test_records_with_such_a_field_are_dead_letters_until_it_is_left_out(
    scene: Any, settings: dict[str, Any], more: dict[str, Any], path: str
) -> None:
    made = scene(**settings)
    made.feed("a", {"id": 1, "n": 7, "s": {"a": 1}})
    made.catch_up()
    made.feed("a", *({"id": n, "n": 7, "s": {"a": 1}} | (more if n == 2 else {"other": n}) for n in (2, 3)))
    table = only(made.catch_up())
    assert table.status.run_state is RunState.WAITING, table.status
    assert [row["id"] for row in made.rows("n.a")] == [1, 3]
    [file] = made.catalog.data_files("n.a__dead_letters")
    [found] = pq.read_table(file.path).to_pylist()
    assert (found["error_class"], found["path"], found["offset"]) == ("name_conflict", path, 1)
    assert "leave the field out with `exclude" in found["message"]
    made.feed("a", {"id": 4, "n": 7, "s": {"a": 1}} | more)
    made.settings |= {"exclude": (tuple(path.split(".")),)}
    assert only(made.catch_up()).status.run_state is RunState.WAITING
    assert [row["id"] for row in made.rows("n.a")] == [1, 3, 4]
    assert 5 not in made.rows("n.a")[-1].values()


def test_such_a_field_is_rescued(scene: Any) -> None:
    made = scene(select="select *, n as y from records", rescue=True)
    made.feed("a", {"id": 1, "n": 7})
    made.catch_up()
    made.feed("a", {"id": 2, "n": 8, "y": 5})
    made.catch_up()
    [_, row] = made.rows("n.a")
    assert (row["y"], "5" in row["_rescued"]) == (8, True)


def test_such_a_field_stops_a_table_that_stops_at_bad_records_until_it_has_another_name(scene: Any) -> None:
    made = scene(select="select *, n as y from records", on_bad_record="stop")
    made.feed("a", {"id": 1, "n": 7})
    made.catch_up()
    made.feed("a", {"id": 2, "n": 8, "y": 5})
    status = only(made.catch_up()).status
    assert status.run_state is RunState.STOPPED
    assert "a new field takes a name of the query: the query has two columns `y`" in status.reason
    assert "leave one of the fields out with `exclude`" in status.remedy
    made.settings |= {"exclude": (("y",),)}
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "n": 7, "y": 7}, {"id": 2, "n": 8, "y": 8}]
