"""A whole service on the ports in memory: rows that are merged of all records of their key, over restarts."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.tables.state import RunState
from packages.state.tests.unit.merge.merging import Merging

_TOTALS = (
    "mode: upsert, key_columns: [customer], merge: {amount: sum, orders: count, last_seen: max, first_seen: min,"
    " name: latest, email: first, tags: collect_set, all_tags: collect_list, is_new: bool_and, is_paid: bool_or,"
    " city: latest_non_null, plan: first_non_null}"
)


def _order(customer: str, amount: int | None, at: int, **others: object) -> dict[str, object]:
    return {"customer": customer, "amount": amount, "last_seen": at, "first_seen": at, **others}


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("version", [2, 3])
def test_every_function_merges_over_batches_and_restarts(tmp_path: Path, version: int, tasks: int) -> None:
    merging = Merging(tmp_path, f"{_TOTALS}, format_version: {version}", tasks=tasks)
    merging.tell(
        _order(
            "a", 10, 5, name="A", email="a@1", tags=["x", "y"], all_tags=["x"], is_new=True, is_paid=False, plan=None
        ),
        _order(
            "b", 1, 1, name="B", email="b@1", tags=[], all_tags=[], is_new=True, is_paid=True, city="Bonn", plan="p"
        ),
        _order(
            "a",
            None,
            3,
            name=None,
            email="a@2",
            tags=["y", "z"],
            all_tags=["x"],
            is_new=True,
            is_paid=False,
            city="Ulm",
        ),
    )
    merging.tell(
        _order("a", 7, 9, name="AA", email="a@3", tags=["x"], all_tags=["q"], is_new=False, is_paid=None, plan="s")
    )
    columns = ("customer", "amount", "orders", "last_seen", "first_seen", "name", "email", "city", "plan", "is_new")
    assert merging.table_rows(*columns) == [
        ("a", 17, 3, 9, 3, "AA", "a@1", "Ulm", "s", False),
        ("b", 1, 1, 1, 1, "B", "b@1", "Bonn", "p", True),
    ]
    assert merging.table_rows("customer", "is_paid") == [("a", False), ("b", True)]
    lists = {
        customer: (sorted(tags), every) for customer, tags, every in merging.table_rows("customer", "tags", "all_tags")
    }
    assert lists == {"a": (["x", "y", "z"], ["x", "x", "q"]), "b": ([], [])}


def test_a_sum_counts_each_record_once_although_the_process_reads_on_after_each_commit(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "mode: upsert, key_columns: [k], merge: {n: sum, records: count}")
    for number in range(20):
        merging.tell({"k": number % 3, "n": number})
    assert merging.table_rows("k", "n", "records") == [(0, 63, 7), (1, 70, 7), (2, 57, 6)]


def test_files_of_merged_rows_are_counted(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "mode: upsert, key_columns: [k], merge: {n: sum}")
    counts = merging.tell({"k": 1, "n": 2}, {"k": 1, "n": 3}, {"k": 2, "n": 4}).counts
    assert (counts.files, counts.rows) == (1, 2)
    assert counts.file_bytes > 0


def test_late_records_count_in_sums_and_bounds_and_not_in_the_latest_values(tmp_path: Path) -> None:
    settings = "mode: upsert, key_columns: [k], order_by: at, merge: {n: sum, low: min, high: max, records: count}"
    merging = Merging(tmp_path, settings)
    merging.tell({"k": 1, "at": 5, "n": 1, "low": 5, "high": 5, "name": "five"})
    merging.tell({"k": 1, "at": 3, "n": 10, "low": 3, "high": 9, "name": "three"})
    assert merging.table_rows("k", "at", "n", "low", "high", "records", "name") == [(1, 5, 11, 3, 9, 2, "five")]
    merging.tell({"k": 1, "at": 5, "n": 0, "low": 6, "high": 6, "name": "five again"}, {"k": 1, "at": 4, "n": 0})
    assert merging.table_rows("k", "at", "n", "low", "high", "records", "name") == [(1, 5, 11, 3, 9, 4, "five again")]


def test_a_tombstone_begins_the_row_anew(tmp_path: Path) -> None:
    settings = "mode: upsert, key: {format: json}, key_columns: [k], merge: {n: sum, email: first}"
    merging = Merging(tmp_path, settings)
    merging.put({"k": 1, "n": 1, "email": "a"}, key={"k": 1})
    merging.put({"k": 2, "n": 5, "email": "b"}, key={"k": 2})
    merging.catch_up()
    merging.put({"k": 1, "n": 2, "email": "c"}, key={"k": 1})
    merging.put(None, key={"k": 1})
    merging.put({"k": 1, "n": 4, "email": "d"}, key={"k": 1})
    merging.put(None, key={"k": 2})
    merging.catch_up()
    assert merging.table_rows("k", "n", "email") == [(1, 4, "d")]
    merging.put({"k": 2, "n": 7, "email": "e"}, key={"k": 2})
    merging.put(None, key={"k": 1})
    merging.catch_up()
    assert merging.table_rows("k", "n", "email") == [(2, 7, "e")]


@pytest.mark.parametrize("tasks", [1, 4])
def test_a_group_of_records_in_many_partitions_is_one_row(tmp_path: Path, tasks: int) -> None:
    merging = Merging(tmp_path, "mode: upsert, key_columns: [k], merge: {n: sum}", partitions=3, tasks=tasks)
    for round_number in range(3):
        for number in range(12):
            merging.put({"k": number % 2, "n": number}, partition=(number + round_number) % 3)
        merging.catch_up()
    assert merging.table_rows("k", "n") == [(0, 90), (1, 108)]


def test_sums_that_overflow_on_the_way_alone_are_right(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "mode: upsert, key_columns: [k], merge: {n: sum}")
    most = 2**63 - 1
    merging.tell({"k": 1, "n": most}, {"k": 1, "n": most}, {"k": 1, "n": -most}, {"k": 1, "n": -5})
    assert merging.table_rows("k", "n") == [(1, most - 5)]
    merging.tell({"k": 1, "n": 9}, {"k": 1, "n": -5})
    assert merging.table_rows("k", "n") == [(1, most - 1)]


@pytest.mark.parametrize(("kind", "most"), [("double", 1e308), ("float", 3e38)])
def test_a_sum_of_floats_that_overflows_is_infinite_as_in_spark_and_stays_so(
    tmp_path: Path, kind: str, most: float
) -> None:
    settings = f"mode: upsert, key_columns: [k], columns: {{k: int, n: {kind}}}, merge: {{n: sum}}"
    merging = Merging(tmp_path, settings)
    values = [(1, most), (1, most), (2, -most), (2, -most), (3, most), (3, 1.0)]
    merging.tell(*({"k": k, "n": n} for k, n in values))
    assert [n for _, n in merging.table_rows("k", "n")][:2] == [math.inf, -math.inf]
    for k in (1, 2):
        merging.put({"k": k, "n": -most if k == 1 else most})
        merging.put({"k": k, "n": 5})
    assert merging.catch_up().status.run_state is RunState.WAITING
    assert [n for _, n in merging.table_rows("k", "n")][:2] == [math.inf, -math.inf]
    assert (len(merging.table_rows("k")), merging.catalog.load("n.t__dead_letters")) == (3, None)


def test_a_sum_of_doubles_that_overflows_on_the_way_is_infinite(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "mode: upsert, key_columns: [k], merge: {n: sum}")
    merging.tell({"k": 1, "n": 1e308}, {"k": 1, "n": 1e308}, {"k": 1, "n": -1e308})
    assert merging.table_rows("k", "n") == [(1, math.inf)]


@pytest.mark.parametrize(
    ("kind", "value", "larger"),
    [
        ("long", 2**63 - 1, "decimal(38,0)"),
        ("int", 2**31 - 1, "decimal(38,0)"),
        ("decimal(5,2)", Decimal("999.99"), "decimal(38,2)"),
        ("decimal(38,0)", 10**38 - 1, "double"),
    ],
)
def test_a_sum_that_its_column_cannot_hold_stops_the_table_before_the_commit(
    tmp_path: Path, kind: str, value: Any, larger: str
) -> None:
    settings = f'mode: upsert, key_columns: [k], columns: {{k: int, n: "{kind}"}}, merge: {{n: sum}}'
    merging = Merging(tmp_path, settings)
    merging.tell({"k": 1, "n": _number(value)}, {"k": 2, "n": _number(-value)})
    assert merging.table_rows("k", "n") == [(1, value), (2, -value)]
    for number in (1, -1):
        table = merging.tell({"k": 1, "n": number}) if number > 0 else merging.catch_up()
        assert table.status.run_state is RunState.STOPPED
        what = kind.replace(",", ", ")
        assert table.status.reason == f"`merge.n`: the sum is larger than the type {what} of the column, for k=1"
        written = f'`columns: {{n: "{larger}"}}`'
        assert table.status.remedy.startswith(f"declare the column with a larger type, such as {written}, and ")
    assert merging.table_rows("k", "n") == [(1, value), (2, -value)]
    mended = _again(merging, settings.replace(f'n: "{kind}"', f'n: "{larger}"'))
    mended.catch_up()
    exact = float if larger == "double" else Decimal
    assert mended.table_rows("k", "n") == [(1, exact(value + 1)), (2, exact(-value))]


def test_decimals_are_added_exactly(tmp_path: Path) -> None:
    settings = 'mode: upsert, key_columns: [k], columns: {k: int, n: "decimal(20,2)"}, merge: {n: sum}'
    merging = Merging(tmp_path, settings)
    for _ in range(3):
        merging.tell(*({"k": 1, "n": 0.1} for _ in range(10)), {"k": 1, "n": -4.05})
    assert merging.table_rows("k", "n") == [(1, Decimal("-9.15"))]


def test_values_that_cannot_be_added_are_dead_letters(tmp_path: Path) -> None:
    settings = "mode: upsert, key_columns: [k], columns: {k: int, n: double, m: double}, merge: {n: sum, m: max}"
    merging = Merging(tmp_path, settings)
    merging.tell({"k": 1, "n": 1.5, "m": 1.0}, {"k": 1, "n": "NaN", "m": 2.0}, {"k": 1, "n": 1.0, "m": "NaN"})
    assert merging.table_rows("k", "n", "m") == [(1, 1.5, 1.0)]
    assert len(merging.dead_letters()) == 2


def test_functions_may_name_metadata_and_times(tmp_path: Path) -> None:
    settings = "mode: upsert, key_columns: [k], metadata: {timestamp: seen, offset: _offset}, merge: {seen: max}"
    merging = Merging(tmp_path, settings)
    merging.put({"k": 1}, at_ms=5000)
    merging.put({"k": 1}, at_ms=3000)
    merging.catch_up()
    seen = datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=datetime.UTC)
    assert merging.table_rows("k", "seen", "_offset") == [(1, seen, 1)]


def test_a_function_for_all_columns_fills_a_row_of_partial_records(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "mode: upsert, key_columns: [k], merge: latest_non_null")
    merging.tell({"k": 1, "name": "a"}, {"k": 1, "city": "b"})
    merging.tell({"k": 1, "name": None, "street": "c"})
    assert merging.table_rows("k", "name", "city", "street") == [(1, "a", "b", "c")]


def _number(value: Any) -> Any:
    """The number as JSON has it."""
    return float(value) if isinstance(value, Decimal) else value


def _again(merging: Merging, settings: str) -> Merging:
    """The same topic, and the table anew with other settings."""
    fresh = Merging(merging.root / "again", settings)
    fresh.source.by_name["a"] = merging.source.by_name["a"]
    return fresh


@pytest.mark.parametrize(
    ("settings", "mended", "rows"),
    [
        (
            "columns: {k: int, n: int}, merge: {n: sum}",
            'columns: {k: int, n: "decimal(38,0)"}, merge: {n: sum}',
            [(1, Decimal(2**31)), (2, Decimal(7))],
        ),
        (
            "columns: {k: int, n: int}, merge: {n: sum}",
            "columns: {k: int, n: int}, merge: {n: max}",
            [(1, 2**31 - 1), (2, 7)],
        ),
    ],
)
def test_a_table_that_an_overflow_has_stopped_continues_once_the_remedy_is_done(
    tmp_path: Path, settings: str, mended: str, rows: list[tuple[object, ...]]
) -> None:
    merging = Merging(tmp_path, f"mode: upsert, key_columns: [k], {settings}")
    table = merging.tell({"k": 1, "n": 2**31 - 1}, {"k": 2, "n": 7}, {"k": 1, "n": 1})
    assert table.status.run_state is RunState.STOPPED
    again = _again(merging, f"mode: upsert, key_columns: [k], {mended}")
    again.catch_up()
    assert again.table_rows("k", "n") == rows


def test_a_list_without_end_stops_the_table_until_its_column_has_another_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frazil_state.merge.state._MOST_ELEMENTS", 3)
    merging = Merging(tmp_path, "mode: upsert, key_columns: [k], merge: {tags: collect_list}")
    merging.tell({"k": 1, "tags": ["a", "a", "b"]})
    table = merging.tell({"k": 1, "tags": ["c"]})
    assert table.status.reason == "`merge.tags`: the list has more than 3 elements, for k=1"
    again = _again(merging, "mode: upsert, key_columns: [k], merge: {tags: collect_set}")
    again.catch_up()
    assert again.table_rows("k", "tags") == [(1, ["a", "b", "c"])]


def test_a_column_that_a_function_cannot_take_stops_the_table_until_it_has_another(tmp_path: Path) -> None:
    merging = Merging(tmp_path, "mode: upsert, key_columns: [k], merge: {n: sum}")
    table = merging.tell({"k": 1, "n": "b"}, {"k": 1, "n": "a"})
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason == "`merge.n`: `sum` takes numbers, and the column has the type string"
    assert table.status.remedy.startswith("write another function, or declare the column with another type")
    again = _again(merging, "mode: upsert, key_columns: [k], merge: {n: max}")
    again.catch_up()
    assert again.table_rows("k", "n") == [(1, "b")]


def test_a_table_with_more_groups_than_its_limit_stops_until_the_limit_is_raised(tmp_path: Path) -> None:
    settings = "mode: upsert, key_columns: [k], merge: {n: sum}, limits: {groups: 3}"
    merging = Merging(tmp_path, settings)
    for k in range(4):
        table = merging.tell({"k": k, "n": 1})
        assert table.status.run_state is RunState.WAITING
    table = merging.tell({"k": 0, "n": 1})
    assert table.status.run_state is RunState.STOPPED
    assert table.status.reason == "the table has 4 rows, and `limits.groups` is 3"
    merging.spec = Merging(tmp_path / "raised", settings.replace("3}", "4}")).spec
    merging.catch_up()
    assert merging.table_rows("k", "n") == [(0, 2), (1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize("tasks", [1, 3])
def test_partial_rows_of_several_sources_have_an_order_each(tmp_path: Path, tasks: int) -> None:
    settings = (
        "mode: upsert, key_columns: [k], merge: {name: latest by profile_at, email: latest by PROFILE_AT,"
        " city: latest by address_at, n: count}"
    )
    merging = Merging(tmp_path, settings, tasks=tasks)
    merging.tell(
        {"k": 1, "profile_at": 5, "name": "new", "email": "e"},
        {"k": 1, "address_at": 1, "city": "Ulm"},
        {"k": 1, "profile_at": 3, "name": "late", "email": "x"},
    )
    columns = ("k", "name", "email", "city", "profile_at", "address_at", "n")
    assert merging.table_rows(*columns) == [(1, "new", "e", "Ulm", 5, 1, 3)]
    merging.tell({"k": 1, "profile_at": 4, "name": "late again"}, {"k": 1, "address_at": 9, "city": None})
    assert merging.table_rows(*columns) == [(1, "new", "e", None, 5, 9, 5)]
    merging.tell({"k": 1, "profile_at": 5, "name": "equal"}, {"k": 1, "city": "without an order"})
    assert merging.table_rows(*columns) == [(1, "equal", None, None, 5, 9, 7)]
