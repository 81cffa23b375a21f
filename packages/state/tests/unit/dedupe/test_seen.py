"""Sets of hashes of ids: an id that was there is always found, whatever its type."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil_state.dedupe.decide import UNKNOWN_TIME, find_duplicates
from frazil_state.dedupe.seen import SeenIds, hash_ids


def test_ids_are_seen_from_the_second_time_on_while_the_set_grows() -> None:
    seen, rng = SeenIds(), np.random.default_rng(1)
    before: set[int] = set()
    for count in (10, 5000, 20_000, 3):
        numbers = rng.integers(0, 30_000, count)
        wanted = []
        for number in numbers.tolist():
            wanted.append(number in before)
            before.add(number)
        assert seen.add(hash_ids([pa.array(numbers)])).tolist() == wanted


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a", "b", "", "a", "ä"]),
        (pa.binary(), [b"\0", b"", b"\0", b"\0\0"]),
        (pa.int32(), [1, -1, 0, 1]),
        (pa.float64(), [0.0, -0.0, float("nan"), float("nan"), 1.5]),
        (pa.timestamp("us", tz="UTC"), [datetime.datetime(2020, 1, day, tzinfo=datetime.UTC) for day in (1, 2, 1)]),
        (pa.date32(), [datetime.date(2020, 1, day) for day in (1, 2, 1)]),
        (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("1.10"), Decimal("1.00")]),
        (pa.bool_(), [True, False, True]),
        (pa.binary(16), [b"a" * 16, b"b" * 16, b"a" * 16]),
    ],
)
def test_equal_ids_have_equal_hashes_and_others_do_not(kind: pa.DataType, values: list[Any]) -> None:
    keys = pa.array(values, kind)
    one_zero = [0.0 if value == 0 else "nan" if value != value else value for value in values]
    hashes = hash_ids([keys, keys]).tolist()
    sliced = hash_ids([keys[1:]]).tolist()
    assert sliced == hash_ids([keys]).tolist()[1:]
    for n, value in enumerate(one_zero):
        for m, other in enumerate(one_zero):
            assert (hashes[n] == hashes[m]) == (value == other)


def test_a_row_without_a_time_is_near_every_other() -> None:
    codes, stored = np.array([0, 0, 1, 1, 1]), np.zeros(5, np.bool_)
    times = np.array([UNKNOWN_TIME, 9_000, 5, UNKNOWN_TIME, 9_000])
    assert find_duplicates(codes, times, stored, 10).tolist() == [False, True, False, True, False]


def test_rows_of_the_table_are_kept_however_near_they_are() -> None:
    codes, times = np.array([0, 0, 0, 0]), np.array([0, 1, 2, 30])
    assert find_duplicates(codes, times, np.array([True, True, False, False]), 10).tolist() == [
        False,
        False,
        True,
        False,
    ]


def test_nothing_of_a_batch_is_seen_by_the_next_one_that_has_its_memory() -> None:
    chance = np.random.default_rng(2)
    first, second = (chance.integers(1, 2**64 - 1, 70_000, dtype=np.uint64) for _ in range(2))
    seen = SeenIds()
    seen.add(first)
    seen.end()
    later = SeenIds()
    assert not later.add(np.r_[first[:1000], second]).any()
    assert later.add(second).all()
