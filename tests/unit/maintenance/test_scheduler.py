"""When a table is looked at beside ingestion, and what becomes of trouble."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from frazil.catalog.maintenance_port import Rewritten
from frazil.catalog.table_metadata import MetadataSizes
from frazil.errors import ConflictError, FrazilError, UnavailableError
from frazil.maintenance.due import BEHIND, MOST_APART, RoundsStatus, TableActivity
from frazil.maintenance.health import MOST_SMALL_FILES
from frazil.maintenance.plan import MaintenanceTask
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner
from frazil.maintenance.scheduler import MaintenanceScheduler
from frazil.spec.settings import MaintenanceSpec
from frazil_testing.twins import FakeClock
from tests.unit.maintenance.scheduler_scene import MAINTENANCE, MemoryMaintenance, SchedulerScene
from tests.unit.maintenance.tables import MIB, line, table


def test_a_table_is_looked_at_when_its_numbers_say_so() -> None:
    scene = SchedulerScene(files=3)
    assert scene.after(9) == []
    assert scene.after(1) == ["metadata"], "once at the start"
    scene.commit()
    assert scene.after(20) == [], "one file is nothing"
    scene.commit(files=5)
    assert scene.after(1) == ["metadata"]
    assert scene.after(58) == [], "nothing new"
    assert scene.after(1) == ["metadata", "compact", "carry", "metadata"], (
        "at rest, though it was looked at since its last commit"
    )
    assert scene.after(60) == [], "once"


def test_a_table_that_another_process_works_on_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = SchedulerScene(files=9)

    def lose(*_: object) -> Rewritten:
        scene.maintenance_scheduler.note([])
        return Rewritten(5, 1)

    monkeypatch.setattr(scene.table_maintenance, "compact", lose)
    assert scene.after(61) == ["metadata"], "it is lost during the first action, and no other begins"
    assert scene.after(3600) == []


def test_a_quiet_table_is_looked_at_again_and_then_left_alone() -> None:
    scene = SchedulerScene(files=4)
    assert scene.after(10) == ["metadata"]
    scene.commit()
    assert scene.after(59) == []
    assert scene.after(1) == ["metadata", "compact", "carry", "metadata"], "the newest snapshot is to tell the progress"
    assert scene.after(120) == ["metadata", "compact", "carry", "metadata"], "thoroughly"
    assert [scene.after(3600) for _ in range(5)] == [[]] * 5


def test_a_table_without_commits_is_looked_at_once_a_day() -> None:
    scene = SchedulerScene(files=1)
    assert scene.after(10) == ["metadata"]
    assert scene.after(180) == [], "a thorough look would find nothing either"
    kept = len(scene.table_maintenance.tables["t.a"].snapshots)
    assert [scene.after(3600) for _ in range(23)] == [[]] * 23
    (metadata, *rest) = scene.after(2 * 3600)
    assert metadata == "metadata"
    assert {"expire"} <= set(rest)
    assert f"orphans of t.a before {scene.clock.now_ms() - 72 * 3_600_000}" in rest
    assert len(scene.table_maintenance.tables["t.a"].snapshots) < kept
    assert [scene.after(3600) for _ in range(23)] == [[]] * 23
    assert scene.after(3600)[0] == "metadata"


@pytest.mark.parametrize(("files", "pause_s"), [([3, 3, 3], 8.0), ([3, 60, 3], 0.5)], ids=["all small", "one is not"])
def test_first_looks_at_many_small_tables_are_far_apart(files: list[int], pause_s: float) -> None:
    scene = SchedulerScene(files=3)
    scene.table_maintenance.checked_after_s = 0.1
    seen = []
    for number, count in enumerate(files):
        maintained = replace(scene.maintained, name=f"t.{number}")
        scene.table_maintenance.tables[maintained.name] = replace(
            scene.table_maintenance.tables["t.a"], name=maintained.name
        )
        seen.append(TableActivity(maintained, "1", count, 1))
    scene.maintenance_scheduler.note(seen)
    scene.clock.sleep(10)
    assert scene.maintenance_scheduler.run_next() == pytest.approx(pause_s), (
        "what all of them take is a fraction of a core"
    )


def test_what_is_left_of_a_round_is_done_in_the_next() -> None:
    scene = SchedulerScene(files=500)
    assert scene.after(10) == ["metadata", "compact", "metadata"]
    assert scene.after(10) == ["metadata", "compact", "metadata"], "it has reached its limit"


@pytest.mark.parametrize(
    ("error", "pause_s"), [(ConflictError("another was quicker"), 10), (UnavailableError("no space left"), 60)]
)
def test_trouble_is_told_and_tried_again(error: FrazilError, pause_s: float) -> None:
    scene = SchedulerScene(files=20)
    scene.table_maintenance.failures = [error]
    assert scene.after(10) == ["metadata", "compact"]
    assert scene.maintenance_scheduler.status()["t.a"].failure == ("no space left" if pause_s == 60 else "")
    scene.commit(files=20)
    assert scene.after(pause_s - 1) == []
    assert scene.after(1) == ["metadata", "compact", "metadata"]
    assert scene.maintenance_scheduler.status()["t.a"].failure == ""


def test_a_rewrite_that_fails_keeps_no_books_from_being_kept() -> None:
    scene = SchedulerScene(files=20, snapshots=400)
    table_maintenance = scene.table_maintenance
    sizes = MetadataSizes(400_000, rewritable_manifests=(1000,) * 200)
    table_maintenance.tables["t.a"] = replace(table_maintenance.tables["t.a"], sizes=sizes)
    table_maintenance.failures = [UnavailableError("no space left")]
    assert scene.after(10) == ["metadata", "compact", "expire", "metadata"], "manifests are rewritten another time"
    assert scene.maintenance_scheduler.status()["t.a"].failure == "no space left"
    assert len(table_maintenance.tables["t.a"].snapshots) == 200


@pytest.mark.parametrize(
    ("error", "pause_s"), [(ConflictError("another was quicker"), 10), (UnavailableError("no space left"), 60)]
)
def test_trouble_is_over_when_the_next_round_has_none_though_nothing_is_committed(
    error: FrazilError, pause_s: float
) -> None:
    scene = SchedulerScene(files=20)
    scene.table_maintenance.failures = [error]
    assert scene.after(10) == ["metadata", "compact"]
    assert scene.after(pause_s - 1) == []
    assert scene.after(1) == ["metadata", "compact", "metadata"]
    assert scene.maintenance_scheduler.status()["t.a"].failure == ""
    assert scene.after(60) == []


def test_a_table_that_cannot_be_looked_at_is_told_until_it_can_or_is_gone() -> None:
    scene = SchedulerScene(files=3)
    scene.table_maintenance.blindness = UnavailableError("the table metadata cannot be read")
    scene.after(10)
    assert scene.maintenance_scheduler.status()["t.a"].failure == "the table metadata cannot be read"
    scene.table_maintenance.blindness = None
    there = scene.table_maintenance.tables.pop("t.a")
    assert scene.after(60) == ["metadata"]
    assert (scene.maintenance_scheduler.status(), scene.maintenance_scheduler.plans()) == ({"t.a": RoundsStatus()}, {})
    scene.table_maintenance.tables["t.a"] = there
    scene.commit(files=5)
    assert scene.after(10)[:1] == ["metadata"]
    assert scene.maintenance_scheduler.status()["t.a"].failure == ""


def test_a_table_is_looked_at_once_a_day_though_nothing_is_committed() -> None:
    scene = SchedulerScene(files=1)
    assert scene.after(10) == ["metadata"]
    assert scene.after(180) == [], "a thorough look would find nothing either"
    day_s = 24 * 3600
    assert scene.after(day_s - 181) == []
    expected = f"orphans of t.a before {scene.clock.now_ms() + 1000 - 72 * 3600 * 1000}"
    assert expected in scene.after(1)
    assert scene.after(day_s)[:1] == ["metadata"]


def test_daily_actions_are_due_at_the_daily_check_though_it_was_quicker() -> None:
    scene = SchedulerScene(files=1)
    scene.table_maintenance.checked_after_s = 5.0
    assert scene.after(10) == ["metadata"]
    for checked_after_s in (3.0, 1.0):
        scene.table_maintenance.checked_after_s = checked_after_s
        assert scene.after(24 * 3600 - 10) == []
        found = next(calls for _ in range(20) if (calls := scene.after(1)))
        assert any(call.startswith("orphans") for call in found)


def test_commits_are_slowed_while_compactions_are_lost_to_them_and_no_longer() -> None:
    scene = SchedulerScene(files=20)
    scene.table_maintenance.loses = True
    assert scene.maintenance_scheduler.slowed_by("t.a") == 1.0
    assert scene.after(10) == ["metadata", "compact", "metadata"]
    assert scene.maintenance_scheduler.slowed_by("t.a") == 1.0, "once is chance"
    found = []
    for pause_s in (60, 10, 10):
        assert scene.after(pause_s) == ["metadata", "compact", "metadata"]
        found.append(scene.maintenance_scheduler.slowed_by("t.a"))
    assert found == [2.0, 4.0, 8.0]
    assert scene.maintenance_scheduler.status()["t.a"].slowed_by == 8.0
    for _ in range(20):
        scene.after(10)
    assert scene.maintenance_scheduler.slowed_by("t.a") == MOST_APART
    scene.maintenance_scheduler._watched["t.a"].rounds.lost_rounds = 100_000
    assert scene.maintenance_scheduler.slowed_by("t.a") == MOST_APART, "another writer may be in the way for days"
    scene.table_maintenance.loses = False
    assert scene.after(10) == ["metadata", "compact", "carry", "metadata"]
    assert scene.maintenance_scheduler.slowed_by("t.a") == 1.0


def test_commits_are_slowed_while_a_table_owes_more_than_its_cap() -> None:
    scene = SchedulerScene(files=MOST_SMALL_FILES + 1)
    assert scene.after(10) == ["metadata", "compact", "metadata"]
    assert scene.maintenance_scheduler.slowed_by("t.a") == BEHIND, "a round does only so much"
    assert scene.maintenance_scheduler.plans()["t.a"].health.above_cap == ("10,001 small files",)
    files = {"[0,[]]": [MIB] * 20}
    scene.table_maintenance.tables["t.a"] = replace(table(line(3), files), name="t.a")
    scene.after(10)
    assert scene.maintenance_scheduler.slowed_by("t.a") == 1.0


def test_a_round_that_leaves_the_files_alone_ends_no_debt() -> None:
    scene = SchedulerScene(files=MOST_SMALL_FILES + 1, snapshots=400)
    minute = scene.clock.now_ms() // 60_000 % 1440
    scene.maintained = replace(scene.maintained, maintenance=closed(scene.maintained.maintenance, minute))
    scene.commit()
    for _ in range(2):
        assert scene.after(10) == ["metadata", "expire", "metadata"], "files are rewritten in the window alone"
        assert scene.maintenance_scheduler.slowed_by("t.a") == BEHIND
        assert scene.maintenance_scheduler.plans()["t.a"].health.above_cap == ("10,001 small files",)
        table_maintenance = scene.table_maintenance
        table_maintenance.tables["t.a"] = replace(
            table_maintenance.tables["t.a"], snapshots={one.id: one for one in line(400)}
        )
        scene.commit(files=50)


def closed(maintenance: MaintenanceTask, minute: int) -> MaintenanceTask:
    window = ((minute + 60) % 1440, (minute + 120) % 1440)
    return replace(maintenance, spec=maintenance.spec.model_copy(update={"window": window}))


def test_a_table_that_rests_while_the_window_is_closed_is_maintained_when_it_opens() -> None:
    scene = SchedulerScene(files=400)
    scene.maintained = MaintainedTable("t.a", closed(MAINTENANCE, scene.clock.now_ms() // 60_000 % 1440))
    scene.commit()
    calls = [scene.after(60) for _ in range(2 * 1440)]
    compacted = [minute for minute, done in enumerate(calls) if "compact" in done]
    assert compacted[:1], "the window opens an hour later, for an hour"
    assert 58 <= compacted[0] <= 62
    assert all(58 <= minute % 1440 <= 122 for minute in compacted)
    assert any("orphans" in call for done in calls for call in done)


def test_few_files_of_an_upsert_table_are_combined_in_a_tenth_of_the_time() -> None:
    found: dict[bool, list[int]] = {}
    for is_upsert in (True, False):
        scene = SchedulerScene(files=1)
        spec = MaintenanceSpec(min_input_files=60)
        scene.maintained = MaintainedTable("t.a", replace(MAINTENANCE, spec=spec), is_upsert=is_upsert)
        scene.table_maintenance.compact_s = 3.0
        times = found[is_upsert] = []
        for second in range(1, 301):
            files = scene.table_maintenance.tables["t.a"].files
            files = (files[0], *[replace(files[0], size_bytes=1000)] * (len(files) if files[1:] else 1))
            scene.table_maintenance.tables["t.a"] = replace(scene.table_maintenance.tables["t.a"], files=files)
            scene.commit()
            if "compact" in scene.after(1):
                times.append(second)
                scene.table_maintenance.tables["t.a"] = replace(scene.table_maintenance.tables["t.a"], files=files[:1])
                scene.commit(1 - scene.files)
    early, usual = found[True], found[False]
    assert early[0] == 10, "at the first look"
    assert {later - one for one, later in pairwise(early)} <= set(range(27, 40)), "nine times as long as one takes"
    assert usual[0] >= 60


def test_an_upsert_table_is_idle_after_ten_seconds_or_twice_its_usual_pause() -> None:
    scene = SchedulerScene(files=4)
    spec = MaintenanceSpec(min_input_files=60)
    scene.maintained = MaintainedTable("t.a", replace(MAINTENANCE, spec=spec), is_upsert=True)
    scene.commit()
    assert scene.after(10) == ["metadata"]
    tidied = ["metadata", "compact", "carry", "metadata"]
    scene.commit()
    assert scene.after(9) == []
    assert scene.after(1) == tidied, "one pause before is not a habit"
    scene.commit()
    assert scene.after(19) == [], "it had two pauses of 10 s"
    assert scene.after(1) == tidied
    for _ in range(5):
        scene.commit()
        assert scene.after(15) == []
    scene.commit()
    assert scene.after(29) == [], "it usually has one every 15 s"
    assert scene.after(1) == tidied


def test_pauses_of_long_ago_do_not_keep_an_upsert_table_from_its_rest() -> None:
    scene = SchedulerScene(files=4)
    scene.maintained = MaintainedTable(
        "t.a", replace(MAINTENANCE, spec=MaintenanceSpec(min_input_files=60)), is_upsert=True
    )
    for pause_s in (20, 60):  # As from the start to the end of a first load, and until changes begin.
        scene.after(pause_s)
        scene.commit()
    for _ in range(122):
        scene.after(5)
        scene.commit(0)
    done = [call for _ in range(4) for call in scene.after(5)]
    assert done[-4:] == ["metadata", "compact", "carry", "metadata"]


def test_a_look_right_after_the_last_commit_of_an_upsert_table_is_not_that_at_rest() -> None:
    scene = SchedulerScene(files=4)
    scene.maintained = MaintainedTable(
        "t.a", replace(MAINTENANCE, spec=MaintenanceSpec(min_input_files=120)), is_upsert=True
    )
    scene.commit()
    assert scene.after(10) == ["metadata"]
    assert scene.after(9) == []
    scene.commit(files=20)
    assert scene.after(1) == ["metadata"], "it has more files"
    assert scene.after(9) == []
    assert scene.after(1) == ["metadata", "compact", "carry", "metadata"]
    assert scene.after(20) == [], "once"


def test_an_upsert_table_that_others_maintain_is_only_measured_and_slowed() -> None:
    scene = SchedulerScene(files=MOST_SMALL_FILES + 1)
    off = replace(MAINTENANCE, spec=MAINTENANCE.spec.model_copy(update={"is_on": False}))
    scene.maintained = MaintainedTable("t.a", off, is_upsert=True)
    scene.commit()
    assert scene.after(60) == ["metadata"]
    assert (scene.maintenance_scheduler.slowed_by("t.a"), scene.table_maintenance.tables["t.a"].properties) == (
        BEHIND,
        {},
    )
    scene.commit()
    assert scene.after(3600) == [], "hardly anything is new"
    scene.table_maintenance.tables["t.a"] = table(line(3), {"[0,[]]": [MIB] * 20})
    scene.commit(files=20 - scene.files)
    assert scene.after(10) == ["metadata"], "somebody has put files together"
    assert scene.maintenance_scheduler.slowed_by("t.a") == 1.0
    scene.commit(files=MAINTENANCE.spec.min_input_files)
    assert scene.after(10) == [], "it is looked at once a minute"
    assert scene.after(50) == ["metadata"]


def test_a_table_that_only_grows_is_not_even_looked_at_where_maintenance_is_off() -> None:
    scene = SchedulerScene(files=MOST_SMALL_FILES + 1)
    scene.maintained = MaintainedTable(
        "t.a", replace(MAINTENANCE, spec=MAINTENANCE.spec.model_copy(update={"is_on": False}))
    )
    scene.commit()
    assert scene.after(86_400) == []


def test_a_new_table_has_no_orphans_to_look_for_on_its_first_day() -> None:
    scene = SchedulerScene(files=1)
    scene.after(10)
    met_ms = scene.clock.now_ms()
    assert scene.table_maintenance.tables["t.a"].properties == {"frazil.p.maintenance-started-at": str(met_ms)}
    scene.commit()
    assert not [call for call in scene.after(23 * 3600 - 1) if call.startswith("orphans")]
    scene.commit()
    [call] = [call for call in scene.after(86_400) if call.startswith("orphans")]
    assert call == f"orphans of t.a before {scene.clock.now_ms() - int(MAINTENANCE.spec.orphans.age_s * 1000)}"
    looked = {"frazil.p.maintenance-started-at": str(met_ms), "frazil.p.orphans-removed-at": str(scene.clock.now_ms())}
    assert scene.table_maintenance.tables["t.a"].properties == looked


def test_status_reports_of_a_new_table_that_its_orphans_were_never_looked_for() -> None:
    scene = SchedulerScene(files=1)
    runner = MaintenanceRunner(scene.table_maintenance, "p", scene.clock)

    def status() -> list[str]:
        plan = runner.plan(scene.maintained, "thorough")
        assert plan is not None
        return [action.reason for action in plan.actions if action.kind == "orphans"]

    scene.after(10)
    assert status() == []
    scene.clock.sleep(86_400)
    assert status() == ["files that no snapshot references were never looked for"]
    scene.commit()
    scene.after(10)
    scene.clock.sleep(2 * 86_400)
    assert status() == ["files that no snapshot references were last looked for 48 h ago"]


def test_files_of_a_batch_in_hand_are_no_orphans_however_old_they_are() -> None:
    scene = SchedulerScene(files=4)
    assert scene.after(10) == ["metadata"]
    planned_s, planned_ms = scene.clock.monotonic_s(), scene.clock.now_ms()
    scene.clock.sleep(2)
    scene.batch_s = planned_s
    scene.commit()
    scene.clock.sleep(4 * 86_400)
    scene.commit()
    assert f"orphans of t.a before {planned_ms}" in scene.after(1)
    scene.batch_s = None
    scene.commit()
    scene.clock.sleep(86_400)
    scene.commit()
    now_ms = scene.clock.now_ms()
    assert f"orphans of t.a before {now_ms - 72 * 3_600_000}" in scene.after(0)


@pytest.mark.parametrize(
    ("error", "pause_s", "status"),
    [
        (UnavailableError("another table lies there"), 86_400, "another table lies there"),
        (ConflictError("went"), 600, ""),
    ],
)
def test_a_search_for_orphans_that_comes_to_nothing_is_not_repeated_at_once(
    error: FrazilError, pause_s: int, status: str
) -> None:
    scene = SchedulerScene(files=1, snapshots=1)
    scene.after(10)
    scene.clock.sleep(86_400)
    scene.commit(files=5)
    scene.table_maintenance.failures = [error]
    assert "orphans" in " ".join(scene.after(0))
    for _ in range(3):
        scene.commit(files=5)
        assert "orphans" not in " ".join(scene.after((pause_s - 60) / 3))
        assert scene.maintenance_scheduler.status()["t.a"].failure == status
    scene.commit(files=5)
    assert "orphans" in " ".join(scene.after(60))
    assert scene.maintenance_scheduler.status()["t.a"].failure == ""


def test_orphans_that_were_promised_are_spared() -> None:
    clock = FakeClock()
    dead_letters = replace(table(line(3)), name="t.a__dead_letters")
    table_maintenance = MemoryMaintenance(dead_letters, clock)
    table_maintenance.tables["t.a"] = replace(table(line(3)), pending_files=frozenset({"/t/promised.parquet"}))
    table_maintenance.found = ["file:/t/promised.parquet", "file:/t/orphan.parquet"]
    runner = MaintenanceRunner(table_maintenance, "p", clock)
    maintained = MaintainedTable("t.a__dead_letters", MAINTENANCE, owners=("t.a",))
    plan = runner.plan(maintained, "thorough")
    assert plan is not None
    assert [outcome.failure for outcome in runner.run(plan, MAINTENANCE)] == [""] * len(plan.actions)
    assert table_maintenance.removed == ["file:/t/orphan.parquet"]


def test_what_a_round_has_done_is_no_longer_due_and_its_change_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thorough round of a table without commits would otherwise be shown as due for a day."""
    scene = SchedulerScene(files=20)
    changed: list[str] = []
    scene.maintenance_scheduler = MaintenanceScheduler(
        MaintenanceRunner(scene.table_maintenance, "p", scene.clock), scene.clock, changed.append
    )
    scene.commit(0)

    def compact(*_: object) -> Rewritten:
        there = scene.table_maintenance.tables["t.a"]
        assert [action.kind for action in scene.maintenance_scheduler.plans()["t.a"].actions] == ["compact"]
        scene.table_maintenance.tables["t.a"] = replace(there, files=there.files[:1])
        return Rewritten(20, 1)

    monkeypatch.setattr(scene.table_maintenance, "compact", compact)
    scene.after(10)
    plan = scene.maintenance_scheduler.plans()["t.a"]
    assert (plan.actions, plan.health.files, changed) == ((), 1, ["t.a"])


def test_the_plan_of_a_round_that_an_operator_requested_takes_the_place_of_the_last() -> None:
    scene = SchedulerScene(files=20)
    scene.after(10)
    scheduler, there = scene.maintenance_scheduler, scene.table_maintenance.tables["t.a"]
    scene.table_maintenance.tables["t.a"] = replace(there, files=there.files[:2])
    runner = MaintenanceRunner(scene.table_maintenance, "p", scene.clock)
    scheduler.note_round("t.a", runner.plan(scene.maintained))
    scheduler.note_round("t.unknown", None)
    assert scheduler.plans()["t.a"].health.files == 2


def test_files_that_maintenance_compacted_are_not_a_reason_for_another_check() -> None:
    scene = SchedulerScene(files=20)
    assert scene.after(10)[:2] == ["metadata", "compact"]
    compacted = scene.maintenance_scheduler._watched["t.a"].rounds.fewer_files
    assert compacted > 0
    scene.commits -= 1
    scene.commit(-compacted)
    assert scene.after(10) == []
