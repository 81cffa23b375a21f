"""What the soaks share: how long they are, and lives of a pipeline that end at no step in particular.

A soak is as long as its test has it, unless the variable FRAZIL_SOAK_SECONDS has another time.
"""

from __future__ import annotations

import os
import signal
import zlib
from contextlib import suppress

from frazil.clock import SystemClock
from tests.acceptance.running import Run


def soak_s(usual_s: float) -> float:
    """How long a soak is to be."""
    return float(os.environ.get("FRAZIL_SOAK_SECONDS", usual_s))


def rng(seed: int, number: int, below: int) -> int:
    """The same for the same seed."""
    return zlib.crc32(f"{seed} {number}".encode()) % below


def live_on(run: Run, seconds: float) -> None:
    """Lets the run live for so long; it may end before."""
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + seconds
    with suppress(AssertionError):
        run.wait_while_running(lambda: clock.monotonic_s() > deadline_s, "its time has come")


def die(run: Run, turn: int, *codes: int) -> None:
    """SIGKILL for the driver's Python, its JVM or both, in turns, unless it has died already, or ended with such a code."""
    if run.is_running:
        # One that a later run has beaten ends its JVM first.
        python, jvm = [run.pid], [pid for pid in [run.find_jvm()] if pid is not None]
        chosen = [[*python, *jvm], python, jvm][turn % 3]
        with suppress(ProcessLookupError):
            if chosen:
                run.kill(*chosen)
    assert run.wait() in (1, -signal.SIGKILL, *codes), run.tail()
    run.close()
