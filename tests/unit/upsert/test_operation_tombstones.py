"""Rows with their operation beside them, and records without a value among them: all that compaction leaves of a delete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.spec.settings import EnvelopeSpec
from tests.unit.upsert.upsert_source import MARKS, SourceRecord, UpsertSource, tombstone

OPS = EnvelopeSpec(kind="operation", operation="ops", insert=("I",), update=("U",), delete=("D",))


def _told(op: str, key: int, v: int) -> SourceRecord:
    return {"id": key}, {"id": key, "v": v, "ops": op}


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("settings", [{}, {"key_columns": ("id",)}, {"key_columns": ("id",), "order_by": "v"}])
def test_a_tombstone_deletes_the_row_of_its_key(tmp_path: Path, settings: dict[str, Any], tasks: int) -> None:
    scenario = UpsertSource(tmp_path, tasks, envelope=OPS, **settings)
    scenario.say(*(_told("I", key, key) for key in (1, 2, 3, 4)))
    table = scenario.say(
        tombstone(1), _told("D", 2, 3), tombstone(2), _told("U", 3, 5), tombstone(4), _told("I", 4, 6), (None, None)
    )
    assert scenario.by_id() == [{"id": 3, "v": 5}, {"id": 4, "v": 6}]
    assert table.bad_records.ignored_records == {"tombstone": 2}
    scenario.say(_told("D", 3, 7))
    table = scenario.say(tombstone(3), tombstone(4))
    assert (scenario.by_id(), scenario.dead_letters(), table.bad_records.ignored_records) == ([], [], {"tombstone": 1})


def test_a_tombstone_marks_no_row_as_deleted(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, envelope=OPS, key_columns=("id",), **MARKS)
    scenario.say(_told("I", 1, 1), _told("I", 2, 2))
    table = scenario.say(tombstone(1), _told("D", 2, 2))
    assert [row["_deleted"] for row in scenario.by_id()] == [False, True]
    assert table.bad_records.ignored_records == {"tombstone": 1}
