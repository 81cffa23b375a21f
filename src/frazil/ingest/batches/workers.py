"""Threads that work while the service plans, in pools for kinds of work.

A pool does a few pieces of work at a time. A piece that takes much longer than it should no longer counts, so that a
service which hangs delays no work on other services. All results return through one queue, so that only the service's
own thread changes tables.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from frazil.catalog.port import TableState
from frazil.clock import Clock, SystemClock
from frazil.ingest.tables.table import Table
from frazil.spec import TableSpec

COMMIT_THREADS = 4
LOAD_THREADS = 4
# Work that takes longer than this no longer counts against its pool's places; a job of small batches takes longer than a
# load or a commit.
SLOW_S = 5.0
SLOW_COMMIT_S = 2.0
# The largest number of threads of a pool, including slow work. Every table has at most one piece of work, so that the
# limit is reached only where more tables than this need a service that hangs.
MOST_THREADS = 32


@dataclass(frozen=True)
class Done:
    """Finished work."""

    #: The function that takes the result, with which the work was submitted; returns True where nothing follows from it.
    then: Any
    #: The finished future.
    future: Future[Any]


class Workers(Protocol):
    """Pools of threads. A pool is named after its kind of work and, behind a colon, the service that only this work
    needs: `small:s3` is another pool than `small:file`.

    `small`, `taken`, `catch-up`, `batch-end`, `search`, `warm-up` and `topics` do one piece of work at a time;
    `commit`, `load`, `registry` and `protoc` several.
    """

    def is_free(self, pool: str) -> bool:
        """Whether work in the pool would begin at once."""

    @property
    def is_idle(self) -> bool:
        """Whether no work is running or queued."""

    def submit(self, pool: str, then: Callable[[Future[Any]], bool | None], work: Callable[[], Any]) -> None:
        """Queues `work` in a pool; `wait` returns its end together with `then`."""

    def wait(self, timeout_s: float) -> list[Done]:
        """Returns finished work: at once where there is some, else the first that finishes within the time."""

    def wake(self) -> None:
        """Ends a `wait`. Safe in a signal handler."""

    def close(self, wait: bool = True) -> None:
        """Discards queued work, and waits for running work where `wait` is set."""


@dataclass(frozen=True)
class PoolLimits:
    """The number of pieces of work that a pool does at a time."""

    #: The number of pieces that have not taken longer than `slow_s`.
    places: int
    #: The number of all pieces.
    most: int
    #: Seconds after which a piece no longer counts against `places`.
    slow_s: float = SLOW_S


# A second job may run while one hangs: each holds a slot of Spark, which has two more slots than cores. Catch-ups, searches
# and searches for the end of a batch may take minutes, and wait for each other.
_LIMITS = {
    "small": PoolLimits(1, 2),
    "taken": PoolLimits(1, 1),
    "catch-up": PoolLimits(1, 1),
    "batch-end": PoolLimits(1, 1),
    "search": PoolLimits(1, 1),
    "warm-up": PoolLimits(1, 1),
    "topics": PoolLimits(1, 1),
    "commit": PoolLimits(COMMIT_THREADS, MOST_THREADS, SLOW_COMMIT_S),
    "load": PoolLimits(LOAD_THREADS, MOST_THREADS, SLOW_COMMIT_S),
    "registry": PoolLimits(LOAD_THREADS, LOAD_THREADS),
    "protoc": PoolLimits(LOAD_THREADS, LOAD_THREADS),
}


_ALIASES = {"s3a": "s3", "s3n": "s3", "gs": "gcs", "abfss": "abfs"}
_WITH_BUCKETS = {"s3", "gcs"}


@dataclass
class _Pool:
    """One pool of threads, which are started as they are needed."""

    #: How many pieces of work may run.
    limits: PoolLimits
    #: The threads.
    threads: ThreadPoolExecutor
    #: The clock.
    clock: Clock
    #: Queued work.
    waiting: deque[tuple[Future[Any], Callable[[], Any]]] = field(default_factory=deque)
    #: When each running piece of work began, on the monotonic clock in seconds.
    began_s: dict[Future[Any], float] = field(default_factory=dict)

    @property
    def has_place(self) -> bool:
        """Whether another piece of work may start."""
        until_s = self.clock.monotonic_s() - self.limits.slow_s
        quick = sum(began_s > until_s for began_s in self.began_s.values())
        return quick < self.limits.places and len(self.began_s) < self.limits.most

    def begin(self) -> None:
        """Starts queued work while there are places."""
        while self.waiting and self.has_place:
            future, work = self.waiting.popleft()
            self.began_s[future] = self.clock.monotonic_s()
            self.threads.submit(_do, future, work)


class ThreadWorkers:
    """Worker pools of threads. Only the service's own thread calls its methods, except `wake`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        # None ends a `wait` without finished work.
        self._done: queue.SimpleQueue[tuple[_Pool, Done] | None] = queue.SimpleQueue()
        self._workers: dict[str, _Pool] = {}

    def is_free(self, pool: str) -> bool:
        """See the protocol."""
        workers = self._pool(pool)
        return not workers.waiting and workers.has_place

    @property
    def is_idle(self) -> bool:
        """See the protocol."""
        return not any(pool.waiting or pool.began_s for pool in self._workers.values())

    def submit(self, pool: str, then: Any, work: Callable[[], Any]) -> None:
        """See the protocol."""
        workers, future = self._pool(pool), Future[Any]()
        future.add_done_callback(lambda done: self._done.put((workers, Done(then, done))))
        workers.waiting.append((future, work))
        workers.begin()

    def wait(self, timeout_s: float) -> list[Done]:
        """See the protocol."""
        self._begin()
        finished: list[Done] = []
        try:
            ended = self._done.get(timeout=max(0.0, timeout_s))
            while True:
                if ended is not None:
                    pool, done = ended
                    del pool.began_s[done.future]
                    finished.append(done)
                ended = self._done.get_nowait()
        except queue.Empty:
            pass
        self._begin()
        return finished

    def wake(self) -> None:
        """See the protocol."""
        self._done.put(None)  # Unlike an Event, this queue may be used by the very thread that a signal interrupts.

    def close(self, wait: bool = True) -> None:
        """Ends the threads. Those not waited for keep the process alive until the caller ends the JVM."""
        for pool in self._workers.values():
            pool.waiting.clear()
            pool.threads.shutdown(wait=wait)

    def _begin(self) -> None:
        for pool in self._workers.values():
            pool.begin()

    def _pool(self, name: str) -> _Pool:
        if name not in self._workers:
            limits = _LIMITS[name.partition(":")[0]]
            self._workers[name] = _Pool(limits, ThreadPoolExecutor(limits.most, name), self._clock)
        return self._workers[name]


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    """Does the work and completes the future as an executor does: with any BaseException that ends it."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001
        future.set_exception(error)


def pool_of(kind: str, table: Table) -> str:
    """Returns the pool for a table's work with its store."""
    return f"{kind}:{store_of(table.state)}"


def registry_pool(spec: TableSpec) -> str:
    """Returns the pool for requests of a table's schemas: one of its own where protoc reads them, which may be slow."""
    return "protoc" if "protobuf" in (spec.source.value.format, spec.source.key.format) else "registry"


def store_of(state: TableState | None) -> str:
    """Returns the name of the store of a table's files, as far as stores may hang separately: its endpoint, where the
    catalog or the pipeline file has one, else the scheme of its address, with the host where it is no bucket. Empty
    without a table.
    """
    if state is None:
        return ""
    address = urlsplit(state.location)
    scheme = _ALIASES.get(address.scheme, address.scheme) or "file"
    named = f"{scheme}.endpoint", f"{scheme}.service.host"
    endpoint = next((state.io_properties[name] for name in named if name in state.io_properties), "")
    host = "" if scheme in _WITH_BUCKETS else address.netloc.rpartition("@")[2]
    return f"{scheme}:{endpoint or host}".rstrip(":")
