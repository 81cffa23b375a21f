"""Planning: due or not, how much, how fair; all of it on plain values."""

from __future__ import annotations

from dataclasses import replace

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

# Ten bytes of a file for each record.
_CLOCK = TableClock("lake.a", next_due_s=10.0, target_bytes=100_000, record_bytes=100, row_bytes=10)


def test_a_table_is_due_when_its_interval_has_passed_and_records_wait() -> None:
    batch = Batch("lake.a", (OffsetRange("a", 0, 5, 8), OffsetRange("a", 1, 0, 1)))
    assert plan_batch({"a": {0: 5, 1: 0}}, {("a", 0): 8, ("a", 1): 1}, _CLOCK, now_s=10.0) == batch


def test_a_table_waits_for_its_interval() -> None:
    assert plan_batch({"a": {0: 5}}, {("a", 0): 8}, _CLOCK, now_s=9.9) is None


def test_enough_bytes_for_a_file_do_not_wait_for_the_interval() -> None:
    assert plan_batch({"a": {0: 0}}, {("a", 0): 9_999}, _CLOCK, now_s=0.0) is None
    assert plan_batch({"a": {0: 0}}, {("a", 0): 10_000}, _CLOCK, now_s=0.0) == Batch(
        "lake.a", (OffsetRange("a", 0, 0, 9_500),), most_tasks=1
    )


def test_a_batch_leaves_what_is_more_than_whole_files_unless_it_is_late_and_has_none_for_every_task() -> None:
    def span(waiting: int, now_s: float) -> int:
        batch = plan_batch({"a": {0: 0}}, {("a", 0): waiting}, replace(_CLOCK, tasks=2), now_s)
        return batch.span if batch else 0

    assert [span(files * 10_000 + 9_999, now_s=0.0) for files in range(6)] == [0, 9_500, 19_000, 19_000, 38_000, 38_000]
    assert [span(files * 10_000 + 9_999, now_s=10.0) for files in range(4)] == [9_999, 19_999, 19_000, 19_000]


def test_with_a_smallest_file_size_enough_for_that_does_not_wait_and_less_does() -> None:
    clock = replace(_CLOCK, min_bytes=20_000)
    assert plan_batch({"a": {0: 0}}, {("a", 0): 1_999}, clock, now_s=0.0) is None
    assert plan_batch({"a": {0: 0}}, {("a", 0): 2_000}, clock, now_s=0.0) == Batch(
        "lake.a", (OffsetRange("a", 0, 0, 2_000),), most_tasks=1
    )
    assert plan_batch({"a": {0: 0}}, {("a", 0): 5}, clock, now_s=10.0) == Batch(
        "lake.a", (OffsetRange("a", 0, 0, 5),), most_tasks=1
    )


def test_enough_is_judged_by_what_files_of_the_table_took_so_far() -> None:
    position, ends = {"a": {0: 0}}, {("a", 0): 10_000}
    assert plan_batch(position, ends, replace(_CLOCK, row_bytes=9), now_s=0.0) is None
    assert plan_batch(position, ends, replace(_CLOCK, row_bytes=11), now_s=0.0) is not None
    assert plan_batch(position, ends, replace(_CLOCK, row_bytes=None, record_bytes=59), now_s=0.0) is None
    assert plan_batch(position, ends, replace(_CLOCK, row_bytes=None, record_bytes=61), now_s=0.0) is not None


def test_a_batch_that_came_early_has_no_more_tasks_than_files_and_a_late_one_as_many_as_are_quickest() -> None:
    clock = replace(_CLOCK, min_bytes=20_000, tasks=8)

    def most_tasks(clock: TableClock, now_s: float) -> int | None:
        batch = plan_batch({"a": {0: 0, 1: 0}}, {("a", 0): 3_999, ("a", 1): 4_000}, clock, now_s)
        return batch.most_tasks if batch else 0

    assert most_tasks(clock, 0.0) == 3
    assert most_tasks(clock, 10.0) == 3
    assert most_tasks(replace(clock, min_bytes=None), 0.0) == 0
    assert most_tasks(replace(clock, min_bytes=None), 10.0) is None
    assert most_tasks(replace(clock, min_bytes=None, target_bytes=39_995), 0.0) == 2


def test_without_records_there_is_no_batch() -> None:
    assert plan_batch({"a": {0: 5}}, {("a", 0): 5}, _CLOCK, now_s=99.0) is None


def test_a_partition_without_a_known_end_waits() -> None:
    assert plan_batch({"a": {0: 5, 1: 0}}, {("a", 1): 2}, _CLOCK, now_s=99.0) == Batch(
        "lake.a", (OffsetRange("a", 1, 0, 2),)
    )


def test_the_first_batch_is_smaller_and_bytes_limit_all() -> None:
    first = TableClock("t", 0, 1, record_bytes=100, is_first=True)
    assert batch_limit(first) == FIRST_BATCH_RECORDS
    large = TableClock("t", 0, 2**40, record_bytes=100)
    assert batch_limit(large) == MAX_BATCH_RECORDS
    assert batch_limit(replace(large, record_bytes=1_000_000)) == MAX_BATCH_BYTES // 1_000_000
    assert batch_limit(replace(large, record_bytes=1e12)) == 1


def test_a_batch_in_catch_up_covers_whole_files_for_each_of_its_tasks() -> None:
    a_file = 9_500
    assert batch_limit(_CLOCK) == MAX_BATCH_RECORDS // a_file * a_file
    assert batch_limit(replace(_CLOCK, tasks=3)) == MAX_BATCH_RECORDS // (3 * a_file) * 3 * a_file


