"""A run of a pipeline, and how it is stopped: by a signal, or by a call from another thread.

The JVM starts first, and `running.py`, with most of Frazil, is imported while it does.
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from frazil.api.redaction import Redaction
from frazil.api.results import RunResult
from frazil.runtime.properties import running_jvm
from frazil.spec import PipelineSpec

log = structlog.get_logger("frazil")


class NothingInHand(BaseException):
    """Stopped before there is anything to finish, or without what is in hand. It is not an Exception, so that handlers of
    errors let it pass.
    """


class Stopping:
    """Handles SIGTERM, Ctrl-C and requests.

    While there is nothing to finish (jars are fetched, the JVM starts, the catalog is opened or waited for), a signal
    interrupts whatever runs: it raises NothingInHand. Afterwards it requests a stop.
    """

    def __init__(self, grace_s: float | None = None, handles_signals: bool = True) -> None:
        """Starts to handle signals, in the main thread. handles_signals: False for a run that only calls stop."""
        self.grace_s = grace_s
        self.is_set = False
        #: Whether it was requested a second time, or has exceeded `grace_s`.
        self.is_urgent = False
        self._stop: Callable[[], None] | None = None
        #: Returns the tables as they are; none before they are known.
        self.tables: Callable[[], Sequence[Any]] = tuple
        if handles_signals and threading.current_thread() is threading.main_thread():
            for kind in (signal.SIGTERM, signal.SIGINT):
                signal.signal(kind, self._on_signal)
            signal.signal(signal.SIGALRM, self._on_end_of_grace)

    def then(self, stop: Callable[[], None], tables: Callable[[], Sequence[Any]] = tuple) -> None:
        """Makes a signal call `stop` from now on; calls it at once after a signal whose exception got lost, as in a
        finalizer. tables: returns them as they are.
        """
        self._stop, self.tables = stop, tables
        if self.is_set:
            stop()

    def request(self) -> None:
        """Requests a stop from another thread: running work is finished and committed."""
        self.is_set = True
        if self._stop is not None:
            self._stop()

    def _on_signal(self, *_: object) -> None:
        if self.is_set:
            self.is_urgent = True
            raise KeyboardInterrupt
        self.is_set = True
        if self._stop is None:
            raise NothingInHand
        if self.grace_s is not None:
            signal.setitimer(signal.ITIMER_REAL, max(self.grace_s, 0.001))
        self._stop()

    def _on_end_of_grace(self, *_: object) -> None:
        self.is_urgent = True
        log.warning("grace_period_exceeded", grace_s=self.grace_s)
        raise NothingInHand


CAUGHT_UP_TIMEOUT_S = 300.0
"""How long a run until it has caught up waits for services, by default."""
_RUNNING = "frazil.api.running"


@dataclass(frozen=True)
class Limits:
    """When a run ends by itself."""

    #: How long the run waits for services that do not answer until it has caught up; None for a run without an end.
    wait_s: float | None = None
    #: Whether topics that do not exist are waited for as long.
    awaits_topics: bool = False

    @property
    def until_caught_up(self) -> bool:
        """Whether the run ends when it has read up to the ends of the topics as they were at its start."""
        return self.wait_s is not None


def run_pipeline(
    spec: PipelineSpec,
    redaction: Redaction,
    stopping: Stopping,
    limits: Limits,
    note: Callable[[str], None] = lambda _: None,
    load: Callable[[str], Any] = importlib.import_module,
) -> RunResult:
    """Runs a pipeline until it is stopped, or until everything that was there at the start is committed. note: receives
    how far the run is. load: imports a module.

    Raises: the errors of `Service.run`.
    """
    log.info("starting", pipeline=spec.pipeline, master=spec.spark.master)
    try:
        with running_jvm(spec, lambda: load(_RUNNING), limits.wait_s) as jvm:
            tables = load(_RUNNING).run(spec, redaction, jvm, stopping, limits, note)
        result: RunResult = load(_RUNNING).result_of(tables, limits.until_caught_up)
    except NothingInHand:
        tables = stopping.tables()
        if not tables:
            return RunResult(is_early=True)
        result = load(_RUNNING).result_of(tables, until_caught_up=False)
    return result
