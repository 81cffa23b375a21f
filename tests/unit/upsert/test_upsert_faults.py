"""What may be wrong with an upsert table's input and is not its envelope: an order that is null or goes back, a key
that is there twice in the table which it adopts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.spec.settings import ColumnSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.rows.test_shaped_service import Scenario
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario
from tests.unit.upsert.upsert_source import SourceRecord, UpsertSource, tombstone

_COLUMNS = tuple(ColumnSpec(name=name, type=parse_type("long")) for name in ("id", "v", "at"))
_TWICE = [{"id": 1, "v": 1, "at": 3}, {"id": 1, "v": 2, "at": 5}, {"id": 2, "v": 3, "at": 1}, {"v": 4, "at": 1}]


def _told(op: str, v: str, at: int | None, key: int = 1) -> SourceRecord:
    row = {"id": key, "v": v, "at": at}
    return {"id": key}, {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row}


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_an_order_that_is_null_makes_a_dead_letter_and_one_that_goes_back_changes_nothing(
    tmp_path: Path, at_once: int
) -> None:
    """But for a delete, which tells no order but the place in the log: it takes the row, and what comes behind it counts."""
    scenario = UpsertSource(tmp_path, order_by="at")
    reported = [
        _told("c", "a", 5),
        _told("u", "null", None),
        _told("u", "back", 3),
        _told("u", "b", 5),
        _told("u", "older", 4),
    ]
    for start in range(0, len(reported), at_once):
        scenario.say(*reported[start : start + at_once])
    assert scenario.upsert_table() == [{"id": 1, "v": "b", "at": 5}]
    scenario.say(_told("d", "", 4), tombstone(1), _told("c", "again", 1))
    assert scenario.upsert_table() == [{"id": 1, "v": "again", "at": 1}]
    assert scenario.dead_letters() == [("no_order_value", "the column at, which orders the changes, has no value")]


def _adopting(root: Path, version: int, **settings: Any) -> UpsertScenario:
    """An upsert table of a table that has a key twice, and a row without one."""
    scenario = UpsertScenario(root, key_columns=("id",), key=JSON_KEYS, columns=_COLUMNS, **settings)
    appending = Scenario(root / "other", columns=_COLUMNS, format_version=version)
    appending.run(*_TWICE)
    scenario.catalog = appending.catalog.for_pipeline("upsert_table")
    scenario.spec = scenario.spec.model_copy(update={"pipeline": "upsert_table"})
    return scenario


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_takes_all_rows_of_a_key_that_is_there_twice(tmp_path: Path, version: int) -> None:
    scenario = _adopting(tmp_path, version)
    assert scenario.tell(("1", None)).status.run_state.value == "waiting"
    assert sorted(row["v"] for row in scenario.upsert_table()) == [3, 4]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("at", "left"), [(2, [1, 2]), (4, [1, 2]), (5, [9]), (6, [9])])
def test_a_change_replaces_all_rows_of_a_key_unless_one_of_them_is_newer(
    tmp_path: Path, version: int, at: int, left: list[int]
) -> None:
    scenario = _adopting(tmp_path, version, order_by="at")
    table = scenario.tell(("1", {"id": 1, "v": 9, "at": at}))
    assert sorted(row["v"] for row in scenario.upsert_table() if row["id"] == 1) == left
    assert table.changes.resolved is not None
    assert table.changes.resolved.late == int(left != [9])


@pytest.mark.parametrize("version", [2, 3])
def test_of_a_key_that_is_there_twice_one_row_stays_and_is_marked(tmp_path: Path, version: int) -> None:
    marks = {"deleted": "_deleted", "deleted_at": "_deleted_at"}
    scenario = _adopting(tmp_path, version, deletes="soft", metadata=marks)
    scenario.tell(("1", None))
    (row,) = [row for row in scenario.upsert_table() if row["id"] == 1]
    assert (row["_deleted"], row["v"] in (1, 2)) == (True, True)