def test_a_batch_grows_until_each_task_writes_a_file_but_takes_no_longer_than_a_minute() -> None:
    large = replace(_CLOCK, target_bytes=100_000_000, tasks=2)
    assert batch_limit(large) == MAX_BATCH_RECORDS
    assert batch_limit(replace(large, records_per_s=100_000)) == 6_000_000
    assert batch_limit(replace(large, records_per_s=1_000_000)) == 19_000_000
    assert batch_limit(replace(large, records_per_s=1_000_000, tasks=5)) == 47_500_000
    assert batch_limit(replace(large, records_per_s=1_000_000, tasks=50)) == 60_000_000


def test_a_batch_takes_half_of_the_time_for_which_its_credentials_are_valid() -> None:
    fast = replace(_CLOCK, target_bytes=100_000_000, tasks=2, records_per_s=100_000)
    assert batch_limit(replace(fast, credentials_left_s=3600)) == batch_limit(fast)
    assert batch_limit(replace(fast, credentials_left_s=20)) == 1_000_000
    small = replace(fast, records_per_s=10, credentials_left_s=20)
    assert batch_limit(small) == CATCH_UP_RECORDS, "of 300 records, which took half a minute to start and to commit"


def test_a_batch_whose_rows_are_all_in_memory_grows_for_no_file() -> None:
    held = replace(_CLOCK, target_bytes=100_000_000, tasks=2, records_per_s=1_000_000, buffered_bytes=80)
    assert batch_limit(held) == MAX_BATCH_RECORDS
    assert batch_limit(replace(held, buffered_bytes=4050)) == MAX_BATCH_BYTES // 4050, (
        "columns without values take room too"
    )
    assert batch_limit(replace(held, record_bytes=5000)) == MAX_BATCH_BYTES // 5000
    assert batch_limit(replace(held, is_first=True)) == FIRST_BATCH_RECORDS
    small = replace(held, target_bytes=100_000)
    assert batch_limit(small) == batch_limit(replace(small, buffered_bytes=None)), (
        "whole files where they are small enough"
    )


def test_a_batch_that_memory_ends_is_read_by_all_tasks_and_any_other_by_those_that_leave_whole_files() -> None:
    held = replace(_CLOCK, target_bytes=100_000_000, tasks=2, buffered_bytes=80)
    for waiting in (11_000_000, 25_000_000):
        batch = plan_batch({"a": {0: 0}}, {("a", 0): waiting}, held, now_s=0.0)
        assert batch is not None
        assert (batch.span, batch.most_tasks) == (MAX_BATCH_RECORDS, None)
    batch = plan_batch({"a": {0: 0}}, {("a", 0): 1_100_000}, replace(held, target_bytes=10_000_000), now_s=0.0)
    assert batch is not None
    assert (batch.span, batch.most_tasks) == (950_000, 1)


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


def test_small_batches_share_a_job_and_catch_ups_of_different_topics_go_alone() -> None:
    small = [Batch(name, (OffsetRange(name, 0, 0, 10),)) for name in ("x", "y")]
    large = [Batch(name, (OffsetRange(name, 0, 0, CATCH_UP_RECORDS + 1),)) for name in ("z", "w")]
    assert group_batches([small[0], *large, small[1]]) == ([small], [[large[0]], [large[1]]])


def test_batches_of_one_topic_share_a_job_when_they_share_a_read() -> None:
    for last in (10, CATCH_UP_RECORDS + 10):
        x, y, far = (
            Batch(name, (OffsetRange("a", 0, start, start + last),))
            for name, start in (("x", 0), ("y", 0), ("z", last))
        )
        other = Batch("w", (OffsetRange("b", 0, 0, 10),))
        is_small = last == 10
        small, large = group_batches([x, far, other, y])
        assert (small if is_small else large) == ([[x, other, y], [far]] if is_small else [[x, y], [far]])
        assert group_batches([x, y], {"y"})[not is_small] == [[x], [y]]


def test_more_tables_share_a_job_while_all_are_new_and_their_batches_small() -> None:
    def sizes(span: int, new: int, old: int = 0) -> list[int]:
        batches = [
            Batch(f"n.{number}", (OffsetRange(f"t{number}", 0, 0, span),), is_new=number < new)
            for number in range(new + old)
        ]
        return [len(group) for group in group_batches(batches)[0]]

    assert sizes(10, new=150) == [64, 64, 22]
    assert sizes(10, new=0, old=40) == [16, 16, 8]
    assert sizes(10, new=20, old=20) == [20, 16, 4]
    assert sizes(10_000, new=40) == [16, 16, 8]


def test_a_small_batch_does_not_wait_for_the_catch_up_of_its_topic() -> None:
    small = Batch("x", (OffsetRange("a", 0, 0, 100_000),))
    large = Batch("y", (OffsetRange("a", 0, 0, CATCH_UP_RECORDS + 1),))
    assert group_batches([small, large]) == ([[small]], [[large]])


def test_a_table_that_goes_alone_shares_no_job_and_has_its_turn_and_a_catch_up_stays_one() -> None:
    small = [Batch(name, (OffsetRange(name, 0, 0, 10),)) for name in ("x", "y", "z")]
    large = Batch("w", (OffsetRange("c", 0, 0, CATCH_UP_RECORDS + 1),))
    assert group_batches([*small, large], {"y", "w"}) == ([[small[0], small[2]], [small[1]]], [[large]])
    assert group_batches(small, {"x"}) == ([[small[0]], [small[1], small[2]]], [])


def test_lag_counts_only_what_is_ahead() -> None:
    assert lag_records({"a": {0: 5, 1: 9}, "b": {0: 0}}, {("a", 0): 8, ("a", 1): 4}) == 3
