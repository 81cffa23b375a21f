"""Tables that look up their rows, as the driver asks them: those with the latest row of a key, and the kinds of packages.

Others ask here, in the driver, and name none of the kinds; in tasks it is `upsert.task_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frazil.catalog.port import Catalog, TableState
from frazil.plugins.tables import TABLE_KINDS
from frazil.report import TaskReport
from frazil.schema.arrow import Ints
from frazil.types import Commit, DataFile, Progress, Resolved
from frazil.upsert.commit import Judge, Prepared, commit_changes, prepare_changes
from frazil.upsert.deduplicate import Ranked
from frazil.upsert.merged_changes import MergedChanges, merge_changes
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class CommittedRows:
    """What the commit of a batch has left."""

    #: The progress as committed.
    progress: Progress
    #: The report of the batch, without the rows that were dropped.
    report: TaskReport
    #: Figures about the look-up; None where none was made.
    resolved: Resolved | None
    #: The data files that the commit added.
    files: tuple[DataFile, ...]


class TableRows:
    """What the driver asks of a kind of table. As it is, that of tables with the latest row of a key."""

    def check(self, target: TableTarget) -> None:
        """Checks the types of the columns that the kind computes with.

        Raises: SpecError for a type that it cannot take, and where a query lacks a column.
        """

    def missing_columns(self, target: TableTarget) -> dict[str, list[str]]:  # noqa: ARG002  (kinds of packages use it)
        """Returns by key of the pipeline file the columns that it names and the table does not have."""
        return {}

    def commit(
        self, catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
    ) -> CommittedRows:
        """See `commit_rows`."""
        progress, resolved, files = commit_changes(catalog, target, state, report, commit, self.read)
        return CommittedRows(progress, report, resolved, files)

    def prepare(
        self, catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, judge: Judge
    ) -> Prepared:
        """See `prepare_rows`."""
        return prepare_changes(catalog, target, state, report, judge, self.read)

    def read(self, target: TableTarget, report: TaskReport, counting: Callable[[Ranked], Ints]) -> MergedChanges:
        """Returns the changes of all tasks together, as `merge_changes`."""
        return merge_changes(target, report, counting)


_LATEST = TableRows()


def _kind_of(target: TableTarget) -> TableRows:
    kind: TableRows = TABLE_KINDS.get(target.kind).in_driver if target.kind else _LATEST
    return kind


def check_kind(target: TableTarget) -> None:
    """Checks the types of the columns that the kind of the table computes with, such as those that are merged.

    Raises: SpecError for another type, and where a query lacks the column of a `count`.
    """
    _kind_of(target).check(target)


def missing_columns(target: TableTarget) -> dict[str, list[str]]:
    """Returns by key of the pipeline file the columns that it names and the table does not have."""
    return {key: columns for key, columns in _kind_of(target).missing_columns(target).items() if columns}


def commit_rows(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
) -> CommittedRows:
    """Commits the rows of `report`, with the deletes of those that they replace. Files of failed attempts are deleted; the
    files of `report` stay with the caller.

    Raises: as `upsert.commit.commit_changes`.
    """
    return _kind_of(target).commit(catalog, target, state, report, commit)


def prepare_rows(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, judge: Judge
) -> Prepared:
    """Looks up the rows that replayed changes replace, and writes their deletes. Takes, returns and raises as
    `upsert.commit.prepare_changes`.
    """
    return _kind_of(target).prepare(catalog, target, state, report, judge)
