"""Tables with a query: what they hold, what is dropped and counted, what becomes a dead letter, and what changes with the
fields of their records.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType, UUIDType
from structlog.testing import capture_logs

from frazil.catalog.layout import Layout
from frazil.ingest.tables.state import RunState
from frazil.ops.lineage import lineage_of
from frazil.plugins.functions import Function
from frazil.schema.evolve import new_schema
from frazil.spec.settings import ColumnSpec, EnvelopeSpec, FlattenSpec, KeySpec
from frazil.stages.expect_settings import ExpectationSpec
from frazil.stages.notes import ProtectedField, ProtectedFields
from frazil.stages.protect_settings import ProtectRule
from tests.unit.ingest.service_scene import only, turn_until


def test_a_query_makes_the_rows_and_drops_are_counted_in_the_commit(scene: Any) -> None:
    made = scene(select="select id, lower(email) as email from records where kind = 'order'")
    made.feed("a", {"id": 1, "email": "A@X", "kind": "order"}, {"id": 2, "email": "B@X", "kind": "visit"})
    made.catch_up()
    made.feed("a", {"id": 3, "email": None, "kind": "order"}, {"id": 4})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "email": "a@x"}, {"id": 3, "email": None}]
    assert made.progress().totals.ignored_records == {"where": 2}
    assert made.progress().offsets == {"a": {0: 4}}


def test_fields_that_a_query_reads_are_no_change_of_a_table_that_has_its_columns(scene: Any) -> None:
    made = scene(rename=((("id",), "order_id"),))
    made.catalog.create("n.a", new_schema([("order_id", LongType())]), {}, 2, Layout(None, None))
    made.feed("a", {"id": 1})
    with capture_logs() as logs:
        table = only(made.catch_up())
    assert made.rows("n.a") == [{"order_id": 1}]
    assert [entry for entry in logs if entry["event"] == "schema_changed"] == []
    assert table.counts.schema_changes["applied"] == 0
    made.feed("a", {"id": 2, "more": True})
    with capture_logs() as logs:
        table = only(made.catch_up())
    assert [entry["columns"] for entry in logs if entry["event"] == "schema_changed"] == [2]
    assert table.counts.schema_changes["applied"] == 1


def test_a_failing_expression_makes_a_dead_letter_of_its_record_only(scene: Any) -> None:
    made = scene(select="select id, cast(amount as decimal(12, 2)) as amount from records")
    made.feed("a", {"id": 1, "amount": "1.5"}, {"id": 2, "amount": "one"}, {"id": 3, "amount": "2"})
    made.catch_up()
    assert [row["id"] for row in made.rows("n.a")] == [1, 3]
    assert made.dead_letters("n.a") == [("a", 0, 1)]


def test_with_null_for_errors_the_record_stays(scene: Any) -> None:
    made = scene(select="select id, cast(amount as int) as amount from records", on_error="null")
    made.feed("a", {"id": 1, "amount": "15"}, {"id": 2, "amount": "one"})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "amount": 15}, {"id": 2, "amount": None}]


def test_the_columns_follow_the_fields_of_the_records(scene: Any) -> None:
    made = scene(select="select *, _offset as at from records where id > 0")
    made.feed("a", {"id": 1})
    made.catch_up()
    made.feed("a", {"id": 2, "new": "x"})
    tables = made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "at": 0, "new": None}, {"id": 2, "at": 1, "new": "x"}]
    assert only(tables).schema.query is not None


def test_where_alone_takes_a_part_of_the_topic(scene: Any) -> None:
    made = scene(where="kind = 'order'")
    made.feed("a", {"id": 1, "kind": "order"}, {"id": 2, "kind": "visit"}, {"id": 3})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "kind": "order"}]
    assert made.progress().totals.ignored_records == {"where": 2}


def test_steps_are_applied_in_their_order_and_before_the_query(scene: Any) -> None:
    settings = {
        "rename": ((("id",), "order_id"),),
        "drop_fields": (("secret",),),
        "cast": ((("amount",), DecimalType(12, 2)),),
        "add_fields": (("origin", "shop"), ("at", "_offset")),
        "filter": "amount > 1",
    }
    made = scene(**settings)
    made.feed("a", {"id": 1, "amount": "1.5", "secret": "x"}, {"id": 2, "amount": "1", "secret": "y"})
    made.catch_up()
    row = {"order_id": 1, "amount": Decimal("1.50"), "origin": "shop", "at": 0}
    assert made.rows("n.a") == [row]
    assert made.progress().totals.ignored_records == {"filter": 1}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"keep_fields": (("id",),)}, "the steps leave no field that records have had"),
        ({"drop_fields": (("ssn",),)}, "the steps leave no field that records have had"),
        (
            {"protect": (ProtectRule(selector="ssn", action="drop"),), "protect_key": "k" * 32},
            "`protect` drops every field that records have had",
        ),
    ],
)
def test_a_table_whose_first_records_have_no_field_for_it_waits_for_others(
    scene: Any, settings: dict[str, Any], reason: str
) -> None:
    made = scene(**settings)
    made.feed("a", {"ssn": 1})
    service = made.start()
    turn_until(service, lambda: only(service.tables).status.reason, 50)
    status = only(service.tables).status
    assert (status.run_state, status.reason) == (RunState.BACKING_OFF, reason)
    assert made.catalog.load("n.a") is None
    made.feed("a", {"ssn": 2, "id": 7})
    turn_until(service, lambda: service.is_over(until_caught_up=True), 100)
    assert made.rows("n.a") == [{"id": None}, {"id": 7}]


@pytest.mark.parametrize(
    "settings", [{"where": "id > 0"}, {"rename": ((("id",), "n"),)}, {"select": "select * from records"}]
)
def test_a_table_has_its_own_metadata_whatever_its_query_makes(scene: Any, settings: dict[str, Any]) -> None:
    """Also under a name that Iceberg reserves for metadata of its own."""
    made = scene(metadata={"partition": "_partition", "offset": "place"}, **settings)
    made.feed("a", {"id": 7})
    made.catch_up()
    [row] = made.rows("n.a")
    assert list(row.values()) == [7, 0, 0]
    assert list(row)[1:] == ["_partition", "place"]


@pytest.mark.parametrize("key", ["raw", "text", "json"])
@pytest.mark.parametrize(
    "settings",
    [
        {"where": "id > 0"},
        {"rename": ((("id",), "n"),)},
        {"select": "select id from (select id, explode(array(1)) as x from records)"},
        {"select": "select id, _key as other from records"},
        {"expect": (ExpectationSpec(name="e", that="id > 0"),)},
    ],
)
@pytest.mark.parametrize("column", ["_key", "own"])
def test_a_table_has_the_column_of_keys_in_their_format_whatever_its_query_makes(
    scene: Any, settings: dict[str, Any], key: str, column: str
) -> None:
    made = scene(key=KeySpec(format=key), metadata={"key": column}, **settings)
    made.source.produce("a", 0, b'{"id": 1}', made.clock.now_ms(), key=b'"k"')
    made.catch_up()
    [row] = made.rows("n.a")
    assert row[column] == {"raw": b'"k"', "text": '"k"', "json": "k"}[key]


def test_metadata_is_found_in_any_case(scene: Any) -> None:
    made = scene(
        where="_Kafka_Partition = 0",
        filter="_OFFSET > 0",
        select="select _Topic as topic, `_offset` as at from records",
    )
    made.feed("a", {"id": 7}, {"id": 8})
    made.catch_up()
    assert made.rows("n.a") == [{"topic": "a", "at": 1}]


def test_metadata_of_changes_is_added_under_the_names_of_debezium(scene: Any) -> None:
    made = scene(
        envelope=EnvelopeSpec(kind="debezium"),
        add_fields=(
            ("op", "op"),
            ("sent", "source.ts_ms"),
            ("at", "_source_ts"),
            ("of", "source.table"),
            ("by", "op."),
        ),
        filter="_op <> 'd'",
    )
    source = {"connector": "mysql", "ts_ms": 1500, "db": "shop", "table": "orders"}
    made.feed("a", {"before": None, "after": {"id": 1}, "source": source, "op": "c", "ts_ms": 2000})
    made.catch_up()
    at = datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)
    [row] = made.rows("n.a")
    assert row == {"id": 1, "op": "c", "sent": 1500, "at": at, "of": "orders", "by": "op."}


def test_a_field_with_the_name_of_metadata_that_the_table_does_not_have_is_a_field(scene: Any) -> None:
    made = scene(select="select *, upper(_op) as op from records")
    made.feed("a", {"id": 1, "_op": "c"})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "_op": "c", "op": "C"}]


def test_rescued_values_stay_beside_what_a_query_makes(scene: Any) -> None:
    made = scene(where="id > 0", columns=(ColumnSpec(name="n", type=LongType()),), rescue=True)
    made.feed("a", {"id": 1, "n": "text"}, {"id": 0, "n": 1})
    made.catch_up()
    [row] = made.rows("n.a")
    assert (row["id"], row["n"]) == (1, None)
    assert "text" in row["_rescued"]


def test_a_query_reads_what_the_steps_leave(scene: Any) -> None:
    made = scene(rename=((("id",), "n"),), select="select *, n + 1 as next, _offset as at from records")
    made.feed("a", {"id": 1})
    made.catch_up()
    assert made.rows("n.a") == [{"n": 1, "next": 2, "at": 0}]


def test_a_row_that_the_query_no_longer_takes_is_deleted(scene: Any) -> None:
    made = scene(
        select="select id as order_id, upper(state) as state from records where state <> 'gone'",
        mode="upsert",
        key_columns=("order_id",),
        format_version=3,
    )
    made.feed("a", {"id": 1, "state": "new"}, {"id": 2, "state": "new"}, {"id": 3, "state": "gone"})
    made.catch_up()
    made.feed("a", {"id": 1, "state": "gone"}, {"id": 2, "state": "paid"})
    made.catch_up()
    assert made.rows("n.a") == [{"order_id": 2, "state": "PAID"}]


def _change(before: Any, after: Any) -> dict[str, Any]:
    source = {"connector": "mysql", "ts_ms": 1, "db": "d", "table": "t"}
    return {"before": before, "after": after, "op": "d" if after is None else "c", "source": source, "ts_ms": 1}


@pytest.mark.parametrize(
    "settings", [{"rename": ((("id",), "order_id"),)}, {"select": "select id as order_id, n from records"}]
)
def test_an_existing_upsert_table_is_found_by_the_key_that_its_query_makes(
    scene: Any, settings: dict[str, Any]
) -> None:
    number = ColumnSpec(name="n", type=LongType())
    made = scene(mode="upsert", key=KeySpec(format="json"), key_columns=("order_id",), columns=(number,), **settings)
    made.catalog.create("n.a", new_schema([("order_id", LongType()), ("n", LongType())]), {}, 3)
    for key, value in ((1, b'{"id": 1, "n": 5}'), (2, b'{"id": 2, "n": 5}'), (1, b'{"id": 1, "n": 6}'), (2, None)):
        made.source.produce("a", 0, value, made.clock.now_ms(), key=b'{"id": %d}' % key)
    table = only(made.catch_up())
    assert table.status.run_state is RunState.WAITING, table.status
    assert made.rows("n.a") == [{"order_id": 1, "n": 6}]


def test_a_function_makes_keys_and_conditions_of_changes_beside_protected_fields(scene: Any) -> None:
    made = scene(
        mode="upsert",
        key_columns=("who",),
        envelope=EnvelopeSpec(kind="debezium"),
        udf=(Function("tests.fixtures.functions.clean", "", "string"),),
        protect=(ProtectRule(selector="mail", action="hash"),),
        protect_key="k" * 40,
        select="select clean(name) as who, mail from records where clean(name) <> 'gone'",
    )
    made.feed("a", _change(None, {"name": "Ann", "mail": "x"}), _change(None, {"name": "Bob", "mail": "y"}))
    made.catch_up()
    made.feed("a", _change({"name": "Ann", "mail": "x"}, None), _change(None, {"name": "GONE", "mail": "z"}))
    table = only(made.catch_up())
    [row] = made.rows("n.a")
    assert (row["who"], len(row["mail"])) == ("bob", 64)
    lineage = lineage_of(table, table.schema.query)
    assert [(one.name, one.fields) for one in lineage.columns] == [("who", ("name",)), ("mail", ("mail",))]
    assert lineage.conditions == ("name",)
    assert lineage.notes == (ProtectedFields((ProtectedField("mail", "hash"),)),)
    assert lineage.notes[0].line == "protects mail (hash)"


def test_the_lineage_of_a_table_with_protect_alone_names_what_is_protected(scene: Any) -> None:
    rules = (ProtectRule(selector="mail", action="hash"), ProtectRule(selector="ssn", action="drop"))
    made = scene(protect=rules, protect_key="k" * 40)
    made.feed("a", {"id": 1, "mail": "x", "ssn": "y"})
    table = only(made.catch_up())
    lineage = lineage_of(table, table.schema.query)
    assert [(one.name, one.fields) for one in lineage.columns] == [("id", ("id",)), ("mail", ("mail",))]
    assert lineage.notes == (ProtectedFields((ProtectedField("mail", "hash"), ProtectedField("ssn", "drop"))),)


def test_the_lineage_of_a_query_names_the_fields_that_feed_flattened_columns(scene: Any) -> None:
    rule = ProtectRule(selector="user", action="hash")
    made = scene(
        flatten=FlattenSpec(), protect=(rule,), protect_key="k" * 40, where="user_id > ''", rename=((("id",), "n"),)
    )
    made.feed("a", {"id": 1, "user": {"id": "x"}})
    table = only(made.catch_up())
    lineage = lineage_of(table, table.schema.query)
    assert [(one.name, one.fields) for one in lineage.columns] == [("n", ("id",)), ("user_id", ("user.id",))]
    assert lineage.conditions == ("user.id",)
    assert lineage.notes == (ProtectedFields((ProtectedField("user.id", "hash"),)),)


@pytest.mark.parametrize("settings", [{}, {"where": "id > 0"}])
def test_the_lineage_of_metadata_names_it_whatever_its_column_is_called(scene: Any, settings: dict[str, Any]) -> None:
    made = scene(metadata={"offset": "place", "topic": "_topic"}, **settings)
    made.feed("a", {"id": 1})
    table = only(made.catch_up())
    lineage = lineage_of(table, table.schema.query)
    assert {one.name: one.fields for one in lineage.columns} == {
        "id": ("id",),
        "place": ("_offset",),
        "_topic": ("_topic",),
    }


class _Killed(BaseException):
    """The process ends here."""


def test_a_death_between_the_new_column_and_the_record_of_its_field_loses_nothing(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scene(select="select * from records")
    made.feed("a", {"id": 1})
    made.catch_up()
    made.feed("a", {"id": 2, "new": "x"})

    def die(point: str) -> None:
        if point == "query.evolved":
            raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr("frazil.ingest.tables.queries.hit", die)
        with pytest.raises(_Killed):
            made.catch_up()
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "new": None}, {"id": 2, "new": "x"}]


def test_each_record_is_a_row_a_dead_letter_or_a_counted_drop(scene: Any) -> None:
    made = scene(select="select n, cast(text as int) as i from records where n % 3 <> 0")
    made.feed("a", *({"n": n, "text": "x" if n % 7 == 0 else str(n)} for n in range(200)))
    made.catch_up()
    ended = len(made.rows("n.a")) + len(made.dead_letters("n.a")) + made.progress().totals.ignored_records["where"]
    assert ended == 200
    assert all(row["n"] == row["i"] and row["n"] % 3 for row in made.rows("n.a"))


def test_values_that_sparks_optimizer_decides_are_its_own(scene: Any) -> None:
    query = (
        "select id, n + 9223372036854775807L + (1L - 9223372036854775807L) as sum, n * 2L * 3L as six,"
        " n + 9223372036854775807 + (id - 1) + -9223372036854775807 + id as cast_first,"
        " array(id, n)[5] as no, array(id, n)[1] as one, array(1 div zero, n)[1] as other,"
        " named_struct('a', 1 div zero, 'b', n).b as b, list[0] as first"
        " from records where id < 3 or list[5] > 0"
    )
    made = scene(select=query)
    made.feed("a", *({"id": n, "n": 10 * n, "zero": 0, "list": [n]} for n in (1, 2, 3)))
    made.catch_up()
    row = {"id": 1, "sum": 11, "six": 60, "cast_first": 11, "no": None, "one": 10, "other": 10, "b": 10, "first": 1}
    assert made.rows("n.a")[:1] == [row]
    assert made.dead_letters("n.a") == [("a", 0, 2)]  # A list of the record has no such element: an error, as ever.


def test_a_row_for_each_element_and_none_of_a_record_of_which_one_fails(scene: Any) -> None:
    made = scene(select="select id, cast(one as int) as one from records lateral view explode(many) t as one")
    made.feed("a", {"id": 1, "many": ["1", "2"]}, {"id": 2, "many": ["3", "x"]}, {"id": 3, "many": []})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "one": 1}, {"id": 1, "one": 2}]
    assert made.dead_letters("n.a") == [("a", 0, 1)]
    assert made.progress().totals.ignored_records == {"explode": 1}


def test_a_type_that_spark_lacks_is_kept_where_its_column_is_selected_as_it_is(scene: Any) -> None:
    made = scene(select="select id, n + 1 as n from records", columns=(ColumnSpec(name="id", type=UUIDType()),))
    made.feed("a", {"id": "00000000-0000-0000-0000-000000000001", "n": 1})
    made.catch_up()
    assert made.rows("n.a") == [{"id": UUID(int=1).bytes, "n": 2}]
    state = made.catalog.load("n.a")
    assert state is not None
    assert state.schema.find_type("id") == UUIDType()


def test_keys_of_a_query_may_be_written_in_other_capitals(scene: Any) -> None:
    made = scene(
        select="select doc as order_id, n, v from records",
        mode="upsert",
        format_version=3,
        key_columns=("ORDER_ID",),
        order_by="N",
        envelope=EnvelopeSpec(kind="operation", operation="op", insert=("I",), update=("U",), delete=("D",)),
    )
    made.feed("a", *({"doc": key, "n": 1, "v": "a", "op": "I"} for key in (1, 2)))
    made.catch_up()
    made.feed("a", {"doc": 1, "n": 0, "v": "late", "op": "U"}, {"doc": 2, "n": 2, "op": "D"})
    made.catch_up()
    assert made.catalog.load("n.a__dead_letters") is None
    assert made.rows("n.a") == [{"order_id": 1, "n": 1, "v": "a"}]
    state = made.catalog.load("n.a")
    assert state.schema.identifier_field_names() == {"order_id"}


_BY_ID: dict[str, Any] = {"mode": "upsert", "format_version": 3, "key_columns": ("id",), "order_by": "at"}


@pytest.mark.parametrize("made_of", ["cast(seq as bigint)", "coalesce(cast(seq as bigint), 0)", "length(seq) * 1000"])
def test_changes_are_ordered_by_what_the_query_makes(scene: Any, made_of: str) -> None:
    """Their texts would say that 9 is newer than 10."""
    made = scene(select=f"select id, {made_of} as at, v from records", **_BY_ID)
    made.feed(
        "a", {"id": 1, "seq": "10", "v": "new"}, {"id": 1, "seq": "9", "v": "late"}, {"id": 2, "seq": "9", "v": "a"}
    )
    made.catch_up()
    made.feed("a", {"id": 1, "seq": "8", "v": "late"}, {"id": 2, "seq": "10", "v": "b"})
    made.catch_up()
    assert [(row["id"], row["v"]) for row in made.rows("n.a")] == [(1, "new"), (2, "b")]


def test_changes_are_ordered_by_a_column_that_is_made_of_several_fields(scene: Any) -> None:
    made = scene(select="select id, coalesce(changed, created) as at, v from records", **_BY_ID)
    made.feed("a", {"id": 1, "created": 5, "changed": 6, "v": "new"}, {"id": 1, "created": 5, "v": "late"})
    made.catch_up()
    made.feed("a", {"id": 1, "created": 5, "changed": 1, "v": "late"}, {"id": 2, "created": 7, "v": "a"}, {"id": 2})
    made.catch_up()
    assert [(row["id"], row["v"]) for row in made.rows("n.a")] == [(1, "new"), (2, "a")]
    assert made.dead_letters("n.a") == [("a", 0, 4)]


_DECLARED = (ColumnSpec(name="amount", type=StringType()),)
_OTHERWISE: tuple[dict[str, Any], ...] = (
    {"cast": ((("amount",), DoubleType()),)},
    {"select": "select id, cast(amount as double) as amount from records"},
    {"select": "select id, amount as text, cast(amount as double) as Amount from records"},
    {"rename": ((("amount",), "text"),), "add_fields": (("amount", 1.5),)},
    {"drop_fields": (("amount",),), "add_fields": (("AMOUNT", 1.5),)},
)


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("settings", _OTHERWISE)
def test_a_declaration_is_of_the_field_whatever_the_query_makes_of_it(
    scene: Any, settings: dict[str, Any], mode: str
) -> None:
    if mode == "upsert":
        settings = {**settings, "mode": "upsert", "key_columns": ("id",)}
    made = scene(columns=_DECLARED, **settings)
    for number in (1, 2, 1):
        made.feed("a", {"id": number, "amount": "1.5"})
        status = only(made.catch_up()).status
        assert (status.run_state is RunState.STOPPED, status.reason) == (False, "")
    amounts = [next(value for name, value in row.items() if name.lower() == "amount") for row in made.rows("n.a")]
    assert amounts == [1.5] * len(amounts)
    assert len(amounts) == (3 if mode == "append" else 2)


def test_a_protected_field_is_declared_as_records_have_it(scene: Any) -> None:
    rules = (ProtectRule(selector="ssn", action="hash"),)
    made = scene(columns=(ColumnSpec(name="ssn", type=LongType()),), protect=rules, protect_key="k" * 32)
    for number in (1, 2):
        made.feed("a", {"id": number, "ssn": 7})
        made.catch_up()
    first, second = made.rows("n.a")
    assert (first["ssn"], isinstance(first["ssn"], str)) == (second["ssn"], True)


@pytest.mark.parametrize(
    ("first", "reason"),
    [((), "`columns` declares `amount` as string, and the table's records have it as long"), (_DECLARED, "")],
)
def test_a_declaration_that_the_known_fields_cannot_follow_is_refused(
    scene: Any, first: tuple[ColumnSpec, ...], reason: str
) -> None:
    """What was declared before may be declared otherwise, as the table has only what the query makes of it."""
    cast = {"cast": ((("amount",), DoubleType()),)}
    made = scene(columns=first, **cast)
    made.feed("a", {"id": 1, "amount": "1" if first else 1})
    made.catch_up()
    again = scene(columns=_DECLARED if not first else (ColumnSpec(name="amount", type=LongType()),), **cast)
    again.catalog, again.source, again.jobs = made.catalog, made.source, made.jobs
    again.feed("a", {"id": 2, "amount": 2 if first else "2"})
    status = only(again.catch_up()).status
    assert (status.run_state is RunState.STOPPED, status.reason.startswith(reason)) == (not first, True)
    assert [row["amount"] for row in again.rows("n.a")] == ([1.0, 2.0] if first else [1.0])
