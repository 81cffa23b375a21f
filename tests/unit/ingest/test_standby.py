"""A run that does not own a table keeps it warm and writes nothing; it takes over where the owner left off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.ingest.failures import TaskFailedError
from frazil.ingest.loop.ownership import WARM_JOBS
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.report import TaskReport
from frazil.spec.topics import Start
from frazil.types import Batch
from tests.unit.ingest.leaders import Script
from tests.unit.ingest.service_scene import HandWorkers, Scene, only, turn_until


def _started(scene: Scene, script: Script, workers: HandWorkers | None = None) -> Service:
    return scene.start(workers=workers, script=script)


def _values(scene: Scene) -> list[int]:
    return [row["x"] for row in scene.rows("n.a")]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path, "a")
    made.feed("a", {"x": 1})
    made.catch_up()
    return made


def test_a_standby_writes_nothing_and_is_warm(scene: Scene) -> None:
    script = Script()
    standby = _started(scene, script)
    scene.feed("a", {"x": 2}, b"not json")
    before = scene.catalog.load("n.a")
    assert turn_until(standby, lambda: script.warm["run-0002"])
    for _ in range(50):
        standby.turn()
    assert scene.catalog.load("n.a") == before
    table = only(standby.tables)
    assert table.shown_status.run_state is RunState.STANDBY
    assert table.offsets.lag_records == 2
    assert scene.rehearsed >= WARM_JOBS
    assert scene.released == scene.rehearsed


def test_a_standby_whose_first_job_takes_long_begins_no_second_one(scene: Scene) -> None:
    hand = HandWorkers(scene.clock)
    script = Script()
    standby = _started(scene, script, hand)
    for _ in range(100):
        standby.turn()
    assert hand.waiting == [("warm-up", ("n.a",))]
    assert not script.warm["run-0002"]
    for _ in range(WARM_JOBS):
        assert not script.warm["run-0002"]
        hand.do("warm-up", "n.a")
        assert turn_until(standby, lambda: hand.waiting)
    assert turn_until(standby, lambda: script.warm["run-0002"])


def test_a_standby_of_an_empty_topic_is_warm_and_reads_later_records(tmp_path: Path) -> None:
    scene, script = Scene(tmp_path, "a"), Script()
    standby = _started(scene, script)
    assert turn_until(standby, lambda: script.warm["run-0001"])
    assert scene.rehearsed == 0
    scene.feed("a", {"x": 1})
    assert turn_until(standby, lambda: scene.rehearsed > WARM_JOBS)


def test_a_takeover_does_not_wait_for_a_job_that_makes_warm(scene: Scene) -> None:
    script, hand = Script(), HandWorkers(scene.clock)
    standby = _started(scene, script, hand)
    standby.turn()
    scene.feed("a", {"x": 2})
    script.leader = "run-0002"
    assert turn_until(standby, lambda: len(hand.waiting) == 2, turns=5)
    assert hand.waiting == [("warm-up", ("n.a",)), ("taken", ("n.a",))]


def test_a_process_that_takes_tables_stays_warm(scene: Scene) -> None:
    """Otherwise a leader that divides tables would take them back from it until they are loaded."""
    script = Script()
    standby = _started(scene, script)
    assert turn_until(standby, lambda: script.warm["run-0002"])
    only(standby.tables).catalog.is_loaded = False
    scene.clock.sleep(1)
    standby.turn()
    assert script.warm["run-0002"]


def test_a_standby_stays_warm(scene: Scene) -> None:
    """Spark ends a Python worker that has had no task for a minute."""
    script = Script()
    standby = _started(scene, script)
    assert turn_until(standby, lambda: script.warm["run-0002"])
    assert turn_until(standby, lambda: scene.clock.monotonic_s() > 60)
    before, began_s = scene.rehearsed, scene.clock.monotonic_s()
    while scene.clock.monotonic_s() < began_s + 600:
        standby.turn()
        assert script.warm["run-0002"]
    assert 10 <= scene.rehearsed - before <= 20, "each costs a third of a second of a core"


def test_a_standby_reads_every_partition_to_be_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a Kafka client of its own, which takes long to start."""
    scene, script, read = Scene(tmp_path, "a"), Script(), []
    run = scene.jobs.run

    def noting(batches: Sequence[Batch], *others: Any, **settings: Any) -> list[TaskReport]:
        read.append({(r.partition, r.start, r.end) for batch in batches for r in batch.ranges})
        return run(batches, *others, **settings)

    monkeypatch.setattr(scene.jobs, "run", noting)
    scene.source.create("a", 3)
    for partition, count in enumerate((2000, 1, 0)):
        scene.feed("a", *[{"x": 1}] * count, partition=partition)
    standby = _started(scene, script)
    assert turn_until(standby, lambda: script.warm["run-0001"])
    assert read[:WARM_JOBS] == [{(0, 1500, 2000), (1, 0, 1)}] * WARM_JOBS
    scene.clock.sleep(100)
    assert turn_until(standby, lambda: (0, 1950, 2000) in read[-1]), "few records are enough to stay warm"


