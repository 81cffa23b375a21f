"""The heap of this process's JVM: watched, and kept small while the process stands by."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError

from frazil.clock import Clock

MEASURE_EVERY_S = 5.0
# A collection of the whole heap takes 0.15 s of a core.
MUCH_GARBAGE_BYTES = 96 * 1024 * 1024


@dataclass(frozen=True)
class HeapUsage:
    """Java's figures (`java.lang.management.MemoryUsage`)."""

    used_bytes: int
    max_bytes: int


class Heap:
    """Asks the JVM at most every five seconds, however many ask. Any thread may ask."""

    def __init__(self, gateway: Callable[[], Any], clock: Clock) -> None:
        self._gateway = gateway
        self._clock = clock
        self._lock = threading.Lock()
        self._measured_s = float("-inf")
        self._usage: HeapUsage | None = None
        self._kept_bytes: int | None = None

    def usage(self) -> HeapUsage | None:
        """Returns what was last measured; None once the JVM has ended."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if now_s - self._measured_s >= MEASURE_EVERY_S:
                self._measured_s, self._usage = now_s, self._measure()
            return self._usage

    def keep_small(self) -> None:
        """Collects the garbage of the whole heap where it has much of it. Objects that outlive a small collection by chance
        would otherwise fill the heap in some hours, and Java keeps memory that it has once filled. One thread calls it.

        Raises: Py4JError, OSError once the JVM has ended.
        """
        java = self._gateway().jvm.java.lang
        memory = java.management.ManagementFactory.getMemoryMXBean()
        if self._kept_bytes is None or memory.getHeapMemoryUsage().getUsed() > self._kept_bytes + MUCH_GARBAGE_BYTES:
            java.System.gc()
            self._kept_bytes = memory.getHeapMemoryUsage().getUsed()

    def _measure(self) -> HeapUsage | None:
        try:
            java = self._gateway().jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
            return HeapUsage(java.getUsed(), java.getMax())
        except (Py4JError, OSError):
            return None
