"""The changes of a batch in the driver: the deduplicated changes of all tasks, merged and deduplicated again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.catalog.scans import LiveFile
from frazil.report import TaskReport
from frazil.schema.arrow import Bools, Ints
from frazil.upsert.deduplicate import (
    LatestChanges,
    Ranked,
    concat_ranked,
    deduplicate,
    key_codes,
    load_ranked,
    load_table,
    rebuild_latest,
)
from frazil.upsert.emptied import are_emptied, emptying_in
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class MergedChanges:
    """The changes of all tasks. Arrays have the shape `(n_changes,)`."""

    #: The table.
    target: TableTarget
    #: The changes with their places in the order, task after task.
    ranked: Ranked
    #: The number of the task that each change is from.
    owner: Ints
    #: Per task the index of its first change; one more entry for the end.
    begins: list[int]
    #: The latest change per key.
    latest: LatestChanges
    #: Per task the data files with its rows.
    files: list[list[LiveFile]]
    #: Per task the rows that lack values of the rows they replace and are in no file; None without such rows.
    buffered: list[pa.Table | None]
    #: The number of changes before deduplication.
    change_count: int
    #: The position at which the batch itself empties the table; empty where it does not, or has no position for it.
    emptied: str
    #: The parts of a table whose rows are merged (`upsert.merge`), one per key; None for other tables.
    parts: pa.Table | None = None
    #: Whether the latest values in the table stay the latest: the changes are older ones that are replayed.
    keeps_latest: bool = False

    @property
    def keys(self) -> Ranked:
        """The latest change of each key."""
        return self.ranked.take(self.latest.last)


def merge_changes(target: TableTarget, report: TaskReport, emptied: str = "") -> MergedChanges:
    """Returns the changes of the tasks of `report`, of which at least one has changes. emptied: the position at
    which the table was last emptied; an older change decides no key that has newer changes.
    """
    parts = [load_ranked(touched.keys) for touched in report.changes.touched]
    sizes = [len(part) for part in parts]
    ranked = concat_ranked(parts)
    parts.clear()  # The parts are as large again.
    by_path = {file.path: LiveFile(file.path, file.record_count, file.content) for file in report.written.data}
    return MergedChanges(
        target,
        ranked,
        np.repeat(np.arange(len(sizes)), sizes),
        [0, *np.cumsum(sizes).tolist()],
        _deduplicated(target, ranked, emptied, is_one=len(sizes) == 1),
        [[by_path[path] for path in touched.files] for touched in report.changes.touched],
        [load_table(touched.buffered) if touched.buffered else None for touched in report.changes.touched],
        sum(touched.change_count for touched in report.changes.touched),
        emptying_in(report.changes).emptied,
    )


def _deduplicated(target: TableTarget, ranked: Ranked, emptied: str, *, is_one: bool) -> LatestChanges:
    """Returns the latest changes. is_one: the changes are the kept changes of one deduplication."""
    rows = _counting(ranked, are_emptied(target, ranked, emptied))
    if rows.size == len(ranked):
        return rebuild_latest(ranked) if is_one else deduplicate(ranked)
    latest = deduplicate(ranked.take(rows))
    cut = int(rows[latest.cut]) if latest.cut >= 0 else -1
    return LatestChanges(rows[latest.last], latest.is_sure, rows[latest.kept], rows[latest.highest], cut)


def _counting(ranked: Ranked, is_gone: Bools) -> Ints:
    """Returns the places of the changes that count: all except changes from before the table was emptied and whose key has
    others. A connector that repeats such changes may send them behind a snapshot row or a delete,
    where order of arrival would make them newer.
    """
    if not is_gone.any():
        return np.arange(len(ranked))
    codes = key_codes(ranked.keys)
    has_others = np.zeros(int(codes.max()) + 1, np.bool_)
    has_others[codes[~is_gone]] = True
    counted: Ints = np.flatnonzero(~is_gone | ~has_others[codes])
    return counted
