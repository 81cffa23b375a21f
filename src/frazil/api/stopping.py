"""How a run is stopped: by a signal, or by a call from another thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import structlog

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
