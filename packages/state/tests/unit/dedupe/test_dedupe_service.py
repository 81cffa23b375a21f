"""A whole service on the ports in memory: append tables that drop records which they have already, over restarts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from frazil.ingest.tables.state import RunState
from frazil.types import Balance, Commit, Progress
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter
from packages.state.tests.unit.merge.merging import Merging

_HOUR = 3_600_000
_BEGIN = 1_700_000_000_000


@pytest.fixture(autouse=True, params=[0, 50_000], ids=["hashes of files", "reported hashes"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of how many rows of a task at most the hashes are reported: of more the driver makes them of the files."""
    monkeypatch.setattr("frazil_state.dedupe.id_rows._FEW", request.param)


def _balance(merging: Merging) -> Balance:
    state = merging.catalog.load("n.t")
    assert state is not None
    assert state.progress.batch.balance is not None
    return state.progress.batch.balance


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("within", ["", ", within: 24h"])
def test_a_record_is_kept_once_over_batches_tasks_and_restarts(
    tmp_path: Path, within: str, version: int, tasks: int
) -> None:
    settings = f"dedupe: {{by: [id]{within}}}, format_version: {version}"
    merging = Merging(tmp_path, settings, partitions=2, tasks=tasks)
    for number in (1, 2, 1, 3, 2, 4):
        merging.put({"id": f"e{number}", "v": number}, partition=number % 2)
    merging.catch_up()
    assert merging.table_rows("id", "v") == [(f"e{number}", number) for number in (1, 2, 3, 4)]
    assert _balance(merging).dropped == {"duplicate": 2}
    for number in (4, 5, 4, 1, 6):
        merging.put({"id": f"e{number}", "v": number * 10}, partition=number % 2)
    merging.catch_up()
    rows = [(f"e{number}", number if number < 5 else number * 10) for number in range(1, 7)]
    assert merging.table_rows("id", "v") == rows
    balance = _balance(merging)
    assert (balance.read, balance.written, balance.dropped) == (5, 2, {"duplicate": 3})
    for number in (1, 2):
        merging.put({"id": f"e{number}", "v": 0})
    table = merging.catch_up()
    assert merging.table_rows("id", "v") == rows
    assert table.progress.totals.ignored_records == {"duplicate": 7}


def test_the_distance_is_that_to_the_record_that_is_kept(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "dedupe: {by: [id], within: 24h}")
    hours = [0, 23, 46, 24, 25, 47, -23, -25, 49]
    for batches in (hours[:4], hours[4:6], hours[6:]):
        for hour in batches:
            merging.put({"id": "a", "hour": hour}, at_ms=_BEGIN + hour * _HOUR)
        merging.catch_up()
    # 0 is kept; 46 is 46 hours from it; -25 is 25 hours from 0. 49 is 3 hours from 46.
    assert merging.table_rows("hour") == [(-25,), (0,), (46,)]


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_record_exactly_at_the_distance_is_a_duplicate_and_one_further_is_not(tmp_path: Path, is_cut: bool) -> None:
    merging = Merging(tmp_path, "dedupe: {by: [id], within: 1h}")
    for name, at_ms in (("a", 0), ("a", _HOUR), ("b", 0), ("b", _HOUR + 1)):
        merging.put({"id": name, "at": at_ms}, at_ms=_BEGIN + at_ms)
        if is_cut:
            merging.catch_up()
    merging.catch_up()
    assert merging.table_rows("id", "at") == [("a", 0), ("b", 0), ("b", _HOUR + 1)]


def test_records_without_an_id_are_all_kept(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "dedupe: {by: [id, part]}")
    for value in (
        {"id": 1, "part": 1},
        {"id": None, "part": 1},
        {"part": 1},
        {"id": 1},
        {"id": 1, "part": 1},
        {"id": 1},
    ):
        merging.put(value)
    merging.catch_up()
    found = sorted(map(str, merging.table_rows_unsorted("id", "part")))
    assert found == sorted(map(str, [(1, 1), (None, 1), (None, 1), (1, None), (1, None)]))


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("settings", ["dedupe: {by: [id]}", "dedupe: {by: [id], within: 1h}, metadata: [timestamp]"])
def test_batches_without_an_id_are_kept_behind_others(tmp_path: Path, settings: str, tasks: int) -> None:
    merging = Merging(tmp_path, f"{settings}, columns: {{id: string, v: int}}", partitions=2, tasks=tasks)
    batches: list[list[str | None]] = [[None, None], ["a", "b"], [None], [None, "a", None, "c"], [None, None]]
    number = 0
    for batch in batches:
        for name in batch:
            number += 1
            merging.put({"id": name, "v": number}, partition=number % 2)
        assert merging.catch_up().status.run_state is not RunState.STOPPED
    assert merging.table_rows("v") == [(v,) for v in (1, 2, 3, 4, 5, 6, 8, 9, 10, 11)]


def test_a_batch_of_duplicates_alone_adds_no_file(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "dedupe: {by: [id]}")
    merging.tell({"id": 1}, {"id": 2})
    before = len(merging.catalog.data_files("n.t"))
    merging.tell({"id": 2}, {"id": 1}, {"id": 2})
    assert len(merging.catalog.data_files("n.t")) == before
    assert merging.table_rows("id") == [(1,), (2,)]
    assert _balance(merging).dropped == {"duplicate": 3}


