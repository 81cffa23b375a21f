"""Numbers as people are shown them."""

from __future__ import annotations

import pytest

from frazil.printable import counted, percent


@pytest.mark.parametrize(("number", "total", "shown"), [(3, 12, "loading a.b, 3 of 12 tables"), (1, 1, "loading a.b")])
def test_a_table_is_counted_where_there_are_several(number: int, total: int, shown: str) -> None:
    assert counted("loading a.b", number, total) == shown


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [(0, 7, "0 %"), (41, 100, "41 %"), (999, 1000, "99 %"), (7, 7, "100 %"), (0, 0, "100 %")],
)
def test_a_share_is_whole_only_at_its_end(done: int, total: int, shown: str) -> None:
    assert percent(done, total) == shown
