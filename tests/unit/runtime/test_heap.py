"""The JVM is asked for its heap seldom, and not at all what has ended; its garbage is collected where it has much."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JNetworkError

from frazil.runtime.jvm import MEASURE_EVERY_S, MUCH_GARBAGE_BYTES, Heap
from frazil_testing.twins import FakeClock


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


def test_garbage_is_collected_once_and_then_wherever_there_is_much_of_it() -> None:
    java = _Java()
    heap = Heap(lambda: java.gateway, FakeClock())
    collected = []
    for garbage_bytes in (1, MUCH_GARBAGE_BYTES, 1, MUCH_GARBAGE_BYTES):
        java.used_bytes += garbage_bytes
        heap.keep_small()
        collected.append(java.collections)
    assert collected == [1, 1, 2, 2]


class _Java:
    """A JVM whose garbage is all that it has got since the last collection."""

    def __init__(self) -> None:
        self.used_bytes = self._kept_bytes = 50_000_000
        self.collections = 0
        memory = SimpleNamespace(getHeapMemoryUsage=lambda: SimpleNamespace(getUsed=lambda: self.used_bytes))
        management = SimpleNamespace(ManagementFactory=SimpleNamespace(getMemoryMXBean=lambda: memory))
        lang = SimpleNamespace(System=SimpleNamespace(gc=self._collect), management=management)
        self.gateway = SimpleNamespace(jvm=SimpleNamespace(java=SimpleNamespace(lang=lang)))

    def _collect(self) -> None:
        self.used_bytes = self._kept_bytes
        self.collections += 1
