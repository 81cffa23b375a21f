"""What settings of a table need of its fields: an odd first value stops no table, and elements of lists are not keys."""

from __future__ import annotations

import pytest

from frazil.ingest.tables.queries import SparkQueries
from packages.testing.tests.unit.conftest import HEAD, Play, is_well

_TIME, _TIMES = "2026-01-31T10:00:00Z", "infer: {timestamps: true}"
_ODD_FIRSTS = (
    ("dedupe: {by: [v]}", "{x: 1}", "a", "`dedupe` takes columns with plain values only"),
    ("dedupe: {by: [v]}", "[1]", "5", "`dedupe` takes columns with plain values only"),
    ("mode: upsert, key_columns: [v]", "[1]", "a", "`key_columns` takes columns with plain values only"),
    ("mode: upsert, key_columns: [id], order_by: v", "{x: 1}", "5", "`order_by` takes columns with plain values only"),
    (
        "mode: upsert, key_columns: [id], merge: {v: sum}",
        '"7"',
        "5",
        "`sum` takes numbers, and the column has the type",
    ),
    (
        "mode: upsert, key_columns: [id], merge: {v: collect_list}",
        "5",
        "[6]",
        "`collect_list` takes lists of plain values",
    ),
    ("partition_by: [v]", "[1]", "a", "the column `v` has the type list"),
    ("sort_by: [v]", "{x: 1}", "a", "the column `v` has the type struct"),
    (f"partition_by: [day(v)], {_TIMES}", "true", _TIME, "the column `v` has the type boolean"),
    (f"mode: history, key_columns: [id], order_by: v, {_TIMES}", "true", _TIME, "`order_by: v` has the type boolean"),
)


@pytest.mark.parametrize(("settings", "odd", "good", "reason"), _ODD_FIRSTS)
def test_an_odd_first_value_of_a_column_that_a_setting_needs_is_a_dead_letter(
    play: Play, settings: str, odd: str, good: str, reason: str
) -> None:
    pipeline = f"{HEAD}tables: {{shop.orders: {{topic: orders, {settings}}}}}"
    cases = f"""cases:
  odd first:
    records: [{{value: {{id: 1, v: {odd}}}}}, {{value: {{id: 2, v: {good}}}}}, {{value: {{id: 3, v: null}}}}]
    rows: [{{id: 2, v: {good}}}, {{id: 3, v: null}}]
    dead_letters: [{{offset: 0, path: v, error_class: type_mismatch}}]
"""
    if "key_columns: [v]" in settings or "order_by" in settings:  # Which no row is without.
        cases = cases.replace(", {id: 3, v: null}]", "]").replace(", {value: {id: 3, v: null}}", "")
    assert is_well(play(cases, pipeline))
    alone = f"""cases:
  odd alone:
    records: [{{value: {{id: 1, v: {odd}}}}}]
    stops: "{reason}"
"""
    assert is_well(play(alone, pipeline))


def test_a_list_by_which_duplicates_are_dropped_stops_the_table_until_the_column_is_declared(play: Play) -> None:
    pipeline = f"{HEAD}tables: {{shop.orders: {{topic: orders, dedupe: {{by: [v]}}}}}}"
    cases = """cases:
  alone:
    records: [{value: {id: 1, v: [1]}}, {value: {id: 2}}]
    stops: "declare the column, `columns: {NAME: TYPE}`"
"""
    assert is_well(play(cases, pipeline))
    mended = cases.partition("    stops")[0] + "    rows: [{id: 2}]\n    dead_letters: [{offset: 0, path: v}]\n"
    assert is_well(play(mended, pipeline.replace("dedupe", "columns: {v: string}, dedupe")))


def test_elements_of_a_list_identify_rows_only_where_each_row_is_a_change_of_its_own(
    play: Play, queries: SparkQueries
) -> None:
    pipeline = f"""{HEAD}
tables:
  shop.lines:
    topic: orders
    mode: upsert
    key_columns: [id, SKU]
    columns: {{lines: "list<struct<sku: long, n: long>>"}}
    select: >-
      select id, line.sku as sku, line.n as n from (select id, explode(lines) as line from records)
"""
    cases = """cases:
  lines:
    records:
      - value: {id: 1, lines: [{sku: 1, n: 1}, {sku: 2, n: 2}, {sku: 2, n: 3}]}
      - value: {id: 1, lines: [{sku: 1, n: 9}]}
    stops: "`key_columns` names `SKU`, which `explode` makes, and of the rows of one record the last one stays"
"""
    assert is_well(play(cases, pipeline, queries))
    rows = (
        "    rows: [{id: 1, sku: 1, n: 9, changes: 2}, {id: 1, sku: 2, n: 3, changes: 2}]\n    dropped: {explode: 3}\n"
    )
    without = "      - value: {id: 2, lines: null}\n      - value: {id: 2, lines: []}\n      - value: {id: 2}\n"
    merged = pipeline.replace("mode: upsert", "mode: upsert\n    merge: {changes: count}")
    assert is_well(play(f"{cases.partition('    stops')[0]}{without}{rows}", merged, queries))
