"""Which commits are compared with which records."""

from __future__ import annotations

from dataclasses import replace

from frazil.catalog.progress import key, to_summary
from frazil.types import Balance, CommittedBatch, OffsetRange, Progress, Writer
from frazil_verify.schedule import MOST_OFFSETS, Past, Snapshot, Window, choose, find_windows

PIPELINE, RUN = "p", "this"


def _commit(number: int, end: int, run_id: str = RUN, balance: Balance | None = Balance()) -> Snapshot:  # noqa: B008
    progress = Progress(
        offsets={"t": {0: end}},
        commit_id=str(number),
        writer=Writer(run_id=run_id),
        batch=CommittedBatch(balance=balance),
    )
    return Snapshot(number, number - 1, 1, "append", to_summary(PIPELINE, progress))


def _other(number: int, operation: str = "delete", **summary: str) -> Snapshot:
    return Snapshot(number, number - 1, 1, operation, summary)


def _range(start: int, end: int) -> tuple[OffsetRange, ...]:
    return (OffsetRange("t", 0, start, end),)


def _windows(*snapshots: Snapshot, past: Past = Past()) -> list[Window]:  # noqa: B008  (frozen)
    return find_windows(PIPELINE, RUN, snapshots, past, starts_at_zero=True)[0]


def test_a_commit_has_the_records_since_the_commit_before_it() -> None:
    first = replace(_commit(1, 10), parent_id=None)
    assert _windows(first, _commit(2, 30)) == [Window((1,), _range(0, 10), 1), Window((2,), _range(10, 30), 1)]


def test_snapshots_of_other_writers_belong_to_the_next_commit_or_are_a_window() -> None:
    past = Past(1, {"t": {0: 10}})
    assert _windows(_other(2), _commit(3, 20), _other(4, "append"), past=past) == [
        Window((2, 3), _range(10, 20), 1, is_disturbed=True),
        Window((4,), is_disturbed=True),
    ]


def test_maintenance_replays_and_other_pipelines_change_nothing_that_is_compared() -> None:
    past = Past(1, {"t": {0: 10}})
    own = {key(PIPELINE, "maintenance-id"): "x"}
    others = {key("another", "offsets"): "{}"}
    assert _windows(_other(2, "replace"), _other(3, **own), _other(4, "append", **others), past=past) == []


def test_commits_of_an_earlier_run_are_not_compared() -> None:
    assert _windows(_commit(5, 10, "earlier"), _commit(6, 20)) == [Window((6,), _range(10, 20), 1)]


def test_what_came_before_the_oldest_known_commit_is_not_judged() -> None:
    assert _windows(_other(5), _commit(6, 10), _commit(7, 20)) == [Window((7,), _range(10, 20), 1)]


def test_progress_that_went_back_is_no_window_and_the_next_commit_follows_it() -> None:
    past = Past(1, {"t": {0: 30}})
    assert _windows(_commit(2, 0), _commit(3, 20), past=past) == [Window((3,), _range(0, 20), 1)]


def test_a_commit_whose_predecessors_have_been_expired_is_no_window() -> None:
    past = Past(1, {"t": {0: 30}})
    assert _windows(_commit(7, 200), _commit(8, 210), past=past) == [Window((8,), _range(200, 210), 1)]
    assert _windows(_other(7), _commit(8, 210), past=past) == []


def test_a_commit_that_only_moves_the_progress_has_read_nothing() -> None:
    past = Past(1, {"t": {0: 30}})
    moved = _commit(2, 90, balance=None)
    assert _windows(moved, _commit(3, 95, balance=Balance(4)), past=past) == [
        Window((3,), _range(90, 95), 1, record_count=4)
    ]
    moved = replace(moved, snapshot_id=3, parent_id=2)
    assert _windows(_other(2), moved, past=past) == [Window((2, 3), (), 1, is_disturbed=True)]


def test_a_partition_that_began_at_an_unknown_offset_is_left_out() -> None:
    found, _ = find_windows(PIPELINE, RUN, [_commit(2, 5)], Past(1, {}), starts_at_zero=False)
    assert found == []


def test_the_next_look_continues_after_the_last_snapshot() -> None:
    _, past = find_windows(PIPELINE, RUN, [_commit(2, 20), _other(3)], Past(1, {"t": {0: 10}}), starts_at_zero=True)
    assert past == Past(3, {"t": {0: 20}})
    assert find_windows(PIPELINE, RUN, [], past, starts_at_zero=True) == ([], past)


def test_a_share_of_the_records_is_chosen_and_every_window_of_another_writer() -> None:
    every = [Window((number,), _range(number * 100, number * 100 + 100), 1) for number in range(10)]
    disturbed = Window((99,), _range(5000, 5001), 1, is_disturbed=True)
    assert choose(every, 0.001, list) == (every[0],)
    assert choose(every, 0.25, lambda found: found[::-1]) == (every[9], every[8], every[7])
    assert choose([*every, disturbed], 0.001, list) == (disturbed, every[0])[: 1 + (0.001 * 1001 > 1)]
    assert choose(every, 1.0, list) == tuple(every)


def test_no_more_than_a_million_records_are_chosen() -> None:
    large, small = Window((1,), _range(0, MOST_OFFSETS + 1), 1), Window((2,), _range(0, 5), 1)
    assert choose([large, small], 1.0, list) == (small,)
    assert choose([large], 1.0, list) == ()
