"""Hashes of a batch that are found among those of files."""

from __future__ import annotations

import numpy as np
import pytest

from frazil_state.dedupe.stored import HashNumbers


@pytest.mark.parametrize("count", [0, 1, 9, 5000])
@pytest.mark.parametrize("most", [50, 2**64 - 1])
def test_the_first_row_of_each_hash_is_found_and_no_other(count: int, most: int) -> None:
    chance = np.random.default_rng(count)
    hashes = chance.integers(1, most, count, dtype=np.uint64)
    others = np.r_[hashes[::3], chance.integers(1, most, 300, dtype=np.uint64), np.zeros(2, np.uint64)]
    numbers = HashNumbers(hashes)
    distinct, firsts, places = np.unique(hashes, return_index=True, return_inverse=True)
    assert numbers.are_repeated.tolist() == (np.bincount(places, minlength=1)[places] > 1).tolist()
    wanted = dict(zip(distinct.tolist(), firsts.tolist(), strict=True))
    for stored in (others, np.sort(others)):
        positions, rows = numbers.find(stored)
        assert list(zip(positions.tolist(), rows.tolist(), strict=True)) == [
            (position, wanted[value]) for position, value in enumerate(stored.tolist()) if value in wanted
        ]
        assert set(np.flatnonzero(numbers.are_in(stored)).tolist()) == set(rows.tolist())


def test_a_batch_that_has_the_memory_of_an_earlier_one_finds_its_own_rows_alone() -> None:
    chance = np.random.default_rng(3)
    earlier, hashes = (chance.integers(1, 2**64 - 1, 70_000, dtype=np.uint64) for _ in range(2))
    HashNumbers(earlier).end()
    numbers = HashNumbers(hashes)
    assert numbers.find(earlier)[0].size == 0
    assert numbers.find(hashes)[1].tolist() == list(range(hashes.size))
