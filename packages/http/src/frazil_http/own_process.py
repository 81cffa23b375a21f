"""What Linux knows of this process, as the metrics that Prometheus's clients have of every process; none elsewhere."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_OWN = Path("/proc/self")


class OwnMetric(NamedTuple):
    """A metric of this process, with its value."""

    name: str
    #: `gauge` or `counter`.
    kind: str
    help: str
    value: float


def own_metrics() -> Iterator[OwnMetric]:
    """Yields memory, start, processor time and open files, as far as they can be read (proc(5))."""
    with suppress(OSError, StopIteration):
        fields = (_OWN / "stat").read_bytes().rpartition(b")")[2].split()
        lines = Path("/proc/stat").read_bytes().splitlines()
        boot_s = next(float(line.split()[1]) for line in lines if line.startswith(b"btime "))
        user_s, system_s, started_s = (float(fields[n]) / os.sysconf("SC_CLK_TCK") for n in (11, 12, 19))
        resident = float(fields[21]) * resource.getpagesize()
        yield OwnMetric("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", float(fields[20]))
        yield OwnMetric("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident)
        words = "Start time of the process since unix epoch in seconds."
        yield OwnMetric("process_start_time_seconds", "gauge", words, boot_s + started_s)
        words = "Total user and system CPU time spent in seconds."
        yield OwnMetric("process_cpu_seconds_total", "counter", words, user_s + system_s)
    with suppress(OSError):
        count, limit = len(list((_OWN / "fd").iterdir())), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield OwnMetric("process_open_fds", "gauge", "Number of open file descriptors.", float(count))
        yield OwnMetric("process_max_fds", "gauge", "Maximum number of open file descriptors.", float(limit))
