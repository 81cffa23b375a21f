"""Row lineage: a row of a format 3 table has one id for as long as it is there, however often changes replace it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType

from frazil.catalog.port import TableMoved
from frazil.errors import UnavailableError
from frazil.ingest.plan import read_once
from frazil.schema.evolve import new_schema
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.spec.settings import ColumnSpec
from frazil.spec.syntax.types import parse_type
from frazil.types import Commit, Progress
from frazil.upsert.lookup import live_rows
from frazil.write.plain_target import plain_target
from frazil.write.target import lineage_schema
from frazil.write.write import FileWriter
from frazil_testing import twins
from frazil_testing.twins import MemoryJobs
from tests.fixtures.lineage import has_row_ids, row_ids
from tests.needs import has_package, needs
from tests.unit.upsert.test_upsert_service import JSON_KEYS, UpsertScenario, Value
from tests.unit.upsert.upsert_source import MARKS, Log, UpsertSource

if has_package("deadletters"):
    from packages.deadletters.tests.unit.scene import TABLE
    from packages.deadletters.tests.unit.upsert_scene import LARGE, Upserted

Ids = dict[Any, int | None]
_READ = "frazil.upsert.commit.reserved_column"


def _scenario(root: Path, tasks: int = 1, **settings: Any) -> UpsertScenario:
    return UpsertScenario(root, tasks, **{"key": JSON_KEYS, "key_columns": ("id",), **settings})


def _ids(scenario: UpsertScenario) -> Ids:
    return row_ids(scenario.catalog, "n.t")


def _row(key: int, v: str) -> tuple[str, Value]:
    return str(key), {"id": key, "v": v}


def _files(scenario: UpsertScenario) -> list[str]:
    """Of the newest snapshot; nothing is left that no snapshot names."""
    snapshots = scenario.catalog.ancestors("n.t")
    named = {file.path for snapshot in snapshots for file in snapshot.files}
    named |= {file.path for snapshot in snapshots for file in snapshot.deletes}
    assert {str(path) for path in (scenario.root / "n.t").rglob("*.*") if path.is_file()} == named
    return [file.path for file in scenario.catalog.data_files("n.t")]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_row_keeps_its_id_over_updates_and_a_new_row_gets_a_new_one(tmp_path: Path, tasks: int) -> None:
    scenario = _scenario(tmp_path, tasks)
    scenario.tell(*(_row(key, "a") for key in range(6)))
    first = _ids(scenario)
    assert set(first.values()) == set(range(6))
    for v in "bcd":
        scenario.tell(_row(1, v), _row(4, v), _row(ord(v), v))
        now = _ids(scenario)
        assert {key: now[key] for key in first} == first
    assert [row["v"] for row in scenario.upsert_table() if row["id"] in (0, 1, 4)] == ["a", "d", "d"]
    _files(scenario)


def test_a_row_that_was_deleted_and_comes_again_is_a_new_one(tmp_path: Path) -> None:
    scenario = _scenario(tmp_path)
    scenario.tell(_row(1, "a"), _row(2, "a"))
    first = _ids(scenario)
    scenario.tell(("1", None), _row(2, "b"))
    scenario.tell(_row(1, "c"), _row(2, "c"))
    now = _ids(scenario)
    assert now[2] == first[2]
    assert now[1] not in first.values()


def test_files_in_which_no_row_replaces_another_are_committed_as_tasks_wrote_them(tmp_path: Path) -> None:
    scenario = _scenario(tmp_path)
    scenario.tell(*(_row(key, "a") for key in range(6)))
    scenario.tell(_row(7, "b"), ("3", None))
    scenario.tell(_row(7, "c"), _row(8, "c"))
    assert [has_row_ids(path) for path in _files(scenario)].count(True) == 1
    one_file = [file for file in scenario.catalog.data_files("n.t") if has_row_ids(file.path)]
    assert [file.record_count for file in one_file] == [2]
    assert pq.read_table(one_file[0].path)["_row_id"].null_count == 1


@pytest.mark.parametrize(("version", "columns"), [(2, ()), (3, ("_row_id",)), (3, ("_last_updated_sequence_number",))])
def test_files_have_no_ids_where_the_format_or_a_column_of_that_name_does_not_allow_it(
    tmp_path: Path, version: int, columns: tuple[str, ...]
) -> None:
    declared = tuple(ColumnSpec(name=name, type=LongType()) for name in columns)
    scenario = _scenario(tmp_path, format_version=version, columns=declared)
    rows = [{"id": key, "v": "a"} | dict.fromkeys(columns, key * 10) for key in range(3)]
    scenario.tell(*((str(row["id"]), row) for row in rows))
    scenario.tell(*((str(row["id"]), {**row, "v": "b"}) for row in rows[:2]))
    assert scenario.upsert_table() == sorted([{**row, "v": "b"} for row in rows[:2]] + rows[2:], key=json.dumps)
    fields = [field for path in _files(scenario) for field in pq.read_schema(path)]
    assert max(int(field.metadata[b"PARQUET:field_id"]) for field in fields) <= 3


def test_changes_of_one_key_in_many_partitions_leave_one_row_with_the_id(tmp_path: Path) -> None:
    scenario = _scenario(tmp_path, tasks=3, partitions=3)
    scenario.tell(*(_row(key, "a") for key in range(9)))
    first = _ids(scenario)
    for round_ in range(3):
        for partition in range(3):
            for key in range(partition, 9):
                scenario.put(*_row(key, f"{round_}{partition}"), partition)
        scenario.catch_up()
        assert _ids(scenario) == first
    _files(scenario)


def test_a_change_that_comes_late_leaves_the_row_and_its_id(tmp_path: Path) -> None:
    scenario = _scenario(tmp_path, tasks=2, order_by="at")
    scenario.tell(*((str(key), {"id": key, "at": 5}) for key in range(4)))
    first = _ids(scenario)
    scenario.tell(("1", {"id": 1, "at": 3}), ("2", {"id": 2, "at": 7}), ("9", {"id": 9, "at": 1}))
    now = _ids(scenario)
    assert {key: now[key] for key in first} == first
    assert {row["id"]: row["at"] for row in scenario.upsert_table()} == {0: 5, 1: 5, 2: 7, 3: 5, 9: 1}


def test_the_row_that_decides_in_place_of_one_in_a_file_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task has read the third partition and then the first, another one the delete between the two."""
    scenario = _scenario(tmp_path, partitions=3, order_by="at")
    scenario.tell(("1", {"id": 1, "at": 1}))
    first = _ids(scenario)
    scenario.jobs = MemoryJobs(scenario.source, batch_size=1, tasks=2)
    monkeypatch.setattr(
        twins, "read_once", lambda batches: sorted(read_once(batches), key=lambda r: (r.partition + 1) % 3)
    )
    for partition, row in enumerate(({"id": 1, "at": 10}, None, {"id": 1, "at": 5})):
        scenario.put("1", row, partition)
    scenario.catch_up()
    assert (scenario.upsert_table("id", "at"), _ids(scenario)) == ([{"id": 1, "at": 5}], first)
    _files(scenario)


