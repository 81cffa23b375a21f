"""What a failed job means: an error of files is of the store, and no record is searched for; others may be a record's."""

from __future__ import annotations

import pytest

from frazil.errors import UnavailableError
from frazil.ingest.batches.job import _failure_of
from frazil.ingest.failures import TaskFailedError

KEY = "check the credentials under `catalog.properties`"


def raised(last: str) -> RuntimeError:
    """What PySpark says of a worker that has raised an exception."""
    return RuntimeError(
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "frazil/store/file_io.py", line 209, in _as_os_errors\n    raise OSError(_text(location, error))\n'
        f"{last}\n\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException\n"
    )


@pytest.mark.parametrize(
    ("last", "where", "remedy"),
    [
        (
            "OSError: s3://lake/n/t/data/1.parquet: The operation lacked the necessary privileges: status 403 Forbidden:"
            " SignatureDoesNotMatch",
            "s3://lake/n/t/data/1.parquet",
            KEY,
        ),
        ("OSError: s3://lake/a: status 403 Forbidden: InvalidAccessKeyId: The Access Key Id", "s3://lake/a", KEY),
        ("OSError: s3://lake/a: status 403 Forbidden: AccessDenied", "s3://lake/a", "grant this user the right"),
        (
            "OSError: s3://lake/a: 403: ExpiredToken: The provided token has expired.",
            "s3://lake/a",
            "renew the credentials",
        ),
        ("OSError: gs://lake/a: 401: token expired", "gs://lake/a", KEY),
        (
            "OSError: abfss://c@a.dfs.core.windows.net/a: ContainerNotFound",
            "abfss://c@a.dfs.core.windows.net/a",
            "create",
        ),
        ("FileNotFoundError: s3://lake/a: 404: NoSuchBucket", "s3://lake/a", "create the bucket"),
        (
            "OSError: s3://lake/a: error sending request: the store's certificate is not accepted: UnknownIssuer",
            "s3://lake/a",
            "name the authority",
        ),
        ("OSError: s3://lake/a: HTTP error: error sending request: dns error", "s3://lake/a", "check the address"),
        ("OSError: s3://lake/a: Connection refused (os error 111)", "s3://lake/a", "check the address"),
        ("PermissionError: [Errno 13] Permission denied: '/lake/n/t/data'", "/lake/n/t/data", "let this user write"),
        ("OSError: [Errno 30] Read-only file system: '/lake/n'", "/lake/n", "let this user write"),
        ("NotADirectoryError: [Errno 20] Not a directory: '/lake/n/a'", "/lake/n/a", "let this user write"),
        ("OSError: [Errno 28] No space left on device: '/lake/n/a'", "/lake/n/a", "free disk space"),
        ("OSError: s3://lake/a: 500: InternalError", "s3://lake/a", "Frazil retries with back-off"),
        ("TimeoutError: timed out", "", "check the address"),
    ],
)
def test_an_error_of_a_store_is_no_records_and_says_what_to_do(last: str, where: str, remedy: str) -> None:
    failure = _failure_of(raised(last))
    assert (type(failure), failure.where) == (UnavailableError, where)
    assert last in failure.message
    assert failure.remedy.startswith(remedy)


AWAY = UnavailableError("records have not arrived for 30 s: Connection refused", where="topic t, partition 0, offset 7")
RIGHT = UnavailableError(
    "topic authorization failed", remedy="allow this user to READ the topic", where="topic t, partition 0, offset 0"
)
LOGIN = UnavailableError("the login is refused: no", remedy="correct the password", where="broker kafka-1:9092")


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (f"frazil.errors.UnavailableError: {AWAY}", AWAY),
        (f"frazil.errors.UnavailableError: {RIGHT}", RIGHT),
        (f"frazil.kafka.fetch.connection._Refused: {LOGIN}", LOGIN),
        (
            "frazil.errors.UnavailableError: the file (of a table) is away",
            UnavailableError("the file (of a table) is away"),
        ),
    ],
)
def test_a_service_that_a_worker_misses_keeps_its_words_its_place_and_its_remedy(
    last: str, expected: UnavailableError
) -> None:
    failure = _failure_of(raised(last))
    assert (type(failure), failure.where, failure.remedy) == (UnavailableError, expected.where, expected.remedy)
    assert failure.message == f"a task failed: {expected.message}"


@pytest.mark.parametrize(
    "last",
    [
        "ValueError: the record is odd",
        "RuntimeError: no such code page",
        "MemoryError",
        "OSError: [Errno 12] Cannot allocate memory",
        "pyarrow.lib.ArrowInvalid: OSError: a record's text",
    ],
)
def test_any_other_error_of_a_worker_may_be_a_records(last: str) -> None:
    assert type(_failure_of(raised(last))) is TaskFailedError
