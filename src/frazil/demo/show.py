"""Watches the demo until everything sent has arrived: redrawn in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import signal
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from frazil.clock import Clock
from frazil.demo.frames import Frame, Watcher
from frazil.demo.session import Session
from frazil.demo.view import DONE, draw, line
from frazil.errors import UnavailableError

_REDRAW_S = 0.25
_WRITE_EVERY_S = 5.0
_PATIENCE_S = 180.0


class Show:
    """Runs the demo's live view. write_line: writes a line for people."""

    def __init__(self, session: Session, clock: Clock, write_line: Callable[[str], None]) -> None:
        #: The last frame while producers and pipeline both worked.
        self.best: Frame | None = None
        self._session = session
        self._clock = clock
        self._write_line = write_line
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._written_at_s = float("-inf")
        self._watcher = Watcher(session, clock)
        self._signals = 0

    def listen(self) -> None:
        """Makes Ctrl-C, SIGTERM and a closed terminal end the show and not the process, from now on."""
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(kind, self._on_signal)

    def run(self) -> None:
        """Returns when everything sent has arrived: after the producers' last record, or after the first signal, which
        stops them. The next signal ends the waiting too.

        Raises: UnavailableError where a part fails.
        """
        if not self._console.is_terminal:
            self._run()
            return
        with Live(console=self._console, auto_refresh=False, screen=False) as self._live:
            self._run()

    def _run(self) -> None:
        self._until("running", lambda: self._signals > 0 or self._session.producers.is_done)
        self._session.producers.stop()
        asked = self._signals
        self._until("reading the last records", lambda: self._signals > asked or self._session.has_arrived())
        self._show(DONE, is_last=True)

    def _until(self, phase: str, is_over: Callable[[], bool]) -> None:
        moved_at_s, rows = self._clock.monotonic_s(), -1
        while not is_over():
            frame = self._show(phase)
            self._session.check()
            arrived = sum(row.rows for row in frame.rows)
            if arrived != rows:
                moved_at_s, rows = self._clock.monotonic_s(), arrived
            elif self._clock.monotonic_s() - moved_at_s > _PATIENCE_S:
                message = f"no row has arrived for {_PATIENCE_S:.0f} s"
                raise UnavailableError(message, remedy="read the pipeline's log", where=str(self._session.log))
            self._clock.sleep(_REDRAW_S)

    def _show(self, phase: str, is_last: bool = False) -> Frame:
        is_up = bool(self._session.state())
        if is_up and not self._signals:
            self._session.producers.start()
        is_warm = any(
            (table.get("size") or {}).get("row_count") for table in self._session.state().get("tables", {}).values()
        )
        words = phase if is_warm else "the first batch is on its way" if is_up else "the pipeline is starting"
        frame = self._watcher.frame(words)
        if all(row.rows for row in frame.rows) and phase == "running":
            self._session.producers.let_late_events_go()
            self.best = frame
        now_s = self._clock.monotonic_s()
        if self._live is not None:
            self._live.update(draw(frame), refresh=True)
        elif is_last or now_s - self._written_at_s >= _WRITE_EVERY_S:
            self._written_at_s = now_s
            self._write_line(line(frame))
        return frame

    def _on_signal(self, *_: object) -> None:
        self._signals += 1
