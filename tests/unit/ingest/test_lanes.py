"""Lanes that are threads: waited for, or given up."""

from __future__ import annotations

import threading
from functools import partial

from frazil.ingest.lanes import ThreadLanes


def test_lanes_that_are_closed_have_done_all_they_were_given() -> None:
    lanes = ThreadLanes()
    done: list[int] = []
    for number in range(3):
        lanes.submit("small", number, partial(done.append, number))
    lanes.close()
    assert done == [0, 1, 2]
    assert sorted(finished.about for finished in lanes.wait(0)) == [0, 1, 2]


def test_lanes_that_are_given_up_wait_for_nothing_and_begin_nothing() -> None:
    lanes, begun, held = ThreadLanes(), threading.Event(), threading.Event()
    done: list[str] = []

    def hold() -> None:
        begun.set()
        held.wait()
        done.append("held")

    lanes.submit("small", "held", hold)
    lanes.submit("small", "never", lambda: done.append("never"))
    begun.wait()
    lanes.close(wait=False)
    assert done == []
    held.set()
    lanes.close()
    assert done == ["held"]
