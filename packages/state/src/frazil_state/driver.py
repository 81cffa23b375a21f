"""What the driver asks of tables that are their own state: the port `TableRows` of `frazil.upsert.kinds`."""

from __future__ import annotations

from collections.abc import Callable

from frazil.catalog.port import Catalog, TableState
from frazil.report import TaskReport
from frazil.schema.arrow import Ints
from frazil.types import Commit
from frazil.upsert.commit import Judge, Prepared
from frazil.upsert.deduplicate import Ranked
from frazil.upsert.kinds import CommittedRows, TableRows
from frazil.upsert.merged_changes import MergedChanges
from frazil.write.target import TableTarget
from frazil_state.dedupe.commit import commit_deduplicated, without_duplicates
from frazil_state.history.columns import check_columns, untracked_columns
from frazil_state.history.commit import commit_versions, prepare_versions
from frazil_state.merge.functions import check_functions, unmerged_columns
from frazil_state.merge.state import merge_parts


class MergedTable(TableRows):
    """Tables with `merge`: the row of a key is of all records of it."""

    def check(self, target: TableTarget) -> None:
        """See TableRows."""
        check_functions(target)

    def missing_columns(self, target: TableTarget) -> dict[str, list[str]]:
        """See TableRows."""
        return {"merge": unmerged_columns(target)}

    def read(self, target: TableTarget, report: TaskReport, counting: Callable[[Ranked], Ints]) -> MergedChanges:
        """See TableRows."""
        return merge_parts(target, report, counting)


class HistoryTable(TableRows):
    """Tables with `mode: history`: a row for each version of what a key identifies."""

    def check(self, target: TableTarget) -> None:
        """See TableRows."""
        check_columns(target)

    def missing_columns(self, target: TableTarget) -> dict[str, list[str]]:
        """See TableRows."""
        return {"track": untracked_columns(target)}

    def commit(
        self, catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
    ) -> CommittedRows:
        """See TableRows."""
        progress, resolved, files = commit_versions(catalog, target, state, report, commit)
        return CommittedRows(progress, report, resolved, files)

    def prepare(
        self, catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, judge: Judge
    ) -> Prepared:
        """See TableRows."""
        return prepare_versions(catalog, target, state, report, judge)


class DedupedTable(TableRows):
    """Append tables with `dedupe`: no two rows of one id."""

    def commit(
        self, catalog: Catalog, target: TableTarget, state: TableState, report: TaskReport, commit: Commit
    ) -> CommittedRows:
        """See TableRows."""
        progress, dropped, files = commit_deduplicated(catalog, target, state, report, commit)
        return CommittedRows(progress, without_duplicates(report, dropped), None, files)
