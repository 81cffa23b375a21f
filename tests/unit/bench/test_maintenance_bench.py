"""Which records' ages the benchmark of table maintenance counts, minute by minute, and when it calls files tidy."""

from __future__ import annotations

import pytest

from bench.maintenance import ages_of, is_tidy, minutes_of

MIB = 1024 * 1024


def test_records_of_the_warm_up_do_not_count() -> None:
    """They waited for the process to start; a stretch that has both is cut where measuring began."""
    assert ages_of((1000, 1999, 12_000), 2000, 9000).tolist() == []
    assert ages_of((1998, 2002, 2500), 2000, 9000).tolist() == [500, 499, 498]
    assert ages_of((8999, 9002, 9500), 2000, 9000).tolist() == [501, 500]


@pytest.mark.parametrize(
    ("end_ms", "minutes"),
    [
        (31_000, [(1000, 31_000)]),
        (61_000, [(1000, 61_000)]),
        (120_990, [(1000, 60_999), (61_000, 120_990)]),
        (121_007, [(1000, 60_999), (61_000, 121_007)]),
    ],
)
def test_each_minute_counts_by_itself_and_a_few_milliseconds_are_none(
    end_ms: int, minutes: list[tuple[int, int]]
) -> None:
    assert minutes_of(1000, end_ms) == minutes


def test_files_are_tidy_when_there_is_one_or_half_are_large_and_few_are_small() -> None:
    full, half, left_over = 124 * MIB, 64 * MIB, MIB
    assert is_tidy([left_over])
    assert is_tidy([full, full, left_over])
    assert is_tidy([full] * 9 + [half])
    assert is_tidy([full] * 18 + [left_over] * 2)
    assert not is_tidy([full] * 17 + [left_over] * 2)
    assert not is_tidy([full, left_over]), "neither one file nor a median of 64 MiB"
    assert not is_tidy([left_over, left_over])
