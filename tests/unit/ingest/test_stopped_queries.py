"""Tables with a query that cannot be run: what stops them, what they wait for, and the remedies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from frazil.decode.settings import PLACEHOLDER
from frazil.errors import SpecError
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec import TableSpec
from frazil.spec.models import TopicSelector
from frazil.spec.settings import EnvelopeSpec, KeySpec
from tests.needs import needs
from tests.unit.ingest import service_scene
from tests.unit.ingest.service_scene import only


def test_a_field_that_no_record_has_had_yet_is_waited_for(scene: Any) -> None:
    made = scene(select="select id, email from records")
    made.feed("a", {"id": 1})
    service = made.start()
    service_scene.turn_until(service, lambda: only(service.tables).status.run_state is RunState.BACKING_OFF, 20)
    table: Table = only(service.tables)
    assert "unknown column" in table.status.reason, table.status.reason
    made.feed("a", {"id": 2, "email": "e"})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "email": None}, {"id": 2, "email": "e"}]


_AS_ORDER_ID = (("id",), "order_id")


@pytest.mark.parametrize(
    ("settings", "reason", "remedy", "followed"),
    [
        (
            {"rename": (_AS_ORDER_ID,), "key_columns": ("id",)},
            "`key_columns` names `id`, which `rename` makes `order_id`",
            "write `order_id` under `key_columns`",
            {"key_columns": ("order_id",)},
        ),
        (
            {"rename": (_AS_ORDER_ID, (("n",), "at")), "key_columns": ("order_id",), "order_by": "n"},
            "`order_by` names `n`, which `rename` makes `at`",
            "write `at` under `order_by`",
            {"order_by": "at"},
        ),
        (
            {"drop_fields": (("id",),), "key_columns": ("id",)},
            "`drop_fields` leaves out `id`, which identifies rows",
            "take it out of `drop_fields`",
            {"drop_fields": ()},
        ),
        (
            {"keep_fields": (("n",),), "key_columns": ("id",)},
            "`keep_fields` leaves out `id`, which identifies rows",
            "add it to `keep_fields`",
            {"keep_fields": (("n",), ("ID",))},
        ),
        (
            {"drop_fields": (("id",),), "key": KeySpec(format="json")},
            "the query leaves out id, which identifies rows",
            "add `id` to `select`, or keep it in the steps",
            {"drop_fields": ()},
        ),
        (
            {"select": "select id as order_id from records", "key_columns": ("id",)},
            "the query leaves out id, which identifies rows",
            "add `id` to `select`",
            {"select": "select id, id as order_id from records"},
        ),
        (
            {"select": "select id from records", "key_columns": ("id",), "order_by": "n"},
            "the query leaves out n, which orders changes",
            "add `n` to `select`",
            {"select": "select id, n from records"},
        ),
    ],
)
def test_a_table_whose_query_makes_no_key_stops_before_a_row_is_written_until_the_remedy_is_followed(
    scene: Any, settings: dict[str, Any], reason: str, remedy: str, followed: dict[str, Any]
) -> None:
    """Rows without it would never be replaced."""
    made = scene(mode="upsert", **settings)
    made.source.produce("a", 0, b'{"id": 1, "n": 2}', made.clock.now_ms(), key=b'{"id": 1}')
    table: Table = only(made.catch_up())
    assert table.status.run_state is RunState.STOPPED
    assert (table.status.reason, table.status.remedy) == (reason, remedy)
    assert table.state is None
    made.settings = {"mode": "upsert", **settings, **followed}
    made.catch_up()
    assert [1 in row.values() for row in made.rows("n.a")] == [True]


@pytest.mark.parametrize(
    "settings",
    [
        {"rename": (_AS_ORDER_ID,), "key_columns": ("ordr_id",)},
        {"rename": (_AS_ORDER_ID,), "key_columns": ("order_id",), "order_by": "ordr_at"},
        {"select": "select *, id as order_id from records", "key_columns": ("ordr_id",)},
        {"where": "id > 0", "key_columns": ("ordr_id",)},
    ],
)
def test_a_key_column_that_no_record_has_had_yet_is_waited_for_with_the_nearest_name(
    scene: Any, settings: dict[str, Any]
) -> None:
    made = scene(mode="upsert", **settings)
    made.feed("a", {"id": 1})
    service = made.start()
    service_scene.turn_until(service, lambda: only(service.tables).status.run_state is RunState.BACKING_OFF, 20)
    status = only(service.tables).status
    assert "which no record that can become a row has had yet" in status.reason
    assert "Frazil looks at further records" in status.remedy
    made.feed("a", {"id": 2, "ordr_id": 3, "ordr_at": 4})
    made.catch_up()
    assert [row["id" if "id" in row else "order_id"] for row in made.rows("n.a")] == [2]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select id from other", "other"),
        ("select count(*) from records", "`count`"),
        ("select id, rand() as x from records", "rand"),
        ("drop table x", "DropTable"),
    ],
)
def test_what_is_no_query_of_records_stops_the_table_with_a_remedy(scene: Any, query: str, words: str) -> None:
    made = scene(select=query)
    made.feed("a", {"id": 1})
    table = only(made.catch_up())
    assert table.status.run_state is RunState.STOPPED
    assert words in table.status.reason, table.status
    assert table.status.remedy


@pytest.mark.parametrize(
    ("settings", "followed"),
    [
        (
            {"select": "select id, explode(map(a, 1)) as (a, one) from records"},
            {"select": "select id, a from records"},
        ),
        ({"select": "select id, a as b, a as B from records"}, {"select": "select id, a as b, a as c from records"}),
        ({"select": "select id, a as A from records"}, {"select": "select id, a as b from records"}),
        (
            {"select": "select id, named_struct('b', n) as s, n as `s.b` from records"},
            {"select": "select id, named_struct('b', n) as s, n as b from records"},
        ),
        (
            {"select": "select id, n as Place from records", "metadata": {"offset": "place"}},
            {"select": "select id, n as spot from records", "metadata": {"offset": "place"}},
        ),
        (
            {"select": "select id, _offset + 1 as _offset from records", "metadata": {"offset": "_offset"}},
            {"select": "select id, _offset from records", "metadata": {"offset": "_offset"}},
        ),
        ({"select": "", "rename": ((("a",), "A"),)}, {"select": "", "rename": ((("a",), "b"),)}),
        (
            {"select": "select id, cast(n as string) as n from records"},
            {"select": "select id, cast(cast(n as string) as bigint) as n from records"},
        ),
        (
            {"select": "select id, _timestamp as n from records"},
            {"select": "select id, unix_millis(_timestamp) as n from records"},
        ),
        ({"select": "", "cast": ((("n",), StringType()),)}, {"select": "", "cast": ((("n",), LongType()),)}),
        (
            {"select": "", "drop_fields": (("n",),), "add_fields": (("n", "_timestamp"),)},
            {"select": "select id, a, unix_millis(_timestamp) as n from records"},
        ),
        (
            {"select": "select id, a from records", "metadata": {"timestamp": "n"}},
            {"select": "select id, a, unix_millis(_timestamp) as n from records"},
        ),
        (
            {"select": "select id, a from records", "metadata": {"topic": "n"}},
            {"select": "select id, a from records", "metadata": {"topic": "t"}},
        ),
        (
            {"select": "select id, a, n, id + 1 as next from records", "schema_evolution": "freeze"},
            {"select": "select id, a from records", "schema_evolution": "freeze"},
        ),
        (
            {"select": "select bround(id, 0) as id, a from records", "mode": "upsert", "key_columns": ("id",)},
            {"select": "select id, a from records", "mode": "upsert", "key_columns": ("id",)},
        ),
        (
            {"select": "select a from records", "mode": "upsert", "key": KeySpec(format="json"), "format_version": 3},
            {
                "select": "select id, a from records",
                "mode": "upsert",
                "key": KeySpec(format="json"),
                "format_version": 3,
            },
        ),
    ],
)
def test_a_query_that_the_table_cannot_have_stops_it_until_the_remedy_is_followed(
    scene: Any, settings: dict[str, Any], followed: dict[str, Any]
) -> None:
    """Another function, another name, a cast, one column less, and the key."""
    made = scene(select="select id, a, n from records")
    if settings.get("mode") != "upsert":
        made.feed("a", {"id": 1, "a": "x", "n": 5})
        made.catch_up()
    made.settings = settings
    made.source.produce("a", 0, b'{"id": 2, "a": "y", "n": 6}', made.clock.now_ms(), key=b'{"id": 2}')
    table = only(made.catch_up())
    assert table.status.run_state is RunState.STOPPED, table.status
    assert table.status.remedy
    assert "report" not in table.status.remedy
    assert "exclude" not in table.status.reason + table.status.remedy  # The query makes the columns.
    made.settings = followed
    made.catch_up()
    assert made.rows("n.a")[-1]["id"] == 2


@pytest.mark.parametrize(
    ("settings", "followed"),
    [
        (
            {"select": "select id, cast(a as int) as a from records"},
            {"select": "select id, try_cast(a as int) as a from records"},
        ),
        ({"cast": ((("a",), IntegerType()),)}, {"cast": ((("a",), IntegerType()),), "on_error": "null"}),
    ],
)
def test_a_value_for_which_an_expression_fails_stops_the_table_until_the_expression_cannot(
    scene: Any, settings: dict[str, Any], followed: dict[str, Any]
) -> None:
    made = scene(on_bad_record="stop", **settings)
    made.feed("a", {"id": 1, "a": "one"})
    status = only(made.catch_up()).status
    assert status.run_state is RunState.STOPPED
    assert status.reason == 'field a: CAST_INVALID_INPUT: CAST(records.a AS INT) of "one"'
    assert status.remedy == (
        'write the expression so that it cannot fail, with `try_cast` or another `try_` function, or `on_error: "null"`'
        " for null in its place; or fix the producer"
    )
    made.settings = {"on_bad_record": "stop", **followed}
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "a": None}]


def test_a_change_without_a_value_that_a_column_needs_stops_the_table_until_the_field_is_taken_as_it_is(
    scene: Any,
) -> None:
    """No expression could be written otherwise: what it computes with is in the old row alone."""
    upserts = {"mode": "upsert", "key": KeySpec(format="json"), "key_columns": ("id",), "format_version": 2}
    settings = {**upserts, "envelope": EnvelopeSpec(kind="debezium"), "on_bad_record": "stop"}
    made = scene(select="select id, concat(n, m) as n, m from records", **settings)
    for op, n, m in (("c", "a", "b"), ("u", PLACEHOLDER, "c")):
        value = json.dumps({"op": op, "after": {"id": 1, "n": n, "m": m}}).encode()
        made.source.produce("a", 0, value, made.clock.now_ms(), key=b'{"id": 1}')
        status = only(made.catch_up()).status
    assert status.run_state is RunState.STOPPED
    assert status.reason == "field n: the change does not have the value of n, which the column n is made from"
    assert status.remedy.startswith("let the source send whole rows")
    made.settings = {**settings, "select": "select id, n, m from records"}
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "n": "ab", "m": "c"}]


@needs("cdc")
def test_rows_of_one_message_are_not_sparks(queries: SparkQueries) -> None:
    records = Schema(NestedField(1, "a", StringType(), required=False))
    spec = TableSpec.model_validate(
        {
            "name": "n.a",
            "topics": (TopicSelector(literal="a"),),
            "envelope": EnvelopeSpec(kind="canal"),
            "select": "select regexp_replace(a, 'x', 'y') as a from records",
        }
    )
    with pytest.raises(SpecError, match="Canal have several") as caught:
        queries.analyse(spec, records)
    assert "tasks compute themselves" in caught.value.remedy
    queries.analyse(spec.model_copy(update={"select": "select replace(a, 'x', 'y') as a from records"}), records)


@pytest.mark.parametrize("setting", ["where", "filter"])
def test_a_condition_that_is_none_is_named_with_the_place_in_it(scene: Any, setting: str) -> None:
    made = scene(**{setting: "a = 'x"})
    made.feed("a", {"a": "x"})
    table: Table = only(made.catch_up())
    assert table.status.run_state is RunState.STOPPED
    assert table.status.where == f"n.a, {setting}, line 1, column 5 of the condition"
    assert table.status.remedy.startswith("write one condition in Spark's SQL, such as `amount > 0`")
    made.settings = {setting: "amount > 0"}
    made.feed("a", {"a": "x", "amount": 1})
    made.catch_up()
    assert made.rows("n.a") == [{"a": "x", "amount": 1}]


def test_without_spark_a_table_that_needs_it_has_no_rows_and_no_dead_letters(scene: Any) -> None:
    made = scene(select="select id, regexp_replace(a, 'x', 'y') as a from records")
    made.feed("a", {"id": 1, "a": "x"})
    table = only(made.catch_up())
    assert "there is no Spark" in table.status.reason
    assert made.catalog.load("n.a") is None or made.rows("n.a") == []
