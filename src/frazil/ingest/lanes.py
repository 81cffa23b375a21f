"""Threads that work while the service plans: one lane for small batches, one for catch-ups, one that looks where
transactions end, one that searches for records which end tasks, a few threads for commits, and for waits for the registry
and for protoc a few of their own: what one service keeps waiting must hold no thread that a table without it needs.

Everything comes back through one queue, so that only the service's own thread changes tables.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

COMMIT_THREADS = 4
ASKING_THREADS = 4


@dataclass(frozen=True)
class Done:
    """Finished work: what it was about and its future."""

    about: Any
    future: Future[Any]


_WAKE = Done(None, Future())


class Lanes(Protocol):
    """`small`, `catch-up`, `look` and `search` take one piece of work at a time; `commit`, `registry`, `protoc` several."""

    def is_free(self, lane: str) -> bool:
        """Whether nothing is under way in the lane."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way at all."""

    def submit(self, lane: str, about: Any, work: Callable[[], Any]) -> None:
        """Starts `work` in a lane; its end will be answered by `wait` with `about`."""

    def wait(self, timeout_s: float) -> list[Done]:
        """What has finished, at once if something has, else the first that does within the time."""

    def wake(self) -> None:
        """Ends a `wait`. Safe in a signal handler."""

    def close(self, wait: bool = True) -> None:
        """Waits for what is under way; or does not, and begins nothing that was not begun."""


class ThreadLanes:
    """Lanes that are threads."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._executors = {
            "small": ThreadPoolExecutor(1, "small"),
            "catch-up": ThreadPoolExecutor(1, "catch-up"),
            "commit": ThreadPoolExecutor(COMMIT_THREADS, "commit"),
            "look": ThreadPoolExecutor(1, "look"),
            "search": ThreadPoolExecutor(1, "search"),
            "registry": ThreadPoolExecutor(ASKING_THREADS, "registry"),
            "protoc": ThreadPoolExecutor(ASKING_THREADS, "protoc"),
        }
        self._under_way = dict.fromkeys(self._executors, 0)

    def is_free(self, lane: str) -> bool:
        """See the protocol."""
        return self._under_way[lane] == 0

    @property
    def is_idle(self) -> bool:
        """See the protocol."""
        return not any(self._under_way.values())

    def submit(self, lane: str, about: Any, work: Callable[[], Any]) -> None:
        """See the protocol."""
        self._under_way[lane] += 1
        future = self._executors[lane].submit(work)
        future.add_done_callback(lambda done: self._done.put(Done((lane, about), done)))

    def wait(self, timeout_s: float) -> list[Done]:
        """See the protocol."""
        finished: list[Done] = []
        try:
            finished.append(self._done.get(timeout=max(0.0, timeout_s)))
            while True:
                finished.append(self._done.get_nowait())
        except queue.Empty:
            pass
        answers = []
        for done in finished:
            if done is _WAKE:
                continue
            lane, about = done.about
            self._under_way[lane] -= 1
            answers.append(Done(about, done.future))
        return answers

    def wake(self) -> None:
        """See the protocol."""
        self._done.put(_WAKE)  # Unlike an Event, this queue may be used by the very thread that a signal interrupts.

    def close(self, wait: bool = True) -> None:
        """Ends the threads. Those that are not waited for keep the process alive until their work has ended: whoever gives
        it up ends the JVM that it is done in.
        """
        for executor in self._executors.values():
            executor.shutdown(wait=wait, cancel_futures=not wait)
