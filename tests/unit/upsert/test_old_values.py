"""Values that were not sent, of many rows: where each is comes down to a few numbers, and few of them are read at a time."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from frazil.catalog.scans import LiveFile
from frazil.decode.settings import PLACEHOLDER
from frazil.ingest.plan import read_once
from frazil.ingest.tasks.task_job import Job
from frazil.report import TaskReport
from frazil.types import Batch
from frazil.upsert.lookup.live_rows import read_columns
from frazil.upsert.old_values import complete
from frazil.upsert.old_values.complete import ValuesMissing, complete_buffered
from frazil.upsert.old_values.row_places import RowPlaces, are_less, ends_of_chains
from frazil.write.write import FileWriter
from frazil_testing.twins import MemoryJobs
from tests.unit.ingest.targets import target_of
from tests.unit.upsert.test_change_rows import KEEP, Change, Lake, up
from tests.unit.upsert.upsert_source import SourceRecord, UpsertSource, changed, made, tombstone


class AtOnce(Lake):
    """Each task reads its changes as one stretch."""

    def stretches(self, changes: Sequence[Change]) -> Iterable[Sequence[Change]]:
        return [changes]


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows are completed in many lots; how large these were."""
    sizes: list[int] = []

    def counted(*given: object) -> Iterator[object]:
        for found in complete_buffered(*given):  # type: ignore[arg-type]
            sizes.append(len(found[0]))
            yield found

    monkeypatch.setattr(complete, "_LOT_BYTES", 2000)
    monkeypatch.setattr("frazil.upsert.commit.complete_buffered", counted)
    return sizes


@pytest.mark.parametrize("version", [2, 3])
def test_rows_are_completed_a_lot_at_a_time_wherever_their_values_are(
    tmp_path: Path, version: int, few_at_a_time: list[int]
) -> None:
    lake = AtOnce(tmp_path, version)
    for begin in range(0, 300, 100):
        lake.tell([up(key, f"a{key}", f"b{key}") for key in range(begin, begin + 100)])
    asked = np.random.default_rng(7).permutation(400).tolist()
    resolved = lake.tell(
        [up(key, f"new a{key}", KEEP) for key in asked if key % 3 == 0],
        [up(key, KEEP, f"new b{key}") for key in asked if key % 2 == 0],
    )

    def told(key: int) -> tuple[int, str | None, str | None]:
        old = key < 300
        a = f"new a{key}" if key % 3 == 0 else f"a{key}" if old else None
        b = f"new b{key}" if key % 2 == 0 else f"b{key}" if old else None
        return key, a, b

    assert lake.rows() == [told(key) for key in range(400) if key < 300 or key % 2 == 0 or key % 3 == 0]
    assert resolved.missing_required == sum(key % 6 != 0 and (key % 2 == 0 or key % 3 == 0) for key in range(300, 400))
    assert len(few_at_a_time) > 5


def test_all_rows_that_lack_a_required_value_are_told_at_once(tmp_path: Path, few_at_a_time: list[int]) -> None:
    lake = AtOnce(tmp_path, 3)
    lake.tell([up(key, "a", "b") for key in range(100)])
    fields = lake.target.schema.fields
    required = Schema(
        *(NestedField(one.field_id, one.name, one.field_type, required=one.name == "b") for one in fields)
    )
    lake.target = replace(lake.target, schema_json=required.model_dump_json())
    with pytest.raises(ValuesMissing) as gone:
        lake.tell([up(key, "new", KEEP) for key in range(50, 150)], [up(key, "new", KEEP) for key in range(150, 200)])
    assert gone.value.columns == ("b",)
    assert sorted(gone.value.places(["a"])) == [("a", 0, offset) for offset in range(150, 250)]
    assert sum(few_at_a_time) <= 50


