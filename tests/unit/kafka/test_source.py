"""How the ranges of a job are divided among its tasks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from frazil.kafka.source import WORTH_CUTTING, share_ranges
from frazil.types import OffsetRange

_RANGES = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9)), st.tuples(st.integers(0, 2**60), st.integers(0, 10**6))
).map(lambda found: [OffsetRange(*place, start, start + span) for place, (start, span) in found.items()])


def spans(shares: list[list[OffsetRange]]) -> list[int]:
    return [sum(r.span for r in share) for share in shares]


@given(_RANGES, st.integers(1, 40))
def test_every_offset_is_in_one_share_and_a_share_has_one_range_of_a_partition(
    ranges: list[OffsetRange], slices: int
) -> None:
    shares = share_ranges(ranges, slices)
    assert len(shares) <= slices
    for share in shares:
        assert len({(r.topic, r.partition) for r in share}) == len(share)
    for whole in ranges:
        parts = sorted(
            (r.start, r.end)
            for share in shares
            for r in share
            if (r.topic, r.partition) == (whole.topic, whole.partition)
        )
        joints = [whole.start, *(end for _, end in parts)] if whole.span else []
        assert parts == list(pairwise(joints))
        assert all(start < end for start, end in parts)
        assert not parts or parts[-1][1] == whole.end


@given(_RANGES, st.integers(1, 40))
def test_shares_of_many_records_are_even(ranges: list[OffsetRange], slices: int) -> None:
    total = sum(r.span for r in ranges)
    if total < WORTH_CUTTING:
        ranges = [*ranges, OffsetRange("c", 0, 0, WORTH_CUTTING)]
        total += WORTH_CUTTING
    found = spans(share_ranges(ranges, slices))
    assert len(found) == slices
    assert set(found) <= {total // slices, -(-total // slices)}


def test_few_records_are_divided_by_whole_ranges_the_longest_first() -> None:
    ranges = [OffsetRange("a", n, 5, 5 + span) for n, span in enumerate((10, 40, 30, 0, 20))]
    shares = share_ranges(ranges, 2)
    assert {r for share in shares for r in share} == {r for r in ranges if r.span}
    assert sorted(spans(shares)) == [50, 50]


def test_few_records_of_fewer_ranges_than_tasks_are_cut() -> None:
    assert share_ranges([OffsetRange("a", 0, 7, 107)], 3) == [
        [OffsetRange("a", 0, 7, 41)],
        [OffsetRange("a", 0, 41, 74)],
        [OffsetRange("a", 0, 74, 107)],
    ]
    assert spans(share_ranges([OffsetRange("a", 0, 0, 2)], 5)) == [1, 1]


def test_one_task_has_all_ranges_in_the_order_of_their_partitions() -> None:
    later, first = OffsetRange("b", 0, 0, 9), OffsetRange("a", 1, 4, 6)
    assert share_ranges([later, OffsetRange("c", 0, 3, 3), first], 1) == [[first, later]]
    assert share_ranges([], 4) == [[]]
