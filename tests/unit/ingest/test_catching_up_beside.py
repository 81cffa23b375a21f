"""A run with `--until-caught-up` where other processes elect: it ends once all is committed, whoever has done that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from frazil.errors import UnavailableError
from frazil.ingest.batches.services import RunTimeouts
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from tests.unit.ingest.leaders import Script
from tests.unit.ingest.service_scene import Scene, only, turn_until


def _is_over(service: Service) -> bool:
    return service.is_over(until_caught_up=True)


def _values(scene: Scene) -> list[int]:
    return [row["x"] for row in scene.rows("n.a")] if scene.catalog.load("n.a") else []


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A topic with a record and an empty one."""
    made = Scene(tmp_path, "a", "empty")
    made.feed("a", {"x": 1})
    return made


def test_a_run_ends_once_the_leader_has_committed_what_existed_at_its_start(scene: Scene) -> None:
    script = Script()
    script.leader = "run-0001"
    leader = scene.start(script=script)
    catching_up = scene.start(script=script)
    assert not turn_until(catching_up, lambda: _is_over(catching_up), 30, until_caught_up=True)
    assert turn_until(leader, lambda: _values(scene) == [1])
    scene.feed("a", {"x": 2})
    assert turn_until(catching_up, lambda: _is_over(catching_up), 30, until_caught_up=True)
    assert not script.warm["run-0002"], "nothing is left to it: it is about to end"
    assert turn_until(leader, lambda: _values(scene) == [1, 2])
    assert script.fenced == []


def test_a_run_takes_over_from_a_leader_that_is_gone(scene: Scene) -> None:
    script = Script()
    script.leader = "run-0009"
    catching_up = scene.start(script=script)
    catching_up.turn(until_caught_up=True)
    script.leader = "run-0001"
    assert turn_until(catching_up, lambda: _is_over(catching_up), until_caught_up=True)
    assert _values(scene) == [1]


def test_a_run_does_not_end_before_each_table_has_a_live_owner(scene: Scene) -> None:
    scene.catch_up()
    script = Script()
    catching_up = scene.start(script=script)
    for script.leader in (None, "run-0009"):
        assert not turn_until(catching_up, lambda: _is_over(catching_up), 30, until_caught_up=True)
    script.warm["run-0009"] = True
    assert turn_until(catching_up, lambda: _is_over(catching_up), 30, until_caught_up=True)


def test_a_run_waits_at_most_its_limit_for_a_leader_that_commits_nothing(scene: Scene) -> None:
    script = Script()
    script.leader = "run-0001"
    leader = scene.start("a", script=script)
    only(leader.tables).schedule.is_paused = True
    catching_up = scene.unconnected("a", script=script)
    with pytest.raises(UnavailableError, match=r"table n\.a: the process that works on it has not committed") as caught:
        catching_up.run(until_caught_up=True, timeouts=RunTimeouts(scene.clock, 60.0))
    assert caught.value.remedy.startswith("look at that process with `frazil status`")

    only(leader.tables).schedule.is_paused = False
    assert turn_until(leader, lambda: _values(scene) == [1])
    scene.unconnected("a", script=script).run(until_caught_up=True, timeouts=RunTimeouts(scene.clock, 60.0))


def test_commits_of_the_leader_are_no_wait(scene: Scene) -> None:
    script = Script()
    script.leader, script.warm = "run-0001", {"run-0001": True}
    leader = scene.start("a", script=script)
    timeouts, waiting = RunTimeouts(scene.clock, 60.0), scene.start("a", script=script)
    for number in range(2, 8):
        scene.clock.sleep(40)
        scene.feed("a", {"x": number})
        assert turn_until(leader, lambda: len(_values(scene)) == number)  # noqa: B023
        before = only(waiting.tables).progress.snapshot_id
        assert turn_until(waiting, lambda: only(waiting.tables).progress.snapshot_id != before)  # noqa: B023
        timeouts.check(waiting.tables)


def test_a_batch_that_fails_again_and_again_is_a_wait(scene: Scene) -> None:
    service, timeouts = scene.start("a"), RunTimeouts(scene.clock, 60.0)
    table = only(service.tables)
    table.schedule.failures, table.schedule.in_flight = 3, True
    table.status.set(RunState.RUNNING)
    scene.clock.sleep(61)
    timeouts.check(service.tables)
    table.schedule.in_flight = False
    table.status.set(RunState.BACKING_OFF, UnavailableError("the store is away"))
    with pytest.raises(UnavailableError, match="the store is away"):
        timeouts.check(service.tables)


@pytest.mark.parametrize("is_owned", [True, False])
def test_what_tables_do_that_have_caught_up_is_a_wait_for_the_others(scene: Scene, is_owned: bool) -> None:
    scene.catch_up()
    service, timeouts = scene.start(), RunTimeouts(scene.clock, 60.0)
    other, waiting = service.tables
    assert other.state is not None
    waiting.status.set(RunState.BACKING_OFF, UnavailableError("the catalog is away"))
    other.schedule.is_owned = is_owned
    timeouts.check(service.tables, lambda tables: [*tables] == [other])
    scene.clock.sleep(61)
    other.schedule.in_flight = is_owned
    other.state = replace(other.state, progress=replace(other.progress, snapshot_id=7))
    with pytest.raises(UnavailableError, match="the catalog is away"):
        timeouts.check(service.tables, lambda tables: [*tables] == [other])
