"""The watermark: up to which record timestamp a table is complete."""

from __future__ import annotations

from frazil.ingest.plan import advance_watermark
from frazil.types import OffsetRange, Watermark


def _range(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange("a", partition, start, end)


def test_the_watermark_is_the_least_of_the_partitions_that_were_read() -> None:
    after = advance_watermark(
        Watermark(),
        {"a": {0: 50, 1: 40}},
        (_range(0, 0, 5), _range(1, 0, 5)),
        {"a": {0: 5, 1: 5}},
        {("a", 0): 5, ("a", 1): 5},
    )
    assert after == Watermark({"a": {0: 50, 1: 40}}, 40)


def test_an_idle_partition_does_not_hold_it_back() -> None:
    before = Watermark({"a": {0: 50, 1: 40}}, 40)
    after = advance_watermark(
        before, {"a": {0: 90}}, (_range(0, 5, 9),), {"a": {0: 9, 1: 5}}, {("a", 0): 9, ("a", 1): 5}
    )
    assert after == Watermark({"a": {0: 90, 1: 40}}, 90)


def test_a_partition_with_records_still_to_read_holds_it_back() -> None:
    before = Watermark({"a": {0: 50, 1: 40}}, 40)
    after = advance_watermark(
        before, {"a": {0: 90}}, (_range(0, 5, 9),), {"a": {0: 9, 1: 5}}, {("a", 0): 9, ("a", 1): 6}
    )
    assert after == Watermark({"a": {0: 90, 1: 40}}, 40)


def test_a_partition_of_which_nothing_was_read_yet_holds_it_back() -> None:
    after = advance_watermark(
        Watermark(), {"a": {0: 90}}, (_range(0, 0, 9),), {"a": {0: 9, 1: 0}}, {("a", 0): 9, ("a", 1): 6}
    )
    assert after == Watermark({"a": {0: 90}}, None)


def test_a_partition_without_a_leader_holds_it_back_and_one_that_is_gone_does_not() -> None:
    before = Watermark({"a": {0: 50, 1: 40}}, 40)
    read, position = (_range(0, 5, 9),), {"a": {0: 9, 1: 5}}
    ends = {("a", 0): 9}
    assert advance_watermark(before, {"a": {0: 90}}, read, position, ends).complete_to_ms == 90
    assert advance_watermark(before, {"a": {0: 90}}, read, position, ends, {("a", 1)}).complete_to_ms == 40


def test_a_late_record_does_not_turn_it_back() -> None:
    before = Watermark({"a": {0: 50}}, 50)
    after = advance_watermark(before, {"a": {0: 10}}, (_range(0, 5, 6),), {"a": {0: 6}}, {("a", 0): 6})
    assert after == before


def test_a_range_without_records_changes_nothing() -> None:
    before = Watermark({"a": {0: 50}}, 50)
    assert advance_watermark(before, {}, (_range(0, 5, 6),), {"a": {0: 6}}, {("a", 0): 6}) == before
    assert advance_watermark(Watermark(), {}, (_range(0, 5, 6),), {"a": {0: 6}}, {("a", 0): 6}) == Watermark()
