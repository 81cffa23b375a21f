"""What goes wrong in the JVM, as Frazil's own errors. Iceberg's exceptions are told apart by the names of their classes.

An exception of Java arrives as one of two kinds. Once a Spark session exists, PySpark raises its own classes in place of
py4j's for IllegalArgumentException, UnsupportedOperationException, ArithmeticException and some others. `except
java_errors()` catches both kinds.
"""

from __future__ import annotations

import sys
from typing import Any

from py4j.protocol import Py4JJavaError

from frazil.errors import FrazilError, SpecError, UnavailableError

_CONFLICTS = ("ValidationException", "CommitFailedException")
# Not Iceberg's NotFoundException: that is a file which the store does not have, of a table that the catalog knows.
_NOT_THERE = ("NoSuchTableException", "NoSuchNamespaceException")
_UNREADABLE = ("NotFoundException", "FileNotFoundException", "NoSuchFileException")
# What `TableMetadata` says of a change that is more than a minute older than the newest one in the table.
_OLDER_THAN_THE_TABLE = (
    "Invalid update timestamp",
    "Expected sorted snapshot log",
    "Expected sorted previous metadata",
)


def java_errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """The classes of all exceptions of Java: py4j's, and PySpark's where PySpark is in use. To import PySpark only for this
    would cost time. more: classes that are caught beside them.
    """
    captured = sys.modules.get("pyspark.errors.exceptions.captured")
    return (Py4JJavaError, *more) if captured is None else (Py4JJavaError, captured.CapturedException, *more)


def unavailable(what: str, error: Exception, where: str) -> FrazilError:
    """An outage, with the innermost cause in words; a clock that went back and a file that is missing have remedies of their
    own.
    """
    if is_clock_behind(error):
        return UnavailableError(
            f"{what}: this machine's clock was set back: it is more than a minute behind the newest change of the"
            f" table ({message_of(error)})",
            remedy="correct the clock; Frazil retries with back-off and succeeds once the clock is past that change",
            where=where,
        )
    if is_named(error, *_UNREADABLE) and not is_not_there(error):
        return UnavailableError(
            f"{what}: a file of it is not in the store: {cause_of(error)}",
            remedy="mount the warehouse again or restore the file; Frazil retries with back-off",
            where=where,
        )
    return UnavailableError(f"{what}: {cause_of(error)}", where=where)


def is_clock_behind(error: Exception) -> bool:
    """Whether Iceberg refuses a change because the table has one that is more than a minute younger."""
    return any(words in message_of(error) for words in _OLDER_THAN_THE_TABLE)


_UNUSABLE = ("No suitable driver", "Cannot initialize Catalog implementation", "does not implement Catalog")
"""What is said of a catalog that no waiting makes usable."""


def refused_catalog(error: Exception, where: str) -> FrazilError:
    """Why a catalog cannot be opened: an outage, or a mistake of the file that no waiting mends."""
    cause = cause_of(error)
    if "No suitable driver" in cause:
        kind = ":".join(where.split(":")[:2])
        return SpecError(
            f"there is no JDBC driver for `{kind}:`",
            remedy="name its jar under `spark: {conf: {spark.jars: /path/to/driver.jar}}`, or correct `catalog.uri`",
            where=where,
        )
    if (
        is_named(error, "ClassNotFoundException")
        or "ClassNotFoundException" in cause
        or any(words in str(error) for words in _UNUSABLE)
    ):
        remedy = "name the jar that has the class under `spark: {conf: {spark.jars: …}}`, or correct `catalog`"
        return SpecError(f"the catalog cannot be opened: {cause}", remedy=remedy, where=where)
    return unavailable("the catalog", error, where)


def is_refused(error: Exception) -> bool:
    """Whether Iceberg says itself that another commit was in the way."""
    return is_named(error, *_CONFLICTS)


def is_conflict(error: Exception, *names: str) -> bool:
    """Whether a commit was refused because another one was in the way, in whatever the refusal is wrapped.

    names: further exceptions that say so.
    """
    thrown = _thrown(error)
    causes = [thrown] if thrown is not None else []
    while causes and (inner := causes[-1].getCause()) is not None and len(causes) < 10:
        causes.append(inner)
    found = [cause.getClass().getName() for cause in causes]
    if any("CommitStateUnknown" in name for name in found):
        return False
    return any(wanted in name for name in found for wanted in (*_CONFLICTS, *names))


def is_not_there(error: Exception) -> bool:
    """Whether the catalog says that there is no such table."""
    return is_named(error, *_NOT_THERE)


def is_another_table(error: Exception) -> bool:
    """Whether a table that was loaded before was dropped, and another one has its name now. Catalogs that keep one pointer
    for a name, as JDBC's does, find out when it is refreshed.
    """
    return is_named(error, "IllegalStateException") and "Table UUID does not match" in cause_of(error)


def is_named(error: Exception, *names: str) -> bool:
    """Whether it is an exception of Java with one of these names in that of its class."""
    thrown = _thrown(error)
    return thrown is not None and any(name in thrown.getClass().getName() for name in names)


def message_of(error: Exception) -> str:
    """What the exception itself says, without its causes, on one line; empty where it is none of Java."""
    thrown = _thrown(error)
    return " ".join(str(thrown.getMessage() or "").split())[:400] if thrown is not None else ""


def _thrown(error: Exception) -> Any:
    """The exception in the JVM; None where `error` is none of Java. PySpark keeps it too, unless Python code raised it."""
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def cause_of(error: Exception) -> str:
    """The innermost cause in words, on one line."""
    cause = _thrown(error)
    if cause is None:
        return str(error)
    for _ in range(10):
        inner = cause.getCause()
        if inner is None:
            break
        cause = inner
    text = " ".join(str(cause.getMessage() or "").split())
    return f"{cause.getClass().getSimpleName()}: {text}".rstrip(": ")[:400]
