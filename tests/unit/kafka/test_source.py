"""How ranges are cut for the tasks that read them."""

from __future__ import annotations

from frazil.kafka.source import WORTH_CUTTING, pieces_of
from frazil.types import OffsetRange


def _pieces(count: int, slices: int, span: int = WORTH_CUTTING) -> int:
    return pieces_of([OffsetRange("a", number, 0, span) for number in range(count)], slices)


def test_ranges_that_do_not_divide_among_the_tasks_are_cut_until_they_do() -> None:
    assert [_pieces(count, 2) for count in (1, 2, 3, 4, 5)] == [2, 2, 6, 4, 10]
    assert [_pieces(count, 4) for count in (1, 2, 3, 4, 8)] == [4, 4, 12, 4, 8]


def test_small_ranges_stay_whole() -> None:
    assert _pieces(31, 2, span=100) == 31
    assert _pieces(3, 2, span=100) == 3
