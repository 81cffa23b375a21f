"""docs/contributing/maintenance-action.md: a maintenance action of a package, planned and run in a round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from frazil.catalog.maintenance_port import TableMaintenance
from frazil.catalog.table_metadata import TableMetadata
from frazil.maintenance.plan import MaintenanceTask
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner
from frazil.spec.settings import MaintenanceSpec
from frazil_testing.twins import FakeClock
from tests.unit.contributing.conftest import Install
from tests.unit.maintenance.tables import MIB, TARGET, line, table
from tests.unit.spec.pipeline_file import Load, Refuse, with_section, with_table

NOTE = "frazil.p.largest-file-bytes"


class NotingMaintenance:
    """A table whose properties alone can be changed."""

    def __init__(self, metadata: TableMetadata) -> None:
        self.known = metadata

    def metadata(self, table: str, with_files: bool) -> TableMetadata | None:  # noqa: ARG002
        return self.known if table == self.known.name else None

    def note(self, table: str, name: str, text: str) -> None:  # noqa: ARG002
        self.known = replace(self.known, properties={**self.known.properties, f"frazil.p.{name}": text})


def maintained(*actions: str) -> MaintainedTable:
    return MaintainedTable("t.a", MaintenanceTask(MaintenanceSpec(actions=actions), TARGET))


def test_an_action_of_a_package_is_planned_and_run_until_nothing_is_due(example: Install) -> None:
    example("maintenance-action.md")
    notes = NotingMaintenance(table(line(2), {"[0,[]]": [3 * MIB, 5 * MIB]}))
    runner = MaintenanceRunner(cast(TableMaintenance, notes), "p", FakeClock(0))
    plan = runner.plan(maintained("largest_file"), "busy", begins=True)
    assert plan is not None
    assert [(one.kind, one.table, one.reason) for one in plan.actions] == [
        ("largest_file", "t.a", "the largest file has 5,242,880 bytes, and the property has 0")
    ]
    outcomes = list(runner.run(plan, maintained("largest_file").maintenance))
    assert [(one.action.kind, one.failure) for one in outcomes] == [("largest_file", "")]
    assert notes.known.properties[NOTE] == str(5 * MIB)
    again = runner.plan(maintained("largest_file"), "busy")
    assert again is not None
    assert again.actions == ()


def test_an_action_of_a_package_runs_where_the_file_names_it(example: Install) -> None:
    example("maintenance-action.md")
    notes = NotingMaintenance(table(line(2), {"[0,[]]": [3 * MIB]}))
    plan = MaintenanceRunner(cast(TableMaintenance, notes), "p", FakeClock(0)).plan(maintained(), "busy", begins=True)
    assert plan is not None
    assert plan.actions == ()


def test_a_pipeline_file_names_the_actions_of_packages(example: Install, load: Load, refuse: Refuse) -> None:
    section = with_section("maintenance: {actions: [largest_file]}")
    error = refuse(section)
    assert error.message == "`maintenance.actions` cannot have `largest_file`"
    example("maintenance-action.md")
    assert load(section).tables[0].maintenance.actions == ("largest_file",)
    assert load(with_table("maintenance: {actions: [largest_file]}")).tables[0].maintenance.actions == ("largest_file",)
    error = refuse(with_section("maintenance: {actions: [largest_fil]}"))
    assert error.message == "`maintenance.actions` cannot have `largest_fil`"
    assert error.remedy == "did you mean `largest_file`?"


def test_notes_that_are_no_numbers_are_not_planned_from() -> None:
    properties: dict[str, Any] = {NOTE: "many", "frazil.p.x": "7", "frazil.q.y": "8"}
    runner = MaintenanceRunner(cast(TableMaintenance, None), "p", FakeClock(0))
    assert runner._noted(replace(table(), properties=properties)) == {"x": 7}
