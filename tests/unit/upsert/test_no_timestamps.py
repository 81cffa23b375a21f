"""Records without a timestamp in upsert tables and change data: Kafka has -1 for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.kafka.port import NO_TIMESTAMP_MS
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario
from tests.unit.upsert.upsert_source import MARKS, Log, UpsertSource

_BY_TIME: dict[str, Any] = {"metadata": {"timestamp": "_at"}, "order_by": "_at", "dead_letters": {"stop_above": 1.0}}


def _send(scenario: UpsertScenario, at_ms: int, key: int, value: dict[str, Any] | None) -> None:
    text = None if value is None else json.dumps(value).encode()
    scenario.source.produce("a", 0, text, at_ms, key=json.dumps({"id": key}).encode())


def test_a_change_has_no_place_in_the_order_and_is_a_dead_letter(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",), **_BY_TIME)
    _send(scenario, 5000, 1, {"id": 1, "v": "a"})
    _send(scenario, NO_TIMESTAMP_MS, 1, {"id": 1, "v": "b"})
    _send(scenario, NO_TIMESTAMP_MS, 2, {"id": 2, "v": "c"})
    scenario.catch_up()
    assert scenario.upsert_table("id", "v") == [{"id": 1, "v": "a"}]
    assert (
        scenario.dead_letters()
        == [
            ("no_order_value", "the column _at, which orders the changes, has no value"),
        ]
        * 2
    )


def test_a_tombstone_deletes_by_its_offset(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",), **_BY_TIME)
    _send(scenario, 5000, 1, {"id": 1, "v": "a"})
    _send(scenario, 5000, 2, {"id": 2, "v": "a"})
    scenario.catch_up()
    _send(scenario, NO_TIMESTAMP_MS, 1, None)
    scenario.catch_up()
    assert scenario.upsert_table("id", "v") == [{"id": 2, "v": "a"}]


@pytest.mark.parametrize("is_of_source", [False, True])
def test_the_time_of_a_marked_delete_is_not_known(tmp_path: Path, is_of_source: bool) -> None:
    kind = UpsertSource if is_of_source else UpsertScenario
    scenario = kind(tmp_path, key=JSON_KEYS, key_columns=("id",), **MARKS)
    row = {"id": 1, "v": "a"}
    _send(scenario, NO_TIMESTAMP_MS, 1, {"op": "c", "after": row} if is_of_source else row)
    _send(scenario, NO_TIMESTAMP_MS, 1, {"op": "d", "before": row} if is_of_source else None)
    scenario.catch_up()
    assert scenario.upsert_table() == [{**row, "_deleted": True, "_deleted_at": None}]


@pytest.mark.parametrize("partitions", [(0, 0), (0, 1), (1, 0)])
def test_a_primary_key_update_finds_its_other_part(tmp_path: Path, partitions: tuple[int, int]) -> None:
    scenario = UpsertSource(tmp_path)
    log = Log(scenario, at_ms=NO_TIMESTAMP_MS)
    log.write({"id": 1, "v": "a", "big": "large"})
    scenario.catch_up()
    log.move(1, 9, "b", partitions)
    scenario.catch_up()
    assert scenario.upsert_table() == [{"id": 9, "v": "b", "big": "large"}]


def test_nothing_is_known_of_the_age_of_the_table(tmp_path: Path) -> None:
    scenario = UpsertScenario(tmp_path, key=JSON_KEYS, key_columns=("id",))
    _send(scenario, NO_TIMESTAMP_MS, 1, {"id": 1, "v": "a"})
    table = scenario.catch_up()
    assert (table.sizes.freshness_ms, table.progress.watermark.complete_to_ms) == (None, None)
    _send(scenario, 5000, 1, {"id": 1, "v": "b"})
    _send(scenario, NO_TIMESTAMP_MS, 1, {"id": 1, "v": "c"})
    table = scenario.catch_up()
    assert table.progress.watermark.complete_to_ms == 5000
