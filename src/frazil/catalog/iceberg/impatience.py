"""Loads of tables for commands that somebody waits for: they end after seconds where a metadata file cannot be read.

Iceberg tries to read a metadata file 20 times, for 90 seconds, and has no setting for that. It logs the file's name and what
each try failed with: both are read there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from frazil.catalog.iceberg.java import unreadable_metadata
from frazil.clock import new_id

# Loggers of Iceberg's: the first names the file that is read, the second a try that has failed.
_LOGGERS = ("org.apache.iceberg.BaseMetastoreTableOperations", "org.apache.iceberg.util.Tasks")
_READ = re.compile(r"^(.+)\tRefreshing table metadata from new version: (.*)$", re.M)
_FAILED = re.compile(r"^(.+)\tRetrying task after failure: (?:sleepTimeMs=\d+ )?(.*)$", re.M)
# Tries after 0, 0.1, 0.5 and 2.1 seconds.
_TRIES = 4
_LOOKS_EVERY_S = 0.1


Reader = Callable[[str, Callable[[], Any]], Any]
"""Returns what a function that reads the metadata of a table returns. Takes the table's name and the function."""


def read_patiently(_table: str, read: Callable[[], Any]) -> Any:
    """Reads as long as Iceberg tries it."""
    return read()


def impatient(gateway: Any) -> Reader:
    """Returns a reader that ends early. One thread calls it.

    It raises UnavailableError where a metadata file cannot be read in a few tries, and in one try of a table that was
    abandoned before; otherwise it raises as the function does.
    """
    log, abandoned = _IcebergLog(gateway), set[str]()

    def read_or_abandon(table: str, read: Callable[[], Any]) -> Any:
        tries = 1 if table in abandoned else _TRIES
        log.clear()
        thread = ThreadPoolExecutor(1, "load")
        loading = thread.submit(read)
        thread.shutdown(wait=False)
        while not wait([loading], _LOOKS_EVERY_S).done:
            failures = log.failures()
            if len(failures) >= tries:
                abandoned.add(table)
                raise unreadable_metadata(failures[-1], log.abandon(), table)
        return loading.result()

    return read_or_abandon


class _IcebergLog:
    """What Iceberg logs while it loads a table, in a Java string."""

    def __init__(self, gateway: Any) -> None:
        jvm = gateway.jvm
        log4j = jvm.org.apache.logging.log4j
        self._written = jvm.java.io.StringWriter()
        #: The Java threads that still try to read the file of a table that was abandoned.
        self._abandoned: set[str] = set()
        layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%t\t%m%n%ex{0}").build()
        name = new_id()  # An appender with the name of another one is ignored.
        appender = log4j.core.appender.WriterAppender.createAppender(layout, None, self._written, name, False, True)
        appender.start()
        for name in _LOGGERS:
            logger = log4j.LogManager.getLogger(name)
            logger.addAppender(appender)
            logger.setAdditive(False)
            log4j.core.config.Configurator.setLevel(name, log4j.Level.INFO)

    def clear(self) -> None:
        """Forgets what was logged for other tables."""
        self._written.getBuffer().setLength(0)

    def failures(self) -> list[str]:
        """Returns the first line of what each try failed with."""
        return [words for _, words in self._lines(_FAILED)]

    def abandon(self) -> str:
        """Returns the name of the metadata file that is read; what its thread logs is ignored from now on."""
        file = next((name for _, name in reversed(self._lines(_READ))), "")
        self._abandoned |= {thread for thread, _ in self._lines(_FAILED)}
        return file

    def _lines(self, kind: re.Pattern[str]) -> list[tuple[str, str]]:
        """Returns the threads and the words of lines of this kind."""
        found = kind.findall(str(self._written.toString()))
        return [(thread, words) for thread, words in found if thread not in self._abandoned]
