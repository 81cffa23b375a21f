"""The status of a pipeline that is not running, and has left records unread."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from frazil.ops.pipeline_status import ProcessState
from tests.unit.ops.test_status import NEVER_RUN, SCHEMA, Scene, reported, text_of

AWAY = {
    "state": "backing off",
    "reason": "the catalog: refused",
    "remedy": "check that it runs; Frazil retries with back-off",
    "where": "http://catalog",
}


def ended(table: dict[str, Any]) -> ProcessState:
    """A state file of a process that has ended."""
    return reported(table, ended=True)


@pytest.mark.parametrize(
    "left", [NEVER_RUN, ended({"state": "running"}), ended({"state": "waiting", "committed": False})]
)
def test_a_table_that_no_run_has_committed_to_is_not_well(tmp_path: Path, left: ProcessState) -> None:
    scene = Scene(tmp_path, committed=0)
    found = scene.table(left)
    assert not scene.report(left).is_well
    assert (found["state"], found["ok"], found["committed"], found["lag_records"]) == ("not running", False, False, 10)
    assert (found["reason"], found["where"]) == ("no run has committed to the table yet", "s.a")
    text = text_of(scene.report(left))
    assert re.search(r"s\.a +not running +10 +– +never", text)
    assert "problem: s.a: no run has committed to the table yet\n  where: s.a\n  remedy: start `frazil run`" in text


def test_a_table_that_was_created_and_never_committed_to_is_not_well(tmp_path: Path) -> None:
    scene = Scene(tmp_path, committed=0)
    scene.catalog.create("s.a", SCHEMA, {}, 2)
    assert (scene.table()["ok"], scene.table()["committed"]) == (False, False)


def test_a_table_without_records_needs_no_commit(tmp_path: Path) -> None:
    scene = Scene(tmp_path, committed=0)
    scene.source.create("a")
    assert (scene.table()["ok"], scene.table()["committed"], scene.report().is_well) == (True, False, True)
    assert re.search(r"s\.a +not running +0 +– +never", text_of(scene.report()))


def test_a_table_that_a_running_process_is_about_to_commit_to_is_well(tmp_path: Path) -> None:
    scene = Scene(tmp_path, committed=0)
    assert scene.report(reported({"state": "running"})).is_well


def test_records_that_only_wait_for_the_next_run_are_well(tmp_path: Path) -> None:
    scene = Scene(tmp_path, committed=7)
    assert (scene.table()["lag_records"], scene.report(ended({"state": "waiting"})).is_well) == (3, True)


@pytest.mark.parametrize("committed", [0, 7])
def test_why_the_last_run_could_not_read_them_is_shown(tmp_path: Path, committed: int) -> None:
    scene = Scene(tmp_path, committed=committed)
    found = scene.table(ended(AWAY))
    assert (found["state"], found["ok"]) == ("not running", False)
    assert found["reason"] == "the last run ended while the table was backing off: the catalog: refused"
    assert (found["remedy"], found["where"]) == ("check that it runs", "http://catalog")


def test_an_outage_that_left_nothing_unread_is_over(tmp_path: Path) -> None:
    assert Scene(tmp_path).report(ended(AWAY)).is_well
