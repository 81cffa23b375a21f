"""What stops a table with groups of records.

A key without end makes a row for each group, and fills the disk. Main may lack groups that records have opened.
"""

from __future__ import annotations

from frazil.errors import SpecError
from frazil.ingest.tables.table import Table
from frazil.upsert.late_records import error_of_lost


def error_of_groups(table: Table) -> SpecError | None:
    """Returns the error of a table whose groups cannot be committed; None where they can."""
    return error_of_lost(table.progress, table.name) or _too_many_groups(table)


def _too_many_groups(table: Table) -> SpecError | None:
    """Returns the error of a table that had more rows after its last commit than its limit of groups; None otherwise."""
    limit, size = table.spec.bad_records.limits.groups, table.catalog.size
    if size is None or size.live_row_count <= limit or not table.spec.changes.counts_every_row:
        return None
    return SpecError(
        f"the table has {size.live_row_count:,} rows, and `limits.groups` is {limit:,}",
        remedy="group by fewer columns, such as without the id of an event, or by a window of time, and create the table"
        " again; or write a greater number, `limits: {groups: …}`",
        where=table.name,
    )
