"""One record that no table can hold beside the others is a bad record, and its table continues."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from structlog.testing import capture_logs

from frazil.dead_letters.files import ReplayResult, Selection
from frazil.ingest.tables.state import RunState
from frazil.schema.conflicts import MAX_REJECTED, accept
from frazil.schema.evolve import NameConflict, RequestedFields, new_schema
from frazil.spec import ColumnSpec
from frazil.spec.settings import DeadLettersSpec, FlattenSpec, LimitsSpec
from frazil.spec.syntax.types import parse_type
from frazil_testing.twins import live_rows
from tests.needs import has_package, needs
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.tables import test_schemas

if has_package("deadletters"):
    from packages.deadletters.tests.unit.scene import Scene as PendingDeadLetters

LONG = parse_type("long")
Case = tuple[dict[str, Any], dict[str, Any], str, str | None]
OWN: Case = ({"metadata": {"offset": "_offset"}}, {"n": 7, "_offset": 1}, "name_conflict", "_offset")
DOTTED: Case = ({}, {"n": 7, "a": {"b": 1}, "a.b": 2}, "name_conflict", "a.b")
FLAT: Case = ({"flatten": FlattenSpec()}, {"n": 7, "a": {"b": 1}, "a_b": 2}, "name_conflict", "a_b")
WIDE: Case = ({"limits": LimitsSpec(columns=99)}, {f"f{number}": 1 for number in range(110)}, "too_many_fields", None)
NESTED: Case = (
    {"limits": LimitsSpec(columns=9)},
    {"n": 7, "a": {f"f{n}": 1 for n in range(9)}},
    "too_many_fields",
    None,
)


def dead_letter(scene: Scene) -> tuple[int, str, str | None]:
    """Of the one dead letter its offset, class and path."""
    (row,) = live_rows(scene.catalog, "n.a__dead_letters")
    return row["offset"], row["error_class"], row["path"]


@pytest.mark.parametrize(("settings", "bad", "kind", "path"), [OWN, DOTTED, FLAT, WIDE, NESTED])
@pytest.mark.parametrize("before", [0, 100])
def test_such_a_record_is_a_dead_letter_and_brings_no_column(
    tmp_path: Path, settings: dict[str, Any], bad: dict[str, Any], kind: str, path: str | None, before: int
) -> None:
    scene = Scene(tmp_path, "a", **settings)
    scene.feed("a", *({"n": n} for n in range(before)), bad, *({"n": n} for n in range(before, 200)))
    for _ in range(2):  # The second process meets the record's neighbours alone.
        table = only(scene.catch_up())
        assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert [row["n"] for row in scene.rows("n.a")] == list(range(200))
    assert dead_letter(scene) == (before, kind, path)
    state = scene.catalog.load("n.a")
    assert state is not None
    assert [field.name for field in state.schema.fields] == ["n", *settings.get("metadata", {}).values()]


@pytest.mark.parametrize(("before", "after"), [('{"l": [', "]}"), ('{"l": [[', "]]}"), ('{"o": {"l": [', "]}}")])
@pytest.mark.parametrize(
    ("settings", "first", "other", "names"),
    [
        ({"column_case": "snake"}, '{"userId": 1}', '{"user_id": 2}', ["user_id", "more"]),
        ({}, '{"a.b": 1}', '{"a": {"b": 2}}', ["a.b", "more"]),
    ],
)
def test_of_members_of_lists_that_would_share_a_column_the_first_one_gets_it(
    tmp_path: Path, before: str, after: str, settings: dict[str, Any], first: str, other: str, names: list[str]
) -> None:
    scene = Scene(tmp_path, "a", **settings, dead_letters=DeadLettersSpec(stop_above=1.0))
    members = [first, other, '{"more": 3}']
    scene.feed("a", *(f"{before}{member}{after}".encode() for member in members))
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    rows = [re.findall(r"'([a-z._]+)': ([0-9]+|None)", str(row)) for row in scene.rows("n.a")]
    assert rows == [list(zip(names, ("1", "None"), strict=True)), list(zip(names, ("None", "3"), strict=True))]
    assert scene.dead_letters("n.a") == [("a", 0, 1)]


@pytest.mark.parametrize(
    ("settings", "unlike", "path"),
    [
        ({}, {"n": 7, "l": [1, "x"]}, "l.element"),
        ({}, {"n": 7, "o": {"l": [{"k": 1}, 2]}}, "o.l.element"),
        ({"numbers": "decimal(9,2)"}, {"n": 7, "p": 1e20}, "p"),
    ],
)
@pytest.mark.parametrize("before", [0, 3])
def test_a_record_that_only_its_new_column_refuses_is_a_dead_letter_beside_another_bad_one_too(
    tmp_path: Path, settings: dict[str, Any], unlike: dict[str, Any], path: str, before: int
) -> None:
    scene = Scene(tmp_path, "a", **settings, dead_letters=DeadLettersSpec(stop_above=1.0))
    scene.feed("a", *({"n": n} for n in range(before)), unlike, {"n": 8, "v": 1, "V": 2}, {"n": before})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert [row["n"] for row in scene.rows("n.a")] == list(range(before + 1))
    dead_letters = [(row["offset"], row["path"]) for row in live_rows(scene.catalog, "n.a__dead_letters")]
    assert dead_letters == [(before, path), (before + 1, "V")]


def test_records_beside_many_bad_ones_are_rows_or_dead_letters_with_their_reason(tmp_path: Path) -> None:
    """Only the first bad records of a batch are described while it is read: the others are read again, alone."""
    scene = Scene(tmp_path, "a", dead_letters=DeadLettersSpec(stop_above=1.0))
    scene.feed("a", *({"n": n} for n in range(30)))
    only(scene.catch_up())
    scene.feed("a", *({"n": "x"} for _ in range(30)), {"n": 30, "l": [1, "x"]}, {"n": 31, "é": 1})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert [row["n"] for row in scene.rows("n.a")] == [*range(30), 31]
    reasons = {row["offset"]: row["path"] for row in live_rows(scene.catalog, "n.a__dead_letters")}
    assert reasons == {**dict.fromkeys(range(30, 60), "n"), 60: "l.element"}


def test_an_object_whose_only_name_is_empty_is_never_lost(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", *({"n": n} for n in range(100)), {"n": 100, "v": [{}]}, {"n": 101, "v": {"": 1}})
    only(scene.catch_up())
    assert [row["n"] for row in scene.rows("n.a")] == list(range(101))
    assert dead_letter(scene) == (101, "name_conflict", "v.")


def test_a_change_that_only_its_new_column_refuses_is_a_dead_letter(tmp_path: Path) -> None:
    settings = {"mode": "upsert", "key": {"format": "json"}, "key_columns": ("n",), "numbers": "decimal(9,2)"}
    columns = (ColumnSpec(name="n", type=LONG),)
    scene = Scene(tmp_path, "a", **settings, columns=columns, dead_letters=DeadLettersSpec(stop_above=1.0))
    for change in ({"n": 0}, {"n": 1, "p": 1e20}, {"n": 2}):
        key, value = json.dumps({"n": change["n"]}).encode(), json.dumps(change).encode()
        scene.source.produce("a", 0, value, scene.clock.now_ms(), key=key)
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert [row["n"] for row in scene.rows("n.a")] == [0, 2]
    assert dead_letter(scene) == (1, "out_of_range", "p")


def test_many_records_that_bring_too_many_columns_stop_the_table_soon(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", limits=LimitsSpec(columns=9))
    scene.feed("a", *({f"f{field}": n for field in range(12)} for n in range(2000)))
    table = only(scene.catch_up())
    assert table.status.run_state is RunState.STOPPED
    assert "columns" in table.status.reason


def test_a_field_that_comes_later_is_kept_out_and_reported_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", flatten=FlattenSpec())
    service = scene.start()
    with capture_logs() as logs:
        for n in range(3):
            scene.feed("a", {"user": {"id": n}}, {"user_id": n})
            for _ in range(20):
                service.turn()
    assert [row["user_id"] for row in scene.rows("n.a")] == [0, 1, 2]
    assert scene.dead_letters("n.a") == [("a", 0, 1), ("a", 0, 3), ("a", 0, 5)]
    reported = [log["change"] for log in logs if log["event"] == "schema_change_refused"]
    (change,) = reported
    assert change.startswith("column user_id: the fields user.id and user_id would share the column user_id: give")


def test_skipped_and_rescued_they_do_not_stop_the_table_either(tmp_path: Path) -> None:
    skipping = Scene(tmp_path / "skip", "a", on_bad_record="skip", metadata={"offset": "_offset"})
    skipping.feed("a", {"n": 1}, {"n": 2, "_offset": 9})
    assert only(skipping.catch_up()).progress.totals.bad_skipped == 1
    assert [row["n"] for row in skipping.rows("n.a")] == [1]
    rescuing = Scene(tmp_path / "rescue", "a", on_bad_record="stop", rescue=True, metadata={"offset": "_offset"})
    rescuing.feed("a", {"n": 1}, {"n": 2, "_offset": 9})
    assert only(rescuing.catch_up()).status.run_state is RunState.WAITING
    _, row = rescuing.rows("n.a")
    assert (row["n"], row["_offset"]) == (2, 1)
    assert json.loads(row["_rescued"])["_offset"]["value"] == 9


def test_a_record_without_a_value_that_identifies_a_row_is_a_dead_letter_and_the_column_stays_required(
    tmp_path: Path,
) -> None:
    scenario = test_schemas.Scenario(tmp_path)
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType(), required=True),
        identifier_field_ids=[1],
    )
    scenario.catalog.create("n.t", schema, {}, 2)
    text = test_schemas.avro(id=["null", "long"], name=["null", "string"])
    number = scenario.register(text)
    scenario.produce(number, text, {"id": 1, "name": "a"}, {"id": None, "name": "b"}, {"id": 3, "name": None})
    service = scenario.start()
    scenario.settle(service)
    (table,) = service.tables
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert scenario.rows() == [{"id": 1, "name": "a"}, {"id": 3, "name": None}]
    (dead_letter,) = scenario.rows("n.t__dead_letters")
    assert (dead_letter["offset"], dead_letter["error_class"], dead_letter["path"]) == (1, "missing_value", "id")


def test_avro_records_with_a_field_that_is_kept_out_are_dead_letters(tmp_path: Path) -> None:
    scenario = test_schemas.Scenario(tmp_path, metadata={"offset": "_offset"})
    plain, other = test_schemas.avro(id="long"), test_schemas.avro(id="long", _offset=["null", "long"])
    one, two = scenario.register(plain), scenario.register(other)
    scenario.produce(one, plain, {"id": 1})
    scenario.produce(two, other, {"id": 2, "_offset": 5}, {"id": 3, "_offset": None})
    scenario.settle()
    assert [(row["id"], row["_offset"]) for row in scenario.rows()] == [(1, 0), (3, 2)]
    (dead_letter,) = scenario.rows("n.t__dead_letters")
    assert (dead_letter["offset"], dead_letter["error_class"], dead_letter["path"]) == (1, "name_conflict", "_offset")


@needs("deadletters")
def test_a_retry_leaves_such_dead_letters_where_they_are_and_takes_the_others(tmp_path: Path) -> None:
    scene = PendingDeadLetters(tmp_path, {"n": "long"}, metadata={"offset": "_offset"})
    scene.feed({"n": 1}, {"n": 2, "_offset": 9}, {"n": "x"})
    assert scene.replayer.replay(scene.table, Selection()) == ReplayResult(replayed=0, remaining=2)
    scene.declare({"n": "long"}, metadata={"offset": "_place"})
    assert scene.replayer.replay(scene.table, Selection()) == ReplayResult(replayed=1, remaining=1)


def clash(*names: str) -> Any:
    """A table that cannot have these fields of the top."""

    def check(requested_fields: RequestedFields) -> None:
        for name in names:
            if name in requested_fields.get((), {}):
                raise NameConflict(f"no {name}")
        new_schema(requested_fields.get((), {}).items())

    return check


def test_what_is_in_the_way_is_found_and_the_rest_granted() -> None:
    requested_fields = {
        (): {"a": parse_type("struct<b: long, c: long>"), "a.b": LONG, "x": LONG, "y": LONG},
        ("l",): {"m": LONG},
    }
    accepted, rejected = accept(requested_fields, clash("y"))
    assert accepted == {(): {"a": requested_fields[()]["a"], "x": LONG}, ("l",): {"m": LONG}}
    assert rejected.keys() == {("a.b",), ("y",)}
    assert rejected["y",] == "no y"


def test_of_a_record_whose_fields_are_all_kept_out_the_record_is() -> None:
    requested_fields: RequestedFields = {
        (): {"a.b": LONG, "a": parse_type("struct<b: long>"), "c.d": LONG, "c": parse_type("struct<d: long, e: long>")}
    }
    accepted, rejected = accept(requested_fields, clash())
    assert rejected.keys() == {("a", "b"), ("c", "d")}
    (left,) = accepted[()]["c"].fields  # type: ignore[attr-defined]
    assert (left.name, left.field_type) == ("e", LONG)


def test_at_most_max_rejected_fields_are_kept_out() -> None:
    names = [f"f{n}" for n in range(MAX_REJECTED + 1)]
    assert len(accept({(): dict.fromkeys(names[:-1], LONG)}, clash(*names))[1]) == MAX_REJECTED
    with pytest.raises(NameConflict):
        accept({(): dict.fromkeys(names, LONG)}, clash(*names))


def test_fields_that_share_a_name_in_every_record_wait_with_the_settings_that_give_each_a_column(
    tmp_path: Path,
) -> None:
    settings = "give the field a column, `columns: {NAME: {type: TYPE, field: -a}}`, or leave the field out with"
    scene = Scene(tmp_path, "a", column_case="snake")
    scene.feed("a", {"a-": 1, "-a": 2})
    assert f"the fields a- and -a would share the column a: {settings}" in only(scene.catch_up()).status.reason
    scene.settings["exclude"] = (("-a",),)
    scene.catch_up()
    assert scene.rows("n.a") == [{"a": 1}]
