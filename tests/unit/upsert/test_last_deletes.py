"""Which tombstones come right behind the delete of their key, where the two are not read together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from frazil.report import ChangeReport, Counts, TaskReport
from frazil.types import LastDelete, OrderProgress, Progress
from frazil.upsert.records.tombstones import FOLLOWS_DELETE, LastDeletes, still_last

Records = dict[str, pa.Array]


def _records(*told: tuple[int, int, str]) -> Records:
    """told: partition, offset and key."""
    partitions, offsets, keys = zip(*told, strict=True)
    return {
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "key": pa.array([key.encode() or None for key in keys], pa.binary()),
    }


def _told(deletes: LastDeletes, *told: tuple[int, int, str]) -> list[bool]:
    records = deletes.mark_following_deletes("a", _records(*told))
    return np.asarray(records[FOLLOWS_DELETE]).tolist() if FOLLOWS_DELETE in records else []


def _after(rows: Sequence[int], *told: tuple[int, int, str]) -> LastDeletes:
    deletes = LastDeletes(())
    deletes.take("a", rows, _records(*told))
    return deletes


def test_what_comes_first_in_the_partition_right_behind_the_delete_of_its_key() -> None:
    deletes = _after([1, 2], (0, 5, "x"), (0, 6, "y"), (1, 9, "z"))
    assert _told(deletes, (0, 7, "y"), (0, 8, "y"), (1, 10, "z")) == [True, False, True]
    assert _told(deletes, (0, 10, "y"), (1, 8, "z")) == [True, False]
    assert _told(deletes, (0, 11, "y"), (1, 10, "q"), (2, 1, "y")) == []
    assert _told(deletes, (0, 7, "")) == []
    assert deletes.mark_following_deletes("b", _records((0, 7, "y"))).keys() == {"partition", "offset", "key"}


def test_what_is_read_behind_a_delete_takes_its_place() -> None:
    deletes = _after([0], (0, 5, "x"), (1, 5, "x"))
    deletes.take("a", [], _records((0, 6, "y")))
    assert _told(deletes, (0, 7, "x")) == []
    assert deletes.read_deletes() == ()
    deletes.take("a", [0, 2], _records((0, 8, "x"), (1, 6, "x"), (0, 9, "z")))
    assert [(last.partition, last.offset) for last in deletes.read_deletes()] == [(0, 9)]
    assert _told(deletes, (0, 10, "z")) == [True]


def test_deletes_of_the_batches_before_are_known_and_no_finding_of_the_task() -> None:
    (last,) = _after([0], (0, 5, "x")).read_deletes()
    deletes = LastDeletes([last])
    assert _told(deletes, (0, 6, "x")) == [True]
    deletes.take("a", [], _records((1, 1, "x")))
    assert (_told(deletes, (0, 6, "x")), deletes.read_deletes()) == ([True], ())


def test_progress_has_those_that_all_of_its_records_end_with() -> None:
    one, other, third = (LastDelete("a", partition, 5, "k") for partition in range(3))
    before = Progress(order=OrderProgress(last_deletes=(one, other, third)))
    read = TaskReport(
        "t",
        counts=Counts(latest_ms={"a": {1: 7}}),
        changes=ChangeReport(last_deletes=(LastDelete("a", 1, 8, "k"), LastDelete("a", 1, 3, "k"))),
    )
    assert still_last(before, read, {"a": {0: 6, 1: 9, 2: 40}}) == (one, LastDelete("a", 1, 8, "k"))
    assert still_last(before, TaskReport("t"), {"a": {0: 6, 1: 6, 2: 6}}) == (one, other, third)
