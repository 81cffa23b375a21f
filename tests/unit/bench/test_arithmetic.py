"""What the benchmarks compute from what they saw."""

from __future__ import annotations

import pytest

from bench.arithmetic import (
    back_under_s,
    first_seen_ms,
    in_64_bits,
    lateness_ms,
    prefix_total,
    ratio,
    records_of,
    rows_of,
    spread,
    summary,
    value_at,
)
from bench.connect import after_first


def test_a_spread_is_smallest_median_and_largest_of_the_values_that_are_there() -> None:
    assert spread([3.0, None, 1.0, 2.0]) == {"min": 1.0, "median": 2.0, "max": 3.0}


def test_nothing_has_no_spread() -> None:
    assert spread([None, None]) is None


def test_a_summary_has_numbers_only_and_takes_a_truth_value_for_none() -> None:
    runs = [{"wall_s": 2, "noisy": False, "sums": "x"}, {"wall_s": 4.0, "noisy": True, "sums": "y"}]
    assert summary(runs) == {"wall_s": {"min": 2.0, "median": 3.0, "max": 4.0}}


def test_a_number_that_only_a_later_run_has_is_in_the_summary() -> None:
    runs: list[dict[str, object]] = [{"peak_mb": None}, {"peak_mb": 7}]
    assert summary(runs) == {"peak_mb": {"min": 7.0, "median": 7.0, "max": 7.0}}


def test_no_runs_have_no_summary() -> None:
    assert summary([]) == {}


@pytest.mark.parametrize(("time_s", "value"), [(0.0, 10.0), (1.0, 10.0), (1.5, 15.0), (2.0, 20.0), (9.0, 20.0)])
def test_a_value_between_two_samples_lies_on_the_line_between_them(time_s: float, value: float) -> None:
    assert value_at([(1.0, 10.0), (2.0, 20.0)], time_s) == value


def test_a_series_without_a_sample_has_no_value() -> None:
    with pytest.raises(ValueError, match="no sample"):
        value_at([], 1.0)


def test_a_snapshot_is_visible_when_it_was_first_seen_as_the_current_one() -> None:
    assert first_seen_ms([1, 2, 3], {1: 100, 2: 200, 3: 300}) == {1: 100, 2: 200, 3: 300}


def test_a_snapshot_that_the_watcher_missed_was_visible_with_its_successor() -> None:
    assert first_seen_ms([1, 2, 3], {1: 100, 3: 300}) == {1: 100, 2: 300, 3: 300}


def test_a_tail_that_nobody_saw_has_no_time() -> None:
    assert first_seen_ms([1, 2, 3], {1: 100}) == {1: 100}


def test_commits_on_the_beat_are_not_late() -> None:
    assert lateness_ms([0, 30_000, 60_000], 30_000, 0, 61_000) == [0, 0]


def test_a_late_commit_and_an_early_one_are_told_apart() -> None:
    assert lateness_ms([0, 31_000, 60_500], 30_000, 0, 61_000) == [1000, -500]


def test_commits_outside_the_window_do_not_count() -> None:
    assert lateness_ms([0, 1000, 31_000, 99_000], 30_000, 500, 40_000) == [0]


def test_a_table_that_stopped_committing_is_late_by_what_is_open_at_the_end() -> None:
    assert lateness_ms([0, 30_000], 30_000, 0, 100_000) == [0, 40_000]


def test_a_table_without_a_commit_is_late_from_the_start() -> None:
    assert lateness_ms([], 30_000, 0, 100_000) == [70_000]


@pytest.mark.parametrize(("count", "total"), [(0, 0), (2, 3), (3, 6), (7, 13), (9, 18)])
def test_the_total_of_a_repeated_cycle_is_that_of_its_values(count: int, total: int) -> None:
    assert prefix_total([1, 2, 3], count) == total


@pytest.mark.parametrize(
    ("a", "b", "result"), [(6.0, 3.0, 2.0), (None, 3.0, None), (6.0, None, None), (6.0, 0.0, None)]
)
def test_a_ratio_needs_both_numbers(a: float | None, b: float | None, result: float | None) -> None:
    assert ratio(a, b) == result


def test_rows_and_records_are_proportional() -> None:
    assert rows_of(4_000_000, 11_880_000, 12_000_000) == 3_960_000
    assert records_of(3_960_000, 11_880_000, 12_000_000) == 4_000_000


def steady(start_ms: int, end_ms: int) -> list[tuple[int, int]]:
    """A snapshot every half second, its newest record half a second old."""
    return [(seen_ms, seen_ms - 500) for seen_ms in range(start_ms, end_ms, 500)]


def test_a_table_that_was_never_behind_is_back_at_once() -> None:
    assert back_under_s(steady(0, 30_000), 10_000, 30_000, 2000, 10_000) == 0.0


def test_a_table_is_back_with_the_snapshot_that_ends_the_delay() -> None:
    sights = [*steady(0, 10_500), (14_000, 13_500), *steady(14_500, 30_000)]
    assert back_under_s(sights, 10_000, 30_000, 2000, 10_000) == 4.0


def test_a_snapshot_of_old_records_does_not_bring_it_back() -> None:
    sights = [*steady(0, 10_500), (14_000, 11_000), (15_000, 14_800), *steady(15_500, 30_000)]
    assert back_under_s(sights, 10_000, 30_000, 2000, 10_000) == 5.0


def test_being_behind_again_soon_counts_and_much_later_does_not() -> None:
    soon = [*steady(0, 10_500), (14_000, 13_500), (18_000, 17_500), *steady(18_500, 40_000)]
    assert back_under_s(soon, 10_000, 40_000, 2000, 10_000) == 8.0
    later = [*steady(0, 10_500), (14_000, 13_500), *steady(14_500, 30_000), (34_000, 33_500), *steady(34_500, 40_000)]
    assert back_under_s(later, 10_000, 40_000, 2000, 10_000) == 4.0


def test_a_delay_that_was_over_before_does_not_count() -> None:
    sights = [(0, 0), (6000, 5500), *steady(6500, 30_000)]
    assert back_under_s(sights, 10_000, 30_000, 2000, 10_000) == 0.0


def test_a_table_that_is_still_behind_at_the_end_was_never_back() -> None:
    assert back_under_s(steady(0, 10_500), 10_000, 30_000, 2000, 60_000) is None
    assert back_under_s([*steady(0, 10_500), (31_000, 29_000)], 10_000, 30_000, 2000, 60_000) is None
    assert back_under_s([], 10_000, 30_000, 2000, 10_000) is None


def test_a_run_without_its_first_records_costs_what_is_left() -> None:
    """12 M at 4 s per million are 48 s; the first 4 M took 6 s each: 24 s for the other 8 M."""
    (run,) = after_first([{"cpu_s_per_million": 4.0, "records_per_s_steady": 9}], 12_000_000, 6.0, 4_000_000)
    assert run["cpu_s_per_million"] == 3.0
    assert (run["records_per_s"], run["counted_records"]) == (9, 8_000_000)


@pytest.mark.parametrize(
    ("total", "kept"), [(5, 5), (-5, -5), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 + 3, 3)]
)
def test_a_sum_keeps_what_fits_into_64_bits(total: int, kept: int) -> None:
    assert in_64_bits(total) == kept
