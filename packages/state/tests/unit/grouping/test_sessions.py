"""Sessions: records of a user that are at most a gap apart are one row, over batches, tasks, restarts and maintenance."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil import failpoints
from frazil.dead_letters.files import Selection
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from frazil_deadletters.replay import Replayer
from frazil_testing.twins import live_rows
from packages.state.tests.unit.grouping.grouping import Grouped, moment
from packages.state.tests.unit.grouping.test_closed_windows import CLOSED, Closing

SESSIONS = (
    "select user, session_window.start as began, session_window.end as until, count(*) as n, sum(amount) as total,"
    " collect_set(page) as pages from records group by user, session_window(ts, '5 minutes')"
)
_PAGES = "columns: {page: string}"
_SHOWN = ("user", "began", "until", "n", "total")


def _sessions(grouped: Grouped) -> list[tuple[object, ...]]:
    """User, seconds of start and end, number of records and sum of each row."""
    zero = moment(0)
    return [
        (user, (began - zero).total_seconds(), (until - zero).total_seconds(), n, total)
        for user, began, until, n, total in grouped.table_rows(*_SHOWN)
    ]


@pytest.mark.parametrize("tasks", [1, 3])
def test_records_that_are_at_most_the_gap_apart_are_one_row(tmp_path: Path, queries: SparkQueries, tasks: int) -> None:
    grouped = Grouped(tmp_path, queries, SESSIONS, tasks=tasks)
    for user, seconds in [("a", 0), ("a", 300), ("a", 600.000001), ("b", 0), ("a", 2000), ("b", -299.999999)]:
        grouped.pay(user, seconds, page=f"{user}{seconds:.0f}")
    grouped.catch_up()
    assert _sessions(grouped) == [
        ("a", 0, 600, 2, 2),
        ("a", 600.000001, 900.000001, 1, 1),
        ("a", 2000, 2300, 1, 1),
        ("b", -299.999999, 300, 2, 2),
    ]


def test_a_late_record_joins_the_sessions_of_its_user_over_restarts(tmp_path: Path, queries: SparkQueries) -> None:
    grouped = Grouped(tmp_path, queries, SESSIONS)
    for user, seconds, amount in [("a", 0, 1), ("a", 600, 2), ("a", 1200, 4), ("b", 300, 8)]:
        grouped.pay(user, seconds, amount, page=f"p{seconds}")
    grouped.catch_up()
    assert len(grouped.table_rows("user")) == 4
    grouped.pay("a", 300, 16, page="bridge")  # At the end of the first, and a gap before the second.
    grouped.catch_up()
    assert _sessions(grouped) == [("a", 0, 900, 3, 19), ("a", 1200, 1500, 1, 4), ("b", 300, 600, 1, 8)]
    grouped.pay("a", 900, 32, page="bridge")
    grouped.pay("a", -200, 64, page="before")
    grouped.pay("c", 0, 0, page=None)
    grouped.catch_up()
    assert _sessions(grouped) == [("a", -200, 1500, 6, 119), ("b", 300, 600, 1, 8), ("c", 0, 300, 1, 0)]
    (pages,) = [row["pages"] for row in live_rows(grouped.catalog, "n.t") if row["user"] == "a"]
    assert sorted(pages) == ["before", "bridge", "p0", "p1200", "p600"]


def test_two_records_of_a_batch_are_one_session_by_the_row_between_them(tmp_path: Path, queries: SparkQueries) -> None:
    grouped = Grouped(tmp_path, queries, SESSIONS, settings=f"{_PAGES}, format_version: 2", tasks=3)
    grouped.pay("a", 300)
    grouped.catch_up()
    for seconds in (0, 600, 5000):
        grouped.pay("a", seconds)
    grouped.catch_up()
    assert _sessions(grouped) == [("a", 0, 900, 3, 3), ("a", 5000, 5300, 1, 1)]


def test_a_row_that_no_record_touches_stays_where_it_is(tmp_path: Path, queries: SparkQueries) -> None:
    grouped = Grouped(tmp_path, queries, SESSIONS, _PAGES)
    for seconds in (0, 10_000):
        grouped.pay("a", seconds)
    grouped.catch_up()
    [before] = grouped.catalog.data_files("n.t")
    grouped.pay("a", 10_100)
    grouped.catch_up()
    assert _sessions(grouped) == [("a", 0, 300, 1, 1), ("a", 10_000, 10_400, 2, 2)]
    assert before.path in {file.path for file in grouped.catalog.data_files("n.t")}
    assert grouped.catalog.load("n.t").schema.identifier_field_names() == {"user", "began"}  # type: ignore[union-attr]


def test_a_session_is_in_main_once_no_record_can_extend_it(tmp_path: Path, queries: SparkQueries) -> None:
    closing = Closing(tmp_path, queries, SESSIONS, f"{CLOSED}, {_PAGES}")
    for seconds in (0, 900):
        closing.pay("a", seconds)
    closing.catch_up()  # Complete to 300, where a record extends the first one.
    closing.close()
    assert closing.closed(*_SHOWN) == []
    closing.pay("a", 300)
    closing.pay("b", 1500)
    closing.catch_up()
    closing.close()
    assert closing.closed("user", "began", "n") == [("a", moment(0), 2)]
    closing.pay("b", 6000)
    closing.catch_up()
    closing.close()
    assert closing.closed("user", "began", "n") == [("a", moment(0), 2), ("a", moment(900), 1), ("b", moment(1500), 1)]


def test_a_table_with_rows_that_are_no_sessions_stops_until_it_is_made_again(
    tmp_path: Path, queries: SparkQueries
) -> None:
    bounds = "min(cast(null as timestamp)) as began, max(cast(null as timestamp)) as until"
    settings = f"{_PAGES}, format_version: 2"
    others = "count(*) as n, sum(amount) as total, collect_set(page) as pages"
    select = f"select user, {bounds}, {others} from records group by user"
    grouped = Grouped(tmp_path, queries, select, settings)
    grouped.pay("a", 0)
    grouped.catch_up()
    grouped.spec = Grouped(tmp_path / "sessions", queries, SESSIONS, settings).spec
    grouped.pay("a", 100)
    table = grouped.catch_up()
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason.startswith("the table has rows without `began` or `until`")
    grouped.catalog.drop("n.t")
    grouped.catch_up()
    assert _sessions(grouped) == [("a", 0, 400, 2, 2)]


@pytest.mark.parametrize("killed_at", ["", "windows.written", "windows.landed"])
def test_a_session_of_main_is_neither_extended_nor_joined_by_a_longer_late_or_a_replay(
    tmp_path: Path, queries: SparkQueries, killed_at: str
) -> None:
    late = "late: {{after: {}, else: dead_letter}}, on_bad_record: dead_letter, emit: closed"
    settings = f'{late.format("10m")}, columns: {{page: string, amount: "int"}}'
    closing = Closing(tmp_path, queries, SESSIONS, settings)
    for user, seconds in [("a", 0), ("a", 500), ("b", 100)]:
        closing.pay(user, seconds)
    closing.pay("a", 250, 2**40)  # Too large for its column: between both sessions.
    closing.pay("c", 950)  # Complete to 350: behind the first session, and inside of the second.
    closing.catch_up()
    _close(closing, killed_at)
    assert closing.closed("user", "began", "n") == [("a", moment(0), 1)]
    closing.pay("a", 300)  # Late: it would join both.
    closing.spec = Closing(tmp_path / "longer", queries, SESSIONS, settings.replace("10m", "2h")).spec
    (closing.table,) = closing.spec.tables
    closing.pay("a", 310)
    closing.pay("a", 350)  # The first time that is not complete.
    closing.catch_up()
    assert closing.progress().order.windows_complete_to_us == round(moment(350).timestamp() * 1_000_000)
    wider = settings.replace('"int"', '"long"')
    closing.spec = Closing(tmp_path / "wider", queries, SESSIONS, wider.replace("10m", "2h")).spec
    (closing.table,) = closing.spec.tables
    table = closing.catch_up()
    result = Replayer(closing.catalog, closing.schemas, None, queries).replay(table, Selection())
    assert (result.replayed, result.remaining) == (0, 3)
    assert [error_class for error_class, _ in closing.dead_letters()] == ["late"] * 3
    closing.pay("c", 20_000)
    closing.catch_up()
    _close(closing, killed_at)
    assert _sessions(closing) == [
        *(("a", 0, 300, 1, 1), ("a", 350, 800, 2, 2), ("b", 100, 400, 1, 1), ("c", 950, 1250, 1, 1)),
        ("c", 20_000, 20_300, 1, 1),
    ]
    in_branch = [row for row in closing.table_rows("user", "began", "n") if row[1] < moment(20_000)]
    assert closing.closed("user", "began", "n") == in_branch
    copy = Closing(tmp_path / "copy", queries, SESSIONS, settings)  # As `frazil verify` makes it, of the first file.
    copy.source.by_name["a"].partitions[:] = closing.source.by_name["a"].partitions
    copy.catch_up()
    assert _sessions(copy) == _sessions(closing)


def _close(closing: Closing, killed_at: str) -> None:
    """Closes windows in a process that ends at a failpoint, and in the next one."""
    if killed_at:
        failpoints.arm({failpoints.VARIABLE: f"{killed_at}=error"})
        try:
            with pytest.raises(RuntimeError, match=killed_at):
                closing.close()
        finally:
            failpoints.arm({})
    closing.close()
