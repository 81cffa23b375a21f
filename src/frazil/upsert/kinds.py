"""Tables that look up their rows: those with the latest row of a key, with merged rows, with history, without duplicates.

Others ask here, in the driver, and name none of these kinds; in tasks it is `upsert.task_kinds`.
"""

from __future__ import annotations

from dataclasses import dataclass

from frazil.catalog.port import Catalog, TableState
from frazil.report import TaskReport
from frazil.types import Commit, DataFile, Progress, Resolved
from frazil.upsert.commit import Judge, Prepared, ReadChanges, commit_changes, prepare_changes
from frazil.upsert.dedupe.commit import commit_deduplicated, without_duplicates
from frazil.upsert.history.columns import check_order, untracked_columns
from frazil.upsert.history.commit import commit_versions, prepare_versions
from frazil.upsert.merge.functions import check_functions, unmerged_columns
from frazil.upsert.merge.state import merge_parts
from frazil.upsert.merged_changes import merge_changes
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


def check_kind(target: TableTarget) -> None:
    """Checks the types of the columns that are merged, and of the column that orders versions.

    Raises: SpecError for another type, and where a query lacks the column of a `count`.
    """
    check_functions(target)
    check_order(target)


def missing_columns(target: TableTarget) -> dict[str, list[str]]:
    """Returns by key of the pipeline file the columns that it names and the table does not have."""
    names = {"merge": unmerged_columns(target), "track": untracked_columns(target)}
    return {key: columns for key, columns in names.items() if columns}


def commit_rows(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
) -> CommittedRows:
    """Commits the rows of `report`, with the deletes of those that they replace. Files of failed attempts are deleted; the
    files of `report` stay with the caller.

    Raises: as `upsert.commit.commit_changes`.
    """
    if target.changes is None:
        progress, dropped, files = commit_deduplicated(catalog, target, state, report, commit)
        return CommittedRows(progress, without_duplicates(report, dropped), None, files)
    if target.changes.history is not None:
        progress, resolved, files = commit_versions(catalog, target, state, report, commit)
    else:
        progress, resolved, files = commit_changes(catalog, target, state, report, commit, _read_of(target))
    return CommittedRows(progress, report, resolved, files)


def prepare_rows(
    catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, judge: Judge
) -> Prepared:
    """Looks up the rows that replayed changes replace, and writes their deletes. Takes, returns and raises as
    `upsert.commit.prepare_changes`.
    """
    assert target.changes is not None
    if target.changes.history is not None:
        return prepare_versions(catalog, target, state, report, judge)
    return prepare_changes(catalog, target, state, report, judge, _read_of(target))


def _read_of(target: TableTarget) -> ReadChanges:
    assert target.changes is not None
    return merge_parts if target.changes.counts_every_row else merge_changes
