"""Names that differ in capitals alone are one column, at every depth and in every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema

from frazil.catalog.layout import Layout
from frazil.column_names import Spellings, fold_case
from frazil.decode.lossless import format_type
from frazil.ingest.tables.state import RunState
from frazil.schema.evolve import NameConflict, extend_schema, new_schema
from frazil.spec.settings import ColumnSpec, DeadLettersSpec, EnvelopeSpec, FlattenSpec, ValueSpec
from frazil.spec.syntax.forms import parse_path
from frazil.spec.syntax.types import parse_type
from frazil_testing.twins import live_rows
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.tables.test_schemas import Scenario, avro
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario

LONG, STRING = parse_type("long"), parse_type("string")


def columns_of(scene: Scene | Scenario, table: str = "n.a") -> dict[str, str]:
    """The columns of a table with their types."""
    state = scene.catalog.load(table)
    assert state is not None
    return {field.name: format_type(field.field_type) for field in state.schema.fields}


def dead_letters_of(scene: Scene | Scenario, table: str = "n.a") -> list[tuple[int, str, str, str]]:
    """Offset, class, path and reason of each dead letter."""
    if scene.catalog.load(f"{table}__dead_letters") is None:
        return []
    rows = live_rows(scene.catalog, f"{table}__dead_letters")
    return sorted((row["offset"], row["error_class"], row["path"], row["message"]) for row in rows)


def make(scene: Scene | Scenario, table: str = "n.a", **columns: str) -> None:
    """A table that somebody else has made."""
    schema = Schema(
        *(
            field.model_copy(update={"name": name, "field_id": n, "field_type": parse_type(word)})
            for n, (name, word) in enumerate(columns.items(), 1)
            for field in new_schema([("x", LONG)]).fields
        )
    )
    scene.catalog.create(table, schema, {}, 2, Layout(None, None))


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("id", "ID", True),
        ("id", "iD", True),
        ("user_id", "userid", False),
        ("Straße", "STRASSE", False),
        ("ÄRGER", "ärger", True),
        ("σ", "ς", True),
        ("", "", True),
    ],
)
def test_names_are_folded_as_engines_fold_them(one: str, other: str, are_one: bool) -> None:
    assert (fold_case(one) == fold_case(other)) is are_one


def test_a_name_stands_for_itself_or_for_the_only_other_spelling() -> None:
    names = Spellings(["id", "ID", "Name"])
    assert [names.find(name) for name in ("id", "ID", "Id", "name", "x")] == ["id", "ID", None, "Name", None]
    assert names.others("Id") == ["id", "ID"]


RECORDS: list[dict[str, Any]] = [
    {"id": 1, "item": {"matnr": "a"}, "rows": [{"k": 1}], "m": {"x": {"n": 1}}},
    {"ID": 2, "Item": {"MATNR": "b"}, "ROWS": [{"K": 2}, {"k": 3}], "M": {"X": {"N": 2}}},
    {"iD": 3, "item": {"Matnr": "c", "menge": 1}, "rows": [{"K": 4}], "m": {"x": {"N": 3}}},
]
ROWS: list[dict[str, Any]] = [
    {"id": 1, "item": {"matnr": "a", "menge": None}, "rows": [{"k": 1}], "m": {"x": {"n": 1}}},
    {"id": 2, "item": {"matnr": "b", "menge": None}, "rows": [{"k": 2}, {"k": 3}], "m": {"x": {"n": 2}}},
    {"id": 3, "item": {"matnr": "c", "menge": 1}, "rows": [{"k": 4}], "m": {"x": {"n": 3}}},
]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("settings", [{}, {"exclude": (("zz",),)}, {"column_case": "lower"}])
def test_json_fields_that_differ_in_capitals_alone_share_a_column(
    tmp_path: Path, together: bool, settings: dict[str, Any]
) -> None:
    scene = Scene(tmp_path, "a", **settings)
    for lot in [RECORDS] if together else [[record] for record in RECORDS]:
        scene.feed("a", *lot)
        assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert columns_of(scene) == {
        "id": "long",
        "item": "struct<matnr: string, menge: long>",
        "rows": "list<struct<k: long>>",
        "m": "struct<x: struct<n: long>>",
    }
    rows = [{**row, "item": {k: v for k, v in row["item"].items() if v is not None}} for row in scene.rows("n.a")]
    wanted = [{**row, "item": {k: v for k, v in row["item"].items() if v is not None}} for row in ROWS]
    assert rows == wanted


def test_members_of_declared_maps_and_lists_are_matched_too(tmp_path: Path) -> None:
    declared = (ColumnSpec(name="m", type=parse_type("map<string, struct<a: long>>")),)
    scene = Scene(tmp_path, "a", columns=declared)
    scene.feed("a", {"M": {"k": {"A": 1}, "K": {"a": 2}}}, {"m": {"k": {"a": 3, "A": 4}}}, {"m": {}})
    only(scene.catch_up())
    assert [row["m"] for row in scene.rows("n.a")] == [[("k", {"a": 1}), ("K", {"a": 2})], []]
    [(offset, kind, path, _)] = dead_letters_of(scene)
    assert (offset, kind, path) == (1, "name_conflict", "m.value.A")


BOTH: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"id": 1, "ID": "x"}, "ID", {"id": 1, "second": "x"}),
    ({"o": {"a": 1, "A": "x"}}, "o.A", {"o": {"a": 1}, "second": "x"}),
]


@pytest.mark.parametrize(("record", "path", "row"), BOTH)
def test_a_record_with_both_is_refused_and_the_remedies_work(
    tmp_path: Path, record: dict[str, Any], path: str, row: dict[str, Any]
) -> None:
    first = {"o": {"a": 0}} if "o" in record else {"id": 0}
    scene = Scene(tmp_path, "a")
    scene.feed("a", first, record)
    only(scene.catch_up())
    assert (len(scene.rows("n.a")), list(columns_of(scene))) == (1, list(first))
    [(offset, kind, where, reason)] = dead_letters_of(scene)
    assert (offset, kind, where) == (1, "name_conflict", path)
    assert f"`columns: {{NAME: {{type: TYPE, field: {path}}}}}`" in reason
    assert f"`exclude: [{path}]`" in reason

    scene.settings = {"columns": (ColumnSpec(name="second", type=STRING, field=parse_path(path)),)}
    scene.feed("a", record)
    only(scene.catch_up())
    assert scene.rows("n.a")[-1] == row

    assert f"declare the column of `{path.lower()}` under `columns`" in reason
    kept = (
        ColumnSpec(name="id", type=LONG) if path == "ID" else ColumnSpec(name="o", type=parse_type("struct<a: long>"))
    )
    scene.settings = {"exclude": (parse_path(path),), "columns": (kept,)}
    scene.feed("a", record)
    only(scene.catch_up())
    assert {name: value for name, value in scene.rows("n.a")[-1].items() if name != "second"} == {
        name: value for name, value in row.items() if name != "second"
    }
    assert len(dead_letters_of(scene)) == 1


SHAPED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"column_case": "lower"}, "userId", "USERID", "userid"),
    ({"column_case": "snake"}, "userId", "USERID", "user_id"),
    ({"column_case": "snake", "columns": (ColumnSpec(name="userId", type=LONG),)}, "userId", "USERID", "userId"),
    ({"flatten": FlattenSpec()}, "user.id", "user.ID", "user_id"),
    ({"flatten": FlattenSpec(), "column_case": "snake"}, "user.lineNo", "user.LINENO", "user_line_no"),
]


def _record(**members: int) -> dict[str, Any]:
    """The members by their paths, all in one struct or in none."""
    inner = {path.rpartition(".")[2]: value for path, value in members.items()}
    around = next(iter(members)).rpartition(".")[0]
    return {around: inner} if around else inner


@pytest.mark.parametrize(("settings", "path", "other", "column"), SHAPED)
@pytest.mark.parametrize("kind", [None, "debezium"])
def test_the_remedy_keeps_the_field_whose_column_has_another_name(
    tmp_path: Path, settings: dict[str, Any], path: str, other: str, column: str, kind: str | None
) -> None:
    def feed(scene: Scene, *records: dict[str, Any]) -> list[int]:
        """Returns the values of the column after the records were read."""
        scene.feed("a", *({"op": "c", "before": None, "after": one} if kind else one for one in records))
        only(scene.catch_up())
        return [row[column] for row in scene.rows("n.a")]

    if kind:
        settings = {**settings, "envelope": EnvelopeSpec.model_validate({"kind": kind})}
    one, both = _record(**{path: 1}), _record(**{path: 2, other: 9})
    scene = Scene(tmp_path / "old", "a", **settings)
    assert feed(scene, one, both) == [1]
    [(*_, reason)] = dead_letters_of(scene)
    assert f"`exclude: [{other}]`, and declare the column of `{path}` under `columns`" in reason
    declared = ColumnSpec(name=column, type=LONG)
    scene.settings = {**settings, "exclude": (parse_path(other),), "columns": (declared,)}
    assert feed(scene, both, one) == [1, 2, 1]
    # A new table, whose columns no field feeds yet.
    assert feed(Scene(tmp_path / "new", "a", **scene.settings), both, one) == [2, 1]


def test_such_a_record_has_no_say_in_what_the_table_becomes(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1, "ID": 2, "z": 1}, {"id": "text"})
    only(scene.catch_up())
    assert (columns_of(scene), scene.rows("n.a")) == ({"id": "string"}, [{"id": "text"}])


def test_a_null_beside_a_value_is_no_second_value(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"ID": None, "id": 1}, {"ID": 2, "id": None})
    only(scene.catch_up())
    assert scene.rows("n.a") == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("unknown", ["drop", "rescue"])
def test_a_table_that_takes_no_new_fields_takes_other_spellings_of_its_own(tmp_path: Path, unknown: str) -> None:
    scene = Scene(tmp_path, "a", columns=(ColumnSpec(name="id", type=LONG),), unknown_fields=unknown)
    scene.feed("a", {"ID": 1}, {"id": 2, "ID": 3, "x": 4})
    only(scene.catch_up())
    rows = scene.rows("n.a")
    assert [row["id"] for row in rows] == [1, 2]
    if unknown == "rescue":
        assert rows[0]["_rescued"] is None
        assert json.loads(rows[1]["_rescued"]).keys() == {"ID", "x"}


def test_an_existing_table_with_both_still_works_and_a_third_spelling_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    make(scene, id="long", ID="string", s="struct<k: long, K: string>")
    scene.feed(
        "a", {"id": 1, "ID": "x", "s": {"k": 1, "K": "y"}}, {"Id": 2}, {"ID": "z", "new": True}, {"s": {"K": "w"}}
    )
    only(scene.catch_up())
    found = [{name: value for name, value in row.items() if value is not None} for row in scene.rows("n.a")]
    assert found == [
        {"id": 1, "ID": "x", "s": {"k": 1, "K": "y"}},
        {"ID": "z", "new": True},
        {"s": {"k": None, "K": "w"}},
    ]
    [(offset, kind, path, reason)] = dead_letters_of(scene)
    assert (offset, kind, path) == (1, "name_conflict", "Id")
    assert "differs from `id` and `ID` only in letter case" in reason


def test_the_column_of_somebody_else_takes_the_field(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    make(scene, userid="long")
    scene.feed("a", {"userId": 1, "Other": 2})
    only(scene.catch_up())
    assert scene.rows("n.a") == [{"userid": 1, "Other": 2}]


def test_a_metadata_column_is_no_column_for_a_field_in_whatever_capitals(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", metadata={"offset": "_offset"})
    scene.feed("a", {"n": 1}, {"n": 2, "_OFFSET": 3})
    only(scene.catch_up())
    assert scene.rows("n.a") == [{"n": 1, "_offset": 0}]
    assert [dead_letter[:3] for dead_letter in dead_letters_of(scene)] == [(1, "name_conflict", "_OFFSET")]


def test_no_change_makes_two_columns_that_differ_in_capitals_alone() -> None:
    both = new_schema([("id", LONG)])
    with pytest.raises(NameConflict, match="Id differs from `id` and `ID` only in letter case"):
        extend_schema(_with_both(both), {(): {"Id": LONG}})


def _with_both(schema: Schema) -> Schema:
    first = schema.fields[0]
    return Schema(first, first.model_copy(update={"name": "ID", "field_id": 2}))


def test_the_case_of_columns_holds_for_members_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", column_case="snake")
    scene.feed("a", {"userInfo": {"firstName": "a"}, "lineItems": [{"itemId": 1}]})
    only(scene.catch_up())
    scene.feed(
        "a", {"userInfo": {"firstName": "b", "lastName": "c"}, "lineItems": [{"itemId": 2, "deepOne": {"aB": 1}}]}
    )
    only(scene.catch_up())
    assert columns_of(scene) == {
        "user_info": "struct<first_name: string, last_name: string>",
        "line_items": "list<struct<item_id: long, deep_one: struct<a_b: long>>>",
    }
    assert scene.rows("n.a") == [
        {"user_info": {"first_name": "a"}, "line_items": [{"item_id": 1}]},
        {
            "user_info": {"first_name": "b", "last_name": "c"},
            "line_items": [{"item_id": 2, "deep_one": {"a_b": 1}}],
        },
    ]


def test_members_that_would_share_a_name_in_the_case_of_columns_are_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", column_case="snake")
    scene.feed("a", {"o": {"userId": 1}}, {"o": {"user_id": 2}}, {"o": {"userId": 3}})
    only(scene.catch_up())
    assert [row["o"] for row in scene.rows("n.a")] == [{"user_id": 1}, {"user_id": 3}]
    assert [dead_letter[:3] for dead_letter in dead_letters_of(scene)] == [(1, "name_conflict", "o.user_id")]


def test_members_that_are_there_under_their_own_names_keep_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"o": {"userId": 1}})
    only(scene.catch_up())
    scene.settings = {"column_case": "snake"}
    scene.feed("a", {"o": {"userId": 2, "newOne": 3}})
    only(scene.catch_up())
    assert scene.rows("n.a")[-1] == {"o": {"userId": 2, "new_one": 3}}


def test_avro_fields_that_differ_in_capitals_alone_share_a_column(tmp_path: Path) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "matnr", "type": "int"}]}
    upper = {"type": "record", "name": "I", "fields": [{"name": "MATNR", "type": "long"}]}
    one = avro(id="int", item=inner, rows={"type": "array", "items": "I"}, m={"type": "map", "values": "I"})
    two = avro(ID="long", Item=upper, ROWS={"type": "array", "items": "I"}, M={"type": "map", "values": "I"})
    scenario = Scenario(tmp_path)
    first, second = scenario.register(one), scenario.register(two)
    scenario.produce(first, one, {"id": 1, "item": {"matnr": 1}, "rows": [{"matnr": 2}], "m": {"a": {"matnr": 3}}})
    scenario.settle()
    scenario.produce(second, two, {"ID": 4, "Item": {"MATNR": 5}, "ROWS": [{"MATNR": 6}], "M": {"A": {"MATNR": 7}}})
    scenario.service = scenario.start()
    scenario.settle()
    assert columns_of(scenario, "n.t") == {
        "id": "long",
        "item": "struct<matnr: long>",
        "rows": "list<struct<matnr: long>>",
        "m": "map<string, struct<matnr: long>>",
    }
    assert scenario.rows() == [
        {"id": 1, "item": {"matnr": 1}, "rows": [{"matnr": 2}], "m": [("a", {"matnr": 3})]},
        {"id": 4, "item": {"matnr": 5}, "rows": [{"matnr": 6}], "m": [("A", {"matnr": 7})]},
    ]


def test_an_avro_schema_with_both_loses_no_value(tmp_path: Path) -> None:
    text = avro(id=["null", "int"], ID=["null", "long"])
    scenario = Scenario(tmp_path)
    scenario.produce(scenario.register(text), text, {"id": 1, "ID": None}, {"id": None, "ID": 2}, {"id": 3, "ID": 4})
    scenario.settle()
    assert scenario.rows() == [{"id": 1}, {"id": 2}]
    [(offset, kind, path, reason)] = dead_letters_of(scenario, "n.t")
    assert (offset, kind, path) == (2, "name_conflict", "ID")
    assert "`exclude: [ID]`" in reason


@pytest.mark.parametrize("settings", [{}, {"key_columns": ("id",)}])
def test_keys_of_records_may_write_their_columns_in_other_capitals(tmp_path: Path, settings: dict[str, Any]) -> None:
    declared = (ColumnSpec(name="id", type=LONG),)
    scenario = UpsertScenario(tmp_path, 1, key=JSON_KEYS, columns=declared, **settings)
    scenario.tell(('{"ID":1}', {"id": 1, "v": "a"}), ('{"ID":2}', {"ID": 2, "v": "a"}))
    scenario.tell(('{"ID":1}', {"ID": 1, "v": "b"}), ('{"ID":2}', None))
    assert scenario.upsert_table() == [{"id": 1, "v": "b"}]


@pytest.mark.parametrize("others", [{"ID": 2}, {"id": 2, "N": 1}, {f"x{n}": n for n in range(300)}])
def test_what_is_left_out_of_a_record_reports_the_same_of_it_beside_any_other(tmp_path: Path, others: Any) -> None:
    """A field that is left out may be there twice, whatever other records of the batch have."""
    scene = Scene(tmp_path, "a", unknown_fields="drop")
    make(scene, id="long", n="long")
    scene.feed("a", b'{"id": 1, "more": 1, "more": [2], "n": 5}', others, {"ID": 3, "more": 1})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert dead_letters_of(scene) == []
    assert [row["n"] for row in scene.rows("n.a") if row["id"] == 1] == [5]
    assert 3 in [row["id"] for row in scene.rows("n.a")]


@pytest.mark.parametrize(
    ("settings", "record", "column"),
    [
        ({"column_case": "lower"}, {"fooBar": 1}, "fooBar"),
        ({"column_case": "lower"}, {"FOOBAR": 1}, "FooBar"),
        ({"column_case": "snake"}, {"fooBar": 1}, "FOO_BAR"),
        ({"column_case": "camel"}, {"foo_bar": 1}, "foobar"),
        ({"column_case": "snake"}, {"fooBar": 1}, "fooBar"),
        ({"column_case": "snake"}, {"fooBar": 1}, "FOOBAR"),
        ({"column_case": "camel"}, {"foo_bar": 1}, "foo_bar"),
        ({"flatten": FlattenSpec()}, {"foo": {"bar": 1}}, "Foo_Bar"),
        ({"flatten": FlattenSpec(), "column_case": "snake"}, {"foo": {"barBaz": 1}}, "foo_barBaz"),
        ({"flatten": FlattenSpec(), "column_case": "lower"}, {"Foo": {"Bar": 1}}, "FOO_BAR"),
    ],
)
@pytest.mark.parametrize("is_declared", [True, False])
def test_a_name_that_is_made_finds_its_column_in_whatever_case(
    tmp_path: Path, settings: dict[str, Any], record: dict[str, Any], column: str, is_declared: bool
) -> None:
    """A setting that makes names may be switched on for an existing table."""
    declared = (ColumnSpec(name=column, type=LONG),) if is_declared else ()
    scene = Scene(tmp_path, "a", columns=declared, **settings)
    if not is_declared:
        make(scene, **{column: "long"})
    for _ in range(2):
        scene.feed("a", record)
        table = only(scene.catch_up())
        assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert columns_of(scene) == {column: "long"}
    assert scene.rows("n.a") == [{column: 1}] * 2


def test_a_field_whose_name_is_declared_feeds_that_column_beside_a_converted_name(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", column_case="snake", columns=(ColumnSpec(name="fooBar", type=LONG),))
    scene.feed("a", {"foo_bar": 1}, {"fooBar": 2})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert scene.rows("n.a") == [{"fooBar": None, "foo_bar": 1}, {"fooBar": 2, "foo_bar": None}]
    assert dead_letters_of(scene) == []


@pytest.mark.parametrize(
    ("first", "key"),
    [
        *((first, b'{"": 1}') for first in (b'{"a": 1}', None)),
        (b'{"a": {"b": 1}}', b'{"a.b": 1}'),
        (b'{"a": 1}', b'{"a": 1, "A": 2}'),
        (None, b'{"b": 1, "B": 2}'),
        *((first, b'{"%s": 1}' % (b"n" * 300)) for first in (b'{"a": 1}', None)),
    ],
)
def test_a_name_in_a_key_that_no_column_can_have_refuses_its_record_alone(
    tmp_path: Path, first: bytes | None, key: bytes
) -> None:
    metadata, json_keys = {"key": "_key"}, ValueSpec(format="json")
    scene = Scene(tmp_path, "a", key=json_keys, metadata=metadata, dead_letters=DeadLettersSpec(stop_above=1.0))
    for one in (first, key, b'{"a": {"b": 2}}' if b"." in key else b'{"a": 2}'):
        if one is not None:
            scene.source.produce("a", 0, b'{"id": 1}', scene.clock.now_ms(), key=one)
            assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert [row["_key"]["a"] for row in scene.rows("n.a")][-1] in (2, {"b": 2})
    [(_, kind, _, reason)] = dead_letters_of(scene)
    assert kind == ("name_too_long" if len(key) > 300 else "name_conflict")
    assert reason.endswith("keep the keys as text in another column, `key: {format: text}` and `metadata: {key: NAME}`")
    scene.settings |= {"key": ValueSpec(format="text"), "metadata": {"key": "key_text"}}
    scene.source.produce("a", 0, b'{"id": 1}', scene.clock.now_ms(), key=key)
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert scene.rows("n.a")[-1]["key_text"] == key.decode()


def test_a_made_name_that_two_columns_may_mean_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", column_case="lower")
    make(scene, FooBar="long", FOOBAR="long", n="long")
    scene.feed("a", {"fooBar": 1, "n": 1}, {"n": 2})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert scene.rows("n.a") == [{"FooBar": None, "FOOBAR": None, "n": 2}]
    assert [dead_letter[1] for dead_letter in dead_letters_of(scene)] == ["name_conflict"]


_OPERATIONS = EnvelopeSpec(kind="operation", operation="op", insert=("I",), update=("U",), delete=("D",))


@pytest.mark.parametrize("key", ["id", "ID", "Id"])
@pytest.mark.parametrize("declared", [(), (ColumnSpec(name="iD", type=LONG),)])
def test_key_and_order_columns_may_be_written_in_other_capitals(
    tmp_path: Path, key: str, declared: tuple[ColumnSpec, ...]
) -> None:
    scene = Scene(
        tmp_path,
        "a",
        mode="upsert",
        format_version=3,
        key_columns=(key,),
        order_by="TS",
        columns=declared,
        envelope=_OPERATIONS,
    )
    scene.feed("a", {"ID": 1, "ts": 5, "v": "a", "op": "I"}, {"ID": 2, "ts": 5, "v": "a", "op": "I"})
    only(scene.catch_up())
    scene.feed("a", {"id": 1, "Ts": 4, "v": "late", "op": "U"}, {"Id": 2, "ts": 6, "op": "D"})
    only(scene.catch_up())
    column = declared[0].name if declared else "ID"
    assert dead_letters_of(scene) == []
    assert scene.rows("n.a") == [{column: 1, "ts": 5, "v": "a"}]


def test_a_key_column_inside_a_struct_may_be_written_in_other_capitals(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", mode="upsert", format_version=3, key_columns=("Doc.Id",), envelope=_OPERATIONS)
    scene.feed("a", {"doc": {"id": 1}, "v": 1, "op": "I"}, {"doc": {"id": 1}, "v": 2, "op": "U"})
    only(scene.catch_up())
    assert (dead_letters_of(scene), scene.rows("n.a")) == ([], [{"doc": {"id": 1}, "v": 2}])


@pytest.mark.parametrize(
    ("settings", "record", "field", "column"),
    [
        ({"column_case": "snake"}, {"orderId": 1}, "orderId", "order_id"),
        ({"flatten": FlattenSpec()}, {"doc": {"id": 1}}, "doc.id", "doc_id"),
    ],
)
def test_a_key_named_by_its_field_is_told_its_column(
    tmp_path: Path, settings: dict[str, Any], record: dict[str, Any], field: str, column: str
) -> None:
    upsert = {"mode": "upsert", "format_version": 3, "envelope": _OPERATIONS, **settings}
    scene = Scene(tmp_path, "a", key_columns=(field,), **upsert)
    scene.feed("a", {**record, "op": "I"})
    only(scene.catch_up())
    assert [dead_letter[3] for dead_letter in dead_letters_of(scene)] == [
        f"the table has no key column {field}: write `{column}` under `key_columns`, the column of that field"
    ]
    scene.settings = {**scene.settings, "key_columns": (column,)}
    scene.feed("a", {**record, "op": "I"})
    only(scene.catch_up())
    assert scene.rows("n.a") == [{column: 1}]
