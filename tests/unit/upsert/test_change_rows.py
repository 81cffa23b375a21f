"""Changes that leave columns out, truncates and keys that change: from a task's rows to the committed table, on the catalog
in memory. Envelopes make such changes; here they are made by hand.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.clock import new_id
from frazil.decode.columns import Decoded
from frazil.decode.settings import Reading
from frazil.report import ChangeReport, TaskReport, Touched, WrittenFiles
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from frazil.stages.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.types import Commit, Progress, Resolved, Writer
from frazil.upsert.change_rows import ChangeRows
from frazil.upsert.commit import commit_changes
from frazil.upsert.lookup.live_rows import read_columns
from frazil.write.plain_target import plain_target
from frazil.write.target import ChangeReading
from frazil.write.write import FileWriter
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.twins import live_rows

_NAME = "n.t"
KEEP = "kept"
"""In place of a value: the change does not carry it."""


@dataclass(frozen=True)
class Change:
    """One change of the columns id, a and b."""

    op: int
    id: int | None
    a: str | None = None
    b: str | None = None


def up(key: int, a: str | None, b: str | None) -> Change:
    return Change(UPSERT, key, a, b)


def down(key: int) -> Change:
    return Change(DELETE, key)


EMPTY = Change(TRUNCATE, None)


class Lake:
    """A table that is told batches of changes, each read by one task or by several."""

    def __init__(self, root: Path, version: int, order_by: str = "") -> None:
        self.catalog = MemoryCatalog(root, "p")
        columns = {"id": parse_type("long"), "a": parse_type("string"), "b": parse_type("string")}
        self.state = self.catalog.create(_NAME, new_schema(columns.items()), {}, version)
        self.target = replace(plain_target(self.state), changes=ChangeReading(Reading(), ("id",), order_by=order_by))
        self.progress = Progress()
        self.offset = 0

    def tell(self, *tasks: Sequence[Change]) -> Resolved:
        """Commits one batch."""
        reports = [self._run(changes) for changes in tasks]
        report = TaskReport(
            _NAME,
            written=WrittenFiles(data=tuple(file for one in reports for file in one.written.data)),
            changes=ChangeReport(touched=tuple(touched for one in reports for touched in one.changes.touched)),
        )
        progress = Progress(offsets={"a": {0: self.offset}}, commit_id=new_id(), writer=Writer(1, "r"))
        commit = Commit(_NAME, report.written.data, progress, self.progress)
        state = self.catalog.load(_NAME)
        assert state is not None
        self.progress, resolved, _ = commit_changes(self.catalog, self.target, state, report, commit)
        return resolved

    def stretches(self, changes: Sequence[Change]) -> Iterable[Sequence[Change]]:
        """Each change is one of its own: they are combined by the task."""
        return [[change] for change in changes]

    def _run(self, changes: Sequence[Change]) -> TaskReport:
        rows, writer = ChangeRows(self.target, ("a",)), FileWriter(self.target)
        for stretch in self.stretches(changes):
            made, offsets = _changes(stretch), range(self.offset, self.offset + len(stretch))
            records = {"partition": pa.array([0] * len(stretch), pa.int32()), "offset": pa.array(offsets, pa.int64())}
            rows.take("a", pa.Table.from_arrays(made.columns, schema=self.target.arrow_schema), made, records)
            self.offset += len(stretch)
        keys, held, count = rows.finish(writer)
        files = tuple(writer.finish())
        touched = (Touched(keys, held, tuple(file.path for file in files), count),) if keys else ()
        return TaskReport(_NAME, written=WrittenFiles(data=files), changes=ChangeReport(touched=touched))

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in live_rows(self.catalog, _NAME))


def _changes(changes: Sequence[Change]) -> Changes:
    columns = [
        pa.array([one.id for one in changes], pa.int64()),
        pa.array([None if one.a == KEEP else one.a for one in changes], pa.string()),
        pa.array([None if one.b == KEEP else one.b for one in changes], pa.string()),
    ]
    by_column = enumerate(zip(*map(_values, changes), strict=True))
    kept = {n: np.array([value == KEEP for value in values]) for n, values in by_column}
    count = len(changes)
    return Changes(
        columns,
        np.array([one.op for one in changes], np.int8),
        np.arange(count, dtype=np.int32),
        {n: mask for n, mask in kept.items() if mask.any()},
        Decoded([], np.zeros(count, np.bool_)),
    )


def _values(change: Change) -> tuple[Any, ...]:
    return (change.id, change.a, change.b)


@pytest.fixture(params=[2, 3])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


def test_a_value_that_a_change_leaves_out_stays_as_it_is_in_the_table(lake: Lake) -> None:
    lake.tell([up(1, "a1", "b1"), up(2, "a2", "b2")])
    resolved = lake.tell([up(1, "new", KEEP), up(2, KEEP, "new")])
    assert lake.rows() == [(1, "new", "b1"), (2, "a2", "new")]
    assert (resolved.deleted, resolved.missing_required, resolved.keys) == (2, 0, 2)


def test_a_kept_value_comes_from_the_change_before_it_in_the_batch(lake: Lake) -> None:
    lake.tell([up(1, "old", "old")])
    lake.tell([up(1, "x", "y"), up(1, KEEP, "z"), up(1, KEEP, KEEP)])
    assert lake.rows() == [(1, "x", "z")]


def test_a_kept_value_comes_from_a_change_that_another_task_has_read(lake: Lake) -> None:
    lake.tell([up(1, "old", "old"), up(2, "old", "old")])
    lake.tell([up(1, "x", "y"), up(2, "x", KEEP)], [up(1, KEEP, "z"), up(2, KEEP, KEEP)])
    assert lake.rows() == [(1, "x", "z"), (2, "x", "old")]


def test_a_kept_value_is_null_and_counted_where_there_was_no_row(lake: Lake) -> None:
    resolved = lake.tell([up(1, "x", KEEP)])
    assert (lake.rows(), resolved.missing_required) == ([(1, "x", None)], 1)
    lake.tell([down(1), up(1, "y", KEEP)])
    assert lake.rows() == [(1, "y", None)]
    lake.tell([up(1, "z", "z")])
    lake.tell([down(1)], [up(1, "y", KEEP)])
    assert lake.rows() == [(1, "y", None)]


@pytest.mark.parametrize("is_in_batch", [False, True])
def test_each_file_is_read_once_for_each_column_that_rows_wait_for(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_in_batch: bool
) -> None:
    count, read = 1000, read_columns
    asked: list[tuple[Any, ...]] = []
    old = [up(key, f"a{key}", f"b{key}") for key in range(count)]
    new = [up(key, KEEP, "new") if key % 2 else up(key, "new", KEEP) for key in range(count)]

    def counted(*given: Any) -> list[pa.Array]:
        asked.append(given)
        return read(*given)

    monkeypatch.setattr("frazil.upsert.old_values.complete.read_columns", counted)
    for tasks in [(old, new)] if is_in_batch else [(old,), (new,)]:
        lake.tell(*tasks)
    assert lake.rows() == [(n, f"a{n}", "new") if n % 2 else (n, "new", f"b{n}") for n in range(count)]
    assert len(asked) == 2


def test_a_key_that_changes_is_a_delete_and_a_row(lake: Lake) -> None:
    lake.tell([up(1, "a", "b")])
    lake.tell([down(1), up(7, "a", "c")])
    assert lake.rows() == [(7, "a", "c")]


def test_a_truncate_takes_all_that_was_before_it_and_nothing_after(lake: Lake) -> None:
    lake.tell([up(1, "a", "b"), up(2, "a", "b")])
    resolved = lake.tell([up(3, "gone", "gone"), EMPTY, up(2, "new", KEEP), up(4, "x", "y")])
    assert lake.rows() == [(2, "new", None), (4, "x", "y")]
    assert resolved.deleted == 2
    lake.tell([up(5, "gone", "gone"), up(6, "gone", KEEP)], [EMPTY])
    assert lake.rows() == []
    lake.tell([up(1, "again", "b")])
    assert lake.rows() == [(1, "again", "b")]


def test_a_batch_that_was_read_by_many_tasks_is_one(lake: Lake) -> None:
    lake.tell([up(key, "old", "old") for key in range(4)])
    lake.tell([up(0, "1", "1"), up(1, "1", "1")], [up(0, "2", "2"), down(1)], [up(0, "3", "3"), up(2, "3", "3")])
    assert lake.rows() == [(0, "3", "3"), (2, "3", "3"), (3, "old", "old")]


def test_what_another_writer_does_between_the_look_and_the_commit_is_seen_at_the_next_look(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.tell([up(1, "a", "b"), up(2, "a", "b")])
    other, commit = lake.catalog.for_pipeline("other"), MemoryCatalog.commit
    writer = FileWriter(lake.target)
    writer.write(pa.Table.from_arrays(_changes([up(1, "foreign", "f")]).columns, schema=lake.target.arrow_schema))
    foreign = [Commit(_NAME, tuple(writer.finish()), Progress(commit_id="x"), Progress())]

    def interrupted(self: MemoryCatalog, mine: Commit) -> Progress:
        if foreign:
            commit(other, foreign.pop())
        return commit(self, mine)

    monkeypatch.setattr(MemoryCatalog, "commit", interrupted)
    resolved = lake.tell([up(1, KEEP, "new"), up(3, "x", "y")])
    assert resolved.tries == 2
    assert lake.rows() == [(1, "foreign", "new"), (2, "a", "b"), (3, "x", "y")]
    scan = lake.catalog.scan(_NAME)
    deletes = {delete.path for file in scan.files for delete in file.deletes}
    assert {str(path) for path in tmp_path.rglob("*-deletes.*")} == deletes
    assert {str(path) for path in tmp_path.rglob("*.parquet")} - deletes == {file.path for file in scan.files}


def test_nothing_is_kept_of_rows_that_are_written(tmp_path: Path) -> None:
    lake, offsets = Lake(tmp_path, 3), np.array([0, 1, 2], np.int32)
    held = weakref.ref(offsets)
    texts = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"xy")])
    rows, writer = ChangeRows(lake.target, ("a",)), FileWriter(lake.target)
    made = _changes([up(1, None, None), up(2, None, None)])
    records = {"partition": pa.array([0, 0], pa.int32()), "offset": pa.array([0, 1], pa.int64())}
    columns = [made.columns[0], texts, made.columns[2]]
    rows.take("a", pa.Table.from_arrays(columns, schema=lake.target.arrow_schema), made, records)
    del offsets, texts, columns
    assert held() is not None
    assert rows.finish(writer)[2] == 2
    assert [file.record_count for file in writer.finish()] == [2]
    assert held() is None
