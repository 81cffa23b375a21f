"""Spark reads the sketches of tables, and hashes texts as they do."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.runtime.jvm import Jvm
from frazil_state.merge import quantiles
from frazil_state.merge.sketches import estimates_of, images_of, sketches_of, united


@pytest.mark.parametrize(("first", "end", "both"), [(0, 3000, 4000), (500, 20_000, 21_000)])
def test_spark_reads_a_sketch_and_unites_it_with_one_of_its_own(jvm: Jvm, first: int, end: int, both: int) -> None:
    """Spark's sketch is of 0 to 1000, and of 1000 others. Equal texts must have equal hashes for the union to be right."""
    texts = pa.array([f"nümber {n}".encode() for n in range(first, end)], pa.binary())
    codes, counted = np.zeros(len(texts), np.int64), np.ones(len(texts), np.bool_)
    sketch = united(*sketches_of(texts), codes, counted, 1)
    (image,), (estimate,) = images_of(*sketch).to_pylist(), estimates_of(*sketch).to_pylist()
    of_spark = "select theta_sketch_agg(concat('nümber ', if(id < 1000, id, id + 20000))) as of_spark from range(2000)"
    frame: Any = jvm.session().sql(
        "select theta_sketch_estimate(mine) as own, theta_sketch_estimate(theta_union(mine, of_spark)) as united"
        f" from (select unhex('{image.hex()}') as mine), ({of_spark})"
    )
    (row,) = map(json.loads, frame._jdf.toJSON().collectAsList())  # PySpark's own `collect` leaves a socket open.
    assert row["own"] == estimate
    assert abs(row["united"] - both) <= (0 if both <= 4096 else both / 20)


@pytest.mark.parametrize("count", [1, 50, 30_000])
def test_spark_reads_quantiles_and_merges_them_with_its_own(jvm: Jvm, count: int) -> None:
    """Spark's sketch is of as many greater numbers, so that the median of both is the greatest of ours."""
    numbers = pa.array([str(n).encode() for n in range(count)], pa.binary())
    codes, counted = np.zeros(count, np.int64), np.ones(count, np.bool_)
    (image,) = quantiles.images_of(*quantiles.united(*quantiles.sketches_of(numbers), codes, counted, 1)).to_pylist()
    of_spark = f"select kll_sketch_agg_double(double(id + {count})) as of_spark from range({count})"
    frame: Any = jvm.session().sql(
        "select kll_sketch_get_n_double(mine) as n, kll_sketch_get_quantile_double(mine, 0.25D) as quarter,"
        " kll_sketch_get_quantile_double(mine, 1.0D) as most,"
        " kll_sketch_get_quantile_double(kll_sketch_merge_double(mine, of_spark), 0.5D) as median"
        f" from (select unhex('{image.hex()}') as mine), ({of_spark})"
    )
    (row,) = map(json.loads, frame._jdf.toJSON().collectAsList())
    assert (row["n"], row["most"]) == (count, count - 1)
    assert abs(row["quarter"] - count / 4) <= max(1, count * 0.033)
    assert abs(row["median"] - count) <= max(1, 2 * count * 0.033)
