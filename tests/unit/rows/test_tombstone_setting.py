"""The setting `tombstones`: records without a value are counted alone, dead letters, or rows, as it has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.tables.state import RunState
from frazil.spec.settings import ColumnSpec, EnvelopeSpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene, only, turn_until
from tests.unit.upsert.test_upsert_service import UpsertScenario
from tests.unit.upsert.upsert_source import UpsertSource, changed, gone, made, tombstone

JSON_KEYS = ValueSpec(format="json")
X = ColumnSpec(name="x", type=parse_type("long"))
DEBEZIUM = EnvelopeSpec(kind="debezium")


def values(count: int) -> list[Any]:
    """Rows, each with a tombstone behind it, in both of its spellings."""
    return [value for n in range(count) for value in ({"x": n}, None if n % 2 else b"null")]


@pytest.mark.parametrize(("word", "rows"), [("ignore", 60), ("row", 120 - 49)])
def test_an_append_table_reports_what_to_write_where_too_many_records_have_no_value(
    tmp_path: Path, word: str, rows: int
) -> None:
    scene = Scene(tmp_path, "a", columns=(X,))
    scene.feed("a", *[value for n in range(60) for value in ({"x": n}, None)])
    service = scene.start()
    table = only(service.tables)
    assert turn_until(service, lambda: table.status.run_state is RunState.STOPPED)
    assert (table.status.where, table.status.remedy) == (
        "topic a, partition 0, offset 99",
        "write `tombstones: ignore` where records without a value are expected, `tombstones: row` to keep them as rows,"
        " or `mode: upsert` where they delete rows",
    )
    scene.settings["tombstones"] = word
    scene.catch_up()
    assert (len(scene.rows("n.a")), len(scene.dead_letters("n.a"))) == (rows, 49)  # Those of the first piece.


@pytest.mark.parametrize("kind", ["json", "text", "raw"])
def test_ignored_tombstones_of_an_append_table_are_counted_in_its_progress(tmp_path: Path, kind: str) -> None:
    scene = Scene(tmp_path, "a", tombstones="ignore", value=ValueSpec(format=kind))
    scene.feed("a", *[value for n in range(60) for value in ({"x": n}, None)])
    table = only(scene.catch_up())
    assert (len(scene.rows("n.a")), dict(table.progress.totals.ignored_records)) == (60, {"tombstone": 60})
    assert (table.progress.offsets, scene.catalog.load("n.a__dead_letters")) == ({"a": {0: 120}}, None)


def test_tombstones_alone_bring_an_ignoring_table_to_the_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", tombstones="ignore", columns=(X,))
    scene.feed("a", *[None] * 150)
    table = only(scene.catch_up())
    assert (table.progress.offsets, dict(table.progress.totals.ignored_records)) == (
        {"a": {0: 150}},
        {"tombstone": 150},
    )


def test_a_tombstone_becomes_a_row_with_what_is_known_of_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", tombstones="row", columns=(X,), metadata={"offset": "at"})
    scene.feed("a", *values(2))
    scene.catch_up()
    assert sorted(scene.rows("n.a"), key=lambda row: row["at"]) == [
        {"x": 0, "at": 0}, {"x": None, "at": 1}, {"x": 1, "at": 2}, {"x": None, "at": 3},
    ]  # fmt: skip


def test_a_required_column_becomes_optional_for_the_row_of_a_tombstone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", tombstones="row", columns=(X,))
    scene.feed("a", {"x": 1})
    scene.catch_up()
    scene.catalog.evolve("n.a", _require_x)
    scene.feed("a", None)
    scene.catch_up()
    assert sorted(str(row["x"]) for row in scene.rows("n.a")) == ["1", "None"]


def _require_x(schema: Any) -> Any:
    fields = [field.model_copy(update={"required": True}) for field in schema.fields]
    return schema.model_copy(update={"fields": tuple(fields)})


def test_a_flattened_row_of_a_tombstone_has_its_constants_and_its_key(tmp_path: Path) -> None:
    site = ColumnSpec(name="site", type=parse_type("string"), constant="north")
    scene = Scene(
        tmp_path, "a", tombstones="row", columns=(X, site), key=ValueSpec(format="text"), metadata={"key": "k"}
    )
    scene.source.produce("a", 0, b'{"x": 1}', scene.clock.now_ms(), key=b"one")
    scene.source.produce("a", 0, None, scene.clock.now_ms(), key=b"two")
    scene.catch_up()
    assert sorted(scene.rows("n.a"), key=lambda row: str(row["k"])) == [
        {"x": 1, "site": "north", "k": "one"}, {"x": None, "site": "north", "k": "two"},
    ]  # fmt: skip


def test_an_upsert_table_that_ignores_tombstones_keeps_the_rows_and_counts_them(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, 1, key=JSON_KEYS, tombstones="ignore")
    for key, value in ((1, {"v": "a"}), (2, {"v": "b"}), (1, None), (3, None)):
        scenario.put(json.dumps({"id": key}), None if value is None else {"id": key, **value})
    table = scenario.catch_up()
    assert sorted(row["id"] for row in scenario.upsert_table()) == [1, 2]
    assert dict(table.progress.totals.ignored_records) == {"tombstone": 2}


def test_an_upsert_table_makes_dead_letters_of_tombstones_where_it_reports_it(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, 1, key=JSON_KEYS, tombstones="dead_letter", dead_letters={"stop_above": 1.0})
    for key, value in ((1, {"v": "a"}), (1, None), (2, {"v": "b"})):
        scenario.put(json.dumps({"id": key}), None if value is None else {"id": key, **value})
    scenario.catch_up()
    assert sorted(row["id"] for row in scenario.upsert_table()) == [1, 2]
    assert [reason for _, reason in scenario.dead_letters()] == [
        "the record has no value (a tombstone), and `tombstones` of the table is dead_letter"
    ]


@pytest.mark.parametrize("word", ["ignore", "dead_letter"])
def test_the_tombstone_behind_a_delete_of_debezium_is_what_the_file_reports(tmp_path: Path, word: str) -> None:
    scenario = UpsertSource(tmp_path, tombstones=word)
    table = scenario.say(made({"id": 1, "v": "a"}), made({"id": 2, "v": "b"}), gone(1), tombstone(1), tombstone(2))
    assert scenario.by_id() == [{"id": 2, "v": "b"}]
    assert dict(table.progress.totals.ignored_records) == ({"tombstone": 2} if word == "ignore" else {})
    assert len(scenario.dead_letters()) == (0 if word == "ignore" else 2)
    table = scenario.say(changed({"id": 2, "v": "c"}), tombstone(1))
    assert scenario.by_id() == [{"id": 2, "v": "c"}]


def test_a_changelog_makes_dead_letters_of_tombstones_where_it_reports_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", envelope=DEBEZIUM, tombstones="dead_letter")
    scene.feed("a", made({"id": 1, "v": "a"})[1], None, gone(1)[1], None)
    scene.catch_up()
    assert scene.dead_letters("n.a") == [("a", 0, 1), ("a", 0, 3)]
