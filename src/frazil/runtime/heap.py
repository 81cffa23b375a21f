"""The heap of this process's JVM, for those who watch it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError

from frazil.clock import Clock

MEASURE_EVERY_S = 5.0


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

    def usage(self) -> HeapUsage | None:
        """Returns what was last measured; None once the JVM has ended."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if now_s - self._measured_s >= MEASURE_EVERY_S:
                self._measured_s, self._usage = now_s, self._measure()
            return self._usage

    def _measure(self) -> HeapUsage | None:
        try:
            java = self._gateway().jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
            return HeapUsage(java.getUsed(), java.getMax())
        except (Py4JError, OSError):
            return None
