"""One destination of telemetry, with a bounded queue and a thread of its own: a service that is away, hangs or refuses costs
the loop nothing. What could not be sent is counted, and logged once until something can be sent again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from queue import Empty, Full, Queue
from typing import Protocol

import structlog

from frazil.ingest.ended_batch import EndedBatch

log = structlog.get_logger("frazil")

MOST_WAITING = 2048
"""The most batches that wait to be sent."""
LONGEST_DELAY_S = 10.0
"""How long a sender waits for the first batch before it loads its libraries, which would delay the first commit."""


_CREDENTIALS = re.compile(r"(?<=//)[^/\s@]+@")
"""Of an address that a variable has: HTTP clients quote it."""


class Outlet(Protocol):
    """Turns batches into requests, and sends them."""

    #: Requests that succeeded.
    sent: int
    #: Batches of which nothing was sent, and no later request has them.
    dropped: int

    def send(self, batches: Sequence[EndedBatch], is_last: bool) -> None:
        """Sends what the batches give, and whatever else is due. is_last: the process ends after it.

        Raises: any error, with the reason as its text.
        """

    def interrupt(self) -> None:
        """Makes a request that hangs return soon; may be called by another thread."""


class Sender:
    """Sends batches to one destination."""

    def __init__(self, name: str, open_outlet: Callable[[], Outlet], every_s: float) -> None:
        """Stores the settings. open_outlet: loads the libraries, in the sender's thread. every_s: the pause between two
        turns.
        """
        self.name = name
        self._open_outlet = open_outlet
        self._every_s = every_s
        self._queue: Queue[EndedBatch] = Queue(MOST_WAITING)
        self._has_first = threading.Event()
        self._is_ended = threading.Event()
        self._outlet: Outlet | None = None
        self._is_failing = False
        #: Requests that failed.
        self.failed = 0
        self._refused = 0
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def sent(self) -> int:
        """Requests that succeeded."""
        return self._outlet.sent if self._outlet is not None else 0

    @property
    def dropped(self) -> int:
        """Batches of which nothing was sent."""
        return self._refused + (self._outlet.dropped if self._outlet is not None else 0)

    def take(self, batch: EndedBatch) -> None:
        """Takes a batch at once; drops it where too many wait."""
        try:
            self._queue.put_nowait(batch)
        except Full:
            self._refused += 1
        self._has_first.set()

    def stop(self, timeout_s: float) -> None:
        """Sends what waits, for at most so many seconds."""
        self._is_ended.set()
        self._has_first.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            if self._outlet is not None:
                self._outlet.interrupt()
            log.warning("telemetry_unsent", destination=self.name, batches=self._queue.qsize(), waited_s=timeout_s)

    def _run(self) -> None:
        self._has_first.wait(LONGEST_DELAY_S)
        is_last = False
        while not is_last:
            is_last = self._is_ended.wait(self._every_s)
            batches = self._waiting()
            sent = self.sent
            try:
                self._outlet = self._outlet or self._open_outlet()
                self._outlet.send(batches, is_last)
            except Exception as error:  # noqa: BLE001  (whatever is wrong with telemetry, the pipeline runs)
                self._note_failure(error)
            else:
                if self.sent > sent:
                    self._note_success()

    def _waiting(self) -> list[EndedBatch]:
        found = list[EndedBatch]()
        while len(found) < MOST_WAITING:
            try:
                found.append(self._queue.get_nowait())
            except Empty:
                break
        return found

    def _note_failure(self, error: Exception) -> None:
        self.failed += 1
        if not self._is_failing:
            remedy = "check that the service runs at its address; the pipeline is not affected"
            log.warning(
                "telemetry_failed", destination=self.name, reason=_CREDENTIALS.sub("", str(error)), remedy=remedy
            )
        self._is_failing = True

    def _note_success(self) -> None:
        if self._is_failing:
            log.info("telemetry_sent_again", destination=self.name, dropped_batches=self.dropped)
        self._is_failing = False