def test_a_column_that_no_record_has_stops_the_table_instead_of_keeping_all(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "dedupe: {by: [event]}")
    table = merging.tell({"id": 1}, {"id": 1})
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason == "`dedupe.by` has event, and neither the table nor its records have every one of them"
    assert table.status.remedy == "correct the name, or declare the column under `columns`"


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize(
    ("settings", "values", "column"),
    [
        ("dedupe: {by: [event]}", [{"event": None}, {"event": "x"}], "event"),
        ("dedupe: {by: [EVENT]}", [{"event": None}, {"event": "x"}], "event"),
        ("dedupe: {by: [event, id]}", [{"event": None}, {"event": "x"}], "event"),
        ("dedupe: {by: [event], within: 1h}", [{"event": None}, {"event": "x"}], "event"),
        ("dedupe: {by: [meta.event]}", [{"meta": {"event": None}}, {"meta": {"event": "x"}}], "meta"),
        ("dedupe: {by: [meta.event]}", [{"meta": None}, {"meta": {"event": "x"}}], "meta"),
        ("dedupe: {by: [meta.event]}", [{"meta": {}}, {"meta": {"event": "x"}}], "meta"),
        ("dedupe: {by: [meta.event]}", [{"meta": {"event": None, "n": 1}}, {"meta": {"event": "x", "n": 1}}], "meta"),
        ("dedupe: {by: [event_id]}, column_case: snake", [{"eventId": None}, {"eventId": "x"}], "event_id"),
        (
            "dedupe: {by: [meta_event]}, flatten: true",
            [{"meta": {"event": None}}, {"meta": {"event": "x"}}],
            "meta_event",
        ),
    ],
)
def test_first_records_with_null_as_their_id_are_all_kept(
    tmp_path: Path, settings: str, values: list[dict[str, object]], column: str, tasks: int
) -> None:
    """The column is made with the first id, and duplicates are dropped from then on."""
    without_id, with_id = values
    merging = Merging(tmp_path, settings, tasks=tasks)
    table = merging.tell(*({"id": 1} | without_id for _ in range(3)))
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert merging.table_rows("id") == [(1,)] * 3
    merging.tell({"id": 1} | with_id, {"id": 1} | without_id, {"id": 1} | with_id)
    merging.tell({"id": 1} | with_id)
    assert len(merging.table_rows_unsorted("id")) == 5
    assert (
        sum(row[0] in ("x", {"event": "x"}, {"event": "x", "n": 1}) for row in merging.table_rows_unsorted(column)) == 1
    )


def test_an_id_that_only_some_names_of_are_in_records_stops_the_table(tmp_path: Path) -> None:
    table = Merging(tmp_path, "dedupe: {by: [event, typo]}").tell({"id": 1, "event": None})
    assert table.status.run_state is RunState.STOPPED
    assert "`dedupe.by` has event, typo, and neither" in table.status.reason


def test_a_table_of_format_version_1_is_refused(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "dedupe: {by: [id]}")
    merging.tell({"id": 1})
    merging.catalog.upgrade("n.t", 1)
    table = merging.tell({"id": 1})
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason.startswith("the table has format version 1, and `dedupe` deletes rows of files")


def test_partitions_and_sort_orders_change_nothing(tmp_path: Path) -> None:
    settings = 'dedupe: {by: [id]}, columns: {id: long, v: string}, partition_by: ["bucket(id, 4)"], sort_by: [v]'
    merging = Merging(tmp_path, settings, tasks=3)
    for begin in (0, 5):
        for number in range(begin, begin + 20):
            merging.put({"id": number, "v": f"{(number * 7) % 11}"})
            merging.put({"id": number // 2, "v": "again"})
        merging.catch_up()
    assert merging.table_rows("id", "v") == [
        (number, f"{(number * 7) % 11}" if number else "0") for number in range(25)
    ]


def test_a_stopped_table_continues_once_its_remedy_is_done(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "dedupe: {by: [event]}")
    merging.tell({"id": 1}, {"id": 1})
    again = Merging(tmp_path / "again", "dedupe: {by: [id]}")
    again.source.by_name["a"] = merging.source.by_name["a"]
    again.catch_up()
    assert again.table_rows("id") == [(1,)]
    again.catalog.upgrade("n.t", 1)
    assert again.tell({"id": 2}).status.run_state is RunState.STOPPED
    again.catalog.upgrade("n.t", 2)
    again.tell({"id": 2}, {"id": 1})
    assert again.table_rows("id") == [(1,), (2,)]


def test_an_event_that_another_writer_adds_before_the_commit_is_a_duplicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merging = Merging(tmp_path, "dedupe: {by: [id]}")
    merging.tell({"id": "a", "v": 1})
    catalog, send = merging.catalog, merging.catalog.commit

    def add(commit: Commit) -> Progress:
        monkeypatch.undo()
        state = catalog.load("n.t")
        assert state is not None
        target = plain_target(state)
        writer = FileWriter(target)
        writer.write(pa.Table.from_pylist([{"id": "b", "v": 2}], schema=target.arrow_schema))
        catalog.append_foreign("n.t", tuple(writer.finish()))
        return send(commit)

    monkeypatch.setattr(catalog, "commit", add)
    merging.tell({"id": "b", "v": 3}, {"id": "c", "v": 4})
    assert merging.table_rows("id", "v") == [("a", 1), ("b", 2), ("c", 4)]
    assert _balance(merging).dropped == {"duplicate": 1}


def test_ids_of_one_hash_are_looked_up_each_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("id_rows", "stored"):
        monkeypatch.setattr(f"frazil_state.dedupe.{module}.hash_ids", lambda keys: np.full(len(keys[0]), 7, np.uint64))
    monkeypatch.setattr("frazil_state.dedupe.commit._MOST_PRUNED", 0)
    merging = Merging(tmp_path, "dedupe: {by: [id]}, format_version: 3")
    for ids in ((100, 5), (1, 5, 2)):
        for number in ids:
            merging.put({"id": number})
        merging.catch_up()
    assert sorted(merging.table_rows("id")) == [(1,), (2,), (5,), (100,)]
