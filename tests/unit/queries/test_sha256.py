"""The digests of a column are those of hashlib."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.queries.kernels.hashes import sha256


def expected(values: list[bytes | None]) -> list[str | None]:
    return [None if value is None else hashlib.sha256(value).hexdigest() for value in values]


@settings(deadline=None)  # The first call compiles.
@given(st.lists(st.none() | st.binary(max_size=200), max_size=20), st.integers(0, 5))
def test_digests_are_those_of_hashlib(values: list[bytes | None], skipped: int) -> None:
    assert sha256(pa.array(values, pa.binary()).slice(skipped)).to_pylist() == expected(values[skipped:])


@pytest.mark.parametrize("size", [0, 55, 56, 63, 64, 65, 119, 120, 128, 1000, 100_000])
def test_values_around_the_ends_of_blocks_have_the_digests_of_hashlib(size: int) -> None:
    values: list[bytes | None] = [bytes(n % 251 for n in range(size)), b"\xff" * size, None]
    assert sha256(pa.array(values, pa.binary())).to_pylist() == expected(values)


@pytest.mark.parametrize("values", [[], [None], [None, None]])
def test_nulls_and_no_values_are_taken(values: list[bytes | None]) -> None:
    assert sha256(pa.array(values, pa.binary())).to_pylist() == values
