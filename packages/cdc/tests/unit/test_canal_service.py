"""Upsert tables of MySQL's tables: a whole service on the ports in memory, from Canal's messages to rows by key."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.spec.settings import EnvelopeSpec
from tests.unit.upsert.upsert_source import UpsertSource

CANAL = EnvelopeSpec(kind="canal")
TYPES = {"id": "int(11)", "v": "varchar(20)", "n": "decimal(6,2)"}


class CanalScenario(UpsertSource):
    """An upsert table of topic `a`, whose records are Canal's."""

    def __init__(self, root: Path, tasks: int = 1, **settings: Any) -> None:
        super(UpsertSource, self).__init__(root, tasks, envelope=CANAL, dead_letters={"stop_above": 1.0}, **settings)

    def write(self, kind: str, *rows: Any, old: Any = None, partition: int = 0, **more: Any) -> None:
        """One message; rows: as texts, numbers spelt out."""
        data = [{name: None if value is None else str(value) for name, value in row.items()} for row in rows]
        reported = {
            "data": data or None,
            "isDdl": not rows,
            "mysqlType": TYPES,
            "old": old,
            "pkNames": ["id"],
            "type": kind,
        }
        self.source.produce("a", partition, json.dumps({**reported, "es": 5, "ts": 6, **more}).encode(), key=None)

    def end(self) -> Table:
        return self.catch_up()


def _row(key: int, v: str | None = "a", n: str | None = "1.00") -> dict[str, Any]:
    return {"id": key, "v": v, "n": n}


def _upserted(*rows: tuple[int, str | None, str]) -> list[dict[str, Any]]:
    return [{"id": key, "v": v, "n": Decimal(n)} for key, v, n in rows]


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_rows_of_each_message_are_changes_in_their_order(tmp_path: Path, tasks: int) -> None:
    scenario = CanalScenario(tmp_path, tasks)
    scenario.write("INSERT", _row(1), _row(2), _row(3))
    scenario.write("UPDATE", _row(1, "b"), _row(1, "c"), old=[{"v": "a"}, {"v": "b"}])
    scenario.write("ALTER", sql="alter table t add x int")
    table = scenario.end()
    assert scenario.by_id() == _upserted((1, "c", "1"), (2, "a", "1"), (3, "a", "1"))
    assert (table.bad_records.ignored_records, table.progress.totals.ignored_records) == (
        {"schema_change": 1},
        {"schema_change": 1},
    )
    scenario.write("DELETE", _row(2), _row(3))
    scenario.write("INSERT", _row(3, "d", "-9999.99"))
    scenario.write("ALTER")
    table = scenario.end()
    assert scenario.by_id() == _upserted((1, "c", "1"), (3, "d", "-9999.99"))
    assert table.progress.totals.ignored_records == {"schema_change": 2}


@pytest.mark.parametrize("untyped", [0, 1, 2])
def test_a_message_without_types_among_the_first_leaves_columns_the_types_of_the_others(
    tmp_path: Path, untyped: int
) -> None:
    scenario = CanalScenario(tmp_path)
    without_types: dict[str, Any] = {"mysqlType": None}
    for number in range(3):
        scenario.write("INSERT", _row(number), **(without_types if number == untyped else {}))
    scenario.end()
    assert scenario.by_id() == _upserted((0, "a", "1"), (1, "a", "1"), (2, "a", "1"))


def test_a_row_that_gets_another_key_leaves_nothing_behind(tmp_path: Path) -> None:
    scenario = CanalScenario(tmp_path)
    scenario.write("INSERT", _row(1), _row(2, "b"))
    scenario.end()
    scenario.write("UPDATE", _row(3, "a"), _row(4, "c"), old=[{"id": "1"}, {"id": "2", "v": "b"}])
    scenario.write("UPDATE", _row(1, "a"), old=[{"id": "3"}])
    scenario.end()
    assert scenario.by_id() == _upserted((1, "a", "1"), (4, "c", "1"))


def test_a_truncate_takes_all_rows_away(tmp_path: Path) -> None:
    scenario = CanalScenario(tmp_path, partitions=1)
    scenario.write("INSERT", _row(1), _row(2))
    scenario.end()
    scenario.write("TRUNCATE", sql="truncate table t")
    scenario.write("INSERT", _row(3))
    scenario.end()
    assert scenario.by_id() == _upserted((3, "a", "1"))


