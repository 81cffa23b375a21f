"""Which records' ages the benchmark of table care counts, and when it calls files tidy."""

from __future__ import annotations

from bench.care import ages_of, is_tidy


def test_records_of_the_warm_up_do_not_count() -> None:
    """They waited for the process to start; a stretch that has both is cut where measuring began."""
    assert ages_of((1000, 1999, 12_000), 2000, 9000).tolist() == []
    assert ages_of((1998, 2002, 2500), 2000, 9000).tolist() == [500, 499, 498]
    assert ages_of((8999, 9002, 9500), 2000, 9000).tolist() == [501, 500]


def test_files_are_tidy_when_all_but_a_remainder_are_full() -> None:
    full, left_over = 124_000_000, 300_000
    assert is_tidy([left_over])
    assert is_tidy([full, left_over])
    assert is_tidy([full, full, left_over])
    assert not is_tidy([full, left_over, left_over])
    assert not is_tidy([40_000_000, left_over])
    assert not is_tidy([left_over, left_over])
