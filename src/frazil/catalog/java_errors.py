"""What goes wrong in the JVM, as Frazil's own errors. Iceberg's exceptions are told apart by the names of their classes."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from frazil.errors import FrazilError, SpecError, UnavailableError

_CONFLICTS = ("ValidationException", "CommitFailedException")
_NOT_THERE = ("NoSuchTableException", "NoSuchNamespaceException", "NotFoundException")


def unavailable(what: str, error: Exception, where: str) -> FrazilError:
    """An outage, with the innermost cause in words."""
    return UnavailableError(f"{what}: {cause_of(error)}", where=where)


_UNUSABLE = ("No suitable driver", "Cannot initialize Catalog implementation", "does not implement Catalog")
"""What is said of a catalog that no waiting makes usable."""


def refused_catalog(error: Exception, where: str) -> FrazilError:
    """Why a catalog cannot be opened: an outage, or a mistake of the file that no waiting mends."""
    cause = cause_of(error)
    if "No suitable driver" in cause:
        kind = ":".join(where.split(":")[:2])
        return SpecError(
            f"no JDBC driver is there for `{kind}:`",
            remedy="name its jar under `spark: {conf: {spark.jars: /path/to/driver.jar}}`, or correct `catalog.uri`",
            where=where,
        )
    if (
        is_named(error, "ClassNotFoundException")
        or "ClassNotFoundException" in cause
        or any(words in str(error) for words in _UNUSABLE)
    ):
        remedy = "name the jar that has the class under `spark: {conf: {spark.jars: …}}`, or correct `catalog`"
        return SpecError(f"the catalog cannot be made: {cause}", remedy=remedy, where=where)
    return unavailable("the catalog", error, where)


def is_refused(error: Exception) -> bool:
    """Whether Iceberg says itself that another commit was in the way."""
    return is_named(error, *_CONFLICTS)


def is_conflict(error: Exception, *names: str) -> bool:
    """Whether a commit was refused because another one was in the way, in whatever the refusal is wrapped.

    names: further exceptions that say so.
    """
    causes = [error.java_exception] if isinstance(error, Py4JJavaError) else []
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
    return isinstance(error, Py4JJavaError) and any(name in error.java_exception.getClass().getName() for name in names)


def cause_of(error: Exception) -> str:
    """The innermost cause in words, on one line."""
    if not isinstance(error, Py4JJavaError):
        return str(error)
    cause: Any = error.java_exception
    for _ in range(10):
        inner = cause.getCause()
        if inner is None:
            break
        cause = inner
    text = " ".join(str(cause.getMessage() or "").split())
    return f"{cause.getClass().getSimpleName()}: {text}".rstrip(": ")[:400]
