"""When data files are written again for the sake of their deleted rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.catalog.table_metadata import StoredData, StoredDeletes
from frazil.maintenance.health import MOST_DELETED_SHARE, measure
from frazil.maintenance.plan import MOST_DELETED, Holds, MaintenanceTask, Mode, plan_maintenance
from frazil.spec.settings import MaintenanceSpec
from tests.unit.maintenance.tables import MIB, NOTED, TARGET, compaction, line, table


@pytest.mark.parametrize(
    ("files", "deletes", "most"),
    [
        ([StoredData(TARGET, 100, "[0,[]]", 40, True)] * 20, "vector", "2"),
        ([StoredData(TARGET // 2, 100, "[0,[]]", 0, True)] * 20 + [StoredData(TARGET, 100)] * 9, "equality", "4"),
        ([StoredData(8 * TARGET, 100, "[0,[]]", 40, True)] * 20, "vector", "1"),
        ([StoredData(TARGET, 100, "[0,[]]", 40, True)] * 9 + [StoredData(MIB, 100)] * 50, "vector", "12"),
    ],
)
def test_a_round_rewrites_no_more_for_the_sake_of_deletes_either(
    files: list[StoredData], deletes: str, most: str
) -> None:
    metadata = replace(table(line(3)), files=tuple(files), deletes=(StoredDeletes(deletes, 10, 40, True),))
    for bytes_of_a_round, limit in ((2 * TARGET, most), (None, None)):
        maintenance = MaintenanceTask(MaintenanceSpec(), TARGET, bytes_of_a_round)
        action = compaction(plan_maintenance(metadata, maintenance, Holds(), 10_000, "busy", NOTED))
        assert action is not None
        assert action.compaction is not None
        assert action.compaction.options.get("max-files-to-rewrite") == limit


def test_deletes_are_worked_off() -> None:
    metadata = replace(
        table(line(3)),
        files=(StoredData(TARGET, 100, "[0,[]]", deleted=12), StoredData(TARGET, 100, "[0,[]]", deleted=11)),
        deletes=(StoredDeletes("vector", 10, 12, True), StoredDeletes("vector", 10, 11, True)),
    )
    action = compaction(
        plan_maintenance(metadata, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, "busy", NOTED)
    )
    assert action is not None
    assert action.reason == "1 file with more than 12% of their rows deleted"
    equal = replace(metadata, deletes=(StoredDeletes("equality", 10, 3),), files=(StoredData(TARGET, 100, "[0,[]]"),))
    action = compaction(
        plan_maintenance(equal, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, "busy", NOTED)
    )
    assert action is not None
    assert action.compaction is not None
    assert action.compaction.removes_dangling


@pytest.mark.parametrize(
    ("mode", "deleted"), [("busy", 12), ("eager", 12), ("regular", 12), ("idle", 10), ("thorough", 5)]
)
def test_the_longer_a_table_rests_the_fewer_deleted_rows_are_left_in_it(mode: Mode, deleted: int) -> None:
    for count, is_due in ((deleted, True), (deleted - 1, False)):
        files = (StoredData(TARGET, 100, "[0,[]]", deleted=count),)
        metadata = replace(table(line(3)), files=files, deletes=(StoredDeletes("vector", 10, count, True),))
        action = compaction(
            plan_maintenance(metadata, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, mode, NOTED)
        )
        assert (action is not None) is is_due


@pytest.mark.parametrize(
    ("files", "deleted", "words"),
    [
        (5000, 260, ("1,300,000 deleted rows, 26% of all",)),
        (5000, 250, ()),
        (3800, 260, ()),
    ],
    ids=["too much", "as much as maintenance leaves", "too few to matter"],
)
def test_deleted_rows_are_too_much_when_they_are_many_and_a_great_part(
    files: int, deleted: int, words: tuple[str, ...]
) -> None:
    metadata = replace(
        table(line(3)),
        files=(StoredData(TARGET, 1000, "[0,[]]", deleted, True),) * files,
        deletes=tuple(StoredDeletes("vector", 10, deleted, True) for _ in range(files)),
    )
    health = measure(metadata, TARGET)
    assert (health.above_cap, health.deleted_rows) == (words, files * deleted)
    assert MOST_DELETED["busy"] < MOST_DELETED_SHARE, "maintenance works off whatever is too much"


def test_deletes_that_name_no_file_are_worked_off_by_the_share_they_may_have() -> None:
    loose = StoredDeletes("position", 10, 40)
    for deleted, is_due in ((12, True), (11, False)):
        files = (
            StoredData(TARGET, 100, "[0,[]]", has_deletes=True, loosely_deleted=deleted),
            StoredData(TARGET, 100, "[0,[1]]"),
        )
        metadata = replace(table(line(3)), files=files, deletes=(loose,))
        action = compaction(
            plan_maintenance(metadata, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, "busy", NOTED)
        )
        assert (action is not None) is is_due
        if action is not None and action.compaction is not None:
            assert action.reason == "1 file with about 12% of their rows deleted, or more, by deletes that name no file"
            assert action.compaction.options["delete-file-threshold"] == "1"


@pytest.mark.parametrize(
    ("mode", "mib", "deleted", "is_due"),
    [
        ("idle", 16, 10, True),
        ("thorough", 16, 10, True),
        ("idle", 16, 9, False),
        ("idle", 17, 10, False),
        ("busy", 16, 10, False),
        ("eager", 16, 10, False),
        ("regular", 16, 10, False),
    ],
)
def test_what_takes_seconds_is_done_for_few_deleted_rows_once_a_table_rests(
    mode: Mode, mib: int, deleted: int, is_due: bool
) -> None:
    worn = tuple(StoredData(mib * MIB, 10_000, f"[0,[{n}]]", deleted, True) for n in range(4))
    others = (StoredData(TARGET, 1000, "[0,[9]]"), StoredData(TARGET, 10_000, "[0,[10]]", 9, True))
    deletes = tuple(StoredDeletes("vector", 10, deleted, True) for _ in range(5))
    metadata = replace(table(line(3)), files=(*worn, *others), deletes=deletes)
    action = compaction(
        plan_maintenance(metadata, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, mode, NOTED)
    )
    assert (action is not None) is is_due
    if action is not None and action.compaction is not None:
        assert action.reason == "4 files with more than 0.1% of their rows deleted"
        assert action.compaction.options["delete-ratio-threshold"] == "0.001"
