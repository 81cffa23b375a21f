"""A run that a later one has taken over begins nothing more, whatever it still has in hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import FencedError
from frazil.ingest.loop.service import Service
from frazil.types import Writer
from tests.unit.ingest.service_scene import HandWorkers, Scene, turn_until


def test_a_run_that_is_taken_over_begins_nothing_while_another_table_is_in_hand(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    scene.feed("a", {"x": 1})
    scene.feed("b", {"x": 1})
    scene.catch_up()

    workers = HandWorkers(scene.clock)
    earlier = scene.start(workers=workers)
    scene.feed("a", {"x": 2})
    scene.feed("b", {"x": 2})
    earlier.turn()
    workers.do("small", "n.a", "n.b")
    earlier.turn()

    scene.feed("a", b"not json", {"x": 3})
    later = scene.start("a")
    scene.catalog.losses += ["", "question"]  # Its commit lands; that of the dead letters never arrives.
    (table,) = later.tables
    assert turn_until(later, lambda: table.schedule.failures)
    assert scene.progress().dead_letters is not None, "the dead letters are promised"
    assert scene.dead_letters("n.a") == []

    workers.do("commit", "n.a")
    scene.feed("a", {"x": 4})
    for _ in range(50):
        earlier.turn()
    assert workers.waiting == [("commit", ("n.b",))]
    assert isinstance(earlier.fatal, FencedError)
    assert not earlier.is_over()
    workers.do("commit", "n.b")
    earlier.turn()
    assert earlier.is_over()

    scene.catch_up()
    assert [row["x"] for row in scene.rows("n.a")] == [1, 2, 3, 4]
    assert [row["x"] for row in scene.rows("n.b")] == [1, 2]
    assert scene.dead_letters("n.a") == [("a", 0, 2)]


def test_a_run_that_finds_another_one_while_it_looks_at_an_idle_table_begins_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    workers = HandWorkers(scene.clock)
    scene.feed("a", {"x": 1})
    scene.catch_up()
    earlier = scene.start(workers=workers)
    scene.feed("a", {"x": 2})
    scene.catch_up("a")
    scene.feed("b", {"x": 1})
    scene.clock.sleep(61)
    earlier.turn()
    assert isinstance(earlier.fatal, FencedError)
    assert workers.waiting == []


def test_a_later_run_takes_a_table_over_after_the_first_batch_that_an_earlier_one_was_quicker_with(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"x": 1})
    scene.catch_up()
    quick, slow = HandWorkers(scene.clock), HandWorkers(scene.clock)
    earlier, later = scene.start(workers=quick), scene.start(workers=slow)
    scene.feed("a", {"x": 2})

    def go(service: Service, workers: HandWorkers) -> None:
        """A whole batch of one run, while the other one stands still."""
        service.turn()
        workers.do("small", "n.a")
        service.turn()
        workers.do("commit", "n.a")
        service.turn()
        service.turn()  # Where the commit was refused, what the table is now is taken in.

    later.turn()
    slow.do("small", "n.a")
    later.turn()
    go(earlier, quick)
    slow.do("commit", "n.a")  # Refused: the earlier run has been quicker.
    later.turn()
    scene.feed("a", {"x": 3})
    scene.clock.sleep(2)
    go(earlier, quick)
    assert isinstance(earlier.fatal, FencedError), "its first commit after that is refused"
    assert earlier.is_over()
    assert later.fatal is None
    turn_until(later, lambda: slow.waiting != [], 60)
    slow.do("small", "n.a")
    later.turn()
    slow.do("commit", "n.a")
    later.turn()
    assert [row["x"] for row in scene.rows("n.a")] == [1, 2, 3]


def test_of_two_runs_that_found_no_table_one_continues(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    runs = [scene.start(), scene.start()]
    count = 0
    while not any(run.fatal for run in runs):
        count += 1
        assert count < 50, "both continue"
        scene.feed("a", {"x": count})
        scene.clock.sleep(2)
        for run in runs:
            run.turn()
    [ended] = [run for run in runs if run.fatal]
    [going] = [run for run in runs if run is not ended]
    assert isinstance(ended.fatal, FencedError)
    scene.feed("a", {"x": count + 1})
    turn_until(going, lambda: len(scene.rows("n.a")) > count)
    assert [row["x"] for row in scene.rows("n.a")] == list(range(1, count + 2))
    assert going.fatal is None


@pytest.mark.parametrize("quicker", [0, 1])
def test_of_two_runs_with_one_epoch_the_run_id_decides_whichever_commits_first(tmp_path: Path, quicker: int) -> None:
    """Both looked at the table before either had committed."""
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"x": 1})
    scene.catch_up()
    runs = [scene.start(), scene.start()]
    scene.feed("a", {"x": 2})
    assert turn_until(runs[quicker], lambda: len(scene.rows("n.a")) == 2)
    epoch = scene.progress().writer.epoch
    for value in (3, 4):
        scene.feed("a", {"x": value})
        for _ in range(100):
            for run in runs:
                if run.fatal is None:
                    run.turn()
    assert [type(run.fatal) for run in runs] == [FencedError, type(None)]
    assert "another run of pipeline p, which began at the same time, writes this table" in str(runs[0].fatal)
    assert scene.progress().writer == Writer(epoch, "run-0003")
    assert [row["x"] for row in scene.rows("n.a")] == [1, 2, 3, 4]
