"""The limit of groups: a table that merges records has a row for each, and a key without end fills the disk."""

from __future__ import annotations

from frazil.errors import SpecError
from frazil.ingest.tables.table import Table
from frazil.spec.state import is_merging


def too_many_groups(table: Table) -> SpecError | None:
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