def test_a_value_that_was_not_sent_takes_a_few_numbers_in_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, peaks = 40_000, list[int]()
    lake = AtOnce(tmp_path, 3)
    lake.tell([up(key, "a", "b") for key in range(count)])

    def traced(*given: object) -> Iterator[object]:
        tracemalloc.start()
        try:
            yield from complete_buffered(*given)  # type: ignore[arg-type]
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    monkeypatch.setattr("frazil.upsert.commit.complete_buffered", traced)
    resolved = lake.tell(
        [up(key, KEEP, "new") for key in range(count // 2)], [up(key, KEEP, "new") for key in range(count // 2, count)]
    )
    assert (resolved.deleted, resolved.missing_required) == (count, 0)
    assert peaks[0] < 200 * count


def test_a_truncate_is_no_change_that_gives_values_though_it_has_no_place_in_the_order(tmp_path: Path) -> None:
    def told(op: str, key: int, at: int, big: str) -> SourceRecord:
        return {"id": key}, {"op": op, "before": None, "after": {"id": key, "at": at, "big": big}}

    scenario = UpsertSource(tmp_path, partitions=1, key_columns=("id",), order_by="at")
    scenario.say(told("c", 1, 1, "old"), told("c", 2, 1, "old"))
    scenario.jobs = MemoryJobs(scenario.source, batch_size=1, tasks=2)
    truncate: SourceRecord = None, {"op": "t", "before": None, "after": None}
    scenario.say(
        truncate, made({"id": 9, "at": 9, "big": "nine"}), told("c", 1, 5, "new"), told("u", 1, 6, PLACEHOLDER)
    )
    assert [(row["id"], row["at"], row["big"]) for row in scenario.by_id()] == [(1, 6, "new"), (9, 9, "nine")]


class Dealt(MemoryJobs):
    """One task reads partitions 0 and 2, another one partition 1."""

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        reports = []
        for mine in ((0, 2), (1,)):
            share = tuple(one for one in read_once(batches) if one.partition in mine)
            reports += super().run([Batch("", share)], job, pool=pool)
        return reports


def test_a_value_comes_from_behind_a_delete_that_another_task_has_read(tmp_path: Path) -> None:
    """Of the values that it may come from, the greatest in the order of the column is from before that delete."""
    scenario = UpsertSource(tmp_path, partitions=3, key_columns=("id",), order_by="at")
    scenario.jobs = Dealt(scenario.source)
    reports = (
        (0, made({"id": 1, "at": 5, "big": "before"})),
        (0, made({"id": 1, "at": 9, "big": "greatest"})),
        (1, tombstone(1)),
        (2, made({"id": 1, "at": 3, "big": "behind"})),
        (2, changed({"id": 1, "at": 7, "big": PLACEHOLDER})),
    )
    for partition, (key, value) in reports:
        scenario.put(json.dumps(key), value, partition)
    scenario.catch_up()
    assert scenario.by_id() == [{"id": 1, "at": 7, "big": "behind"}]


class Cut(MemoryJobs):
    """Two tasks read a partition, the second one from `at` on."""

    at = 0

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        (whole,) = read_once(batches)
        at = min(max(self.at, whole.start), whole.end)
        pieces = [piece for piece in (replace(whole, end=at), replace(whole, start=at)) if piece.span]
        reports = []
        for piece in pieces:
            reports += super().run([Batch("", (piece,))], job, pool=pool)
        return reports


@pytest.mark.parametrize("at", range(1, 7))
def test_a_row_of_a_snapshot_that_is_told_again_gives_no_value_to_what_came_behind_it(tmp_path: Path, at: int) -> None:
    """Its transaction was open as the row was read, so its place is older; a connector that dies repeats all of it."""
    scenario = UpsertSource(tmp_path, partitions=1, metadata={"source_order": "_order"}, order_by="_order")
    scenario.jobs = jobs = Cut(scenario.source)
    jobs.at = at

    def told(op: str, lsn: int, v: int, big: str) -> SourceRecord:
        source = {"connector": "postgresql", "lsn": lsn, "ts_ms": lsn}
        return {"id": 1}, {"op": op, "before": None, "after": {"id": 1, "v": v, "big": big}, "source": source}

    read, opened, later = told("r", 7, 0, "old"), told("u", 6, 1, "new"), told("u", 9, 2, PLACEHOLDER)
    scenario.say(read)
    scenario.say(opened, later, read, opened, later)
    assert [(row["v"], row["big"]) for row in scenario.by_id()] == [(2, "new")]


def test_rows_are_read_of_the_row_groups_that_have_them(tmp_path: Path) -> None:
    small = {"write.parquet.row-group-size-bytes": "1000"}
    target = target_of(tmp_path, {"k": "long", "s": "struct<t: string>"}, properties=small)
    writer, count = FileWriter(target), 1000
    for begin in range(0, count, 100):
        numbers = range(begin, begin + 100)
        rows = [{"k": n, "s": {"t": f"t{n}"} if n % 7 else None} for n in numbers]
        writer.write(pa.Table.from_pylist(rows, schema=target.arrow_schema))
    (written,) = writer.finish()
    assert pq.read_metadata(written.path).num_row_groups > 5
    file = LiveFile(written.path, written.record_count, written.content)
    asked = np.random.default_rng(1).integers(0, count, 50)
    key, text = read_columns(target, file, [("k",), ("s", "t")], asked)
    assert key.to_pylist() == asked.tolist()
    assert text.to_pylist() == [f"t{n}" if n % 7 else None for n in asked.tolist()]
    assert [len(column) for column in read_columns(target, file, [("k",), ("s",)], asked[:0])] == [0, 0]
    assert read_columns(target, file, [("k",)])[0].to_pylist() == list(range(count))


def test_where_rows_are() -> None:
    places = RowPlaces.nowhere(5)
    places.put(np.array([4, 0, 2]), np.array([7, 3, 7], np.int32), np.array([40, 0, 20]))
    places.put(np.array([3]), 0, np.array([30]))
    assert places.are_there.tolist() == [True, False, True, True, True]
    assert [part.tolist() for part in places.by_source()] == [[3], [0], [2, 4]]
    places.drop(np.array([0, 3]))
    assert [part.tolist() for part in places.take(np.array([0, 4])).by_source()] == [[1]]
    assert RowPlaces.nowhere(2).by_source() == []


def test_ends_of_chains_are_found_however_long_these_are() -> None:
    before = np.arange(1000) - 1
    every = np.ones(1000, np.bool_)
    assert (ends_of_chains(before, every) == -1).all()
    assert not ends_of_chains(before, before >= 0).any()
    two = np.array([-1, 0, -1, 2, 3])
    assert ends_of_chains(two, np.arange(5) != 2).tolist() == [-1, -1, 2, 2, 2]
    assert ends_of_chains(np.zeros(0, np.int64), np.zeros(0, np.bool_)).size == 0


def test_numbers_are_compared_by_the_first_that_differs() -> None:
    ones, others = (np.array([1, 1, 1, 2]), np.array([5, 6, 7, 0])), (np.array([1, 1, 2, 1]), np.array([6, 6, 0, 9]))
    assert are_less(ones, others).tolist() == [True, False, True, False]
