"""The changes of a batch as the driver sees them: what each task has folded, put together and folded once more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.catalog.scans import LiveFile
from frazil.ingest.target import TableTarget
from frazil.ingest.upserts.fold import Folded, Ints, Ranked, concat_ranked, fold, load_ranked, load_table, refold
from frazil.types import TaskReport


@dataclass(frozen=True)
class MergedChanges:
    """All tasks' changes. owner: per change the number of its task; begins: per task its first change; files: per task
    those with its rows; held: per task its rows that wait for values of the rows they replace, which are in no file.
    emptied: the place of the batch's own newest truncate, among changes that have one; empty: there was none.
    """

    target: TableTarget
    ranked: Ranked
    owner: Ints
    begins: list[int]
    folded: Folded
    files: list[list[LiveFile]]
    held: list[pa.Table | None]
    change_count: int
    emptied: str

    @property
    def keys(self) -> Ranked:
        """The changes that decide a key."""
        return self.ranked.take(self.folded.last)


def merge_changes(target: TableTarget, report: TaskReport) -> MergedChanges:
    """What the tasks of `report` say, which has at least one that has changes."""
    parts = [load_ranked(touched.keys) for touched in report.touched]
    sizes = [len(part) for part in parts]
    ranked = concat_ranked(parts)
    parts.clear()  # What they hold is as large again.
    by_path = {file.path: LiveFile(file.path, file.record_count, file.content) for file in report.files}
    return MergedChanges(
        target,
        ranked,
        np.repeat(np.arange(len(sizes)), sizes),
        [0, *np.cumsum(sizes).tolist()],
        fold(ranked) if len(sizes) > 1 else refold(ranked),
        [[by_path[path] for path in touched.files] for touched in report.touched],
        [load_table(touched.held) if touched.held else None for touched in report.touched],
        sum(touched.change_count for touched in report.touched),
        report.emptied,
    )
