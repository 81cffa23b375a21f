"""A line on a terminal that shows what a command is doing, from its third second on.

It is the last line of standard error: whatever else is written there, or to standard output, calls `hide` first.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TextIO

from frazil.clock import Clock, SystemClock

_DELAY_S = 2.0
_EVERY_S = 0.25
_SIGNS = "|/-\\"
_ERASE = "\r\x1b[K"
_NARROWEST = 20


class ProgressLine:
    """Shows what is being done, and for how long, until it ends. Any thread may call it."""

    def __init__(self, stream: TextIO, clock: Clock | None = None, delay_s: float = _DELAY_S) -> None:
        """Starts to wait. stream: a terminal. delay_s: how long nothing is shown."""
        self._stream = stream
        self._clock = clock or SystemClock()
        self._began_s = self._clock.monotonic_s()
        self._delay_s = delay_s
        self._lock = threading.RLock()
        self._doing = "working"
        self._is_shown = False
        self._drawn = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw_until_over, name="progress", daemon=True)
        self._thread.start()

    def show(self, doing: str) -> None:
        """Shows this from now on. doing: a few words on one line."""
        self._doing = " ".join(doing.split())

    def hide(self) -> None:
        """Erases the line, until it is drawn again."""
        with self._lock:
            if self._is_shown:
                self._write(_ERASE)
                self._is_shown = False

    def end(self) -> None:
        """Erases the line for good."""
        self._over.set()
        self._thread.join()
        self.hide()

    def _draw_until_over(self) -> None:
        wait_s = self._delay_s
        while not self._over.wait(wait_s):
            wait_s = _EVERY_S
            with self._lock:
                self._write(_ERASE + self._text())
                self._is_shown = True

    def _text(self) -> str:
        seconds = self._clock.monotonic_s() - self._began_s
        self._drawn += 1
        end, width = f" ({seconds:.0f} s)", max(self._width() - 1, _NARROWEST)
        return f"{_SIGNS[self._drawn % len(_SIGNS)]} {self._doing}"[: width - len(end)] + end

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # A terminal that is gone shows nothing.
            self._stream.write(text)
            self._stream.flush()
