"""The machine of a run: what it is, what else it was doing, how fast it was just then, and what time it is."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.settings import CHECKOUT
from frazil.clock import SystemClock

CLOCK = SystemClock()
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
_SAMPLE_S = 1.5
_PACKAGES = (
    "frazil",
    "pyspark",
    "pyarrow",
    "pyiceberg",
    "pyiceberg-core",
    "confluent-kafka",
    "numpy",
    "numba",
    "duckdb",
)


def now_s() -> float:
    """Seconds since the epoch, to the millisecond: comparable with snapshot timestamps."""
    return CLOCK.now_ms() / 1000


def adopt_orphans() -> None:
    """Makes this process the parent of what its children leave behind (a JVM that outlives its driver).

    Until it is reaped, an orphan's CPU time stays readable below this process instead of vanishing with init.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def busy_s() -> float:
    """CPU seconds that the whole machine has spent working, waiting and idling excluded."""
    fields = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _io_wait, irq, soft_irq, _steal = fields
    return (user + nice + system + irq + soft_irq) / _TICKS_PER_S


def wait_until_quiet(limit_cores: float, patience_s: float) -> float:
    """Waits until the machine uses fewer than `limit_cores`, but no longer than `patience_s`; what it used at last."""
    deadline = CLOCK.monotonic_s() + patience_s
    while True:
        before, started = busy_s(), CLOCK.monotonic_s()
        CLOCK.sleep(_SAMPLE_S)
        used = (busy_s() - before) / (CLOCK.monotonic_s() - started)
        if used < limit_cores or CLOCK.monotonic_s() > deadline:
            return round(used, 3)


def speed_mb_per_s() -> float:
    """How many MB/s of zlib all cores do together over half a second: a shared host's speed moves between runs."""
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        return round(sum(pool.map(lambda _: _compress_for(0.5), range(cores))), 1)


def _compress_for(seconds: float) -> float:
    block, count, started = bytes(range(256)) * 4096, 0, CLOCK.monotonic_s()
    while CLOCK.monotonic_s() - started < seconds:
        zlib.compress(block, 1)
        count += 1
    return count * len(block) / 1e6 / (CLOCK.monotonic_s() - started)


def describe() -> dict[str, object]:
    """The machine and the versions, without anything that names its owner."""
    return {
        "cpu": _first_value("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_gib": round(int(_first_value("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _first_line("java", "-version"),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "commit": _first_line("git", "-C", str(CHECKOUT), "rev-parse", "--short", "HEAD"),
    }


def _first_value(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "0")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return ((done.stdout or done.stderr).splitlines() or [""])[0].strip()