def test_a_standby_knows_what_the_owner_has_committed_a_few_seconds_ago(scene: Scene) -> None:
    standby = _started(scene, Script())
    scene.feed("a", {"x": 2})
    scene.catch_up()
    assert turn_until(standby, lambda: not only(standby.tables).offsets.lag_records, turns=20)


def test_a_standby_takes_over_and_the_run_before_becomes_one(scene: Scene) -> None:
    script = Script()
    script.leader = "run-0002"
    first, second = _started(scene, script), _started(scene, script)
    scene.feed("a", {"x": 2})
    assert turn_until(first, lambda: _values(scene) == [1, 2])
    second.turn()
    script.leader = "run-0003"
    scene.feed("a", {"x": 3})
    first.turn()
    assert script.released == ["run-0002"]
    assert turn_until(second, lambda: _values(scene) == [1, 2, 3])
    for _ in range(20):
        first.turn()
    assert first.fatal is None
    assert only(first.tables).shown_status.run_state is RunState.STANDBY

    script.leader = "run-0002"
    scene.feed("a", {"x": 4})
    second.turn()
    assert turn_until(first, lambda: _values(scene) == [1, 2, 3, 4]), "and back again"
    assert second.fatal is None


def test_a_run_that_does_not_know_that_it_is_no_longer_the_owner_is_refused_and_becomes_a_standby(scene: Scene) -> None:
    script, hand = Script(), HandWorkers(scene.clock)
    script.leader = "run-0002"
    frozen = _started(scene, script, hand)
    scene.feed("a", {"x": 2})
    frozen.turn()
    hand.do("small", "n.a")
    script.leader = "run-0003"
    second = _started(scene, script)
    assert turn_until(second, lambda: _values(scene) == [1, 2])
    script.leader = "run-0002"
    frozen.turn()
    hand.do("commit", "n.a")
    script.leader = "run-0003"
    for _ in range(5):
        frozen.turn()
    assert frozen.fatal is None
    assert _values(scene) == [1, 2]
    scene.feed("a", {"x": 3})
    assert turn_until(second, lambda: _values(scene) == [1, 2, 3])


def test_an_owner_that_a_later_run_has_fenced_stands_by(scene: Scene) -> None:
    script, hand = Script(), HandWorkers(scene.clock)
    script.leader = "run-0002"
    owner = _started(scene, script, hand)
    scene.feed("a", {"x": 2})
    owner.turn()
    hand.do("small", "n.a")
    scene.catch_up()
    owner.turn()
    hand.do("commit", "n.a")
    owner.turn()
    owner.turn()
    assert script.fenced == ["n.a"]
    assert owner.fatal is None
    assert _values(scene) == [1, 2]


def test_a_batch_in_hand_is_committed_before_the_table_is_released(scene: Scene) -> None:
    script, hand = Script(), HandWorkers(scene.clock)
    script.leader = "run-0002"
    owner = _started(scene, script, hand)
    scene.feed("a", {"x": 2})
    owner.turn()
    script.leader = None
    owner.turn()
    assert script.released == []
    hand.do("small", "n.a")
    owner.turn()
    hand.do("commit", "n.a")
    owner.turn()
    owner.turn()
    assert script.released == ["run-0002"]
    assert _values(scene) == [1, 2]
    scene.feed("a", {"x": 3})
    for _ in range(20):
        owner.turn()
    assert [kind for kind, _ in hand.waiting] == []


def test_a_stopping_run_asks_the_others_to_take_over(scene: Scene) -> None:
    script = Script()
    script.leader = "run-0002"
    owner = _started(scene, script)
    owner.stop()
    owner.turn()
    owner.run()
    assert script.stood_down == ["run-0002"]
    assert script.released == ["run-0002"]
    assert script.warm == {}


def test_a_run_that_may_not_stand_by_ends_with_the_reason(scene: Scene) -> None:
    script = Script()
    standby = _started(scene, script)
    script.refusal = SpecError("another pipeline has this one's name")
    with pytest.raises(SpecError, match="another pipeline has this one's name"):
        standby.run()


