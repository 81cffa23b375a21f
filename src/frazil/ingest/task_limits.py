"""Limits of memory and processor time for what one piece of a task costs, so that a record that takes without end fails its
task and not the machine. See `isolate` for what follows.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core import event

CPU_SECONDS = 20.0
"""Processor time for one Arrow batch of a task. A batch of 100 MB takes about 2 s, on a machine that is shared with others
several times that: a guest's clock counts what the host takes from it.
"""
MEMORY_BYTES = 2 * 1024**3
"""What a task may take beyond what its process has when it begins."""


class _Paused(event.Listener):  # type: ignore[misc]
    """Stops the clock while a loop is compiled or loaded: a minute where no compiled form is on disk, whatever the data."""

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
    """In its block the process may use so much processor time; then SIGPROF ends it, whatever it is in."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    listener = _Paused()
    try:
        with event.install_listener("numba:compiler_lock", listener):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


@contextmanager
def limited_memory(more_bytes: int = MEMORY_BYTES) -> Iterator[None]:
    """In its block the process may take so much more memory: what asks for more gets a MemoryError, or ends the process."""
    if sys.platform != "linux":  # Elsewhere the limit is not kept to.
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
    """What RLIMIT_DATA counts of this process (getrlimit(2), since Linux 4.7 private writable mappings too)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
