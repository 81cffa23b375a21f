"""The JVM is asked for its heap seldom, and not at all what has ended."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JNetworkError

from frazil.runtime.heap import MEASURE_EVERY_S, Heap
from frazil.testing import FakeClock


def test_a_jvm_that_has_ended_is_asked_every_few_seconds_and_has_no_heap() -> None:
    asked, clock = list[float](), FakeClock()

    def gateway() -> Any:
        asked.append(clock.monotonic_s())
        raise Py4JNetworkError("the JVM has ended")

    heap = Heap(gateway, clock)
    assert [heap.usage() for _ in range(3)] == [None] * 3
    clock.sleep(MEASURE_EVERY_S)
    assert heap.usage() is None
    assert len(asked) == 2
