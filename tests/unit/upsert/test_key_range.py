"""Rows that can have one of many keys, found by a table of numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.upsert.lookup.search import KeyRange

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_NUMBERS = st.integers(-40, 40) | st.integers(_LEAST, _LEAST + 40) | st.integers(_GREATEST - 40, _GREATEST)


@given(
    st.sampled_from([-40, 0, _LEAST, _GREATEST - 60]),
    st.sets(st.integers(0, 60), min_size=5),
    st.lists(_NUMBERS | st.none()),
)
def test_the_rows_that_have_a_key_are_told_and_those_without_a_value_may_be(
    least: int, keys: set[int], column: list[int | None]
) -> None:
    wanted = [least + key for key in sorted(keys, reverse=True)]
    known = KeyRange([pa.array(wanted, pa.int64())])
    assert known.is_of_use
    rows = known.rows_of(pa.array(column, pa.int64())).tolist()
    assert [row for row in rows if column[row] is not None] == [row for row, n in enumerate(column) if n in wanted]


@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("us", "UTC")]
)
def test_dates_and_times_are_numbers_too(kind: pa.DataType) -> None:
    numbers = pa.array([7, None, 3, 9], pa.int32() if kind.bit_width == 32 else pa.int64())
    known = KeyRange([numbers.drop_null().cast(kind)])
    assert known.rows_of(numbers.take(pa.array([3, 1, 1, 0])).cast(kind)).tolist() == [0, 3]


@pytest.mark.parametrize(
    "keys",
    [
        [pa.array([1, 2, 3]), pa.array([1, 2, 3])],
        [pa.array([1, None, 3])],
        [pa.array(["1", "2"])],
        [pa.array([1.0, 2.0])],
        [pa.array([], pa.int64())],
        [pa.array([0, 32])],
        [pa.array([_LEAST, _GREATEST])],
    ],
    ids=["two columns", "a null", "texts", "fractions", "none", "far apart", "as far apart as can be"],
)
def test_other_keys_are_looked_for_in_other_ways(keys: list[pa.Array]) -> None:
    assert not KeyRange(keys).is_of_use


def test_a_place_is_found_for_the_least_and_the_greatest() -> None:
    known = KeyRange([pa.array([0, 31])])
    assert known.is_of_use
    assert known.rows_of(pa.array(np.arange(-2, 34))).tolist() == [2, 33]
