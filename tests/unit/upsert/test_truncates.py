"""Truncates of tables whose changes come through one partition or several: a whole service on the ports in memory.

FRAZIL_EXAMPLES: how many times as many random loads to try.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frazil.decode.settings import PLACEHOLDER
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from tests.unit.upsert.upsert_source import MARKS, Row, UpsertSource

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
SAMPLES = Path(__file__).parents[2] / "fixtures" / "debezium_messages.jsonl"
ORDERED: dict[str, Any] = {"metadata": {"source_order": "_source_order"}, "order_by": "_source_order"}


class Partitioned(UpsertSource):
    """A table whose changes are told with their places in the source's log, each through one of two partitions."""

    def change(self, lsn: int, op: str, key: int | None = None, v: str | None = None, partition: int = 0) -> None:
        """A change of a row; without a key, of the whole table."""
        row = None if key is None else {"id": key, "v": v}
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        source = {"connector": "postgresql", "lsn": lsn}
        self.put(None if key is None else f'{{"id": {key}}}', {"op": op, **images, "source": source}, partition)

    def values(self) -> dict[int, str | None]:
        """Values by key; a key that is there twice is seen."""
        found = self.upsert_table("id", "v") if self.upsert_table() else []
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: row["v"] for row in found}

    def stopped(self) -> Table:
        table = self.catch_up()
        assert table.status.run_state is RunState.STOPPED
        return table


def test_a_truncate_that_has_no_place_among_other_partitions_stops_the_table(tmp_path: Path) -> None:
    scenario = Partitioned(tmp_path)
    scenario.change(1, "c", 1, "a", 0)
    scenario.change(2, "c", 2, "a", 1)
    scenario.catch_up()
    scenario.change(4, "c", 3, "newer", 0)
    scenario.change(3, "t", partition=1)
    table = scenario.stopped()
    assert table.status.reason == "the order of a truncate among the changes of other partitions is unknown"
    assert (table.status.where, scenario.values()) == ("topic a, partition 1, offset 1", {1: "a", 2: "a"})
    assert {str(path) for path in tmp_path.rglob("*.parquet")} == {file.path for file in scenario.data_files("n.t")}


@pytest.mark.parametrize("order_by", ["v", "_source_order"])
def test_a_truncate_without_a_value_to_order_it_by_stops_the_table(tmp_path: Path, order_by: str) -> None:
    scenario = Partitioned(tmp_path, metadata=ORDERED["metadata"], order_by=order_by)
    scenario.change(1, "c", 1, "a")
    scenario.catch_up()
    scenario.put(None, {"op": "t", "before": None, "after": None}, 1)
    assert scenario.stopped().status.where == "topic a, partition 1, offset 0"
    assert scenario.values() == {1: "a"}


def test_rows_that_do_not_tell_whether_they_are_older_than_a_truncate_stop_the_table(tmp_path: Path) -> None:
    scenario = Partitioned(tmp_path, **ORDERED)
    scenario.exists(id="long", v="string", _source_order="string")
    scenario.change(5, "c", 2, "a")
    scenario.catch_up()
    scenario.change(6, "t", partition=1)
    reason = "rows have no value in the column _source_order, and a truncate deletes the older rows"
    assert scenario.stopped().status.reason == reason
    assert scenario.values() == {1: "old", 2: "a"}


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_truncate_takes_what_is_older_in_every_partition_whenever_it_comes(tmp_path: Path, tasks: int) -> None:
    scenario = Partitioned(tmp_path, tasks, **ORDERED)
    scenario.change(1, "c", 1, "old")
    scenario.change(2, "c", 3, "old")
    scenario.change(7, "u", 3, "new")
    scenario.change(8, "c", 5, "new")
    scenario.catch_up()
    assert scenario.values() == {1: "old", 3: "new", 5: "new"}
    scenario.change(3, "c", 2, "old", 1)
    scenario.change(5, "t", partition=1)
    scenario.change(6, "c", 4, "new", 1)
    scenario.catch_up()
    assert scenario.values() == {3: "new", 4: "new", 5: "new"}
    scenario.change(4, "c", 6, "old, and late", 1)
    scenario.change(9, "c", 8, "new", 1)
    assert scenario.catch_up().progress.order.emptied.startswith("00000000000000000005/")
    assert scenario.values() == {3: "new", 4: "new", 5: "new", 8: "new"}
    scenario.change(10, "t")
    scenario.catch_up()
    assert (scenario.values(), scenario.data_files("n.t"), scenario.dead_letters()) == ({}, [], [])


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("settings", [{"format_version": 2}, {"format_version": 3}, MARKS])
def test_a_table_is_what_its_source_was_though_partitions_come_at_different_times(
    tmp_path: Path, settings: dict[str, Any], tasks: int
) -> None:
    asked = {**settings, **ORDERED, "metadata": {**settings.get("metadata", {}), **ORDERED["metadata"]}}
    for seed in range(_TIMES):
        rng = np.random.default_rng(seed)
        scenario = Partitioned(tmp_path / str(seed), tasks, **asked)
        waiting: list[list[tuple[int, str, int | None]]] = [[], []]
        for lsn in range(1, 80):
            op = str(rng.choice(["c", "d", "t"], p=[0.75, 0.18, 0.07]))
            key = None if op == "t" else int(rng.integers(0, 12))
            waiting[int(rng.integers(0, 2)) if key is None else key % 2].append((lsn, op, key))
        reported: list[tuple[int, str, int | None]] = []
        while any(waiting):
            for partition, queue in enumerate(waiting):
                count = int(rng.integers(0, 16))
                for lsn, op, key in queue[:count]:
                    scenario.change(lsn, op, key, f"v{lsn}", partition)
                reported += queue[:count]
                del queue[:count]
            scenario.catch_up()
            assert _alive(scenario) == _replayed(reported), (seed, reported)


