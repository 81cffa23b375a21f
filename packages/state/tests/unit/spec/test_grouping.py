"""Queries with GROUP BY: the keys and functions that they make, and the query of single records."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from frazil.spec import json_schema
from frazil.spec.grouped_tables import describe_grouping
from frazil.spec.grouping import Grouping, grouping_of
from tests.unit.spec.pipeline_file import Load, Refuse, setting, with_table


def _grouping(query: str) -> Grouping:
    grouping = grouping_of(query)
    assert grouping is not None
    return grouping


@pytest.mark.parametrize(
    ("query", "keys", "merge", "projection"),
    [
        (
            "select user, count(*) as n from records group by user",
            ("user",),
            (("n", "count"),),
            "select user as `user` from records",
        ),
        (
            "SELECT lower(u) AS `the user`, Sum(a) total FROM (select * from records where b) AS records WHERE c > 1 "
            "GROUP BY 1",
            ("the user",),
            (("total", "sum"),),
            "select lower(u) as `the user`, a as `total` FROM (select * from records where b) AS records WHERE c > 1",
        ),
        (
            "select o.city, case when a = 1 then 'x' else o.kind end as kind, max(b) as m from records"
            " group by o.city, kind",
            ("city", "kind"),
            (("m", "max"),),
            "select o.city as `city`, case when a = 1 then 'x' else o.kind end as `kind`, b as `m` from records",
        ),
        (
            "select a as k, upper(a) as up, 1 as one, last(b, true) as b from records group by a -- by, group by z",
            ("k",),
            (("up", "latest"), ("one", "latest"), ("b", "latest_non_null")),
            "select a as `k`, upper(a) as `up`, 1 as `one`, b as `b` from records",
        ),
        (
            "select a, avg(b) as m, count(c) as n, collect_list(d) as l from records group by a",
            ("a",),
            (("m", "avg"), ("m_sum", "sum"), ("m_count", "sum"), ("n", "sum"), ("l", "collect_list")),
            "select a as `a`, b as `m`, b as `m_sum`, if((b) is not null, 1L, 0L) as `m_count`,"
            " if((c) is not null, 1L, 0L) as `n`, array(d) as `l` from records",
        ),
    ],
)
def test_a_query_with_group_by_is_a_key_with_functions(
    query: str, keys: tuple[str, ...], merge: tuple[tuple[str, str], ...], projection: str
) -> None:
    grouping = _grouping(query)
    assert (grouping.key_columns, grouping.merge, grouping.projection({})) == (keys, merge, projection)


@pytest.mark.parametrize(
    ("window", "micros"),
    [
        ("window(ts, '1 minute')", (60_000_000, 60_000_000, 0)),
        ("window(ts, '1 hour 30 minutes', '30 minutes')", (5_400_000_000, 1_800_000_000, 0)),
        (
            "window(to_timestamp(a, 'y,M'), 'interval 1 week', '1 day', '-2 hours')",
            (604_800_000_000, 86_400_000_000, -7_200_000_000),
        ),
    ],
)
def test_windows_have_lengths_and_starts(window: str, micros: tuple[int, int, int]) -> None:
    grouping = _grouping(f"select window.end as e, window.start as s, count(*) as n from records group by {window}")
    assert grouping.window is not None
    assert (grouping.window.size_us, grouping.window.slide_us, grouping.window.offset_us) == micros
    assert grouping.key_columns == ("s",)
    assert dict(grouping.merge) == {"e": "latest", "n": "count"}


_SESSIONS = (
    "select u, session_window.end as e, session_window.start, max(a) as a from records"
    " group by session_window(ts, '90 s'), u"
)


def test_sessions_are_found_by_the_other_groups_and_joined_by_their_bounds() -> None:
    grouping = _grouping(_SESSIONS.replace("90 s", "90 seconds"))
    assert grouping.window is not None
    assert (grouping.window.size_us, grouping.window.windows_per_time) == (90_000_000, 1)
    assert (grouping.key_columns, grouping.session) == (("u",), ("start", "e"))
    assert grouping.merge == (("e", "max"), ("start", "min"), ("a", "max"))


@pytest.mark.parametrize(
    "query", ["select a from records", "select a, (select 1 group by 2) as b from records", "with x"]
)
def test_another_query_has_no_groups(query: str) -> None:
    assert grouping_of(query) is None


_BY_MINUTE = "select window.start as m, count(*) as n, avg(a) as mean from records group by window(ts, '1 minute')"


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ("late: 7d", {"mode": "upsert", "key_columns": ("m",), "format_version": 3, "tombstones": "dead_letter"}),
        ("late: {after: 90m, else: dead_letter}", {"emit": "update"}),
        ("envelope: debezium", {"tombstones": "ignore"}),
    ],
)
def test_what_is_written_is_read_and_valid_for_editors(load: Load, settings: str, read: dict[str, Any]) -> None:
    text = with_table(f'select: "{_BY_MINUTE}", {settings}')
    (table,) = load(text).tables
    assert {name: setting(table, name) for name in read} == read
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))


def test_the_plan_names_keys_functions_windows_and_late_records(load: Load) -> None:
    (table,) = load(with_table(f'select: "{_BY_MINUTE}", late: 7d')).tables
    assert list(describe_grouping(table)) == [
        "groups records by m: mean is the average, mean_sum is sum, mean_count is sum, n counts records",
        "each record is in one window(ts, '1 minute'): m is its start",
        "records more than 7d behind the greatest time of their partition are dropped and counted as late",
    ]


def test_a_mode_that_contradicts_the_groups_is_the_only_problem(refuse: Refuse, load: Load) -> None:
    error = refuse(with_table(f'mode: append, select: "{_BY_MINUTE}"'))
    assert (error.message, error.others) == ("the query's GROUP BY decides `mode`, and the table has another", ())
    assert load(with_table(f'select: "{_BY_MINUTE}"')).tables
    error = refuse(with_table(f'mode: append, key_columns: [a], select: "{_BY_MINUTE}"'))
    assert len(error.others) == 2