def test_stand_down_needs_an_election(scene: Scene) -> None:
    alone = scene.start()
    answer = alone.requests.stand_down()
    alone.turn()
    with pytest.raises(SpecError, match="no process stands by"):
        answer.result(0)


def test_stand_down_is_refused_until_another_process_is_warm(scene: Scene) -> None:
    script = Script()
    script.leader = "run-0002"
    owner = _started(scene, script)
    answer = owner.requests.stand_down()
    owner.turn()
    with pytest.raises(ConflictError, match="no other process could take over now"):
        answer.result(0)

    standby = _started(scene, script)
    assert turn_until(standby, lambda: script.warm["run-0003"])
    answer = owner.requests.stand_down()
    owner.turn()
    assert script.stood_down == ["run-0002"]
    assert not answer.done(), "it still owns the table"
    script.leader = "run-0003"
    owner.turn()
    assert answer.done()


def test_commands_on_a_table_are_refused_by_a_standby(scene: Scene) -> None:
    script = Script()
    script.leader = "run-0009"
    standby = _started(scene, script)
    standby.turn()
    for answer in (standby.requests.pause("n.a"), standby.requests.restart("n.a", is_dry=True)):
        standby.turn()
        with pytest.raises(ConflictError, match=r"another process works on table `n\.a`: run-0009"):
            answer.result(0)


def test_the_rates_of_owned_tables_are_offered(scene: Scene) -> None:
    script = Script()
    script.leader = "run-0002"
    owner = _started(scene, script)
    for number in range(50):
        scene.feed("a", {"x": number})
        scene.clock.sleep(1)
        owner.turn()
    assert (script.rates["run-0002"]["n.a"] or 0) > 0


def test_a_process_without_tables_offers_the_names_of_all_of_them(scene: Scene) -> None:
    """By which a leader divides them before anybody works on one."""
    script = Script()
    _started(scene, script).turn()
    assert script.rates["run-0002"] == {"n.a": None}


def test_a_pause_ends_with_the_ownership(scene: Scene) -> None:
    script = Script()
    script.leader = "run-0002"
    owner = _started(scene, script)
    answer = owner.requests.pause("n.a")
    owner.turn()
    assert answer.done()
    for script.leader in ("run-0009", "run-0002"):
        owner.turn()
    scene.feed("a", {"x": 2})
    assert turn_until(owner, lambda: _values(scene) == [1, 2])


def test_what_comes_before_the_first_commit_is_read_after_a_takeover_with_start_latest(tmp_path: Path) -> None:
    scene, script = Scene(tmp_path, "a", start=Start(kind="latest")), Script()
    scene.feed("a", {"x": 1})
    script.leader = "run-0009"
    standby = _started(scene, script)
    assert turn_until(standby, lambda: script.warm["run-0001"])
    scene.feed("a", {"x": 2})
    script.leader = "run-0001"
    assert turn_until(standby, lambda: bool(scene.catalog.load("n.a")) and _values(scene) == [2])


def test_a_standby_whose_catalog_was_away_waits_as_before(scene: Scene) -> None:
    script = Script()
    standby = _started(scene, script)
    table = only(standby.tables)
    table.schedule.failures = 3
    table.status.set(RunState.BACKING_OFF)
    assert turn_until(standby, lambda: table.schedule.failures == 0)
    assert table.status.run_state is RunState.WAITING


def test_a_table_is_released_while_the_batch_of_another_hangs(tmp_path: Path) -> None:
    scene, script = Scene(tmp_path, "a", "b"), Script()
    hand = HandWorkers(scene.clock)
    script.leader = "run-0001"
    owner = _started(scene, script, hand)
    scene.feed("a", {"x": 1})
    owner.turn()
    assert hand.waiting == [("small", ("n.a",))]
    script.leader = None
    for _ in range(3):
        owner.turn()
    assert script.in_hand == [{"n.a"}]
    hand.do("small", "n.a")
    owner.turn()
    hand.do("commit", "n.a")
    assert turn_until(owner, lambda: script.in_hand == [{"n.a"}, set()], turns=5)


def test_a_run_that_is_ending_takes_no_table_any_more(scene: Scene) -> None:
    script = Script()
    ending = _started(scene, script)
    ending.stop()
    ending.turn()
    assert script.ending == {"run-0002"}


