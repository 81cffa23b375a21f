"""Sketches of quantiles: what their union has, how far quantiles are off, and the image in the table."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from frazil.errors import SpecError
from frazil.ingest.tables.queries import SparkQueries
from frazil_state.merge.quantiles import Sketches, images_of, lack_number, sketches_in, sketches_of, united
from packages.state.tests.unit.grouping.grouping import Grouped

_ERROR = 0.0165
"""The normalized rank error of k = 200 (datasketches-java, `KllSketch`), which 99 of 100 quantiles keep."""


def _of(values: np.ndarray) -> Sketches:
    return sketches_of(pa.array([repr(float(value)).encode() for value in values], pa.binary()))


def _joined(*parts: Sketches) -> Sketches:
    """The union of all sketches."""
    items, levels, least, most = (pa.concat_arrays(columns) for columns in zip(*parts, strict=True))
    count = len(items)
    return united(items, levels, least, most, np.zeros(count, np.int64), np.ones(count, np.bool_), 1)


def _weighted(sketch: Sketches) -> tuple[np.ndarray, np.ndarray]:
    """The values of one sketch in order, and how many values of the input are up to each."""
    values, levels = (np.asarray(lists[0].values) for lists in sketch[:2])
    order = np.argsort(values)
    return values[order], np.cumsum(1 << levels[order].astype(np.int64))


@pytest.mark.parametrize("parts", [1, 7, 400])
def test_quantiles_are_near_in_whatever_parts_values_come(parts: int) -> None:
    values = np.random.default_rng(parts).permutation(60_000).astype(np.float64)
    sketch: Sketches | None = None
    for part in np.array_split(values, parts):
        of_part = _joined(_of(part))
        sketch = of_part if sketch is None else _joined(sketch, of_part)
    assert sketch is not None
    kept, weights = _weighted(sketch)
    assert (weights[-1], sketch[2].to_pylist(), sketch[3].to_pylist()) == (values.size, [0.0], [59_999.0])
    assert kept.size < 800
    ranks = np.abs(weights / values.size - (kept + 1) / values.size)
    assert np.quantile(ranks, 0.99) <= 2 * _ERROR


@pytest.mark.parametrize("values", [[], [5.0], [2.0, 1.0], [-0.0, float("inf"), 1e-300], list(range(10_000))])
def test_an_image_has_all_of_a_sketch(values: list[float]) -> None:
    sketch = _joined(_of(np.array(values, np.float64)), sketches_of(pa.array([b"NaN"], pa.binary())))
    again = sketches_in(images_of(*sketch))
    assert [array.to_pylist() for array in again] == [
        array.to_pylist() if values else [None] for array in sketch
    ] or not values
    assert images_of(*again).equals(images_of(*sketch))


def test_groups_are_apart_and_null_is_nothing() -> None:
    values = pa.array([b"1", b"2", None, b"", b"3", b"NaN", b"4"], pa.binary())
    counted = np.array([True] * 6 + [False])
    merged = united(*sketches_of(values), np.array([0, 0, 1, 1, 0, 2, 3]), counted, 4)
    assert merged[0].to_pylist() == [[1.0, 2.0, 3.0], None, None, None]
    assert [image is not None for image in images_of(*merged).to_pylist()] == [True, False, False, False]


def test_bytes_that_are_not_a_number_are_found_among_others() -> None:
    values = pa.array([b"1", b"", None, b"\xff", b"much", b"NaN", b"-1e3", b"1,5"], pa.binary())
    assert lack_number(values).tolist() == [False, False, False, True, True, False, False, True]


def test_an_image_of_another_form_is_refused() -> None:
    image = struct.pack("<BBBBHBx", 5, 1, 15, 2, 400, 8)
    with pytest.raises(SpecError, match="k 400"):
        sketches_in(pa.array([image]))


def test_quantiles_are_kept_over_batches_and_restarts(tmp_path: Path, queries: SparkQueries) -> None:
    select = "select user, count(*) as n, kll_sketch_agg_double(amount) as amounts from records group by user"
    grouped = Grouped(tmp_path, queries, select, tasks=3)
    for batch in range(3):
        for number in range(300):
            grouped.pay("a", 0, number * 3 + batch)
        grouped.pay("b", 0, None)
        grouped.catch_up()
    rows = dict(grouped.table_rows_unsorted("user", "amounts"))
    assert rows["b"] is None
    kept, weights = _weighted(sketches_in(pa.array([rows["a"]], pa.binary())))
    assert weights[-1] == 900
    assert abs(float(kept[np.searchsorted(weights, 450)]) - 450) <= 900 * 2 * _ERROR


def test_bytes_that_are_not_a_number_are_a_dead_letter(tmp_path: Path, queries: SparkQueries) -> None:
    settings = "mode: upsert, key_columns: [user], merge: {amount: quantile_sketch}"
    grouped = Grouped(tmp_path, queries, "select user, cast(amount as binary) as amount from records", settings)
    for amount in ("1.5", "much", "2"):
        grouped.put({"user": "a", "amount": amount})
    grouped.catch_up()
    ((image,),) = grouped.table_rows("amount")
    assert sketches_in(pa.array([image], pa.binary()))[0].to_pylist() == [[1.5, 2.0]]
    assert [kind for kind, _ in grouped.dead_letters()] == ["type_mismatch"]
