"""Tables that are their own state: a record whose key, id or time has another type is a dead letter that names the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from packages.state.tests.unit.grouping.grouping import Grouped, at
from packages.state.tests.unit.merge.merging import Merging

_COLUMNS = "columns: {k: long, at: timestamptz, n: long}"
_MINUTES = "select k, window.start as m, sum(n) as n from records group by k, window(at, '1 minute')"


@pytest.mark.parametrize(
    "settings",
    [
        "mode: upsert, key_columns: [k], merge: {n: sum}",
        "mode: history, key_columns: [k], order_by: at",
        "dedupe: {by: [k]}",
        "",
    ],
    ids=["merge", "history", "dedupe", "group by"],
)
def test_a_key_or_a_time_of_another_type_is_a_dead_letter(tmp_path: Path, queries: SparkQueries, settings: str) -> None:
    columns = f"{settings}{', ' if settings else ''}{_COLUMNS}"
    tables = Merging(tmp_path, columns) if settings else Grouped(tmp_path, queries, _MINUTES, columns)
    good = {"k": 7, "at": at(0), "n": 1}
    table = tables.tell(good, {**good, "k": "seven"}, {**good, "k": 7.5}, {**good, "at": "noon"}, {**good, "k": 8})
    assert table.status.run_state is not RunState.STOPPED, table.status.reason
    assert sorted(key for (key,) in tables.table_rows("k")) == [7, 8]
    number, noon, seven = tables.dead_letters()
    assert {number[0], noon[0], seven[0]} == {"type_mismatch"}
    assert number[1].startswith("number 7.5 is not a whole number")
    assert (noon[1], seven[1].partition(":")[0].partition(";")[0]) == (
        'string "noon" cannot be read as timestamptz',
        'string "seven" does not fit long',
    )
