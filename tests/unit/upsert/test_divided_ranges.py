"""Upsert tables whose batches are read by several tasks, each a piece of one partition: wherever the pieces end, the
table is what one task would have made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.settings import PLACEHOLDER
from frazil.ingest.plan import read_once
from frazil.ingest.tasks.task_job import Job
from frazil.report import ChangeReport, Counts, FirstTombstone, TaskReport, Touched
from frazil.types import Batch, LastDelete
from frazil.upsert.records.first_tombstones import without_redundant_tombstones
from frazil_testing.twins import MemoryJobs, MemorySource
from tests.unit.upsert.upsert_source import SourceRecord, UpsertSource, tombstone

_BY_SOURCE: dict[str, Any] = {"metadata": {"source_order": "_source_order"}, "order_by": "_source_order"}
_BY_COLUMN: dict[str, Any] = {"order_by": "at"}


class CutJobs(MemoryJobs):
    """Two tasks, of which one reads what is before the offset `cut`."""

    def __init__(self, source: MemorySource, cut: int) -> None:
        super().__init__(source)
        self._cut = cut

    def run(self, batches: Sequence[Batch], job: Job, *, pool: str) -> list[TaskReport]:
        """See JobRunner."""
        ranges, cut = read_once(batches), self._cut
        before = tuple(replace(r, end=min(r.end, cut)) for r in ranges if r.start < cut)
        behind = tuple(replace(r, start=max(r.start, cut)) for r in ranges if cut < r.end)
        shares = [tuple(ranges)] if job.is_scattered else [share for share in (before, behind) if share]
        run = super().run
        return [one for share in shares for one in run([Batch("", share)], job, pool=pool)]


def _told(op: str, key: int, at: int, v: str = "", big: str = PLACEHOLDER) -> SourceRecord:
    row = {"id": key, "v": v, "big": big, "at": at}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {"id": key}, {"op": op, **images, "source": {"connector": "postgresql", "lsn": at}}


# The connector dies, and repeats the delete of row 1; of the delete of row 2 nothing but the tombstone is left.
_HISTORY = [
    _told("c", 1, 10, "a", "A"),
    _told("c", 2, 15, "p", "P"),
    _told("d", 1, 20),
    tombstone(1),
    _told("c", 1, 30, "b", "B"),
    _told("d", 1, 20),
    tombstone(1),
    tombstone(2),
    _told("u", 2, 45, "q"),
    _told("u", 1, 40, "c"),
]


@pytest.mark.parametrize("order", [_BY_SOURCE, _BY_COLUMN, {}], ids=["by source", "by column", "by arrival"])
@pytest.mark.parametrize("first", [0, 5])
def test_wherever_a_range_is_divided(tmp_path: Path, first: int, order: dict[str, Any]) -> None:
    # A delete that has no place of its own takes the row also when it is repeated, and nobody sends its large value again.
    expected = [(1, "c", "B" if order is _BY_SOURCE else None), (2, "q", None)]
    for cut in range(first, len(_HISTORY)):
        scenario = UpsertSource(tmp_path / str(cut), **order)
        scenario.say(*_HISTORY[:first])
        scenario.jobs = CutJobs(scenario.source, cut)
        table = scenario.say(*_HISTORY[first:])
        assert [(row["id"], row["v"], row["big"]) for row in scenario.by_id()] == expected, cut
        assert scenario.dead_letters() == []
        if first and order:
            assert table.bad_records.ignored_records == {"tombstone": 1}, cut


@pytest.mark.parametrize("cut", range(5, 9))
def test_a_late_delete_of_another_partition_takes_nothing_newer_with_its_tombstone(tmp_path: Path, cut: int) -> None:
    """As where partitions were added: what is repeated heals nothing, as nothing is repeated."""
    scenario = UpsertSource(tmp_path, **_BY_SOURCE)
    scenario.say(_told("c", 1, 10, "a", "A"), *(_told("c", 9, n, "x", "X") for n in range(5)))
    scenario.say(_told("c", 1, 30, "b", "B"), partition=1)
    scenario.jobs = CutJobs(scenario.source, cut)
    scenario.say(_told("d", 1, 20), tombstone(1))
    assert [(row["id"], row["v"]) for row in scenario.by_id()] == [(1, "b"), (9, "x")]


def test_a_tombstone_that_follows_no_delete_of_its_key_counts() -> None:
    last = LastDelete("a", 0, 5, "k")
    others = [("a", 0, 10, "k"), ("a", 0, 6, "other"), ("a", 1, 6, "k"), ("b", 0, 6, "k"), ("a", 0, 5, "k")]
    lone = [Touched("", first=FirstTombstone(*place)) for place in others]
    told, changes = Touched("", first=FirstTombstone("a", 0, 6, "k")), Touched("", change_count=3)
    report = TaskReport(
        "t",
        changes=ChangeReport(touched=(changes, told, *lone), last_deletes=(last,)),
        counts=Counts(ignored_records={"tombstone": 4}),
    )
    left = without_redundant_tombstones(report)
    assert (left.changes.touched, left.counts.ignored_records) == ((changes, *lone), {"tombstone": 5})
    alone = replace(report, changes=replace(report.changes, last_deletes=()))
    assert without_redundant_tombstones(alone) is alone
