"""When a table is looked at beside ingestion, and what becomes of trouble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from frazil.catalog.maintenance_port import Compaction, Rewritten, Transfer
from frazil.catalog.table_metadata import TableMetadata
from frazil.errors import ConflictError, FrazilError, UnavailableError
from frazil.maintenance.health import MOST_SMALL_FILES
from frazil.maintenance.plan import MaintenanceTask
from frazil.maintenance.run import Carer, Charge
from frazil.maintenance.scheduler import BEHIND, MOST_APART, MaintenanceScheduler, Seen
from frazil.spec.models import MaintenanceSpec
from frazil.testing import FakeClock
from tests.unit.maintenance.tables import MIB, line, table

CARE = MaintenanceTask(MaintenanceSpec(min_input_files=5), 128 * MIB, 256 * MIB)


class PaperUpkeep:
    """Tables on paper: notes what is asked of it. failures: what the next changes raise; blindness: what looks raise;
    look_s: what each takes; compact_s: and a compaction.
    """

    def __init__(self, metadata: TableMetadata, clock: FakeClock) -> None:
        self.clock, self.look_s, self.compact_s = clock, 0.0, 0.0
        self.tables: dict[str, TableMetadata] = {metadata.name: metadata}
        self.calls: list[str] = []
        self.removed: list[str] = []
        self.found: list[str] = []
        self.failures: list[FrazilError] = []
        self.blindness: FrazilError | None = None
        self.loses = False

    def metadata(self, table: str, with_files: bool) -> TableMetadata | None:
        if self.blindness is not None:
            raise self.blindness
        if with_files:
            self.calls.append("metadata")
            self.clock.sleep(self.look_s)
        return self.tables.get(table)

    def compact(self, table: str, compaction: Compaction, transfer: Transfer | None = None) -> Rewritten:  # noqa: ARG002
        self._note("compact")
        self.clock.sleep(self.compact_s)
        files = self.tables[table].files
        if self.loses:
            return Rewritten(lost=len(files))
        most = int(compaction.options.get("max-files-to-rewrite", len(files)))
        return Rewritten(min(most, len(files)), 1)

    def rewrite_deletes(self, table: str, options: Mapping[str, str]) -> Rewritten:
        raise AssertionError(table, options)

    def rewrite_manifests(self, table: str) -> Rewritten:
        raise AssertionError(table)

    def expire(self, table: str, snapshots: Sequence[int]) -> None:
        self._note("expire")
        kept = {i: s for i, s in self.tables[table].snapshots.items() if i not in snapshots}
        self.tables[table] = replace(self.tables[table], snapshots=kept)

    def carry(self, table: str) -> None:
        assert table in self.tables
        self._note("carry")

    def orphans(self, table: str, older_than_ms: int) -> list[str]:
        self._note(f"orphans of {table} before {older_than_ms}")
        return self.found

    def remove(self, table: str, paths: Sequence[str]) -> None:
        assert table in self.tables
        self.removed += paths

    def compute_statistics(self, table: str) -> None:
        raise AssertionError(table)

    def note(self, table: str, name: str, text: str) -> None:
        properties = {**self.tables[table].properties, f"frazil.p.{name}": text}
        self.tables[table] = replace(self.tables[table], properties=properties)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.failures:
            raise self.failures.pop(0)


class Beside:
    """A caretaker beside an ingestion that a test plays."""

    def __init__(self, files: int, snapshots: int = 3) -> None:
        self.clock = FakeClock()
        recent = [replace(one, at_ms=self.clock.now_ms() - 1000) for one in line(snapshots)]
        self.upkeep = PaperUpkeep(table(recent, {"[0,[]]": [MIB] * files}), self.clock)
        self.maintenance_scheduler = MaintenanceScheduler(Carer(self.upkeep, "p", self.clock), self.clock)
        self.commits = 0
        self.files = files
        self.charge = Charge("t.a", CARE)
        self.batch_s: float | None = None
        self.commit(0)

    def commit(self, files: int = 1) -> None:
        self.commits += 1
        self.files += files
        seen = Seen(self.charge, str(self.commits), self.files, self.commits, self.batch_s)
        self.maintenance_scheduler.note([seen])

    def after(self, seconds: float) -> list[str]:
        """What care does so much later."""
        self.clock.sleep(seconds)
        self.upkeep.calls.clear()
        self.maintenance_scheduler.turn()
        return list(self.upkeep.calls)


def test_a_table_is_looked_at_when_its_numbers_say_so() -> None:
    beside = Beside(files=3)
    assert beside.after(9) == []
    assert beside.after(1) == ["metadata"], "once at the start"
    beside.commit()
    assert beside.after(20) == [], "one file is nothing"
    beside.commit(files=5)
    assert beside.after(1) == ["metadata"]
    assert beside.after(58) == [], "nothing new"
    assert beside.after(1) == ["metadata", "compact", "carry"], "at rest, though it was looked at since its last commit"
    assert beside.after(60) == [], "once"


def test_a_quiet_table_is_looked_at_again_and_then_left_alone() -> None:
    beside = Beside(files=4)
    assert beside.after(10) == ["metadata"]
    beside.commit()
    assert beside.after(59) == []
    assert beside.after(1) == ["metadata", "compact", "carry"], "the newest snapshot is to tell the progress"
    assert beside.after(120) == ["metadata", "compact", "carry"], "thoroughly"
    assert [beside.after(3600) for _ in range(5)] == [[]] * 5


def test_a_table_without_commits_is_looked_at_once_a_day() -> None:
    beside = Beside(files=1)
    assert beside.after(10) == ["metadata"]
    assert beside.after(180) == [], "a thorough look would find nothing either"
    kept = len(beside.upkeep.tables["t.a"].snapshots)
    assert [beside.after(3600) for _ in range(23)] == [[]] * 23
    (metadata, *rest) = beside.after(2 * 3600)
    assert metadata == "metadata"
    assert {"expire"} <= set(rest)
    assert f"orphans of t.a before {beside.clock.now_ms() - 72 * 3_600_000}" in rest
    assert len(beside.upkeep.tables["t.a"].snapshots) < kept
    assert [beside.after(3600) for _ in range(23)] == [[]] * 23
    assert beside.after(3600)[0] == "metadata"


@pytest.mark.parametrize(("files", "rest_s"), [([3, 3, 3], 4.0), ([3, 60, 3], 0.5)], ids=["all small", "one is not"])
def test_first_looks_at_many_small_tables_are_far_apart(files: list[int], rest_s: float) -> None:
    beside = Beside(files=3)
    beside.upkeep.look_s = 0.1
    for number, count in enumerate(files):
        charge = replace(beside.charge, name=f"t.{number}")
        beside.upkeep.tables[charge.name] = replace(beside.upkeep.tables["t.a"], name=charge.name)
        beside.maintenance_scheduler.note([Seen(charge, "1", count, 1)])
    beside.clock.sleep(10)
    assert beside.maintenance_scheduler.turn() == pytest.approx(rest_s), "what all of them take is a fraction of a core"


def test_what_is_left_of_a_round_is_done_in_the_next() -> None:
    beside = Beside(files=500)
    assert beside.after(10) == ["metadata", "compact"]
    assert beside.after(10) == ["metadata", "compact"], "it has reached its limit"


@pytest.mark.parametrize(
    ("error", "pause_s"), [(ConflictError("another was quicker"), 10), (UnavailableError("no space left"), 60)]
)
def test_trouble_is_told_and_tried_again(error: FrazilError, pause_s: float) -> None:
    beside = Beside(files=20)
    beside.upkeep.failures = [error]
    assert beside.after(10) == ["metadata", "compact"]
    assert beside.maintenance_scheduler.said()["t.a"]["failure"] == ("no space left" if pause_s == 60 else "")
    beside.commit(files=20)
    assert beside.after(pause_s - 1) == []
    assert beside.after(1) == ["metadata", "compact"]
    assert beside.maintenance_scheduler.said()["t.a"]["failure"] == ""


def test_a_rewrite_that_fails_keeps_no_books_from_being_kept() -> None:
    beside = Beside(files=20, snapshots=400)
    upkeep = beside.upkeep
    upkeep.tables["t.a"] = replace(upkeep.tables["t.a"], rewritable_manifests=(1000,) * 200)
    upkeep.failures = [UnavailableError("no space left")]
    assert beside.after(10) == ["metadata", "compact", "expire"], "manifests are rewritten another time"
    assert beside.maintenance_scheduler.said()["t.a"]["failure"] == "no space left"
    assert len(upkeep.tables["t.a"].snapshots) == 200


@pytest.mark.parametrize(
    ("error", "pause_s"), [(ConflictError("another was quicker"), 10), (UnavailableError("no space left"), 60)]
)
def test_trouble_is_over_when_the_next_round_has_none_though_nothing_is_committed(
    error: FrazilError, pause_s: float
) -> None:
    beside = Beside(files=20)
    beside.upkeep.failures = [error]
    assert beside.after(10) == ["metadata", "compact"]
    assert beside.after(pause_s - 1) == []
    assert beside.after(1) == ["metadata", "compact"]
    assert beside.maintenance_scheduler.said()["t.a"]["failure"] == ""
    assert beside.after(60) == []


def test_a_table_that_cannot_be_looked_at_is_told_until_it_can_or_is_gone() -> None:
    beside = Beside(files=3)
    beside.upkeep.blindness = UnavailableError("the table metadata cannot be read")
    beside.after(10)
    assert beside.maintenance_scheduler.said()["t.a"]["failure"] == "the table metadata cannot be read"
    beside.upkeep.blindness = None
    there = beside.upkeep.tables.pop("t.a")
    assert beside.after(60) == ["metadata"]
    assert beside.maintenance_scheduler.said() == {}
    beside.upkeep.tables["t.a"] = there
    beside.commit(files=5)
    assert beside.after(10)[:1] == ["metadata"]
    assert beside.maintenance_scheduler.said()["t.a"]["failure"] == ""


def test_a_table_is_looked_at_once_a_day_though_nothing_is_committed() -> None:
    beside = Beside(files=1)
    assert beside.after(10) == ["metadata"]
    assert beside.after(180) == [], "a thorough look would find nothing either"
    day_s = 24 * 3600
    assert beside.after(day_s - 181) == []
    expected = f"orphans of t.a before {beside.clock.now_ms() + 1000 - 72 * 3600 * 1000}"
    assert expected in beside.after(1)
    assert beside.after(day_s)[:1] == ["metadata"]


def test_what_is_done_once_a_day_is_due_at_the_daily_look_though_that_is_quicker_than_the_last() -> None:
    beside = Beside(files=1)
    beside.upkeep.look_s = 5.0
    assert beside.after(10) == ["metadata"]
    for look_s in (3.0, 1.0):
        beside.upkeep.look_s = look_s
        assert beside.after(24 * 3600 - 10) == []
        found = next(calls for _ in range(20) if (calls := beside.after(1)))
        assert any(call.startswith("orphans") for call in found)


def test_commits_are_slowed_while_compactions_are_lost_to_them_and_no_longer() -> None:
    beside = Beside(files=20)
    beside.upkeep.loses = True
    assert beside.maintenance_scheduler.slowed_by("t.a") == 1.0
    assert beside.after(10) == ["metadata", "compact"]
    assert beside.maintenance_scheduler.slowed_by("t.a") == 1.0, "once is chance"
    found = []
    for pause_s in (60, 10, 10):
        assert beside.after(pause_s) == ["metadata", "compact"]
        found.append(beside.maintenance_scheduler.slowed_by("t.a"))
    assert found == [2.0, 4.0, 8.0]
    assert beside.maintenance_scheduler.said()["t.a"]["slowed_by"] == 8.0
    for _ in range(20):
        beside.after(10)
    assert beside.maintenance_scheduler.slowed_by("t.a") == MOST_APART
    beside.maintenance_scheduler._known["t.a"].lost_rounds = 100_000
    assert beside.maintenance_scheduler.slowed_by("t.a") == MOST_APART, "another writer may be in the way for days"
    beside.upkeep.loses = False
    assert beside.after(10) == ["metadata", "compact", "carry"]
    assert beside.maintenance_scheduler.slowed_by("t.a") == 1.0


def test_commits_are_slowed_while_a_table_owes_more_than_its_cap() -> None:
    beside = Beside(files=MOST_SMALL_FILES + 1)
    assert beside.after(10) == ["metadata", "compact", "metadata"]
    assert beside.maintenance_scheduler.slowed_by("t.a") == BEHIND, "a round does only so much"
    assert beside.maintenance_scheduler.said()["t.a"]["above_cap"] == ["10,001 small files"]
    files = {"[0,[]]": [MIB] * 20}
    beside.upkeep.tables["t.a"] = replace(table(line(3), files), name="t.a")
    beside.after(10)
    assert beside.maintenance_scheduler.slowed_by("t.a") == 1.0


def test_a_round_that_leaves_the_files_alone_ends_no_debt() -> None:
    beside = Beside(files=MOST_SMALL_FILES + 1, snapshots=400)
    minute = beside.clock.now_ms() // 60_000 % 1440
    beside.charge = replace(beside.charge, maintenance=closed(beside.charge.maintenance, minute))
    beside.commit()
    for _ in range(2):
        assert beside.after(10) == ["metadata", "expire", "metadata"], "files are rewritten in the window alone"
        assert beside.maintenance_scheduler.slowed_by("t.a") == BEHIND
        assert beside.maintenance_scheduler.said()["t.a"]["above_cap"] == ["10,001 small files"]
        upkeep = beside.upkeep
        upkeep.tables["t.a"] = replace(upkeep.tables["t.a"], snapshots={one.id: one for one in line(400)})
        beside.commit(files=50)


def closed(maintenance: MaintenanceTask, minute: int) -> MaintenanceTask:
    window = ((minute + 60) % 1440, (minute + 120) % 1440)
    return replace(maintenance, spec=maintenance.spec.model_copy(update={"window": window}))


def test_a_table_that_rests_while_the_window_is_closed_is_cared_for_when_it_opens() -> None:
    beside = Beside(files=400)
    beside.charge = Charge("t.a", closed(CARE, beside.clock.now_ms() // 60_000 % 1440))
    beside.commit()
    calls = [beside.after(60) for _ in range(2 * 1440)]
    compacted = [minute for minute, done in enumerate(calls) if "compact" in done]
    assert compacted[:1], "the window opens an hour later, for an hour"
    assert 58 <= compacted[0] <= 62
    assert all(58 <= minute % 1440 <= 122 for minute in compacted)
    assert any("orphans" in call for done in calls for call in done)


def test_few_files_of_a_mirror_are_put_together_in_a_tenth_of_the_time() -> None:
    found: dict[bool, list[int]] = {}
    for is_upsert in (True, False):
        beside = Beside(files=1)
        spec = MaintenanceSpec(min_input_files=60)
        beside.charge = Charge("t.a", replace(CARE, spec=spec), is_upsert=is_upsert)
        beside.upkeep.compact_s = 3.0
        times = found[is_upsert] = []
        for second in range(1, 301):
            files = beside.upkeep.tables["t.a"].files
            files = (files[0], *[replace(files[0], size_bytes=1000)] * (len(files) if files[1:] else 1))
            beside.upkeep.tables["t.a"] = replace(beside.upkeep.tables["t.a"], files=files)
            beside.commit()
            if "compact" in beside.after(1):
                times.append(second)
                beside.upkeep.tables["t.a"] = replace(beside.upkeep.tables["t.a"], files=files[:1])
                beside.commit(1 - beside.files)
    early, usual = found[True], found[False]
    assert early[0] == 10, "at the first look"
    assert {later - one for one, later in pairwise(early)} <= set(range(27, 40)), "nine times as long as one takes"
    assert usual[0] >= 60


def test_a_mirror_rests_after_ten_seconds_or_twice_as_long_as_it_usually_pauses() -> None:
    beside = Beside(files=4)
    spec = MaintenanceSpec(min_input_files=60)
    beside.charge = Charge("t.a", replace(CARE, spec=spec), is_upsert=True)
    beside.commit()
    assert beside.after(10) == ["metadata"]
    tidied = ["metadata", "compact", "carry"]
    beside.commit()
    assert beside.after(9) == []
    assert beside.after(1) == tidied, "one pause before is no habit"
    beside.commit()
    assert beside.after(19) == [], "it had two pauses of 10 s"
    assert beside.after(1) == tidied
    for _ in range(5):
        beside.commit()
        assert beside.after(15) == []
    beside.commit()
    assert beside.after(29) == [], "it usually has one every 15 s"
    assert beside.after(1) == tidied


def test_pauses_of_long_ago_do_not_keep_a_mirror_from_its_rest() -> None:
    beside = Beside(files=4)
    beside.charge = Charge("t.a", replace(CARE, spec=MaintenanceSpec(min_input_files=60)), is_upsert=True)
    for pause_s in (20, 60):  # As from the start to the end of a first load, and until changes begin.
        beside.after(pause_s)
        beside.commit()
    for _ in range(122):
        beside.after(5)
        beside.commit(0)
    done = [call for _ in range(4) for call in beside.after(5)]
    assert done[-3:] == ["metadata", "compact", "carry"]


def test_a_look_right_after_the_last_commit_of_a_mirror_is_not_that_at_rest() -> None:
    beside = Beside(files=4)
    beside.charge = Charge("t.a", replace(CARE, spec=MaintenanceSpec(min_input_files=120)), is_upsert=True)
    beside.commit()
    assert beside.after(10) == ["metadata"]
    assert beside.after(9) == []
    beside.commit(files=20)
    assert beside.after(1) == ["metadata"], "it has more files"
    assert beside.after(9) == []
    assert beside.after(1) == ["metadata", "compact", "carry"]
    assert beside.after(20) == [], "once"


def test_a_mirror_that_others_care_for_is_measured_and_slowed_and_nothing_else() -> None:
    beside = Beside(files=MOST_SMALL_FILES + 1)
    off = replace(CARE, spec=CARE.spec.model_copy(update={"is_on": False}))
    beside.charge = Charge("t.a", off, is_upsert=True)
    beside.commit()
    assert beside.after(60) == ["metadata"]
    assert (beside.maintenance_scheduler.slowed_by("t.a"), beside.upkeep.tables["t.a"].properties) == (BEHIND, {})
    beside.commit()
    assert beside.after(3600) == [], "hardly anything is new"
    beside.upkeep.tables["t.a"] = table(line(3), {"[0,[]]": [MIB] * 20})
    beside.commit(files=20 - beside.files)
    assert beside.after(10) == ["metadata"], "somebody has put files together"
    assert beside.maintenance_scheduler.slowed_by("t.a") == 1.0
    beside.commit(files=CARE.spec.min_input_files)
    assert beside.after(10) == [], "it is looked at once a minute"
    assert beside.after(50) == ["metadata"]


def test_a_table_that_only_grows_is_not_even_looked_at_where_care_is_off() -> None:
    beside = Beside(files=MOST_SMALL_FILES + 1)
    beside.charge = Charge("t.a", replace(CARE, spec=CARE.spec.model_copy(update={"is_on": False})))
    beside.commit()
    assert beside.after(86_400) == []


def test_a_new_table_has_no_orphans_to_look_for_on_its_first_day() -> None:
    beside = Beside(files=1)
    beside.after(10)
    met_ms = beside.clock.now_ms()
    assert beside.upkeep.tables["t.a"].properties == {"frazil.p.maintenance-started-at": str(met_ms)}
    beside.commit()
    assert not [call for call in beside.after(23 * 3600 - 1) if call.startswith("orphans")]
    beside.commit()
    [call] = [call for call in beside.after(86_400) if call.startswith("orphans")]
    assert call == f"orphans of t.a before {beside.clock.now_ms() - int(CARE.spec.orphan_age_s * 1000)}"
    looked = {"frazil.p.maintenance-started-at": str(met_ms), "frazil.p.orphans-removed-at": str(beside.clock.now_ms())}
    assert beside.upkeep.tables["t.a"].properties == looked


def test_status_says_of_a_new_table_that_its_orphans_were_never_looked_for() -> None:
    beside = Beside(files=1)
    carer = Carer(beside.upkeep, "p", beside.clock)

    def said() -> list[str]:
        plan = carer.plan(beside.charge, "thorough")
        assert plan is not None
        return [action.reason for action in plan.actions if action.kind == "orphans"]

    beside.after(10)
    assert said() == []
    beside.clock.sleep(86_400)
    assert said() == ["files that no snapshot references were never looked for"]
    beside.commit()
    beside.after(10)
    beside.clock.sleep(2 * 86_400)
    assert said() == ["files that no snapshot references were last looked for 48 h ago"]


def test_files_of_a_batch_in_hand_are_no_orphans_however_old_they_are() -> None:
    beside = Beside(files=4)
    assert beside.after(10) == ["metadata"]
    planned_s, planned_ms = beside.clock.monotonic_s(), beside.clock.now_ms()
    beside.clock.sleep(2)
    beside.batch_s = planned_s
    beside.commit()
    beside.clock.sleep(4 * 86_400)
    beside.commit()
    assert f"orphans of t.a before {planned_ms}" in beside.after(1)
    beside.batch_s = None
    beside.commit()
    beside.clock.sleep(86_400)
    beside.commit()
    now_ms = beside.clock.now_ms()
    assert f"orphans of t.a before {now_ms - 72 * 3_600_000}" in beside.after(0)


@pytest.mark.parametrize(
    ("error", "pause_s", "said"),
    [
        (UnavailableError("another table lies there"), 86_400, "another table lies there"),
        (ConflictError("went"), 600, ""),
    ],
)
def test_a_search_for_orphans_that_comes_to_nothing_is_not_repeated_at_once(
    error: FrazilError, pause_s: int, said: str
) -> None:
    beside = Beside(files=1, snapshots=1)
    beside.after(10)
    beside.clock.sleep(86_400)
    beside.commit(files=5)
    beside.upkeep.failures = [error]
    assert "orphans" in " ".join(beside.after(0))
    for _ in range(3):
        beside.commit(files=5)
        assert "orphans" not in " ".join(beside.after((pause_s - 60) / 3))
        assert beside.maintenance_scheduler.said()["t.a"]["failure"] == said
    beside.commit(files=5)
    assert "orphans" in " ".join(beside.after(60))
    assert beside.maintenance_scheduler.said()["t.a"]["failure"] == ""


def test_orphans_that_were_promised_are_spared() -> None:
    clock = FakeClock()
    dead_letters = replace(table(line(3)), name="t.a__dead_letters")
    upkeep = PaperUpkeep(dead_letters, clock)
    upkeep.tables["t.a"] = replace(table(line(3)), promised=frozenset({"/t/promised.parquet"}))
    upkeep.found = ["file:/t/promised.parquet", "file:/t/orphan.parquet"]
    carer = Carer(upkeep, "p", clock)
    charge = Charge("t.a__dead_letters", CARE, owners=("t.a",))
    plan = carer.plan(charge, "thorough")
    assert plan is not None
    assert [outcome.failure for outcome in carer.run(plan, CARE)] == [""] * len(plan.actions)
    assert upkeep.removed == ["file:/t/orphan.parquet"]
