"""The tables of a running pipeline as table maintenance sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from frazil.catalog.maintenance_port import TableMaintenance
from frazil.catalog.port import TableSize
from frazil.catalog.table_metadata import MetadataSizes, StoredData, StoredDeletes, TableMetadata
from frazil.ingest.tables.state import CatalogState
from frazil.ingest.tables.table import Table
from frazil.maintenance.due import RoundsStatus
from frazil.maintenance.health import MOST_SMALL_FILES
from frazil.maintenance.plan import DAILY_MS
from frazil.maintenance.run import MaintenanceRunner
from frazil.ops.maintenance import (
    Activities,
    maintained_table,
    maintained_tables,
    plan_rounds,
    report_maintenance,
    run_rounds,
)
from frazil.ops.pipeline_status import MaintenanceReport
from frazil.spec.models import TableSpec, TopicSelector
from frazil.spec.settings import DeadLettersSpec, MaintenanceSpec, SnapshotsSpec
from frazil_testing.twins import FakeClock
from tests.unit.maintenance.scheduler_scene import MemoryMaintenance
from tests.unit.maintenance.tables import MIB, line, without_progress
from tests.unit.maintenance.tables import table as metadata_of


def table(name: str, maintenance: Mapping[str, Any] | None = None) -> Table:
    spec = {"name": name, "topics": (TopicSelector(literal="a"),), "maintenance": maintenance or {}}
    return Table(TableSpec.model_validate(spec), catalog=CatalogState(size=TableSize(1, 2, 3, 4)))


def test_the_oldest_batch_in_hand_is_told_of_a_table_and_of_its_dead_letters() -> None:
    idle, busy = table("n.idle"), table("n.busy")
    idle.catalog.dead_letter_count = busy.catalog.dead_letter_count = 1
    idle.schedule.last_batch_at_s, busy.schedule.last_batch_at_s = 5.0, 7.0
    busy.schedule.in_flight = True
    found = {seen.maintained.name: seen.batch_s for seen in Activities().of([idle, busy])}
    assert found == {
        "n.idle": None,
        "n.idle__dead_letters": None,
        "n.busy": 7.0,
        "n.busy__dead_letters": 7.0,
    }


@pytest.mark.parametrize("order", ["sort", "zorder"])
def test_dead_letters_have_their_own_columns_and_no_order_by_the_table_s(order: str) -> None:
    spec = {order: ("page_url",), "snapshots": SnapshotsSpec(kept=7), "cores": 2}
    own, box = maintained_tables([table("n.t", maintenance=spec)])
    assert (box.name, box.owners) == ("n.t__dead_letters", ("n.t",))
    assert own.maintenance.spec == MaintenanceSpec.model_validate(spec)
    assert box.maintenance.spec == MaintenanceSpec(snapshots=SnapshotsSpec(kept=7), cores=2)


class OneTable:
    """Of Upkeep what looks."""

    def __init__(self, look: TableMetadata) -> None:
        self._look = look

    def metadata(self, table: str, with_files: bool) -> TableMetadata | None:
        return self._look if table == self._look.name and with_files else None


def reported(look: TableMetadata, rounds: RoundsStatus | None = None, mode: str = "append") -> MaintenanceReport:
    spec = {"name": "t.a", "topics": (TopicSelector(literal="a"),), "mode": mode, "maintenance": {"is_on": False}}
    table_maintenance = cast(TableMaintenance, OneTable(look))
    found = report_maintenance(
        table_maintenance, "p", Table(TableSpec.model_validate(spec)), rounds or RoundsStatus(), FakeClock()
    )
    assert found is not None
    return found


def test_status_has_the_figures_of_a_table() -> None:
    sizes = {"[0,[]]": [MIB, 2 * MIB], "[0,[1]]": [3 * MIB, 400 * MIB, 500 * MIB]}
    snapshots = [*line(3), replace(without_progress(line(4)[-1], removes_files=True), is_maintenance=True)]
    look = replace(
        metadata_of(snapshots, sizes),
        deletes=(StoredDeletes("vector", 10, 7, True), StoredDeletes("equality", 10, 5)),
        sizes=MetadataSizes(1234, (10, 20, 30)),
    )
    assert reported(look) == MaintenanceReport(
        p50_bytes=3 * MIB,
        small_share=0.4,
        delete_files=2,
        deleted_rows=7,
        manifests=3,
        metadata_bytes=1234,
        last_ms=4000,
    )
    assert reported(look, RoundsStatus(5000, "no space")).last_ms == 5000


def test_the_last_round_by_hand_is_told_where_it_left_no_snapshot() -> None:
    clock = FakeClock()
    table_maintenance = MemoryMaintenance(metadata_of(line(3)), clock)
    assert reported(table_maintenance.tables["t.a"]).last_ms is None
    MaintenanceRunner(table_maintenance, "p", clock).note_round("t.a")
    assert reported(table_maintenance.tables["t.a"]).last_ms == clock.now_ms()
    assert reported(table_maintenance.tables["t.a"], RoundsStatus(clock.now_ms() + 1)).last_ms == clock.now_ms() + 1


@pytest.mark.parametrize(("age_ms", "is_due"), [(60_000, False), (DAILY_MS, True)])
def test_orphan_files_of_a_new_table_are_due_when_the_running_pipeline_looks_for_them(
    age_ms: int, is_due: bool
) -> None:
    clock = FakeClock(2 * DAILY_MS)
    properties = {"frazil.p.created-at": str(clock.now_ms() - age_ms)}
    look = replace(metadata_of(line(3, DAILY_MS // 2)), properties=properties)
    spec = {"name": "t.a", "topics": (TopicSelector(literal="a"),)}
    found = report_maintenance(
        cast(TableMaintenance, OneTable(look)), "p", Table(TableSpec.model_validate(spec)), RoundsStatus(), clock
    )
    assert found is not None
    assert any(one.startswith("orphans:") for one in found.due) is is_due


def test_progress_that_is_repeated_as_a_precaution_is_nothing_that_a_table_lacks() -> None:
    clock = FakeClock(2 * DAILY_MS)
    snapshots = [*line(3), replace(without_progress(line(4)[-1], removes_files=True), is_maintenance=True)]
    look = metadata_of(snapshots, {"[0,[]]": [400 * MIB]})
    spec = {"name": "t.a", "topics": (TopicSelector(literal="a"),)}
    known, own = cast(TableMaintenance, OneTable(look)), Table(TableSpec.model_validate(spec))
    plan = MaintenanceRunner(known, "p", clock).plan(maintained_table(own), is_scheduled=True)
    assert plan is not None
    assert "carry" in {action.kind for action in plan.actions}, "it is done all the same"
    found = report_maintenance(known, "p", own, RoundsStatus(), clock)
    assert found is not None
    assert [one for one in found.due if one.startswith("carry:")] == []


def test_status_reports_what_is_above_its_cap_and_what_comes_of_it() -> None:
    look = replace(metadata_of(line(3), {"[0,[]]": [MIB] * (MOST_SMALL_FILES + 1)}), sizes=MetadataSizes(9_000_000))
    earlier = RoundsStatus(failure="no space", slowed_by=4.0)
    for mode, slowed_by in (("upsert", 4.0), ("append", 1.0)):
        found = reported(look, earlier, mode)
        assert found.above_cap == ("10,001 small files", "9 MB of metadata")
        assert (found.slowed_by, found.failure) == (slowed_by, "no space")
    worn = replace(look, files=(StoredData(400 * MIB, 1_000_000, "", 600_000, True),) * 2, sizes=MetadataSizes(1))
    worn = replace(worn, deletes=(StoredDeletes("vector", 10, 600_000, True),) * 2)
    assert reported(worn).above_cap == ("1,200,000 deleted rows, 60% of all",)


def test_an_upsert_table_is_told_from_tables_that_only_grow() -> None:
    spec = {"name": "n.m", "topics": (TopicSelector(literal="a"),), "mode": "upsert"}
    upsert_table = Table(TableSpec.model_validate(spec))
    found = {maintained.name: maintained.is_upsert for maintained in maintained_tables([table("n.t"), upsert_table])}
    assert found == {"n.t": False, "n.m": True, "n.t__dead_letters": False, "n.m__dead_letters": False}


def test_a_table_that_shares_a_dead_letter_table_later_is_one_of_its_owners() -> None:
    activities, first, second = Activities(), table("n.a"), table("n.b")
    for one in (first, second):
        one.spec = one.spec.model_copy(update={"dead_letters": DeadLettersSpec(table="n.bad")})
        one.catalog.dead_letter_count = 1
    alone = {one.maintained.name: one.maintained for one in activities.of([first])}
    both = {one.maintained.name: one.maintained for one in activities.of([first, second])}
    assert (alone["n.bad"].owners, both["n.bad"].owners) == (("n.a",), ("n.a", "n.b"))
    assert alone["n.a"] is both["n.a"]


def test_rounds_note_at_which_of_their_tables_they_are() -> None:
    clock, noted = FakeClock(), list[str]()
    runner = MaintenanceRunner(MemoryMaintenance(metadata_of(line(3)), clock), "p", clock)
    chosen = [maintained_table(table(name)) for name in ("t.a", "t.b")]
    rounds = [*plan_rounds(runner, chosen, noted.append), *run_rounds(runner, chosen, noted.append)]
    assert {table_round.name for table_round in rounds} == {"t.a"}
    places = ("t.a, 1 of 2 tables", "t.b, 2 of 2 tables")
    assert noted == [f"{doing} {place}" for doing in ("looking at", "maintaining") for place in places]
