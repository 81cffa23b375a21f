"""Records with a field that cannot be read, which the table's condition drops by others that can."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.types import IntegerType

from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.ingest.tables.state import RunState
from frazil.spec.settings import FlattenSpec
from frazil.stages.protect_settings import ProtectRule
from tests.unit.ingest.service_scene import Scene


def _outcome(scene: Scene) -> tuple[list[Any], list[int], Any]:
    """Returns the ids of rows, the offsets of dead letters, and the numbers of dropped records."""
    state = scene.catalog.load("n.a")
    assert state is not None
    ids = [row["id"] for row in scene.rows("n.a")]
    dead = [offset for _, _, offset in scene.dead_letters("n.a")]
    return ids, dead, state.progress.totals.ignored_records


@pytest.mark.parametrize(
    "settings",
    [
        {"where": "kind = 'order'"},
        {"select": "select id, amount from records where upper(kind) = 'ORDER'"},
        {
            "where": "kind = 'order'",
            "protect": (ProtectRule(selector="amount", action="hash"),),
            "protect_key": "k" * 32,
        },
    ],
)
def test_a_record_of_another_kind_is_dropped_whatever_its_other_fields_are(
    scene: Any, settings: dict[str, Any]
) -> None:
    made = scene(**settings)
    made.feed("a", {"id": 1, "kind": "order", "amount": 5})
    made.catch_up()
    made.feed("a", {"id": "two", "kind": "visit", "amount": "n/a"}, {"id": 3, "amount": "n/a"})
    made.feed("a", {"id": 4, "kind": "order", "amount": "n/a"}, {"id": 5, "kind": "order", "amount": 6})
    made.catch_up()
    assert _outcome(made) == ([1, 5], [3], {"where": 2})


def test_a_record_that_no_condition_can_judge_is_a_dead_letter(scene: Any) -> None:
    """Its kind has another type, it is no object, or it has no value."""
    made = scene(where="kind = 'order'")
    made.feed("a", {"id": 1, "kind": "order"})
    made.catch_up()
    made.feed("a", {"id": 2, "kind": 7})
    for value in (b'{"id": 3, "kind": "visit"', b"[]", b"null", None, b'{"kind": "order", "kind": "visit"}'):
        made.source.produce("a", 0, value, made.clock.now_ms())
    made.catch_up()
    assert _outcome(made) == ([1], [1, 2, 3, 4, 5, 6], {})


def test_a_field_with_the_name_of_a_column_of_the_query_is_no_bad_record_where_the_record_is_dropped(
    scene: Any,
) -> None:
    made = scene(select="select *, amount as total from records where kind = 'order'")
    made.feed("a", {"id": 1, "kind": "order", "amount": 5})
    made.catch_up()
    made.feed("a", {"id": 2, "kind": "visit", "total": 6}, {"id": 3, "kind": "order", "total": 6})
    made.catch_up()
    assert _outcome(made) == ([1], [2], {"where": 1})


def test_fields_that_share_a_column_are_no_bad_record_where_the_record_is_dropped(scene: Any) -> None:
    made = scene(flatten=FlattenSpec(), where="kind = 'order'")
    made.feed("a", {"id": 1, "kind": "order", "user": {"id": 5}})
    made.catch_up()
    made.feed("a", {"id": 2, "kind": "visit", "user_id": 6}, {"id": 3, "kind": "order", "user_id": 6})
    made.catch_up()
    assert _outcome(made) == ([1], [2], {"where": 1})


def test_steps_before_a_filter_make_no_dead_letter_of_what_it_drops(scene: Any) -> None:
    made = scene(rename=((("kind",), "sort"),), cast=((("amount",), IntegerType()),), filter="sort = 'order'")
    made.feed("a", {"id": 1, "kind": "order", "amount": "5"})
    made.catch_up()
    made.feed("a", {"id": 2, "kind": "visit", "amount": "n/a"}, {"id": 3, "kind": "order", "amount": "n/a"})
    made.feed("a", {"id": "four", "kind": "visit", "amount": "4"})
    made.catch_up()
    assert _outcome(made) == ([1], [2], {"filter": 2})


def test_a_bad_record_behind_many_that_are_dropped_is_named(scene: Any) -> None:
    made = scene(where="kind = 'order'", on_bad_record="stop")
    made.feed("a", {"id": 1, "kind": "order", "amount": 5})
    made.catch_up()
    visits = ({"id": n, "kind": "visit", "amount": "n/a"} for n in range(2 * MAX_MISMATCHES))
    made.feed("a", *visits, {"id": 99, "kind": "order", "amount": "n/a"}, {"id": 100, "kind": "order", "amount": 6})
    [table] = made.catch_up()
    assert table.status.run_state is RunState.STOPPED
    assert table.status.where.endswith(f"offset {2 * MAX_MISMATCHES + 1}")
