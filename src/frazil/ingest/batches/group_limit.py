"""What stops a table that merges records.

A key without end makes a row for each group, and fills the disk. Main with `emit: closed` lacks the windows that records
have opened.
"""

from __future__ import annotations

from frazil.errors import SpecError
from frazil.ingest.tables.table import Table
from frazil.spec.state import is_merging
from frazil.upsert.late_records import has_closed_windows


def error_of_groups(table: Table) -> SpecError | None:
    """Returns the error of a table whose groups cannot be committed; None where they can."""
    return _lost_windows(table) or _too_many_groups(table)


def _lost_windows(table: Table) -> SpecError | None:
    """Returns the error of a table that continues from main, where `emit: closed` has put complete windows alone."""
    if not has_closed_windows(table.progress):
        return None
    return SpecError(
        "the table would continue from main, which has complete windows alone by `emit: closed`: those that were open lack"
        " the records that were read",
        remedy="write `emit: closed` and `branch` as before, if the branch is left; otherwise drop the table, so that it"
        " reads its topics again",
        where=table.name,
    )


def _too_many_groups(table: Table) -> SpecError | None:
    """Returns the error of a table that had more rows after its last commit than its limit of groups; None otherwise."""
    limit, size = table.spec.bad_records.limits.groups, table.catalog.size
    if size is None or size.live_row_count <= limit or not is_merging(table.spec):
        return None
    return SpecError(
        f"the table has {size.live_row_count:,} rows, and `limits.groups` is {limit:,}",
        remedy="group by fewer columns, such as without the id of an event, or by a window of time, and create the table"
        " again; or write a greater number, `limits: {groups: …}`",
        where=table.name,
    )