def test_a_message_with_a_bad_row_is_one_dead_letter_and_changes_nothing(tmp_path: Path) -> None:
    scenario = CanalScenario(tmp_path)
    scenario.write("INSERT", _row(1), _row(2))
    scenario.end()
    scenario.write("UPDATE", _row(1, "b"), _row(2, "b", "1.005"), old=[{"v": "a"}, {"v": "a", "n": "1.00"}])
    scenario.write("INSERT", _row(3))
    scenario.end()
    assert scenario.by_id() == _upserted((1, "a", "1"), (2, "a", "1"), (3, "a", "1"))
    assert scenario.dead_letters() == [("out_of_range", '"1.005" (decimal(6,2)) is out of the range of decimal(6, 2)')]


def test_a_wider_type_of_the_source_widens_the_column(tmp_path: Path) -> None:
    scenario = CanalScenario(tmp_path)
    scenario.write("INSERT", _row(1))
    scenario.end()
    scenario.write("ALTER", sql="alter table t modify id bigint, modify n decimal(9,2), add x date")
    wide = {**TYPES, "id": "bigint(20)", "n": "decimal(9,2)", "x": "date"}
    scenario.write("INSERT", {"id": 5_000_000_000, "v": None, "n": "1234567.89", "x": "2026-11-22"}, mysqlType=wide)
    scenario.end()
    assert [(row["id"], row["n"], str(row["x"])) for row in scenario.by_id()] == [
        (1, Decimal("1.00"), "None"),
        (5_000_000_000, Decimal("1234567.89"), "2026-11-22"),
    ]


def test_a_value_that_an_update_leaves_out_stays(tmp_path: Path) -> None:
    scenario = CanalScenario(tmp_path)
    scenario.write("INSERT", _row(1, "large"), _row(2, "large"))
    scenario.end()
    scenario.write(
        "UPDATE", {"id": 1, "n": "2.00"}, {"id": 3, "n": "3.00"}, old=[{"n": "1.00"}, {"id": "2", "n": "1.00"}]
    )
    scenario.end()
    assert scenario.by_id() == _upserted((1, "large", "2"), (3, "large", "3"))


def test_another_primary_key_than_the_tables_is_a_dead_letter_that_reports_what_to_do(tmp_path: Path) -> None:
    scenario = CanalScenario(tmp_path)
    scenario.write("INSERT", _row(1))
    scenario.end()
    scenario.write("INSERT", _row(1, "b"), pkNames=["id", "v"])
    scenario.write("INSERT", _row(2), pkNames=None)
    scenario.write("INSERT", _row(3))
    scenario.end()
    assert scenario.by_id() == _upserted((1, "a", "1"), (3, "a", "1"))
    assert scenario.dead_letters() == [
        (
            "key_mismatch",
            "the message's primary key is id, v, and the table's rows are identified by id: name the table's"
            " `key_columns`",
        ),
        ("no_key", "the message names no primary key (`pkNames`): name the table's `key_columns`"),
    ]


def test_a_key_of_two_columns_and_one_that_the_file_names(tmp_path: Path) -> None:
    scenario = CanalScenario(tmp_path / "two")
    scenario.write("INSERT", _row(1), _row(1, "b"), pkNames=["v", "id"])
    scenario.write("UPDATE", _row(1, "b", "2.00"), old=[{"n": "1.00"}], pkNames=["id", "v"])
    scenario.end()
    assert scenario.by_id() == _upserted((1, "a", "1"), (1, "b", "2"))
    named = CanalScenario(tmp_path / "named", key_columns=("id",))
    named.write("INSERT", _row(1), _row(1, "b"), pkNames=None)
    named.end()
    assert named.by_id() == _upserted((1, "b", "1"))


def test_the_key_is_found_under_the_name_that_its_column_has(tmp_path: Path) -> None:
    scenario = CanalScenario(tmp_path, column_case="snake")
    types = {"orderId": "int(11)", "v": "varchar(9)"}
    for v in "ab":
        scenario.write("INSERT", {"orderId": 1, "v": v}, mysqlType=types, pkNames=["orderId"])
        scenario.end()
    assert scenario.upsert_table() == [{"order_id": 1, "v": "b"}]


def test_rows_may_stay_and_be_marked_when_they_are_deleted(tmp_path: Path) -> None:
    marks = {"deleted": "gone", "deleted_at": "gone_at"}
    scenario = CanalScenario(tmp_path, deletes="soft", metadata=marks)
    scenario.write("INSERT", _row(1), _row(2))
    scenario.write("DELETE", _row(1))
    scenario.end()
    found = [(row["id"], row["v"], row["gone"], row["gone_at"] is None) for row in scenario.by_id()]
    assert found == [(1, "a", True, False), (2, "a", False, True)]


def test_a_table_without_a_key_to_find_rows_by_is_not_made(tmp_path: Path) -> None:
    scenario = CanalScenario(tmp_path)
    scenario.write("INSERT", _row(1), pkNames=None)
    table = scenario.end()
    assert (table.status.run_state, table.progress.offsets) != (RunState.STOPPED, {})
