"""Loads Java tables, and ends the load of a table whose metadata file cannot be read.

Iceberg tries to read a metadata file 20 times, for 90 seconds, and has no setting for that. It logs the file's name and why
each try failed, with the name of the Java thread. Each load runs on a Java thread of its own, as an interrupt must reach
nothing else: a thread of py4j's would be interrupted in the next call, too.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError

from frazil.catalog.iceberg.data_files import MethodHandles
from frazil.catalog.iceberg.java import causes_of, is_named, java_errors, message_of, unreadable_metadata
from frazil.clock import SystemClock, new_id

_ICEBERG = "org.apache.iceberg"
# Loggers of Iceberg's: the first names the file that is read, the second a try that has failed.
_LOGGERS = (f"{_ICEBERG}.BaseMetastoreTableOperations", f"{_ICEBERG}.util.Tasks")
_LINE = re.compile(
    r"^(?P<thread>[^\t\n]+)\t(?:Refreshing table metadata from new version: (?P<file>.*)"
    r"|Retrying task after failure: (?:sleepTimeMs=\d+ )?(?P<failure>.*))$",
    re.M,
)
# Iceberg pauses for 0.1, 0.4, 1.6 and then 5 seconds. A client of a store has tries of its own, which may take seconds.
_TRIES = 4
_LONGEST_S = 5.0
_LOOKS_EVERY_MS = 500
_ENDS_WITHIN_MS = 500
# Commits log the files that they read, too: what was logged is taken at least so often while tables are loaded.
_TAKEN_EVERY_S = 60.0


class Loads:
    """Loads the tables of a Java catalog in the JVM behind py4j's `gateway`. Several threads may call it.

    A load raises UnavailableError where a metadata file cannot be read in a few tries, or in a few seconds with one, and in
    one try where the previous load of the table has ended so; otherwise it raises as Java does.
    """

    def __init__(self, gateway: Any, catalog: Any) -> None:
        self._gateway, self._catalog = gateway, catalog
        self._threads = _threads_of(gateway)
        self._handles, self._clock = MethodHandles(gateway), SystemClock()
        self._milliseconds = gateway.jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        #: By table the operations that are refreshed, None for a load, and the Java Callable that does it.
        self._callables: dict[str, tuple[Any, Any]] = {}
        #: By table why its last load has ended early.
        self._abandoned: dict[str, _Abandoned] = {}

    def load(self, table: str, identifier: Any) -> Any:
        """Returns a Java table, fresh from the catalog. Under a name that no table has, `n.order.history`, Iceberg loads
        metadata of the table `n.order`: that is not a table.
        """
        operations, load = self._callables.get(table, (None, None))
        if load is None or operations is not None:
            load = self._handles.instance(
                self._callable, self._handles.bound(self._loading, 0, self._catalog, identifier)
            )
            self._callables[table] = (None, load)
        java = self._result(table, load)
        if is_instance_of(self._gateway, java, f"{_ICEBERG}.BaseMetadataTable"):
            message, jvm = "only metadata of another table has this name", self._gateway.jvm
            absent = jvm.org.apache.iceberg.exceptions.NoSuchTableException(
                message, self._gateway.new_array(jvm.Object, 0)
            )
            raise Py4JJavaError(message, absent)
        return java

    def refresh(self, table: str, operations: Any) -> Any:
        """Returns the metadata of a table, fresh from the catalog. operations: of its Java table."""
        cached, refresh = self._callables.get(table, (None, None))
        if cached is not operations:
            refresh = self._handles.instance(self._callable, self._refreshing.bindTo(operations))
            self._callables[table] = (operations, refresh)
        return self._result(table, refresh)

    def _result(self, table: str, call: Any) -> Any:
        """Returns the result of a Java Callable that loads the table."""
        last = self._abandoned.get(table)
        # A table has at most one such thread, which notices the interrupt within milliseconds unless it waits for a store.
        if last is not None and not last.thread.executor.awaitTermination(_ENDS_WITHIN_MS, self._milliseconds):
            raise unreadable_metadata(last.failure, last.file, table)
        thread, log = self._threads.take(), self._threads.log
        reading, future = log.follow(thread.name), thread.executor.submit(call)
        late_s = self._clock.monotonic_s() + _LONGEST_S
        try:
            while True:
                with suppress(TimeoutError):
                    loaded = self._get(future)
                    break
                log.take()
                is_late = last is not None or self._clock.monotonic_s() >= late_s
                if len(reading.failures) >= (1 if is_late else _TRIES):
                    thread.executor.shutdownNow()
                    self._abandoned[table] = _Abandoned(thread, reading.file, reading.failures[-1])
                    raise unreadable_metadata(reading.failures[-1], reading.file, table)
        except java_errors():
            self._threads.give_back(thread)
            raise
        finally:
            log.forget(thread.name)
        self._threads.give_back(thread)
        self._abandoned.pop(table, None)
        return loaded

    def _get(self, future: Any) -> Any:
        """Returns the result of a Java future, or raises its exception. Raises TimeoutError where it has not ended."""
        try:
            return future.get(_LOOKS_EVERY_MS, self._milliseconds)
        except java_errors() as error:
            if is_named(error, "TimeoutException"):
                raise TimeoutError from None
            raise Py4JJavaError(message_of(error), causes_of(error)[1]) from None

    @cached_property
    def _callable(self) -> Any:
        return self._handles.class_of("java.util.concurrent.Callable")

    @cached_property
    def _loading(self) -> Any:
        names = "catalog.Catalog", "Table", "catalog.TableIdentifier"
        catalog, table, identifier = (self._handles.class_of(f"{_ICEBERG}.{name}") for name in names)
        return self._handles.virtual(catalog, "loadTable", table, identifier)

    @cached_property
    def _refreshing(self) -> Any:
        operations, metadata = (
            self._handles.class_of(f"{_ICEBERG}.{name}") for name in ("TableOperations", "TableMetadata")
        )
        return self._handles.virtual(operations, "refresh", metadata)


@dataclass(frozen=True)
class _Thread:
    """A Java thread that loads one table at a time."""

    #: The Java executor, whose only thread it is.
    executor: Any
    #: Its name in Java.
    name: str


@dataclass(frozen=True)
class _Abandoned:
    """A load that has ended early."""

    #: The thread, which ends once it has noticed the interrupt.
    thread: _Thread
    #: The metadata file.
    file: str
    #: Why it could not be read.
    failure: str


@dataclass
class _Reading:
    """What Iceberg has logged of a metadata file that it reads."""

    #: The file's name; empty before Iceberg reads one.
    file: str = ""
    #: Why each try failed: the first line.
    failures: list[str] = field(default_factory=list)


@lru_cache(maxsize=1)
def _threads_of(gateway: Any) -> _Threads:
    """Returns the threads of all catalogs in the JVM behind py4j's `gateway`."""
    return _Threads(gateway)


