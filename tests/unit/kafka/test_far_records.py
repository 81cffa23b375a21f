"""The driver finds records that Spark cannot read, hands over stretches of them, and remembers a bounded number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from frazil.kafka.port import FARTHEST_MS, ReadRecord, timestamp_of
from frazil.kafka.source import MOST_RECORDS, MOST_STRETCHES, FarRecords, TooManyFarRecords, without
from frazil.types import OffsetRange


def _range(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("t", partition, start, end)


def _found(is_far: Callable[[int], bool], value: bytes = b"v") -> FarRecords:
    def read(r: OffsetRange) -> Iterator[Sequence[ReadRecord]]:
        for n in range(r.start, r.end):
            at = timestamp_of(1_800_000_000_000_000_000) if is_far(n) else 1_800_000_000_000
            yield [ReadRecord(r.topic, r.partition, n, value, at)]

    return FarRecords(read)


def test_stretches_are_found_once_and_cut_out_of_the_ranges() -> None:
    records = _found({5, 6, 9, 500, 999}.__contains__)
    whole = _range(0, 1000)
    assert records.within([whole]) == []
    assert records.search([whole])
    apart = records.within([whole])
    assert [one.range for one in apart] == [_range(5, 10), _range(500, 501), _range(999, 1000)]
    assert [record.offset for record in apart[0].records] == [5, 6, 7, 8, 9]
    assert without([whole, _range(0, 3, 1)], apart) == [
        _range(0, 5),
        _range(10, 500),
        _range(501, 999),
        _range(0, 3, 1),
    ]
    assert not records.search([whole])


def test_a_range_that_begins_or_ends_inside_a_stretch_gets_its_part() -> None:
    records = _found({5, 6, 9}.__contains__)
    records.search([_range(0, 20)])
    (part,) = records.within([_range(6, 8)])
    assert (part.range, [record.offset for record in part.records]) == (_range(6, 8), [6, 7])
    assert without([_range(6, 8)], [part]) == []
    assert records.within([_range(10, 20), _range(5, 10, 1)]) == []


def test_a_later_search_replaces_what_it_overlaps() -> None:
    records = _found({5, 50}.__contains__)
    records.search([_range(0, 10)])
    assert records.search([_range(0, 60)])
    assert [one.range for one in records.within([_range(0, 60)])] == [_range(5, 51)]


@pytest.mark.parametrize(
    ("end", "is_far"),
    [(MOST_RECORDS + 1, lambda _: True), ((MOST_STRETCHES + 1) * 1000, lambda n: n % 1000 == 7)],
)
def test_more_of_them_than_one_batch_may_have_are_refused(end: int, is_far: Callable[[int], bool]) -> None:
    with pytest.raises(TooManyFarRecords, match="nanoseconds") as refused:
        _found(is_far).search([_range(0, end)])
    assert refused.value.first.offset == (0 if is_far(0) else 7)


def test_few_large_records_are_too_many_and_one_is_not() -> None:
    large = b"v" * (40 << 20)
    assert _found(lambda n: n == 3, large).search([_range(0, 5)])
    with pytest.raises(TooManyFarRecords):
        _found(lambda n: n in (3, 4), large).search([_range(0, 5)])


def test_what_was_found_long_ago_is_forgotten_and_found_again() -> None:
    records = _found(lambda n: n % 1000 == 0)
    for start in range(0, 100_000, 10_000):
        records.search([_range(start, start + 10_000)])
    assert len(records.within([_range(0, 100_000)])) == MOST_STRETCHES
    assert records.within([_range(0, 10_000)]) == []
    assert records.search([_range(0, 10_000)])


def test_a_record_without_a_timestamp_has_none() -> None:
    assert [timestamp_of(at) for at in (-1, 0, -2)] == [None, 0, -2]


def test_timestamps_are_bounded_to_what_fits_in_microseconds() -> None:
    assert [timestamp_of(at) for at in (-(2**62), -5, 5, 2**62)] == [-FARTHEST_MS, -5, 5, FARTHEST_MS]
    assert -FARTHEST_MS * 1000 >= -(2**63)
    assert FARTHEST_MS * 1000 < 2**63