def _alive(scenario: Partitioned) -> dict[int, str]:
    rows: list[Row] = [row for row in scenario.upsert_table() if not row.get("_deleted")]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}


def _replayed(reported: list[tuple[int, str, int | None]]) -> dict[int, str]:
    """The rows after these changes, each at its place in the source's log."""
    rows: dict[int, str] = {}
    for lsn, op, key in sorted(reported, key=lambda change: change[0]):
        if key is None:
            rows.clear()
        elif op == "d":
            rows.pop(key, None)
        else:
            rows[key] = f"v{lsn}"
    return rows


def test_a_value_that_was_not_sent_is_not_taken_from_a_row_that_is_gone(tmp_path: Path) -> None:
    scenario = Partitioned(tmp_path, **ORDERED)
    scenario.change(1, "c", 1, "before the truncate")
    scenario.catch_up()
    scenario.change(2, "t", partition=1)
    scenario.change(3, "u", 1, PLACEHOLDER)
    scenario.catch_up()
    assert scenario.values() == {1: None}


def test_a_truncate_that_is_told_again_takes_no_more(tmp_path: Path) -> None:
    scenario = Partitioned(tmp_path, **ORDERED)
    scenario.change(1, "c", 1, "a")
    for _ in range(2):
        scenario.change(2, "t", partition=1)
        scenario.change(3, "c", 2, "b")
        scenario.catch_up()
        assert scenario.values() == {2: "b"}


@pytest.mark.parametrize(("op", "left"), [("r", {1: "newest"}), ("d", {})])
def test_what_is_repeated_from_before_a_truncate_takes_the_place_of_nothing_newer(
    tmp_path: Path, op: str, left: dict[int, str | None]
) -> None:
    """Behind a row of a snapshot, and behind a delete, it would be newer."""
    scenario = Partitioned(tmp_path, **ORDERED)
    scenario.change(2, "c", 1, "old")
    scenario.change(3, "t", partition=1)
    scenario.change(4, "c", 1, "new")
    scenario.catch_up()
    scenario.change(6, op, 1, "newest")
    scenario.change(2, "c", 1, "old")
    scenario.catch_up()
    assert scenario.values() == left


def test_a_truncate_that_is_told_again_in_the_only_partition_takes_nothing_newer(tmp_path: Path) -> None:
    scenario = Partitioned(tmp_path, partitions=1, **ORDERED)
    scenario.change(1, "c", 1, "old")
    scenario.change(2, "t")
    scenario.change(3, "c", 2, "new")
    scenario.catch_up()
    scenario.change(1, "c", 1, "old")
    scenario.change(2, "t")
    scenario.catch_up()
    assert scenario.values() == {2: "new"}


def test_a_truncate_without_a_place_has_one_by_arrival_in_the_only_partition(tmp_path: Path) -> None:
    scenario = Partitioned(tmp_path, partitions=1, **ORDERED)
    scenario.exists(id="long", v="string", _source_order="string")
    scenario.change(5, "c", 2, "a")
    scenario.change(6, "t")
    scenario.change(7, "c", 3, "b")
    scenario.catch_up()
    assert scenario.values() == {3: "b"}
    scenario.put(None, {"op": "t", "before": None, "after": None})
    scenario.change(8, "c", 4, "c")
    scenario.catch_up()
    assert scenario.values() == {4: "c"}


def test_a_truncate_of_postgresql_is_where_it_happens_to_be_and_has_its_place(tmp_path: Path) -> None:
    scenario = Partitioned(tmp_path, partitions=4, **ORDERED)
    reported = [one for one in map(json.loads, SAMPLES.read_text().splitlines()) if one["topic"] == "fz.public.orders"]
    (truncate,) = [one for one in reported if one["value"] and json.loads(one["value"])["op"] == "t"]
    assert (truncate["key"], truncate["partition"]) == (None, 1)
    for one in reported:
        raw = [None if text is None else text.encode() for text in (one["value"], one["key"])]
        headers = tuple((name, word.encode()) for name, word in one["headers"])
        scenario.source.produce("a", one["partition"], raw[0], key=raw[1], headers=headers)
    lsn = json.loads(truncate["value"])["source"]["lsn"]
    assert scenario.catch_up().progress.order.emptied.startswith(f"{lsn:020d}/")
    assert (scenario.upsert_table(), [kind for kind, _ in scenario.dead_letters()]) == ([], [])