class _Threads:
    """Java threads for loads: as many as there were loads at once."""

    def __init__(self, gateway: Any) -> None:
        self._pools = gateway.jvm.org.apache.iceberg.util.ThreadPools
        self._name, self._numbers = f"frazil-load-{new_id()[:8]}", count()
        self._free: deque[_Thread] = deque()
        #: What Iceberg logs while the threads work.
        self.log = _IcebergLog(gateway)

    def take(self) -> _Thread:
        """Returns a thread that nobody else has."""
        with suppress(IndexError):
            return self._free.pop()
        name = f"{self._name}-{next(self._numbers)}"
        return _Thread(self._pools.newFixedThreadPool(name, 1), f"{name}-0")

    def give_back(self, thread: _Thread) -> None:
        """Takes back a thread that has done its work."""
        self._free.append(thread)


class _IcebergLog:
    """What Iceberg logs while it loads tables, in a Java string."""

    def __init__(self, gateway: Any) -> None:
        jvm = gateway.jvm
        log4j = jvm.org.apache.logging.log4j
        written = jvm.java.io.StringWriter()
        self._text, self._clock, self._lock = written.getBuffer(), SystemClock(), threading.Lock()
        self._taken_at_s = self._clock.monotonic_s()
        #: By the name of its Java thread each load that runs.
        self._readings: dict[str, _Reading] = {}
        layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%t\t%m%n%ex{0}").build()
        name = new_id()  # An appender with the name of another one is ignored.
        appender = log4j.core.appender.WriterAppender.createAppender(layout, None, written, name, False, True)
        appender.start()
        for name in _LOGGERS:
            logger = log4j.LogManager.getLogger(name)
            logger.addAppender(appender)
            logger.setAdditive(False)
            log4j.core.config.Configurator.setLevel(name, log4j.Level.INFO)

    def follow(self, thread: str) -> _Reading:
        """Returns what `take` is to find of a load on this Java thread."""
        if self._clock.monotonic_s() > self._taken_at_s + _TAKEN_EVERY_S:
            self.take()
        reading = self._readings[thread] = _Reading()
        return reading

    def forget(self, thread: str) -> None:
        """Ignores what the thread logs from now on."""
        del self._readings[thread]

    def take(self) -> None:
        """Takes what was logged, and notes it with the loads that still run."""
        with self._lock:
            self._taken_at_s = self._clock.monotonic_s()
            length = self._text.length()
            text = str(self._text.substring(0, length)) if length else ""
            self._text.delete(0, length)
            for line in _LINE.finditer(text):
                reading = self._readings.get(line["thread"])
                if reading is not None and line["file"] is not None:
                    reading.file, reading.failures = line["file"], []
                elif reading is not None and reading.file:
                    reading.failures.append(line["failure"])
