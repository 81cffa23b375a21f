"""A whole service on the ports in memory: groups of records, over batches and restarts."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from frazil_testing.twins import FakeClock, live_rows
from packages.state.tests.unit.grouping.grouping import PER_MINUTE, Grouped, at, moment


def test_records_are_counted_and_added_by_the_minute_over_restarts(tmp_path: Path, queries: SparkQueries) -> None:
    grouped = Grouped(tmp_path, queries)
    grouped.pay("a", 0, 5)
    grouped.pay("a", 59.999999, 7)
    grouped.pay("a", 60, 1)
    grouped.pay("b", 0, None)
    grouped.catch_up()
    grouped.pay("a", 1, 2)
    grouped.pay("b", 3, 4)
    grouped.catch_up()
    assert grouped.table_rows("user", "minute", "n", "total") == [
        ("a", moment(0), 3, 14),
        ("a", moment(60), 1, 1),
        ("b", moment(0), 2, 4),
    ]


_ALL = (
    "select user, count(*) as n, count(amount) as paid, count_if(amount > 5) as large, sum(amount) as total,"
    " avg(amount) as mean, min(amount) as low, max(name) as high, first(name) as began, last(name) as ended,"
    " last(name, true) as known, bool_and(ok) as every, bool_or(ok) as some, collect_set(name) as names,"
    " sum(amount) filter (where ok) as good, count(*) filter (where ok) as oks, 'x' as constant"
    " from records where user <> 'z' group by user"
)


@pytest.mark.parametrize("tasks", [1, 3])
def test_every_aggregate_is_what_a_query_over_all_records_gives(
    tmp_path: Path, queries: SparkQueries, tasks: int
) -> None:
    grouped = Grouped(tmp_path, queries, _ALL, tasks=tasks)
    records = [("a", 5, "p", True), ("a", None, None, False), ("b", 6, "q", None), ("z", 1, "z", True)]
    for user, amount, name, ok in records:
        grouped.pay(user, 0, amount, name=name, ok=ok)
    grouped.catch_up()
    for user, amount, name, ok in [("a", 8, "r", True), ("a", 9, None, True)]:
        grouped.pay(user, 0, amount, name=name, ok=ok)
    grouped.catch_up()
    columns = ("user", "n", "paid", "large", "total", "mean", "low", "high", "good", "oks", "constant")
    assert grouped.table_rows(*columns) == [
        ("a", 4, 3, 2, 22, 22 / 3, 5, "r", 22, 3, "x"),
        ("b", 1, 1, 1, 6, 6.0, 6, "q", None, 0, "x"),
    ]
    others = {
        row[0]: row[1:] for row in grouped.table_rows_unsorted("user", "began", "ended", "known", "every", "some")
    }
    assert others == {"a": ("p", None, "r", False, True), "b": ("q", "q", "q", None, None)}
    assert dict(grouped.table_rows("user", "names")) == {"a": ["p", "r"], "b": ["q"]}
    assert list(grouped.columns()) == [
        *("user", "n", "paid", "large", "total", "mean", "mean_sum", "mean_count", "low", "high", "began", "ended"),
        *("known", "every", "some", "names", "good", "oks", "constant"),
    ]


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("partitioned", [False, True])
def test_zeros_of_both_signs_are_one_group_and_one_element_of_a_set(
    tmp_path: Path, queries: SparkQueries, tasks: int, partitioned: bool
) -> None:
    """As in Spark, which makes one zero and one NaN of all in keys of groups, and has one of them in a set."""
    select = "select amount as k, count(*) as n, collect_set(share) as s from records group by amount"
    settings = "columns: {amount: double, share: float}" + (", partition_by: [k]" if partitioned else "")
    grouped = Grouped(tmp_path, queries, select, settings, tasks=tasks)
    for amounts in ((0.0, -0.0, 1.0), (-0.0, 0.0), (-0.0,)):
        for amount in amounts:
            grouped.pay("a", 0, amount, share=-amount)
        grouped.catch_up()
    rows = [[str(value) for value in row] for row in grouped.table_rows("k", "n", "s")]
    assert rows == [["0.0", "5", "[0.0]"], ["1.0", "1", "[-1.0]"]]


def test_a_record_is_in_each_sliding_window_of_its_time(tmp_path: Path, queries: SparkQueries) -> None:
    select = (
        "select user as u, window.start as `from`, window.end as `to`, count(*) as n from records"
        " group by u, window(ts, '7 minutes', '3 minutes')"
    )
    grouped = Grouped(tmp_path, queries, select, tasks=3)
    grouped.pay("a", 0)
    grouped.pay("a", 120)
    grouped.catch_up()
    grouped.pay("a", 60)
    grouped.catch_up()
    minutes = [
        (round((start - moment(0)).total_seconds() / 60), round((end - start).total_seconds() / 60), n)
        for start, end, n in grouped.table_rows("from", "to", "n")
    ]
    assert minutes == [(-6, 7, 1), (-3, 7, 3), (0, 7, 3)]


def test_a_record_without_a_time_is_a_dead_letter(tmp_path: Path, queries: SparkQueries) -> None:
    grouped = Grouped(tmp_path, queries, settings="on_bad_record: dead_letter")
    grouped.put({"user": "a", "ts": None, "amount": 1})
    grouped.put({"user": None, "ts": at(0), "amount": 1})
    for n in range(20):
        grouped.pay("a", n)
    grouped.put(None)
    grouped.catch_up()
    assert grouped.table_rows("user", "n") == [("a", 20)]
    assert [error_class for error_class, _ in grouped.dead_letters()] == ["no_event_time", "no_key", "tombstone"]


def test_several_tables_of_one_topic_are_rollups(tmp_path: Path, queries: SparkQueries) -> None:
    grouped = Grouped(tmp_path, queries)
    hourly = Grouped(tmp_path / "hour", queries, PER_MINUTE.replace("1 minute", "1 hour")).spec.tables[0]
    (table,) = grouped.spec.tables
    grouped.spec = grouped.spec.model_copy(update={"tables": (table, hourly.model_copy(update={"name": "n.h"}))})
    for seconds in (0, 60, 3600):
        grouped.pay("a", seconds)
    service = grouped.process(FakeClock())
    for _ in range(5000):
        if service.is_over(until_caught_up=True):
            break
        service.turn(until_caught_up=True)
    assert grouped.table_rows("minute", "n") == [(moment(0), 1), (moment(60), 1), (moment(3600), 1)]
    rows = [(row["minute"], row["n"]) for row in live_rows(grouped.catalog, "n.h")]
    assert sorted(rows) == [(moment(0), 2), (moment(3600), 1)]


_LATE = "late: 10m"


@pytest.mark.parametrize("tasks", [1, 3])
def test_records_that_are_later_than_the_setting_are_dropped_and_counted(
    tmp_path: Path, queries: SparkQueries, tasks: int
) -> None:
    grouped = Grouped(tmp_path, queries, settings=_LATE, tasks=tasks)
    grouped.pay("a", 0)
    grouped.pay("a", 1200)
    grouped.pay("a", 600)  # As late as it may be.
    grouped.pay("a", 599.999999)
    for _ in range(6):
        grouped.pay("b", 1200)
    grouped.catch_up()
    rows = [("a", moment(0), 1), ("a", moment(600), 1), ("a", moment(1200), 1), ("b", moment(1200), 6)]
    assert grouped.table_rows("user", "minute", "n") == rows
    progress = grouped.progress()
    assert progress.totals.ignored_records == {"late": 1}
    assert progress.order.windows_complete_to_us == round(moment(600).timestamp() * 1_000_000)
    grouped.pay("a", 599)
    grouped.pay("a", 1199)
    grouped.catch_up()
    assert grouped.table_rows("user", "minute", "n") == sorted([*rows, ("a", moment(1140), 1)])
    assert grouped.progress().totals.ignored_records == {"late": 2}


@pytest.mark.parametrize("after", ["10m", "1500ms"])
def test_later_records_become_dead_letters_where_the_table_asks_for_it(
    tmp_path: Path, queries: SparkQueries, after: str
) -> None:
    settings = f"late: {{after: {after}, else: dead_letter}}, on_bad_record: dead_letter"
    grouped = Grouped(tmp_path, queries, settings=settings)
    for _ in range(9):
        grouped.pay("a", 1200)
    grouped.pay("a", 0)
    grouped.catch_up()
    assert grouped.table_rows("user", "n") == [("a", 9)]
    assert grouped.dead_letters() == [
        ("late", f"the time of the record is 2026-01-01 00:00:00.000000, and records are late after {after}")
    ]
    longer = Grouped(tmp_path / "longer", queries, settings=settings.replace(after, "20m"))
    longer.pay("a", 1200)
    longer.pay("a", 0)
    longer.catch_up()
    assert longer.table_rows("user", "n") == [("a", 1), ("a", 1)]


def test_a_partition_without_records_does_not_hold_windows_and_its_late_records_are_late(
    tmp_path: Path, queries: SparkQueries
) -> None:
    grouped = Grouped(tmp_path, queries, settings=_LATE, partitions=3)
    grouped.pay("a", 0, partition=0)
    grouped.pay("a", 60, partition=1)
    grouped.catch_up()
    assert grouped.progress().order.windows_complete_to_us == round(moment(-600).timestamp() * 1_000_000)
    grouped.pay("a", 3600, partition=0)
    grouped.catch_up()
    assert grouped.progress().order.windows_complete_to_us == round(moment(3000).timestamp() * 1_000_000)
    grouped.pay("a", 61, partition=1)
    grouped.pay("a", 2999, partition=2)
    grouped.pay("a", 3000, partition=2)
    grouped.catch_up()
    assert grouped.table_rows("minute", "n") == [(moment(0), 1), (moment(60), 1), (moment(3000), 1), (moment(3600), 1)]
    assert grouped.progress().totals.ignored_records == {"late": 2}


def test_a_record_of_several_times_is_late_where_the_smallest_is(tmp_path: Path, queries: SparkQueries) -> None:
    exploded = "(select user, amount, explode(array(ts, other)) as ts from records)"
    grouped = Grouped(tmp_path, queries, PER_MINUTE.replace("records", exploded), _LATE)
    for seconds, other in ((0, 60), (3600, 3660), (0, 3600), (3600, 0), (3660, 3000)):
        grouped.pay("a", seconds, other=at(other))
    grouped.catch_up()
    minutes = [(moment(seconds), n) for seconds, n in ((0, 1), (60, 1), (3000, 1), (3600, 1), (3660, 2))]
    assert grouped.table_rows("minute", "n") == minutes
    assert grouped.progress().totals.ignored_records == {"late": 2}


def test_a_clock_that_is_wrong_does_not_end_all_windows(tmp_path: Path, queries: SparkQueries) -> None:
    grouped = Grouped(tmp_path, queries, settings=_LATE)
    sent_ms = round(moment(30).timestamp() * 1000)
    for seconds in (10**9, 0):
        grouped.put({"user": "a", "ts": at(seconds), "amount": 1}, at_ms=sent_ms)
    grouped.catch_up()
    assert [n for (n,) in grouped.table_rows("n")] == [1, 1]


def test_records_without_a_time_are_left_out_or_get_one_by_the_query(tmp_path: Path, queries: SparkQueries) -> None:
    left_out = Grouped(tmp_path / "w", queries, settings="where: ts is not null")
    given = Grouped(
        tmp_path / "c", queries, PER_MINUTE.replace("(ts,", "(coalesce(cast(ts as timestamp), _timestamp),")
    )
    for grouped in (left_out, given):
        grouped.pay("a", 0)
        grouped.put({"user": "a", "ts": None, "amount": 1}, at_ms=round(moment(90).timestamp() * 1000))
        grouped.catch_up()
    assert left_out.table_rows("minute", "n") == [(moment(0), 1)]
    assert given.table_rows("minute", "n") == [(moment(0), 1), (moment(60), 1)]


def test_a_number_is_no_time_until_it_is_made_one(tmp_path: Path, queries: SparkQueries) -> None:
    select = PER_MINUTE.replace("(ts,", "(at,")
    wrong = Grouped(tmp_path / "w", queries, select)
    right = Grouped(tmp_path / "r", queries, select.replace("(at,", "(timestamp_millis(at),"))
    for grouped in (wrong, right):
        grouped.pay("a", 0, at=round(moment(61).timestamp() * 1000))
        table = grouped.catch_up()
        if grouped is wrong:
            assert table.status.run_state is RunState.STOPPED
            assert table.status.reason == "`window(at, '1 minute')` is of long, which is not a time"
            assert table.status.remedy.startswith("write a time, such as `window(timestamp_millis(ts), '1 minute')`")
    assert right.table_rows("minute", "n") == [(moment(60), 1)]


def test_an_average_is_of_numbers(tmp_path: Path, queries: SparkQueries) -> None:
    select = "select user, avg({}) as mean from records group by user"
    wrong = Grouped(tmp_path / "w", queries, select.format("ok"))
    right = Grouped(tmp_path / "r", queries, select.format("cast(ok as int)"))
    for grouped in (wrong, right):
        grouped.pay("a", 0, ok=True)
        table = grouped.catch_up()
        assert (table.status.run_state is RunState.STOPPED) == (grouped is wrong), table.status.reason
    assert table.status.remedy == ""
    assert right.table_rows("user", "mean", "mean_sum", "mean_count") == [("a", 1.0, 1, 1)]


@pytest.mark.parametrize(
    ("kind", "amounts", "total", "mean"),
    [
        ("int", [2**31 - 1, 2**31 - 1], 2**32 - 2, 2.0**31 - 1),
        ("decimal(10,2)", ["0.10", "0.20", "0.31"], "0.61", "0.203333"),
        ("decimal(38,36)", ["0.1", "0.2"], "0.3", "0.15"),
        ("float", [0.5, 0.25, 0.25], 1.0, 1.0 / 3),
    ],
)
def test_sums_and_averages_have_the_types_of_spark(
    tmp_path: Path, queries: SparkQueries, kind: str, amounts: list[Any], total: Any, mean: Any
) -> None:
    columns = f'columns: {{user: string, ts: timestamptz, amount: "{kind}"}}'
    select = "select user, sum(amount) as total, avg(amount) as mean from records group by user"
    grouped = Grouped(tmp_path, queries, select, columns)
    for amount in amounts:
        grouped.pay("a", 0, float(amount))
        grouped.catch_up()
    is_decimal = isinstance(total, str)
    wanted = (Decimal(total), Decimal(mean)) if is_decimal else (total, mean)
    assert grouped.table_rows("total", "mean") == [wanted]


@pytest.mark.parametrize(
    ("aggregate", "larger", "kind", "amount"),
    [
        ("sum(amount)", "sum(cast(amount as decimal(38,0)))", "long", 2**63 - 1),
        ("avg(amount)", "avg(cast(amount as double))", "decimal(38,0)", 10**36),
    ],
)
def test_an_aggregate_that_its_type_cannot_hold_stops_the_table_until_the_query_has_a_larger_one(
    tmp_path: Path, queries: SparkQueries, aggregate: str, larger: str, kind: str, amount: int
) -> None:
    for number, value in enumerate((aggregate, larger)):
        select = f"select user, {value} as value from records group by user"
        columns = f'columns: {{user: string, amount: "{kind}"}}'
        grouped = Grouped(tmp_path / str(number), queries, select, columns)
        grouped.pay("a", 0, amount)
        grouped.pay("a", 0, amount)
        table = grouped.catch_up()
        if value == aggregate:
            assert table.status.run_state is RunState.STOPPED
            assert table.status.reason.startswith("`merge.value`: the ")
            assert " is larger than the type " in table.status.reason
            assert larger[4:-1].replace("amount", "VALUE") in table.status.remedy
    ((result,),) = grouped.table_rows("value")
    assert result in (2 * amount, float(amount))


@pytest.mark.parametrize(
    ("select", "settings", "result"),
    [
        ("user, cast(n as bigint) as n", "mode: upsert, key_columns: [user], merge: {n: sum}", 3),
        ("user, array(n) as n", "mode: upsert, key_columns: [user], merge: {n: collect_set}", ["1", "2"]),
        ("user, cast(n as timestamp) as n", "mode: history, key_columns: [user], order_by: n", None),
    ],
)
def test_a_merged_or_ordering_column_may_have_the_name_of_a_field_of_another_type(
    tmp_path: Path, queries: SparkQueries, select: str, settings: str, result: Any
) -> None:
    grouped = Grouped(tmp_path, queries, f"select {select} from records", settings)
    for n in ("1", "2") if result else (at(0), at(1)):
        grouped.put({"user": "a", "n": n})
    table = grouped.catch_up()
    assert table.status.reason == ""
    assert grouped.table_rows("user", "n") == [("a", result or moment(1))]


def test_a_field_that_cannot_be_merged_stops_the_table_before_it_is_a_column(
    tmp_path: Path, queries: SparkQueries
) -> None:
    settings = "mode: upsert, key_columns: [user], merge: {n: sum}"
    grouped = Grouped(tmp_path, queries, "select * from records", settings)
    grouped.put({"user": "a"})
    grouped.catch_up()
    grouped.put({"user": "a", "n": "x"})
    table = grouped.catch_up()
    assert table.status.reason == "`merge.n`: `sum` takes numbers, and the column has the type string"
    assert list(grouped.columns()) == ["user"]


def test_a_new_aggregate_begins_with_the_records_from_then_on(tmp_path: Path, queries: SparkQueries) -> None:
    select = "select user, count(*) as n{} from records group by user"
    grouped = Grouped(tmp_path, queries, select.format(""))
    grouped.pay("a", 0, 1)
    grouped.pay("b", 0, 1)
    grouped.catch_up()
    later = Grouped(tmp_path / "later", queries, select.format(", sum(amount) as total, avg(amount) as mean"))
    grouped.spec = grouped.spec.model_copy(update={"tables": later.spec.tables})
    grouped.pay("a", 0, 4)
    grouped.catch_up()
    rows = {row[0]: row[1:] for row in grouped.table_rows_unsorted("user", "n", "total", "mean")}
    assert rows == {"a": (2, 4, 4.0), "b": (1, None, None)}


def test_changes_of_a_source_move_their_rows_between_windows(tmp_path: Path, queries: SparkQueries) -> None:
    select = PER_MINUTE.replace("sum(amount) as total", "avg(amount) as mean")
    grouped = Grouped(tmp_path, queries, select, "envelope: debezium, key: {format: json}")
    before = {"id": 1, "user": "a", "ts": at(0), "amount": 4}
    after = {"id": 1, "user": "a", "ts": at(60), "amount": 6}
    other = {"id": 2, "user": "a", "ts": at(0), "amount": 8}
    grouped.put({"op": "c", "before": None, "after": before}, key={"id": 1})
    grouped.put({"op": "c", "before": None, "after": other}, key={"id": 2})
    grouped.catch_up()
    assert grouped.table_rows("minute", "n", "mean") == [(moment(0), 2, 6.0)]
    grouped.put({"op": "u", "before": before, "after": after}, key={"id": 1})
    grouped.catch_up()
    assert grouped.table_rows("minute", "n", "mean") == [(moment(0), 1, 8.0), (moment(60), 1, 6.0)]
    grouped.put({"op": "d", "before": other, "after": None}, key={"id": 2})
    grouped.catch_up()
    assert grouped.table_rows("minute", "n", "mean") == [(moment(60), 1, 6.0)]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_record_whose_list_has_no_elements_is_in_no_group(tmp_path: Path, queries: SparkQueries, tasks: int) -> None:
    select = "select tag, count(*) as n from (select explode(tags) as tag from records) group by tag"
    grouped = Grouped(tmp_path, queries, select, "columns: {tags: list<string>}", tasks=tasks)
    for tags in (["a", "a", "b"], [], None, ["a"]):
        grouped.put({"tags": tags})
    grouped.catch_up()
    assert grouped.table_rows("tag", "n") == [("a", 3), ("b", 1)]
    assert grouped.progress().totals.ignored_records == {"explode": 2}


def test_an_exploded_row_is_deleted_with_its_record_and_without_elements(tmp_path: Path, queries: SparkQueries) -> None:
    select = "select id, explode(tags) as tag, v from records where v > 0"
    upserts = Grouped(
        tmp_path, queries, select, "mode: upsert, key_columns: [id], columns: {id: long, tags: list<string>, v: int}"
    )

    def put(number: int, tags: list[str] | None, v: int = 1) -> None:
        upserts.put({"id": number, "tags": tags, "v": v}, key={"id": number})

    for number in range(6):
        put(number, ["a", "b"])
    upserts.catch_up()
    put(1, [])
    put(2, None)
    put(3, ["c", "d", "e"], v=0)
    upserts.put(None, key={"id": 4})
    put(5, ["c"])
    upserts.catch_up()
    assert upserts.table_rows("id", "tag") == [(0, "b"), (5, "c")]
    assert upserts.catalog.load("n.t__dead_letters") is None


def test_averages_of_longs_that_no_double_has_are_those_of_the_nearest_one(
    tmp_path: Path, queries: SparkQueries
) -> None:
    grouped = Grouped(tmp_path, queries, "select user, avg(amount) as mean from records group by user")
    for amount in (2**53 + 1, 2**53 + 1, 2**53 + 2):
        grouped.pay("a", 0, amount)
    grouped.catch_up()
    assert grouped.table_rows("mean", "mean_sum", "mean_count") == [(2.0**53 + 2, 3 * 2**53 + 4, 3)]


def test_a_time_after_all_years_is_no_time_of_a_window_and_named(tmp_path: Path, queries: SparkQueries) -> None:
    settings = "on_bad_record: dead_letter, columns: {ts: string}"
    grouped = Grouped(tmp_path, queries, settings=settings)
    grouped.pay("a", 0)
    for text in ("99999-01-01T00:00:00Z", "200000-01-01T00:00:00Z", "-99999-01-01T00:00:00Z"):
        grouped.put({"user": "a", "ts": text, "amount": 1})
    grouped.catch_up()
    assert grouped.table_rows("user", "n") == [("a", 1)]
    assert len(grouped.dead_letters()) == 3


def test_the_group_of_a_sum_that_is_too_large_is_named_as_people_write_it(
    tmp_path: Path, queries: SparkQueries
) -> None:
    grouped = Grouped(tmp_path, queries, settings="columns: {amount: long}")
    for _ in range(2):
        grouped.pay("a", 0, 2**62)
    table = grouped.catch_up()
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason.endswith("for user='a', minute=\"2026-01-01T00:00:00+00:00\"")
