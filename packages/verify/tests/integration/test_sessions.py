"""Sessions, whose lists depend on the batches that records were read in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.tables.queries import SparkQueries
from frazil.runtime.jvm import Jvm
from frazil_testing.twins import live_rows
from frazil_verify.comparison import with_sorted
from frazil_verify.whole_tables import unordered_lists
from packages.state.tests.unit.grouping.grouping import Grouped

pytestmark = pytest.mark.jvm
_SELECT = (
    "select user, session_window.start as began, session_window.end as until, collect_list(page) as pages"
    " from records group by user, session_window(ts, '5 minutes')"
)


def _sorted(grouped: Grouped, jvm: Jvm) -> list[str]:
    """The rows as JSON, with their lists as they are compared."""
    schema = "user string, began string, until string, pages array<string>"
    values = ", ".join(f"('{json.dumps(row, default=str)}')" for row in live_rows(grouped.catalog, "n.t"))
    rows = jvm.session().sql(f"select row.* from (select from_json(col1, '{schema}') as row from values {values})")
    frame: Any = with_sorted(rows, unordered_lists(grouped.spec.tables[0]))
    return list(frame._jdf.toJSON().collectAsList())  # PySpark's own `collect` leaves a socket open.


def test_lists_of_sessions_are_equal_in_any_order(tmp_path: Path, jvm: Jvm) -> None:
    queries = SparkQueries(lambda: jvm.gateway.jvm)
    whole, joined, other = (
        Grouped(tmp_path / name, queries, _SELECT, "columns: {page: string}") for name in ("whole", "joined", "other")
    )
    for grouped, last in ((whole, "c"), (joined, "c"), (other, "d")):
        for seconds, page in ((600, "a"), (0, "b"), (300, last)):
            if seconds == 300 and grouped is joined:
                grouped.catch_up()
            grouped.pay("u", seconds, page=page)
        grouped.catch_up()
    (wanted,), (pages,), (others,) = (grouped.table_rows("pages") for grouped in (whole, joined, other))
    assert (wanted, pages, others) == ((["a", "b", "c"],), (["b", "a", "c"],), (["a", "b", "d"],))
    of_whole, of_joined, of_other = (_sorted(grouped, jvm) for grouped in (whole, joined, other))
    assert of_whole == of_joined
    assert of_whole != of_other
