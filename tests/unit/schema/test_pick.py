"""Some rows of columns, and all of them without a copy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from frazil.schema.arrow import is_every, pick

COLUMNS = {"key": pa.array([b"a", None, b"c"]), "offset": pa.array([7, 8, 9])}


def test_some_rows_are_picked_in_the_order_asked_for_also_more_than_once() -> None:
    picked = pick(COLUMNS, np.array([2, 0, 0, 1]))
    assert picked["key"].to_pylist() == [b"c", b"a", b"a", None]
    assert picked["offset"].to_pylist() == [9, 7, 7, 8]


def test_all_rows_in_their_order_are_the_columns_themselves() -> None:
    assert all(picked is COLUMNS[name] for name, picked in pick(COLUMNS, np.arange(3)).items())


def test_as_many_rows_in_another_order_are_not_all_of_them() -> None:
    assert pick(COLUMNS, np.array([1, 0, 2]))["offset"].to_pylist() == [8, 7, 9]
    assert not is_every(np.array([0, 1]), 3)
    assert is_every(np.arange(0), 0)
