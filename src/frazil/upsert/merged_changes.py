"""The changes of a batch in the driver: the deduplicated changes of all tasks, merged and deduplicated again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

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
    load_ranked,
    load_table,
    rebuild_latest,
)
from frazil.upsert.lookup.search import Found
from frazil.write.target import TableTarget

Completed = Iterator[tuple[pa.Table, Ints, int]]
"""Rows in the schema of the files, the places of their changes, and the number of values that no row had."""


class MadeRows(Protocol):
    """Rows that no task has written, as they are made of rows in the table too: of a kind of table that a package adds."""

    def near(self, batch: MergedChanges, files: Sequence[LiveFile]) -> Sequence[LiveFile]:
        """Returns the files that may have a row which the batch replaces."""

    def joined(self, batch: MergedChanges, live_rows: Found, late: Bools) -> tuple[MergedChanges, Found, Bools]:
        """Returns a batch with one change for each row, the live rows that each replaces, and which rows stay as they are,
        bool `(n_rows,)`. live_rows, late: of all keys.

        Raises: OSError where the store fails.
        """

    def complete(self, batch: MergedChanges, live_rows: Found, late: Bools, files: Sequence[LiveFile]) -> Completed:
        """Yields the rows, as `complete_buffered`.

        Raises: OSError where the store fails; SpecError where a value does not fit its column.
        """


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
    #: Rows that are made of those in the table; None where tasks have written or buffered every row.
    made: MadeRows | None = None
    #: Whether the latest values in the table stay the latest: the changes are older ones that are replayed.
    keeps_latest: bool = False

    @property
    def keys(self) -> Ranked:
        """The latest change of each key."""
        return self.ranked.take(self.latest.last)


def merge_changes(target: TableTarget, report: TaskReport, counting: Callable[[Ranked], Ints]) -> MergedChanges:
    """Returns the changes of the tasks of `report`, of which at least one has changes. counting: returns the places of those
    that may decide a key.
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
        _deduplicated(ranked, counting(ranked), is_one=len(sizes) == 1),
        [[by_path[path] for path in touched.files] for touched in report.changes.touched],
        [load_table(touched.buffered) if touched.buffered else None for touched in report.changes.touched],
        sum(touched.change_count for touched in report.changes.touched),
    )


def _deduplicated(ranked: Ranked, rows: Ints, *, is_one: bool) -> LatestChanges:
    """Returns the latest of the changes at these places. is_one: all are the kept changes of one deduplication."""
    if rows.size == len(ranked):
        return rebuild_latest(ranked) if is_one else deduplicate(ranked)
    latest = deduplicate(ranked.take(rows))
    cut = int(rows[latest.cut]) if latest.cut >= 0 else -1
    return LatestChanges(rows[latest.last], latest.is_sure, rows[latest.kept], rows[latest.highest], cut)
