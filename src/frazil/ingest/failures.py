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


class LacksMemoryError(TaskFailedError):
    """a record needs more memory than the process which reads it has
    give `spark.driver.memory` more under `spark: {conf: …}`, then start again
    """


class BesideTooLargeError(LacksMemoryError):
    """records cannot be read without another one of their batch, which needs more memory than there is
    give `spark.driver.memory` more under `spark: {conf: …}`, then start again
    """

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(where=f"topic {topic}, partition {partition}, offset {offset}")


class TooLargeForMemoryError(LacksMemoryError):
    """a record needs more memory than the process which reads it has
    allow smaller records with `limits: {record_size: …}`: it becomes a dead letter; or give `spark.driver.memory` more
    """

    def __init__(self, topic: str, partition: int, offset: int, end: int, value_bytes: int | None) -> None:
        """end: the offset after the record, or after the batch of them. value_bytes: None where nobody could read it."""
        place = f"topic {topic}, partition {partition}, offset"
        if end > offset + 1:
            super().__init__(
                "a batch of records needs more memory than the process which reads it has",
                remedy="inspect the records of this range; to continue behind them write `start` with the offset of each"
                " partition and give the table a new name",
                where=f"{place}s {offset} to {end - 1}",
            )
            return
        size = "" if value_bytes is None else f" of {value_bytes} bytes"
        smaller = f"{max(1, (value_bytes or 2**31) // 2**20 - 1)}MiB"
        super().__init__(
            f"a record{size} needs more memory than the process which reads it has",
            remedy=f"write `limits: {{record_size: {smaller}}}` or less, by which the record becomes a dead letter, or give"
            " `spark.driver.memory` more under `spark: {conf: …}`; then start again",
            where=f"{place} {offset}",
        )


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