def test_rows_that_wait_for_values_of_the_rows_they_replace_keep_their_ids(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    log = Log(scenario)
    for key in (1, 2, 3):
        log.write({"id": key, "v": "a", "big": f"big {key}"})
    scenario.catch_up()
    first = _ids(scenario)
    log.keep(1, "b")
    log.write({"id": 2, "v": "b", "big": "new"}, op="u")
    log.write({"id": 4, "v": "b", "big": "big 4"})
    scenario.catch_up()
    now = _ids(scenario)
    assert {key: now[key] for key in first} == first
    assert [row["big"] for row in scenario.by_id()] == ["big 1", "new", "big 3", "big 4"]
    _files(scenario)


def test_a_row_that_gets_another_key_is_a_new_one(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    log = Log(scenario)
    for key in (1, 2):
        log.write({"id": key, "v": "a", "big": f"big {key}"})
    scenario.catch_up()
    first = _ids(scenario)
    log.move(1, 7, "b")
    log.write({"id": 2, "v": "b", "big": "new"}, op="u")
    scenario.catch_up()
    now = _ids(scenario)
    assert (set(now), now[2]) == ({2, 7}, first[2])
    assert now[7] not in first.values()


def test_a_row_that_is_marked_as_deleted_and_comes_again_keeps_its_id(tmp_path: Path) -> None:
    scenario = _scenario(tmp_path, **MARKS)
    scenario.tell(_row(1, "a"), _row(2, "a"))
    first = _ids(scenario)
    for change in (("1", None), _row(1, "b")):
        scenario.tell(change)
        assert _ids(scenario) == first


def test_of_two_rows_of_one_key_the_least_id_stays(tmp_path: Path) -> None:
    scenario = _scenario(tmp_path)
    schema = new_schema([("id", parse_type("long")), ("v", parse_type("string"))])
    target = plain_target(scenario.catalog.create("n.t", schema, {}, 3))
    for v in "ab":
        writer = FileWriter(target)
        writer.write(pa.Table.from_pylist([{"id": 1, "v": v}, {"id": 2, "v": v}], schema=target.arrow_schema))
        scenario.catalog.append_foreign("n.t", tuple(writer.finish()))
    scenario.tell(_row(1, "c"), _row(2, "c"))
    assert _ids(scenario) == {1: 0, 2: 1}


def test_rows_of_partitions_and_sort_orders_lie_as_before(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"partition_by": (parse_term("bucket(id, 2)"),), "sort_by": (parse_sort("v desc"),)}
    columns = tuple(ColumnSpec(name=name, type=parse_type(word)) for name, word in (("id", "long"), ("v", "string")))
    scenario = _scenario(tmp_path, tasks=2, columns=columns, **settings)
    scenario.tell(*(_row(key, f"a{key}") for key in range(20)))
    first = _ids(scenario)
    scenario.tell(*(_row(key, f"{key * 7 % 11:02}") for key in range(10)))
    assert _ids(scenario) == first
    files = [file for file in scenario.catalog.scan("n.t").files if has_row_ids(file.path)]
    assert sorted(json.dumps(file.description["partition"]) for file in files) == ["[0]", "[1]"]
    for file in files:
        values = pq.read_table(file.path)["v"].to_pylist()
        assert values == sorted(values, reverse=True)


TYPES: dict[str, tuple[str, Any]] = {
    "u": ("uuid", "0b0c3c3e-8a4e-4d3a-9a53-0d6a1c3f7a10"),
    "f": ("fixed[3]", "AQID"),
    "b": ("binary", "AQID"),
    "d": ("decimal(20,3)", "12345678901234567.125"),
    "t": ("time", "12:34:56.789012"),
    "at": ("timestamptz", "2026-03-01T12:34:56.789012Z"),
    "ts": ("timestamp", "2026-03-01T12:34:56.789012"),
    "day": ("date", "2026-03-01"),
    "x": ("float", 1.5),
    "is": ("boolean", True),
    "deep": ("struct<a: int, b: list<struct<c: string>>>", {"a": 1, "b": [{"c": "x"}, None, {"c": None}]}),
    "m": ("map<string, list<long>>", {"k": [1, None], "l": None}),
}


def test_values_of_every_type_are_the_same_in_a_file_that_is_written_again(tmp_path: Path) -> None:
    columns = tuple(ColumnSpec(name=name, type=parse_type(word)) for name, (word, _) in TYPES.items())
    scenario = _scenario(tmp_path, columns=columns)
    value = {name: shown for name, (_, shown) in TYPES.items()}
    scenario.tell(("1", {"id": 1, **value}), ("2", {"id": 2}))
    before, first = scenario.upsert_table(), _ids(scenario)
    assert all(row[name] is not None for row in before if row["id"] == 1 for name in TYPES)
    scenario.tell(("1", {"id": 1, **value}), ("2", {"id": 2}))
    assert (scenario.upsert_table(), _ids(scenario)) == (before, first)


def test_a_file_of_many_row_groups_is_written_again_whole(tmp_path: Path) -> None:
    scenario = _scenario(tmp_path, tasks=3, partitions=3, properties={"write.parquet.row-group-size-bytes": "64"})
    for v in "abc":
        for key in range(60):
            scenario.put(*_row(key, v), key % 3)
            scenario.put(*_row(key, f"{v}!"), (key + 1) % 3)
        scenario.catch_up()
        if v == "a":
            first = _ids(scenario)
    assert _ids(scenario) == first
    assert {row["v"] for row in scenario.upsert_table()} <= {"c", "c!"}


def test_ids_are_those_of_the_rows_that_are_replaced_at_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer rewrites the file, in another order and with the ids, before the commit: it is looked up again."""
    scenario = _scenario(tmp_path)
    scenario.tell(*(_row(key, "a") for key in range(4)))
    first, catalog = _ids(scenario), scenario.catalog
    send = catalog.commit

    def rewrite() -> None:
        target = plain_target(catalog.load("n.t"))  # type: ignore[arg-type]
        (file,) = catalog.scan("n.t").files
        rows = [{"id": key, "v": "a", "_row_id": first[key]} for key in (3, 1, 0, 2)]
        writer = FileWriter(target, lineage_schema(target))
        writer.write(pa.Table.from_pylist(rows, schema=lineage_schema(target)))
        catalog.append_foreign("n.t", tuple(writer.finish()), frozenset({file.path}))

    def moved(commit: Commit) -> Progress:
        monkeypatch.undo()
        rewrite()
        with pytest.raises(TableMoved):
            send(commit)
        raise TableMoved(where=commit.table)

    monkeypatch.setattr(catalog, "commit", moved)
    scenario.tell(_row(0, "b"), _row(2, "b"), _row(5, "b"))
    now = _ids(scenario)
    assert {key: now[key] for key in first} == first
    assert now.keys() == {0, 1, 2, 3, 5}
    _files(scenario)


@pytest.mark.parametrize("loss", ["question", "answer", "outcome"])
def test_a_batch_that_is_sent_again_leaves_one_row_of_an_id(tmp_path: Path, loss: str) -> None:
    scenario = _scenario(tmp_path)
    scenario.tell(*(_row(key, "a") for key in range(4)))
    first = _ids(scenario)
    scenario.catalog.losses.append(loss)
    scenario.tell(_row(0, "b"), _row(1, "b"))
    assert not scenario.catalog.losses
    assert _ids(scenario) == first


@needs("deadletters")
def test_a_dead_letter_that_replaces_a_row_leaves_its_id(tmp_path: Path) -> None:
    scene = Upserted(tmp_path).tell((1, 10), (2, 20)).tell((1, LARGE), (3, LARGE)).cure()
    first = row_ids(scene.catalog, TABLE)
    scene.replay()
    now = row_ids(scene.catalog, TABLE)
    assert scene.upsert_table() == {1: LARGE, 2: 20, 3: LARGE}
    assert {key: now[key] for key in first} == first
    scene.check_files()


def test_ids_far_from_each_other_are_kept_in_memory_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = _scenario(tmp_path)
    scenario.tell(*(_row(key, "a") for key in range(3)))
    scenario.catalog._tables["n.t"].next_row_id = 2**40
    scenario.tell(_row(0, "b"), _row(7, "b"))
    first = _ids(scenario)
    assert (first[0], first[7]) == (0, 2**40 + 1)
    read = live_rows.reserved_column
    asked: list[str] = []

    def noted(target: Any, file: Any, field_id: int) -> Any:
        asked.append(file.path)
        return read(target, file, field_id)

    monkeypatch.setattr(_READ, noted)
    for v in "cd":
        scenario.tell(_row(1, v))
        scenario.tell(_row(2, v), _row(7, v))
        assert _ids(scenario) == first
    assert len(asked) == len(set(asked))


def test_a_file_that_cannot_be_read_again_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = _scenario(tmp_path)
    scenario.tell(*(_row(key, "a") for key in range(3)))
    first = _ids(scenario)
    write = FileWriter.finish
    failures = [OSError("full")]

    def fail(writer: FileWriter) -> Any:
        if len(writer._schema) > len(writer._target.arrow_schema) and failures:
            raise failures.pop()
        return write(writer)

    monkeypatch.setattr(FileWriter, "finish", fail)
    scenario.tell(_row(1, "b"))
    assert (failures, _ids(scenario)) == ([], first)
    _files(scenario)


def test_a_store_that_does_not_give_the_ids_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = _scenario(tmp_path)
    scenario.tell(*(_row(key, "a") for key in range(3)))
    first = _ids(scenario)
    read = live_rows.reserved_column
    failures: list[Exception] = [OSError("away"), UnavailableError("away")]

    def fail(target: Any, file: Any, field_id: int) -> Any:
        if failures:
            raise failures.pop()
        return read(target, file, field_id)

    monkeypatch.setattr(_READ, fail)
    scenario.tell(_row(1, "b"))
    assert (failures, _ids(scenario)) == ([], first)
    _files(scenario)
