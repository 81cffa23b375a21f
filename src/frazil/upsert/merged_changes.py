"""The changes of a batch as the driver sees them: what each task has folded, put together and folded once more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.catalog.scans import LiveFile
from frazil.types import TaskReport
from frazil.upsert.deduplicate import (
    Ints,
    LatestChanges,
    Ranked,
    concat_ranked,
    deduplicate,
    key_codes,
    load_ranked,
    load_table,
    rebuild_latest,
)
from frazil.upsert.truncates import Bools, is_truncated
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class MergedChanges:
    """All tasks' changes. owner: per change the number of its task; begins: per task its first change; files: per task
    those with its rows; buffered: per task its rows that wait for values of the rows they replace, which are in no file.
    emptied: the place of the batch's own newest truncate, among changes that have one; empty: there was none.
    """

    target: TableTarget
    ranked: Ranked
    owner: Ints
    begins: list[int]
    latest: LatestChanges
    files: list[list[LiveFile]]
    buffered: list[pa.Table | None]
    change_count: int
    emptied: str

    @property
    def keys(self) -> Ranked:
        """The changes that decide a key."""
        return self.ranked.take(self.latest.last)


def merge_changes(target: TableTarget, report: TaskReport, emptied: str = "") -> MergedChanges:
    """What the tasks of `report` say, which has at least one that has changes. emptied: the place of the newest truncate;
    what is from before it decides no key that has other changes.
    """
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
        _deduplicated(target, ranked, emptied, is_one=len(sizes) == 1),
        [[by_path[path] for path in touched.files] for touched in report.touched],
        [load_table(touched.buffered) if touched.buffered else None for touched in report.touched],
        sum(touched.change_count for touched in report.touched),
        report.emptied,
    )


def _deduplicated(target: TableTarget, ranked: Ranked, emptied: str, *, is_one: bool) -> LatestChanges:
    """is_one: the changes are what one fold has kept."""
    rows = _counting(ranked, is_truncated(target, ranked, emptied))
    if rows.size == len(ranked):
        return rebuild_latest(ranked) if is_one else deduplicate(ranked)
    found = deduplicate(ranked.take(rows))
    cut = int(rows[found.cut]) if found.cut >= 0 else -1
    return LatestChanges(rows[found.last], found.is_sure, rows[found.kept], rows[found.highest], cut)


def _counting(ranked: Ranked, is_gone: Bools) -> Ints:
    """All but the changes that a truncate has taken away, if their key has others. What a connector repeats from before it
    may come behind a row of a snapshot, or a delete, and would be newer than that one there.
    """
    if not is_gone.any():
        return np.arange(len(ranked))
    codes = key_codes(ranked.keys)
    has_others = np.zeros(int(codes.max()) + 1, np.bool_)
    has_others[codes[~is_gone]] = True
    found: Ints = np.flatnonzero(~is_gone | ~has_others[codes])
    return found
