"""Sketches of distinct values: what their union has, its estimate, and the image in the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from frazil.errors import SpecError
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.state import RunState
from frazil_state.merge.sketches import estimates_of, images_of, sketches_in, sketches_of, united
from packages.state.tests.unit.grouping.grouping import Grouped


def _texts(values: range) -> pa.Array:
    return pa.array([str(value).encode() for value in values], pa.binary())


def _sketch(values: range) -> tuple[pa.Array, pa.Array]:
    lists, bounds = sketches_of(_texts(values))
    return united(lists, bounds, np.zeros(len(values), np.int64), np.ones(len(values), np.bool_), 1)


@pytest.mark.parametrize("count", [1, 4096])
def test_few_values_are_counted_exactly_however_often_they_come(count: int) -> None:
    lists, bounds = sketches_of(pa.concat_arrays([_texts(range(count))] * 3))
    codes, counted = np.zeros(3 * count, np.int64), np.ones(3 * count, np.bool_)
    assert estimates_of(*united(lists, bounds, codes, counted, 1)).to_pylist() == [count]


def test_many_values_are_estimated_in_whatever_parts_they_come() -> None:
    whole, halves = _sketch(range(100_000)), [_sketch(range(60_000)), _sketch(range(50_000, 100_000))]
    lists, bounds = (pa.concat_arrays(columns) for columns in zip(*halves, strict=True))
    joined = united(lists, bounds, np.zeros(2, np.int64), np.ones(2, np.bool_), 1)
    assert images_of(*joined).equals(images_of(*whole))
    (estimate,) = estimates_of(*joined).to_pylist()
    assert abs(estimate - 100_000) < 5_000


def test_an_image_has_all_of_a_sketch_and_groups_are_apart() -> None:
    values = pa.array([b"a", b"b", None, b"", b"a", b"c"], pa.binary())
    lists, bounds = sketches_of(values)
    codes = np.array([0, 0, 1, 1, 0, 2])
    merged = united(lists, bounds, codes, np.array([True] * 5 + [False]), 4)
    images = images_of(*merged)
    assert [image is not None for image in images.to_pylist()] == [True, False, False, False]
    again = sketches_in(images)
    assert (again[0].equals(merged[0]), again[1].to_pylist()[0]) == (True, 2**63 - 1)
    assert images_of(*sketches_in(images_of(*_sketch(range(9000))))).equals(images_of(*_sketch(range(9000))))


def test_an_image_of_another_form_is_refused() -> None:
    with pytest.raises(SpecError, match="serial version 4"):
        sketches_in(pa.array([bytes([1, 4, 3, 0, 0, 0, 0, 0])]))


def test_distinct_values_are_counted_over_batches_and_restarts(tmp_path: Path, queries: SparkQueries) -> None:
    select = (
        "select user, count(*) as n, approx_count_distinct(amount) as amounts, theta_sketch_agg(name) as names"
        " from records group by user"
    )
    grouped = Grouped(tmp_path, queries, select, tasks=3)
    for batch in range(3):
        for number in range(10):
            grouped.pay("a", 0, number + 5 * batch, name=f"n{number % 4}")
        grouped.pay("b", 0, None, name=None)
        grouped.catch_up()
    assert grouped.table_rows("user", "n", "amounts") == [("a", 30, 20), ("b", 3, 0)]
    assert list(grouped.columns()) == ["user", "n", "amounts", "amounts_sketch", "names"]
    rows = dict(grouped.table_rows_unsorted("user", "names"))
    assert estimates_of(*sketches_in(pa.array([rows["a"], rows["b"]], pa.binary()))).to_pylist() == [4, 0]


def test_zeros_of_both_signs_are_one_number_and_two_texts(tmp_path: Path, queries: SparkQueries) -> None:
    select = (
        "select user, approx_count_distinct(amount) as doubles, approx_count_distinct(cast(amount as float)) as floats,"
        " approx_count_distinct(name) as texts, theta_sketch_agg(amount) as sketch,"
        " approx_count_distinct(amount) filter (where amount < 1) as small from records group by user"
    )
    grouped = Grouped(tmp_path, queries, select, "columns: {amount: double}")
    for amount in (0.0, -0.0, 1.5, -0.0):
        grouped.pay("a", 0, amount, name=str(amount))
    grouped.catch_up()
    assert grouped.table_rows("doubles", "floats", "texts", "small") == [(2, 2, 3, 1)]
    ((image,),) = grouped.table_rows("sketch")
    assert estimates_of(*sketches_in(pa.array([image], pa.binary()))).to_pylist() == [2]


def test_a_sketch_is_of_bytes_which_a_query_makes(tmp_path: Path, queries: SparkQueries) -> None:
    settings = "mode: upsert, key_columns: [user], merge: {amount: distinct_sketch}"
    for select, is_stopped in (
        ("select user, amount from records", True),
        ("select user, cast(cast(amount as string) as binary) as amount from records", False),
    ):
        grouped = Grouped(tmp_path / str(is_stopped), queries, select, settings)
        grouped.pay("a", 0, 3)
        grouped.pay("a", 0, 4)
        table = grouped.catch_up()
        assert (table.status.run_state is RunState.STOPPED) == is_stopped, table.status.reason
        if is_stopped:
            assert table.status.remedy.endswith("such as `cast(cast(amount as string) as binary) as amount`")
    ((image,),) = grouped.table_rows("amount")
    assert estimates_of(*sketches_in(pa.array([image], pa.binary()))).to_pylist() == [2]
