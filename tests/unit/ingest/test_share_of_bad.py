"""How many bad records a table bears before it stops, and that those which are skipped are counted in its commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec.settings import ColumnSpec, DeadLettersSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene, only

X = ColumnSpec(name="x", type=parse_type("long"))


def a_scene(root: Path, **settings: Any) -> Scene:
    return Scene(root, "a", columns=(X,), **settings)


def feed(scene: Scene, good: int, bad: int) -> None:
    """So many of each, the bad ones last."""
    scene.feed("a", *({"x": n} for n in range(good)), *({"x": f"bad {n}"} for n in range(bad)))


def go(service: Service) -> Table:
    """A few commits' time later."""
    for _ in range(120):
        service.turn()
    return only(service.tables)


def test_a_fifth_of_a_hundred_is_borne(tmp_path: Path) -> None:
    scene = a_scene(tmp_path)
    feed(scene, 80, 20)
    table = go(scene.start())
    assert (table.status.run_state, len(scene.rows("n.a")), len(scene.dead_letters("n.a"))) == (
        RunState.WAITING,
        80,
        20,
    )


def test_more_than_a_fifth_stops_the_table_and_no_more_of_the_batch_is_there(tmp_path: Path) -> None:
    scene = a_scene(tmp_path)
    feed(scene, 0, 99)
    go(scene.start())
    scene.feed("a", *({"x": n} for n in range(79)), *({"x": f"bad {n}"} for n in range(21)))
    for _ in range(2):  # A second process reads the same records again.
        table = go(scene.start())
        assert (table.status.run_state, table.status.reason, table.status.where) == (
            RunState.STOPPED,
            '21 of 100 records are bad, more than 20% of recent records: field x: string "bad 0" does not fit long'
            " (and 20 more in this batch)",
            "topic a, partition 0, offset 178",
        )
        assert (scene.rows("n.a"), table.progress.offsets, len(scene.dead_letters("n.a"))) == ([], {"a": {0: 99}}, 99)


def test_ninety_nine_are_too_few_to_judge(tmp_path: Path) -> None:
    scene = a_scene(tmp_path)
    feed(scene, 0, 99)
    table = go(scene.start())
    assert (table.status.run_state, len(scene.dead_letters("n.a")), scene.rows("n.a")) == (RunState.WAITING, 99, [])
    assert table.progress.offsets == {"a": {0: 99}}


@pytest.mark.parametrize(("bad", "state", "offset"), [(12, RunState.WAITING, 120), (13, RunState.STOPPED, 60)])
def test_the_batches_before_count_too(tmp_path: Path, bad: int, state: RunState, offset: int) -> None:
    scene = a_scene(tmp_path)
    service = scene.start()
    feed(scene, 48, 12)
    assert go(service).progress.offsets == {"a": {0: 60}}
    feed(scene, 60 - bad, bad)
    table = go(service)
    assert (table.status.run_state, table.progress.offsets) == (state, {"a": {0: offset}})


@pytest.mark.parametrize(
    ("most", "bad", "state"),
    [
        (0.05, 5, RunState.WAITING),
        (0.05, 6, RunState.STOPPED),
        (1.0, 100, RunState.WAITING),
    ],
)
def test_the_file_reports_how_many_are_borne(tmp_path: Path, most: float, bad: int, state: RunState) -> None:
    scene = a_scene(tmp_path, dead_letters=DeadLettersSpec(stop_above=most))
    feed(scene, 100 - bad, bad)
    assert go(scene.start()).status.run_state is state


def test_too_many_stop_a_table_that_skips_bad_records_too(tmp_path: Path) -> None:
    scene = a_scene(tmp_path, on_bad_record="skip")
    feed(scene, 79, 21)
    table = go(scene.start())
    assert (table.status.run_state, scene.rows("n.a")) == (RunState.STOPPED, [])


def test_skipped_records_are_counted_over_commits_and_processes(tmp_path: Path) -> None:
    scene, found = a_scene(tmp_path, on_bad_record="skip"), []
    service = scene.start()
    for number, bad in enumerate((3, 2, 0, 4)):
        if number == 2:
            service = scene.start()
        feed(scene, 20, bad)
        go(service)
        (newest, *_) = scene.catalog.ancestors("n.a")
        found.append(newest.summary["frazil.p.bad-skipped"])
    assert found == ["3", "5", "5", "9"]
    assert (len(scene.rows("n.a")), scene.catalog.load("n.a__dead_letters")) == (80, None)


def test_some_of_the_first_records_are_committed_so_that_their_dead_letters_can_be_looked_at(tmp_path: Path) -> None:
    scene = a_scene(tmp_path)
    feed(scene, 0, 1000)
    service = scene.start()
    table = go(service)
    assert (table.status.run_state, table.status.where) == (RunState.STOPPED, "topic a, partition 0, offset 99")
    assert scene.dead_letters("n.a") == [("a", 0, offset) for offset in range(99)]
    assert (scene.rows("n.a"), table.progress.offsets) == ([], {"a": {0: 99}})
    for _ in range(2):  # Another process does not continue by another piece.
        assert go(scene.start()).status.run_state is RunState.STOPPED
    assert len(scene.dead_letters("n.a")) == 99
    scene.settings["dead_letters"] = DeadLettersSpec(stop_above=1.0)
    assert go(scene.start()).status.run_state is RunState.WAITING
    assert scene.dead_letters("n.a") == [("a", 0, offset) for offset in range(1000)]


def test_a_table_that_has_rows_stops_with_nothing_of_the_batch(tmp_path: Path) -> None:
    scene = a_scene(tmp_path)
    feed(scene, 200, 0)
    service = scene.start()
    go(service)
    feed(scene, 0, 500)
    assert go(service).status.run_state is RunState.STOPPED
    assert (len(scene.rows("n.a")), scene.catalog.load("n.a__dead_letters")) == (200, None)


def test_a_table_whose_first_records_alone_are_bad_continues(tmp_path: Path) -> None:
    scene = a_scene(tmp_path)
    scene.feed("a", *({"x": "bad"} for _ in range(60)), *({"x": n} for n in range(140)))
    assert go(scene.start()).status.run_state is RunState.WAITING
    assert ([row["x"] for row in scene.rows("n.a")], len(scene.dead_letters("n.a"))) == (list(range(140)), 60)