def test_a_takeover_does_not_wait_until_an_outage_is_tried_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute without Kafka half a minute passes between two attempts."""
    script = Script()
    standby = _started(scene, script)
    ends = scene.source.ends

    def away(_: Any) -> Any:
        raise UnavailableError("Kafka does not answer")

    monkeypatch.setattr(scene.source, "ends", away)
    began_s = scene.clock.monotonic_s()
    while scene.clock.monotonic_s() < began_s + 60:
        standby.turn()
    scene.feed("a", {"x": 2})
    waited = scene.clock.sleep

    def come_back(seconds: float) -> None:
        """The broker answers again, and this process is elected, within the first of many seconds of the back-off."""
        waited(seconds)
        monkeypatch.setattr(scene.source, "ends", ends)
        script.leader, standby.ownership.has_changed = "run-0002", True
        monkeypatch.setattr(scene.clock, "sleep", waited)

    monkeypatch.setattr(scene.clock, "sleep", come_back)
    back_s = scene.clock.monotonic_s()
    assert turn_until(standby, lambda: _values(scene) == [1, 2])
    assert scene.clock.monotonic_s() - back_s < 4


def test_a_start_without_kafka_is_tried_again_with_back_off(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it has joined the election, which has changed then."""
    script, asked = Script(), list[float]()
    standby = scene.unconnected(script=script)

    def away() -> str:
        asked.append(scene.clock.monotonic_s())
        if len(asked) == 6:
            standby.stop()
        raise UnavailableError("Kafka does not answer")

    monkeypatch.setattr(scene.source, "cluster_id", away)
    standby.connect()
    assert asked[-1] - asked[0] > 5


@pytest.mark.parametrize("fault", ["a table that cannot be loaded", "a table that cannot be read"])
def test_a_standby_is_warm_beside_a_table_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Which is no better where the leader runs."""
    scene, script = Scene(tmp_path, "a", "b"), Script()
    for topic in scene.topics:
        scene.feed(topic, {"x": 1})
    scene.catch_up()
    load, run = scene.catalog.load, scene.jobs.run

    def failing_load(name: str) -> Any:
        if name == "n.a":
            raise UnavailableError("its store is away")
        return load(name)

    def failing_run(batches: Sequence[Batch], *others: Any, **settings: Any) -> list[TaskReport]:
        if any(batch.table == "n.a" for batch in batches):
            raise TaskFailedError("a record crashes the task")
        return run(batches, *others, **settings)

    if fault == "a table that cannot be loaded":
        monkeypatch.setattr(scene.catalog, "load", failing_load)
    else:
        monkeypatch.setattr(scene.jobs, "run", failing_run)
    standby = _started(scene, script)
    assert turn_until(standby, lambda: script.warm["run-0002"])
    assert scene.rehearsed >= WARM_JOBS


def test_a_standby_is_warm_beside_a_table_whose_store_hangs(tmp_path: Path) -> None:
    scene, script = Scene(tmp_path, "a", "b"), Script()
    for topic in scene.topics:
        scene.feed(topic, {"x": 1})
    scene.catch_up()
    standby = _started(scene, script)
    hanging = standby.tables[0]
    hanging.catalog.is_loaded, hanging.schedule.in_flight = False, True
    assert turn_until(standby, lambda: script.warm["run-0002"])
    assert scene.clock.monotonic_s() - hanging.catalog.asked_at_s >= 5


def test_a_leader_whose_disk_is_full_waits_and_another_process_continues(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, hand = Script(), HandWorkers(scene.clock)
    script.leader = "run-0002"
    leader, standby = _started(scene, script, hand), _started(scene, script)
    assert turn_until(standby, lambda: script.warm["run-0003"])
    scene.feed("a", {"x": 2}, {"x": 3})
    run = scene.jobs.run

    def full(*_: Any, **__: Any) -> list[TaskReport]:
        raise UnavailableError("a task failed: No space left on device", remedy="free disk space")

    for _ in range(3):
        assert turn_until(leader, lambda: hand.waiting)
        monkeypatch.setattr(scene.jobs, "run", full)
        hand.do("small", "n.a")
        leader.turn()
        monkeypatch.setattr(scene.jobs, "run", run)
    table = only(leader.tables)
    assert (table.status.run_state, table.status.remedy) == (RunState.BACKING_OFF, "free disk space")
    answer = leader.requests.stand_down()
    leader.turn()
    script.leader = "run-0003"
    leader.turn()
    assert answer.done()
    assert turn_until(standby, lambda: _values(scene) == [1, 2, 3])
    script.leader = "run-0002"
    scene.feed("a", {"x": 4})
    standby.turn()
    assert turn_until(leader, lambda: hand.waiting)
    hand.do("taken", "n.a")
    leader.turn()
    hand.do("commit", "n.a")
    assert _values(scene) == [1, 2, 3, 4]
