"""What a replay remembers, and how fast it may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from frazil.replay.replay import Pace, ReplayProgress, Request, load_progress, one_ahead
from frazil.replay.rows import Place
from frazil.testing import FakeClock

REQUEST = Request("t", "i", "topic", None, None, "", "json", (), ())


def test_progress_is_read_back_as_it_was() -> None:
    progress = ReplayProgress(7, Place(3, 11), 5, is_complete=True)
    assert load_progress(progress.dump()) == progress
    assert load_progress("") is None


def test_equal_requests_are_one_replay_and_others_are_not() -> None:
    others = [
        replace(REQUEST, where="a"),
        replace(REQUEST, topic_id="j"),
        replace(REQUEST, after=1),
        replace(REQUEST, key=("a",)),
    ]
    names = {one.owner("p") for one in (REQUEST, replace(REQUEST), *others)}
    assert len(names) == 1 + len(others)
    assert all(name.startswith("frazil-p-replay-") for name in names)


def test_a_writer_is_held_back_to_its_rate() -> None:
    clock = FakeClock()
    begun_s = clock.monotonic_s()
    pace = Pace(clock, 100)
    assert pace.at_once == 100
    for _ in range(5):
        pace.wait(100)
    assert clock.monotonic_s() - begun_s == 5.0
    assert Pace(clock, None).at_once > 1000


def test_batches_are_made_one_ahead_in_their_order_and_an_error_comes_after_those_before_it() -> None:
    made: list[int] = []

    def batches() -> Iterator[tuple[list[Any], ReplayProgress]]:
        for number in range(4):
            made.append(number)
            yield [], ReplayProgress(number)
        raise OSError("the store is gone")

    found = one_ahead(batches())
    for number in range(4):
        assert next(found)[1].snapshot_id == number
        assert len(made) <= number + 2
    with pytest.raises(OSError, match="the store is gone"):
        next(found)
