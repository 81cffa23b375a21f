"""The error with which a table stops, and failures of Spark jobs: of the records of a task, or of the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError

from frazil.errors import FrazilError, UnavailableError


class TableStopped(Exception):
    """The table cannot continue without a decision of its operator; the process and other tables can."""

    def __init__(self, reason: str, remedy: str, where: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.where = where


def describe_error(error: FrazilError | TableStopped) -> tuple[str, str, str]:
    """Returns the reason, the remedy and the place of an error, for `status`."""
    if isinstance(error, TableStopped):
        return error.reason, error.remedy, error.where
    return error.message, error.remedy, error.where


class TaskFailedError(UnavailableError):
    """a task failed
    Frazil retries with back-off; look at the log for the cause
    """


class FunctionFailedError(TaskFailedError):
    """a Python function of a query does not return what it must
    correct the function, and start again
    """


def is_jvm_gone(error: BaseException) -> bool:
    """Whether the JVM has ended, so that the process cannot continue."""
    is_cut_off = isinstance(error, (Py4JError, ConnectionError))
    return is_cut_off and not isinstance(error, Py4JJavaError)


def is_heap_full(error: BaseException) -> bool:
    """Whether a task has failed for lack of the JVM's memory: Spark ends the JVM soon after."""
    return "OutOfMemoryError" in str(error)


@contextmanager
def named_jvm_death() -> Iterator[None]:
    """Replaces the error of an ended JVM in its block by an UnavailableError that names the cause."""
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if is_jvm_gone(error):
            raise jvm_has_ended() from None
        raise


def jvm_has_ended() -> UnavailableError:
    """Returns the error of an ended JVM."""
    return UnavailableError("the JVM has ended", remedy="start `frazil run` again; its log has the cause")
