"""A pipeline file that is changed between two runs: what its tables continue with."""

from __future__ import annotations

from pathlib import Path

from frazil.ingest.tables.state import RunState
from frazil.spec import TopicSelector
from frazil.spec.settings import DeadLettersSpec
from frazil_testing.memory_catalog import MemoryCatalog
from tests.unit.ingest.service_scene import Scene


def test_a_table_that_leaves_the_file_stays_and_continues_when_it_returns(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    scene.feed("a", {"id": 1})
    scene.feed("b", {"id": 1})
    scene.catch_up()
    scene.feed("a", {"id": 2})
    scene.feed("b", {"id": 2})
    scene.catch_up("b")
    assert (scene.rows("n.a"), scene.rows("n.b")) == ([{"id": 1}], [{"id": 1}, {"id": 2}])
    scene.catch_up()
    assert scene.rows("n.a") == [{"id": 1}, {"id": 2}]


def test_another_topic_is_read_from_its_beginning_and_the_former_one_continues_when_it_returns(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.source.create("other")
    scene.feed("a", {"id": 1})
    scene.feed("other", {"id": 10}, {"id": 11})
    scene.catch_up()
    scene.settings = {"topics": (TopicSelector(literal="other"),)}
    scene.feed("a", {"id": 2})
    scene.catch_up()
    assert scene.rows("n.a") == [{"id": 1}, {"id": 10}, {"id": 11}]
    scene.settings = {}
    scene.catch_up()
    assert [row["id"] for row in scene.rows("n.a")] == [1, 10, 11, 2]


def renamed(root: Path) -> Scene:
    """A table `n.a` with a dead letter that has become `n.renamed`, and new records of its topic."""
    scene = Scene(root, "a")
    scene.feed("a", {"id": 1}, b"{")
    scene.catch_up()
    scene.catalog._tables["n.renamed"] = scene.catalog._tables.pop("n.a")
    scene.settings = {"name": "n.renamed"}
    scene.feed("a", {"id": 2}, b"[")
    return scene


def test_a_renamed_table_continues_and_keeps_a_dead_letter_table_that_the_file_names(tmp_path: Path) -> None:
    scene = renamed(tmp_path)
    scene.settings["dead_letters"] = DeadLettersSpec(table="n.a__dead_letters")
    scene.catch_up()
    assert scene.rows("n.renamed") == [{"id": 1}, {"id": 2}]
    assert scene.dead_letters("n.a") == [("a", 0, 1), ("a", 0, 3)]
    assert set(scene.catalog._tables) == {"n.renamed", "n.a__dead_letters"}


def test_a_renamed_table_gets_another_dead_letter_table_where_the_file_names_none(tmp_path: Path) -> None:
    scene = renamed(tmp_path)
    scene.catch_up()
    assert scene.rows("n.renamed") == [{"id": 1}, {"id": 2}]
    assert (scene.dead_letters("n.a"), scene.dead_letters("n.renamed")) == ([("a", 0, 1)], [("a", 0, 3)])


def test_a_dead_letter_table_that_is_renamed_too_stops_the_table_while_it_has_pending_dead_letters(
    tmp_path: Path,
) -> None:
    scene = renamed(tmp_path)
    tables = scene.catalog._tables
    tables["n.renamed__dead_letters"] = tables.pop("n.a__dead_letters")
    (table,) = scene.catch_up()
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason.startswith("the dead-letter table n.a__dead_letters no longer exists")


def test_a_pipeline_with_another_name_has_no_progress_in_the_tables(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1})
    scene.catch_up()
    tables = scene.catalog._tables
    scene.catalog = MemoryCatalog(tmp_path, "renamed")
    scene.catalog._tables = tables
    scene.catch_up()
    assert scene.rows("n.a") == [{"id": 1}, {"id": 1}]
