"""Changes that come behind the row of a snapshot, with a place in the source's log that is before it: whatever batches there
are, the table is what it would be if each change were committed by itself.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.cdc.positions import mark_snapshot_rows, split_snapshot_marks
from frazil.decode.settings import PLACEHOLDER
from frazil.stages.changes import DELETE, UPSERT
from frazil.upsert.deduplicate import Ranked, concat_ranked, deduplicate, dump_ranked, load_ranked, previous_places
from tests.unit.upsert.upsert_source import MARKS, SourceRecord, UpsertSource, tombstone

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_BY_SOURCE: dict[str, Any] = {"metadata": {"source_order": "_source_order"}, "order_by": "_source_order"}


def _told(op: str, key: int, v: str | None, lsn: int) -> SourceRecord:
    row = {"id": key, "v": v}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    snapshot = "incremental" if op == "r" else "false"
    return {"id": key}, {"op": op, **images, "source": {"connector": "postgresql", "snapshot": snapshot, "lsn": lsn}}


# A chunk is read while a transaction is open that has changed row 1 at 100, deleted 2, inserted 3 and given 4 to 5.
_OPEN_MEANWHILE = [
    *(_told("c", key, "old", 50 + key) for key in (1, 2, 4)),
    *(_told("r", key, "old", 150) for key in (1, 2, 4)),
    _told("u", 1, "new", 100),
    _told("d", 2, None, 101),
    tombstone(2),
    _told("c", 3, "new", 102),
    _told("d", 4, None, 103),
    tombstone(4),
    _told("c", 5, "new", 103),
    _told("u", 1, "newest", 104),
]


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 7, 100])
@pytest.mark.parametrize("marks", [{}, MARKS], ids=["applied", "marked"])
def test_a_transaction_that_was_open_while_a_snapshot_was_read_counts(
    tmp_path: Path, at_once: int, marks: dict[str, Any]
) -> None:
    metadata = _BY_SOURCE["metadata"] | marks.get("metadata", {})
    scenario = UpsertSource(tmp_path, **{**_BY_SOURCE, **marks, "metadata": metadata})
    for start in range(0, len(_OPEN_MEANWHILE), at_once):
        scenario.say(*_OPEN_MEANWHILE[start : start + at_once])
    rows = {row["id"]: row["v"] for row in scenario.upsert_table() if not row.get("_deleted")}
    assert (rows, scenario.dead_letters()) == ({1: "newest", 3: "new", 5: "new"}, [])
    assert {row["id"] for row in scenario.upsert_table() if row.get("_deleted")} == ({2, 4} if marks else set())


def test_a_row_of_a_snapshot_is_late_as_any_change_and_heals_what_is_older(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    scenario.say(_told("c", 1, "a", 50), _told("c", 2, "a", 200))
    scenario.say(_told("r", 1, "healed", 150), _told("r", 2, "stale", 150))
    assert [(row["id"], row["v"]) for row in scenario.by_id()] == [(1, "healed"), (2, "a")]
    assert [row["_source_order"][-4:] for row in scenario.by_id()] == ["0/r0", "0000"]


def test_in_another_partition_a_place_before_the_snapshot_is_late(tmp_path: Path) -> None:
    """As where partitions were added, and the change is one of those that were there before."""
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    scenario.say(_told("r", 1, "read", 150), partition=1)
    scenario.say(_told("u", 1, "before", 100), partition=0)
    assert [row["v"] for row in scenario.upsert_table()] == ["read"]
    scenario.say(_told("u", 1, "open meanwhile", 100), partition=1)
    assert [row["v"] for row in scenario.upsert_table()] == ["open meanwhile"]


def test_what_a_connector_repeats_after_a_restart_ends_where_the_source_is(tmp_path: Path) -> None:
    for at_once in (1, 2, 3, 100):
        scenario = UpsertSource(tmp_path / str(at_once), **_BY_SOURCE)
        reported = [*_OPEN_MEANWHILE, *_OPEN_MEANWHILE[2:], *_OPEN_MEANWHILE[6:]]
        for start in range(0, len(reported), at_once):
            scenario.say(*reported[start : start + at_once])
        assert {row["id"]: row["v"] for row in scenario.upsert_table()} == {1: "newest", 3: "new", 5: "new"}


def _with_large(op: str, v: str, lsn: int, big: str = PLACEHOLDER) -> SourceRecord:
    key, value = _told(op, 1, v, lsn)
    assert value is not None
    return key, {**value, "after": {**value["after"], "big": big}}


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 5])
def test_large_values_are_those_of_the_row_that_a_snapshot_has_read(tmp_path: Path, at_once: int) -> None:
    """Unless a change behind it has told others, and not those that a connector repeats behind that."""
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    scenario.say(_with_large("c", "a", 50, "A"), _with_large("u", "b", 91, "B"), _with_large("r", "b", 93, "B"))
    for reported, expected in (
        ([_with_large("u", "c", 97), _with_large("u", "x", 82), _with_large("u", "x", 83, "A")], ("c", "B")),
        ([_with_large("r", "c", 150, "B"), _with_large("u", "d", 100, "D"), _with_large("u", "e", 104)], ("e", "D")),
    ):
        for start in range(0, len(reported), at_once):
            scenario.say(*reported[start : start + at_once])
        assert [(row["v"], row["big"]) for row in scenario.upsert_table()] == [expected]


def test_places_of_rows_that_are_there_already_have_no_mark() -> None:
    places = pa.array(["5/0/0", None, "7/0/0"])
    marked = mark_snapshot_rows(places, pa.array([True, True, False]), pa.array([3, 3, 3], pa.int32()))
    assert marked.to_pylist() == ["5/0/0/r3", None, "7/0/0"]
    bare, partitions = split_snapshot_marks(marked)
    assert (bare.to_pylist(), partitions.tolist()) == (places.to_pylist(), [3, -1, -1])
    assert split_snapshot_marks(places)[1].tolist() == [-1, -1, -1]


@dataclass(frozen=True)
class _Row:
    """What a table has of a key. number: of the change that wrote it."""

    at: int
    number: int
    is_read: bool


def _one_by_one(changes: Ranked, row: _Row | None) -> _Row | None:
    """What becomes of the only row."""
    assert changes.order is not None
    assert changes.read is not None
    for n in range(len(changes)):
        at, is_read = changes.order[n].as_py(), bool(changes.read[n])
        if at is None or row is None or row.is_read or at >= row.at:
            row = None if changes.ops[n] == DELETE else _Row(at, int(changes.offset[n]), is_read)
    return row


def _at_once(changes: Ranked, row: _Row | None) -> _Row | None:
    """The same by their fold."""
    assert changes.order is not None
    assert changes.read is not None
    latest = deduplicate(changes)
    if not latest.last.size:
        return row
    last, highest = int(latest.last[0]), changes.order[int(latest.highest[0])].as_py()
    is_late = row is not None and not latest.is_sure[0] and not row.is_read and highest is not None and highest < row.at
    if is_late:
        return row
    at = changes.order[last].as_py()
    return None if changes.ops[last] == DELETE else _Row(at, int(changes.offset[last]), bool(changes.read[last]))


def _some(rng: np.random.Generator) -> Ranked:
    """Changes of one key in one partition, with places of any order."""
    count = int(rng.integers(1, 9))
    ops = rng.choice([UPSERT, DELETE], count, p=[0.75, 0.25]).astype(np.int8)
    blind = (ops == DELETE) & (rng.random(count) < 0.3)
    at = pa.array(rng.integers(0, 6, count), mask=blind)
    nothing = np.zeros(count, np.int64)
    read = (ops == UPSERT) & (rng.random(count) < 0.4)
    return Ranked((pa.array(nothing),), ops, nothing, nothing, np.arange(count), nothing, blind, at, read)


def test_a_batch_is_what_its_changes_are_one_by_one_however_it_is_cut() -> None:
    rng = np.random.default_rng(11)
    for _ in range(250 * _TIMES):
        changes = _some(rng)
        cuts = sorted({0, len(changes), *rng.integers(0, len(changes) + 1, 2).tolist()})
        parts = [changes.take(np.arange(start, end)) for start, end in pairwise(cuts)]
        row = _Row(int(rng.integers(0, 6)), -1, bool(rng.random() < 0.4)) if rng.random() < 0.7 else None
        expected = _one_by_one(changes, row)
        assert _at_once(changes, row) == expected, (changes, row)
        in_batches = row
        for part in parts:
            in_batches = _at_once(part, in_batches)
        assert in_batches == expected, (changes, row, cuts)
        of_tasks = concat_ranked([load_ranked(dump_ranked(part.take(deduplicate(part).kept))) for part in parts])
        assert _at_once(of_tasks, row) == expected, (changes, row, cuts)


def _of_one_key(at: list[int], is_read: list[bool]) -> Ranked:
    """Updates of a key at these places of the source, as they arrive; is_read: rows of a snapshot."""
    count = len(at)
    nothing, none = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    ops, arrival = np.full(count, UPSERT, np.int8), np.arange(count)
    return Ranked((pa.array(nothing),), ops, nothing, nothing, arrival, nothing, none, pa.array(at), np.array(is_read))


def test_a_value_that_was_not_sent_is_that_of_the_change_before_it_behind_a_snapshot() -> None:
    changes = _of_one_key([50, 150, 100, 104], [False, True, False, False])
    assert previous_places(changes).tolist() == [-1, 0, 1, 2]


def test_what_a_connector_repeats_gives_no_value_to_what_came_before() -> None:
    changes = _of_one_key([50, 120, 123, 50, 104], [True, True, False, True, False])
    assert previous_places(changes)[2] == 1
    assert deduplicate(changes).last.tolist() == [2]


def test_a_row_of_a_snapshot_that_is_told_again_too_late_gives_no_value_to_what_came_behind_it() -> None:
    changes = _of_one_key([135, 131, 139, 135], [True, False, False, True])
    assert previous_places(changes).tolist() == [-1, 3, 1, 0]
