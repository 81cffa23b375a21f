"""Limits of memory and processor time for one piece of a task.

A record that takes too much fails its task and not the machine; `isolate` then finds the record.
"""

from __future__ import annotations

import ctypes
import resource
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from numba.core import event

CPU_SECONDS = 20.0
"""Processor time for one Arrow batch of a task. A batch of 100 MB takes about 2 s, and several times that on a shared
machine: a guest's clock includes the time that the host takes.
"""
MEMORY_BYTES = 2 * 1024**3
"""Memory that a task may allocate beyond that of its process when it begins."""

Batch = TypeVar("Batch")


class _Paused(event.Listener):  # type: ignore[misc]
    """Stops the clock while a loop is compiled or loaded, which may take a minute whatever the data."""

    def __init__(self) -> None:
        self._depth = 0
        self._left = 0.0

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """See numba."""
        if self._depth == 0:
            self._left = signal.setitimer(signal.ITIMER_PROF, 0.0)[0]
        self._depth += 1

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        """See numba."""
        self._depth -= 1
        if self._depth == 0:
            signal.setitimer(signal.ITIMER_PROF, self._left)


@contextmanager
def limited_time(cpu_seconds: float = CPU_SECONDS) -> Iterator[None]:
    """Limits the processor time of the process in its block; then SIGPROF ends the process, whatever it executes."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    listener = _Paused()
    try:
        with event.install_listener("numba:compiler_lock", listener):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def each_in_time(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yields the batches, and limits the processor time between each and the next."""
    for batch in batches:
        with limited_time():
            yield batch


@contextmanager
def limited_memory(more_bytes: int = MEMORY_BYTES) -> Iterator[None]:
    """Limits what the process may allocate in its block: more raises MemoryError, or ends the process."""
    if sys.platform != "linux":  # Other systems do not enforce the limit.
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _data_bytes() + more_bytes
    if before[1] != resource.RLIM_INFINITY:
        most = min(most, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """Returns the bytes that RLIMIT_DATA counts (getrlimit(2), since Linux 4.7 including private writable mappings)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_IN_HEAP = 32 * 1024 * 1024  # The most that glibc accepts.
_KEPT = 64 * 1024 * 1024


def keep_freed_memory() -> None:
    """Makes glibc keep freed arrays of some megabytes in the process, at most 64 MiB: every batch of records allocates
    and frees such arrays, and each would otherwise be new memory whose pages the system clears. Other C libraries are
    not changed.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
