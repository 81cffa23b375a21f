"""Tombstones that are the first record a task reads of a partition.

The delete before such a tombstone may be the last record of another task, so these tombstones are reported separately
and decided when the reports of all tasks are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from frazil.report import FirstTombstone, TaskReport, Touched
from frazil.schema.arrow import Bools, Records
from frazil.stages.changes import Changes
from frazil.types import add_counts
from frazil.upsert.change_rows import only, rank
from frazil.upsert.deduplicate import dump_ranked
from frazil.upsert.records.tombstones import begins_of_runs, digest_of, is_right_behind, secret_of
from frazil.write.target import TableTarget


class FirstTombstones:
    """The first tombstones of one table in one task. topics: by their numbers in the order of changes."""

    def __init__(self, target: TableTarget, topics: Sequence[str]) -> None:
        self._target = target
        self._topics = topics
        self._secret = secret_of(target)
        changes = target.changes
        # By arrival a tombstone repeats its delete; and a single task knows everything before it in the batch.
        # A version that is deleted is not deleted again.
        is_ordered = changes is not None and bool(changes.order_by) and changes.history is None
        self._is_needed = is_ordered and not target.known.is_single_task
        self._begun: set[tuple[str, int]] = set()
        self._kept: list[Touched] = []

    def take_out(
        self, topic: str, stretch: Records, rows: pa.Table, changes: Changes, records: Records
    ) -> tuple[pa.Table, Changes, Records]:
        """Keeps first tombstones aside; returns the remaining rows, changes and records. stretch: the records that were
        read, each passed once.
        """
        is_first = self._find(topic, changes, stretch)
        if not is_first.any():
            return rows, changes, records
        self._keep(topic, *only(is_first, rows, changes, records))
        return only(~is_first, rows, changes, records)

    def kept(self) -> tuple[Touched, ...]:
        """Returns the tombstones kept aside, each as a delete that applies if the tombstone follows no delete."""
        return tuple(self._kept)

    def _find(self, topic: str, changes: Changes, records: Records) -> Bools:
        are_first = np.zeros(changes.ops.size, np.bool_)
        if not self._is_needed:
            return are_first
        partitions = np.asarray(records["partition"])
        for row in begins_of_runs(partitions).tolist():
            place = (topic, int(partitions[row]))
            if place not in self._begun and changes.tombstones is not None and changes.tombstones[row]:
                are_first |= changes.records == row
            self._begun.add(place)
        return are_first

    def _keep(self, topic: str, rows: pa.Table, changes: Changes, records: Records) -> None:
        ranked = rank(self._target, self._topics.index(topic), rows, changes, records)
        for n in range(len(ranked)):
            key = digest_of(records["key"][n].as_py(), self._secret)
            first = FirstTombstone(topic, int(ranked.partition[n]), int(ranked.offset[n]), key)
            self._kept.append(Touched(dump_ranked(ranked.take(np.array([n]))), change_count=1, first=first))


def without_redundant_tombstones(report: TaskReport) -> TaskReport:
    """Returns the merged report without tombstones directly behind a delete that another task has read last: they
    change nothing.
    """
    redundant = [
        task for task in report.changes.touched if task.first is not None and _is_redundant(task.first, report)
    ]
    if not redundant:
        return report
    touched = tuple(task for task in report.changes.touched if task not in redundant)
    ignored = add_counts(report.counts.ignored_records, {"tombstone": len(redundant)})
    return replace(
        report,
        changes=replace(report.changes, touched=touched),
        counts=replace(
            report.counts, ignored_records=ignored, written_count=report.counts.written_count - len(redundant)
        ),
    )


def _is_redundant(first: FirstTombstone, report: TaskReport) -> bool:
    here = (first.topic, first.partition)
    return any(
        (last.topic, last.partition) == here and is_right_behind(last, first.offset, first.key)
        for last in report.changes.last_deletes
    )
