"""Planning: due or not, how much, how fair; all of it on plain values."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.ingest.plan import (
    CATCH_UP_RECORDS,
    FIRST_BATCH_RECORDS,
    MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS,
    TableClock,
    batch_limit,
    group_batches,
    lag_records,
    limit_ranges,
    plan_batch,
)
from frazil.types import Batch, OffsetRange

_CLOCK = TableClock("lake.a", next_due_s=10.0, target_bytes=1_000_000, record_bytes=100)


def test_a_table_is_due_when_its_interval_has_passed_and_records_wait() -> None:
    batch = Batch("lake.a", (OffsetRange("a", 0, 5, 8), OffsetRange("a", 1, 0, 1)))
    assert plan_batch({"a": {0: 5, 1: 0}}, {("a", 0): 8, ("a", 1): 1}, _CLOCK, now_s=10.0) == batch


def test_a_table_waits_for_its_interval() -> None:
    assert plan_batch({"a": {0: 5}}, {("a", 0): 8}, _CLOCK, now_s=9.9) is None


def test_enough_bytes_for_a_file_do_not_wait_for_the_interval() -> None:
    assert plan_batch({"a": {0: 0}}, {("a", 0): 9_999}, _CLOCK, now_s=0.0) is None
    assert plan_batch({"a": {0: 0}}, {("a", 0): 10_000}, _CLOCK, now_s=0.0) == Batch(
        "lake.a", (OffsetRange("a", 0, 0, 10_000),)
    )


def test_without_records_there_is_no_batch() -> None:
    assert plan_batch({"a": {0: 5}}, {("a", 0): 5}, _CLOCK, now_s=99.0) is None


def test_a_partition_without_a_known_end_waits() -> None:
    assert plan_batch({"a": {0: 5, 1: 0}}, {("a", 1): 2}, _CLOCK, now_s=99.0) == Batch(
        "lake.a", (OffsetRange("a", 1, 0, 2),)
    )


def test_the_first_batch_is_smaller_and_bytes_limit_all() -> None:
    first = TableClock("t", 0, 1, record_bytes=100, is_first=True)
    assert batch_limit(first) == FIRST_BATCH_RECORDS
    assert batch_limit(_CLOCK) == MAX_BATCH_RECORDS
    assert batch_limit(TableClock("t", 0, 1, record_bytes=1_000_000)) == MAX_BATCH_BYTES // 1_000_000
    assert batch_limit(TableClock("t", 0, 1, record_bytes=1e12)) == 1


def test_the_batch_of_a_table_with_small_records_is_light() -> None:
    for is_light in (False, True):
        batch = plan_batch({"a": {0: 0}}, {("a", 0): 9}, TableClock("t", 0, 1, is_light=is_light), now_s=0)
        assert batch is not None
        assert batch.is_light is is_light


def test_a_limit_takes_short_ranges_whole_and_long_ones_to_the_same_length() -> None:
    ranges = [OffsetRange("a", 0, 0, 1000), OffsetRange("a", 1, 10, 20), OffsetRange("a", 2, 0, 500)]
    assert limit_ranges(ranges, 110) == [
        OffsetRange("a", 0, 0, 50),
        OffsetRange("a", 1, 10, 20),
        OffsetRange("a", 2, 0, 50),
    ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 5000))
def test_limited_ranges_begin_where_they_did_and_never_stand_still(spans: list[int], limit: int) -> None:
    ranges = [OffsetRange("a", number, 7, 7 + span) for number, span in enumerate(spans)]
    kept = limit_ranges(ranges, limit)
    assert 0 < sum(r.span for r in kept) == min(limit, sum(spans))
    assert all(r.start == 7 and 7 < r.end <= 7 + spans[r.partition] for r in kept)


def test_small_batches_share_a_job_unless_they_share_a_topic_and_catch_ups_go_alone() -> None:
    small = [Batch(name, (OffsetRange(topic, 0, 0, 10),)) for name, topic in (("x", "a"), ("y", "b"), ("z", "a"))]
    large = Batch("w", (OffsetRange("c", 0, 0, CATCH_UP_RECORDS + 1),))
    assert group_batches([*small, large]) == ([[small[0], small[1]], [small[2]]], [large])


def test_lag_counts_only_what_is_ahead() -> None:
    assert lag_records({"a": {0: 5, 1: 9}, "b": {0: 0}}, {("a", 0): 8, ("a", 1): 4}) == 3
