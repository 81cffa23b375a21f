"""Which records' ages the benchmark of table care counts."""

from __future__ import annotations

from bench.care import ages_of


def test_records_of_the_warm_up_do_not_count() -> None:
    """They waited for the process to start; a stretch that has both is cut where measuring began."""
    assert ages_of((1000, 1999, 12_000), 2000, 9000).tolist() == []
    assert ages_of((1998, 2002, 2500), 2000, 9000).tolist() == [500, 499, 498]
    assert ages_of((8999, 9002, 9500), 2000, 9000).tolist() == [501, 500]
