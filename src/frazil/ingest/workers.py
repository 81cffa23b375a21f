"""Threads that work while the service plans. A lane takes a few pieces of work at a time; a piece that takes much longer
than it should gives its place to the next, so that a service which hangs holds no place that others wait for.

Everything comes back through one queue, so that only the service's own thread changes tables.
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
from frazil.errors import ConflictError
from frazil.ingest.batch import Planned
from frazil.ingest.failures import TaskFailedError
from frazil.ingest.table import Table
from frazil.spec import TableSpec

COMMIT_THREADS = 4
LOAD_THREADS = 4
# What takes longer than this gives up its place; a job of small batches takes longer than a load or a commit.
SLOW_S = 5.0
SLOW_COMMIT_S = 2.0
# With all that have given up theirs. Every table has at most one piece of work, so that more of them hang only where more
# tables than this need what hangs.
MOST_THREADS = 32


@dataclass(frozen=True)
class FindBatchEnd:
    """The batch of a table with `atomic` whose end is looked for."""

    planned: Planned


@dataclass(frozen=True)
class SearchCrashingRecords:
    """The batch that is searched for records that end tasks, and how it failed."""

    planned: Planned
    error: TaskFailedError


@dataclass(frozen=True)
class LoadTable:
    """The table that the catalog or the registry is asked for, and its state before. conflict: why it is loaded again, where
    a commit was refused.
    """

    table: Table
    before: TableState | None = None
    conflict: ConflictError | None = None


@dataclass(frozen=True)
class ListTopics:
    """Kafka is asked which topics there are."""


@dataclass(frozen=True)
class Done:
    """Finished work: what it was about and its future."""

    about: Any
    future: Future[Any]


_WAKE = Done(None, Future())


class Workers(Protocol):
    """A lane is named for a kind of work, and behind a colon for the service that the work needs, which others do without:
    `small:s3` is another lane than `small:file`.

    `small`, `catch-up`, `batch-end`, `search` and `topics` take one piece of work at a time; `commit`, `load`, `registry`,
    `protoc` several.
    """

    def is_free(self, pool: str) -> bool:
        """Whether work in the lane would begin at once."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way at all."""

    def submit(self, pool: str, about: Any, work: Callable[[], Any]) -> None:
        """Starts `work` in a lane; its end will be answered by `wait` with `about`."""

    def wait(self, timeout_s: float) -> list[Done]:
        """What has finished, at once if something has, else the first that does within the time."""

    def wake(self) -> None:
        """Ends a `wait`. Safe in a signal handler."""

    def close(self, wait: bool = True) -> None:
        """Begins nothing that was not begun, and waits for what is under way, or does not."""


@dataclass(frozen=True)
class PoolLimits:
    """How many pieces of work of a kind are done at a time: `places`, and `most` with those that have taken longer than
    `slow_s`.
    """

    places: int
    most: int
    slow_s: float = SLOW_S


# One job that hangs may be overtaken by another one: each holds a slot of Spark, of which there are two more than cores.
# Catch-ups, searches and looks may take minutes, and wait for each other.
_LIMITS = {
    "small": PoolLimits(1, 2),
    "catch-up": PoolLimits(1, 1),
    "batch-end": PoolLimits(1, 1),
    "search": PoolLimits(1, 1),
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
    """One pool: its threads, which are made as they are needed, and when each piece of work began."""

    limits: PoolLimits
    threads: ThreadPoolExecutor
    clock: Clock
    waiting: deque[tuple[Future[Any], Callable[[], Any]]] = field(default_factory=deque)
    began_s: dict[Future[Any], float] = field(default_factory=dict)

    @property
    def has_place(self) -> bool:
        until_s = self.clock.monotonic_s() - self.limits.slow_s
        quick = sum(began_s > until_s for began_s in self.began_s.values())
        return quick < self.limits.places and len(self.began_s) < self.limits.most

    def begin(self) -> None:
        """Begins as much of what waits as there are places for."""
        while self.waiting and self.has_place:
            future, work = self.waiting.popleft()
            self.began_s[future] = self.clock.monotonic_s()
            self.threads.submit(_do, future, work)


class ThreadWorkers:
    """Lanes that are threads. Of its methods the service's own thread calls all but `wake`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._workers: dict[str, _Pool] = {}

    def is_free(self, pool: str) -> bool:
        """See the protocol."""
        known = self._pool(pool)
        return not known.waiting and known.has_place

    @property
    def is_idle(self) -> bool:
        """See the protocol."""
        return not any(pool.waiting or pool.began_s for pool in self._workers.values())

    def submit(self, pool: str, about: Any, work: Callable[[], Any]) -> None:
        """See the protocol."""
        known, future = self._pool(pool), Future[Any]()
        future.add_done_callback(lambda done: self._done.put(Done((known, about), done)))
        known.waiting.append((future, work))
        known.begin()

    def wait(self, timeout_s: float) -> list[Done]:
        """See the protocol."""
        self._begin()
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
            pool, about = done.about
            del pool.began_s[done.future]
            answers.append(Done(about, done.future))
        self._begin()
        return answers

    def wake(self) -> None:
        """See the protocol."""
        self._done.put(_WAKE)  # Unlike an Event, this queue may be used by the very thread that a signal interrupts.

    def close(self, wait: bool = True) -> None:
        """Ends the threads. Those that are not waited for keep the process alive until their work has ended: whoever gives
        it up ends the JVM that it is done in.
        """
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
    """Does the work, and answers as an executor does: with whatever ends it, also what is no Exception."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001
        future.set_exception(error)


def pool_of(kind: str, table: Table) -> str:
    """The lane for a table's work with its store."""
    return f"{kind}:{store_of(table.state)}"


def registry_pool(spec: TableSpec) -> str:
    """In which lane the registry is asked for a table's schemas: where protoc reads them, it may keep the lane waiting."""
    return "protoc" if "protobuf" in (spec.value.format, spec.key.format) else "registry"


def store_of(state: TableState | None) -> str:
    """The store of a table's files, as far as one may hang while others do not: its endpoint, where the catalog or the file
    names one, else the scheme of its address, with the host where that is no bucket. Empty while there is no table.
    """
    if state is None:
        return ""
    address = urlsplit(state.location)
    scheme = _ALIASES.get(address.scheme, address.scheme) or "file"
    named = f"{scheme}.endpoint", f"{scheme}.service.host"
    endpoint = next((state.io_properties[name] for name in named if name in state.io_properties), "")
    host = "" if scheme in _WITH_BUCKETS else address.netloc.rpartition("@")[2]
    return f"{scheme}:{endpoint or host}".rstrip(":")
