"""The six errors, each for one reaction of the operator.

Each names the fault, the remedy and the place. The first line of a class's docstring is its default message, the second
its default remedy. The command line prints `message`, `where` and `remedy`; a stack trace only with `--debug`.
"""

from __future__ import annotations

from collections.abc import Sequence


class FrazilError(Exception):
    """The base class of the six errors; never raised itself.
    `message`: one sentence that names the fault, lower case, values last as key=`value`.
    `remedy`: one sentence with the action to take.
    `where`: file and line, or topic, partition and offset, or the table; empty when there is no place to name.
    """

    exit_code = 1

    def __init__(self, message: str = "", *, remedy: str = "", where: str = "") -> None:
        default = [line.strip() for line in (type(self).__doc__ or "").splitlines() if line.strip()]
        self.message = message or default[0]
        self.remedy = remedy or (default[1] if len(default) > 1 else "")
        self.where = where
        super().__init__(self.message)

    @property
    def type_name(self) -> str:
        """The name of the error's class, or of the class it is a variant of inside one module, for machines to read."""
        return next(kind.__name__ for kind in type(self).__mro__ if not kind.__name__.startswith("_"))

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        advice = f"; {self.remedy}" if self.remedy else ""
        return f"{self.message}{place}{advice}"


class SpecError(FrazilError):
    """the pipeline file or the arguments are wrong
    fix the pipeline file
    """

    exit_code = 2

    def __init__(
        self, message: str = "", *, remedy: str = "", where: str = "", others: Sequence[SpecError] = ()
    ) -> None:
        super().__init__(message, remedy=remedy, where=where)
        #: Further mistakes of the same file, in its order.
        self.others = tuple(others)


class UnusableType(SpecError):
    """A setting cannot be applied to a column of this type. path: of the column."""

    def __init__(self, message: str, path: Sequence[str], *, remedy: str, where: str = "") -> None:
        super().__init__(message, remedy=remedy, where=where)
        self.path = tuple(path)


class RecordError(FrazilError):
    """a record cannot become a row
    fix the producer, or give the field a column for any value, `columns: {NAME: {type: string, coerce: true, field: PATH}}`
    """

    def __init__(self, message: str, *, topic: str, partition: int, offset: int, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy, where=record_place(topic, partition, offset))
        self.topic = topic
        self.partition = partition
        self.offset = offset


class ConflictError(FrazilError):
    """the table moved on since this batch was planned
    the batch is planned again from the table's progress
    """


class UnavailableError(FrazilError):
    """something Frazil needs does not answer
    Frazil retries with back-off; look at the service that is named
    """


class FencedError(FrazilError):
    """another process of this pipeline has taken over
    stop this process, or the other one
    """

    exit_code = 3


class InvariantError(FrazilError):
    """internal error: an invariant is violated
    keep the logs and report it; nothing was committed
    """


def record_place(topic: str, partition: int, offset: int) -> str:
    """Returns where a record is, as errors name it."""
    return f"topic {topic}, partition {partition}, offset {offset}"


def without_retry(remedy: str) -> str:
    """Returns a remedy without the words that Frazil retries: for whom it does not, such as a command."""
    return "; ".join(part for part in remedy.split("; ") if part != "Frazil retries with back-off")


def unforeseen(error: BaseException, where: str) -> InvariantError:
    """Returns any other error as an InvariantError."""
    return InvariantError(f"{type(error).__name__}: {error}", where=where)
