"""A new field whose name is one that the table's query makes: its records are bad records, as those of other column-name
conflicts, and all others become rows.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.types import StringType

from frazil.errors import SpecError
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.taken_names import rejecting_fields
from frazil.schema.evolve import NameConflict
from frazil_testing.twins import live_rows
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
    (found,) = live_rows(made.catalog, "n.a__dead_letters")
    assert (found["error_class"], found["path"], found["offset"]) == ("name_conflict", path, 1)
    assert "leave the field out with `exclude" in found["message"]
    made.feed("a", {"id": 4, "n": 7, "s": {"a": 1}} | more)
    made.settings |= {"exclude": (tuple(path.split(".")),)}
    assert only(made.catch_up()).status.run_state is RunState.WAITING
    assert [row["id"] for row in made.rows("n.a")] == [1, 3, 4]
    assert 5 not in made.rows("n.a")[-1].values()


@pytest.mark.parametrize(
    "settings",
    [
        {"cast": ((("s", "a"), StringType()),)},
        {"drop_fields": (("s", "b"),)},
        {"rename": ((("s", "a"), "x"),)},
        {"keep_fields": (("id",), ("s", "a"))},
        {"rename": ((("s",), "t"),), "drop_fields": (("t", "b"),)},
    ],
    ids=str,
)
@pytest.mark.parametrize("odd", [[{"a": 1}], [1], [None]], ids=str)
@pytest.mark.parametrize("first", [0, 1])
def test_a_list_where_a_step_leads_into_a_struct_is_a_bad_record_alone(
    scene: Any, settings: dict[str, Any], odd: list[Any], first: int
) -> None:
    """The list was the column's type where it came first, for good, and the step stopped the table at it."""
    made = scene(**settings)
    made.feed("a", {"id": 0})
    if not first:
        made.catch_up()
    made.feed("a", {"id": 1, "s": odd}, {"id": 2, "s": {"a": 1, "b": 2}}, {"id": 3, "s": None}, {"id": 4})
    table = only(made.catch_up())
    assert table.status.run_state is RunState.WAITING, table.status
    assert [row["id"] for row in made.rows("n.a")] == [0, 2, 3, 4]
    row = made.rows("n.a")[1]
    assert set((row.get("s") or row["t"]).values()) & {1, "1"}
    (dead_letter,) = live_rows(made.catalog, "n.a__dead_letters")
    assert (dead_letter["error_class"], dead_letter["path"], dead_letter["offset"]) == ("type_mismatch", "s", 1)
    assert dead_letter["message"] == f"array {json.dumps(odd)} does not fit struct"


def test_lists_alone_where_a_step_leads_into_a_struct_are_dead_letters_with_the_way_into_them(scene: Any) -> None:
    made = scene(drop_fields=(("s", "element", "b"),))
    made.feed("a", {"id": 1, "s": [{"b": 1, "c": 2}]}, *({"id": n} for n in range(2, 9)))
    table = only(made.catch_up())
    assert (table.status.run_state, len(made.rows("n.a"))) == (RunState.WAITING, 7)
    (dead_letter,) = live_rows(made.catalog, "n.a__dead_letters")
    assert "`drop_fields` has `s.element.b`, and no step leads into the list `s`; leave it" in dead_letter["message"]
    assert "`exclude`, whose paths lead into lists by `element`" in dead_letter["message"]
    made.settings |= {"drop_fields": (), "exclude": (("s", "element", "b"),)}
    made.feed("a", {"id": 9, "s": [{"b": 1, "c": 2}]})
    made.catch_up()
    assert made.rows("n.a")[-1] == {"id": 9, "s": [{"c": 2}]}


def test_an_empty_list_where_a_step_leads_into_a_struct_is_null_as_long_as_the_field_has_no_column(scene: Any) -> None:
    made = scene(drop_fields=(("s", "b"),))
    made.feed("a", {"id": 1, "s": []}, {"id": 2})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1}, {"id": 2}]


def test_a_field_with_which_the_query_cannot_be_analysed_is_a_conflict_where_it_is_new() -> None:
    with (
        pytest.raises(NameConflict, match="cannot read records with the new field: odd: leave the field out"),
        rejecting_fields(are_new=True),
    ):
        raise SpecError("odd")
    with pytest.raises(SpecError, match="odd"), rejecting_fields(are_new=False):
        raise SpecError("odd")


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
    assert "a new field has a name that is taken: the query has two columns `y`" in status.reason
    assert "leave one of the fields out with `exclude`" in status.remedy
    made.settings |= {"exclude": (("y",),)}
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "n": 7, "y": 7}, {"id": 2, "n": 8, "y": 8}]


@pytest.mark.parametrize(("settings", "more", "path"), _QUERIES)
def test_of_the_first_records_those_with_such_a_field_are_dead_letters_too(
    scene: Any, settings: dict[str, Any], more: dict[str, Any], path: str
) -> None:
    made = scene(**settings)
    made.feed("a", *({"id": n, "n": 7, "s": {"a": 1}} | (more if n == 2 else {}) for n in (1, 2, 3)))
    table = only(made.catch_up())
    assert table.status.run_state is RunState.WAITING, table.status
    assert [row["id"] for row in made.rows("n.a")] == [1, 3]
    (found,) = live_rows(made.catalog, "n.a__dead_letters")
    assert (found["error_class"], found["path"], found["offset"]) == ("name_conflict", path, 1)


def test_several_such_fields_of_the_first_records_make_dead_letters_and_no_other_field_does(scene: Any) -> None:
    made = scene(select="select *, n as y, n + 1 as z from records", add_fields=(("web", "_topic"),))
    made.feed("a", {"id": 1, "n": 7, "y": 5}, {"id": 2, "n": 7}, {"id": 3, "n": 7, "Z": 5, "more": 1})
    made.feed("a", {"id": 4, "n": 7, "web": 5}, {"id": 5, "n": 7, "more": 1})
    assert only(made.catch_up()).status.run_state is RunState.WAITING
    assert [(row["id"], row["y"], row["z"], row["more"]) for row in made.rows("n.a")] == [(2, 7, 8, None), (5, 7, 8, 1)]
    assert made.dead_letters("n.a") == [("a", 0, 0), ("a", 0, 2), ("a", 0, 3)]


def test_a_table_whose_first_records_all_have_such_a_field_waits_with_the_reason(scene: Any) -> None:
    made = scene(select="select *, n as y from records")
    made.feed("a", {"id": 1, "n": 7, "y": 5}, {"id": 2, "n": 8, "y": 5})
    service = made.start()
    for _ in range(12):
        service.turn(until_caught_up=True)
    (table,) = service.tables
    status = table.status
    assert status.run_state is RunState.BACKING_OFF
    assert "the first: name_conflict at y: " in status.reason
    assert "a new field has a name that is taken" in status.reason
    made.settings |= {"exclude": (("y",),)}
    made.catch_up()
    assert [(row["id"], row["y"]) for row in made.rows("n.a")] == [(1, 7), (2, 8)]


def test_a_query_that_names_the_field_itself_and_makes_its_name_again_stops_the_table(scene: Any) -> None:
    made = scene(select="select id, y, n as y from records")
    made.feed("a", {"id": 1, "n": 7, "y": 5}, {"id": 2, "n": 8})
    status = only(made.catch_up()).status
    assert (status.run_state, status.reason) == (RunState.STOPPED, "the query has two columns `y`")
    made.settings |= {"select": "select id, y, n as x from records"}
    made.catch_up()
    assert [(row["id"], row["y"], row["x"]) for row in made.rows("n.a")] == [(1, 5, 7), (2, None, 8)]
