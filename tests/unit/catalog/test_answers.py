"""The decision table: what an exception of a commit means, by catalog and by what the table shows afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import PythonProxyPool
from py4j.protocol import Py4JNetworkError

from frazil.catalog.iceberg.commits import (
    Answer,
    NotThere,
    Sending,
    answer_to,
    change,
    has_replaced,
    is_conflict,
    lost_answers,
    set_property,
)
from frazil.catalog.iceberg.validators import Validator
from tests.fixtures.thrown import ICEBERG, Raised, Thrown

DONE, REFUSED, NOT_SENT, UNKNOWN = Answer
BOTH = (True, False)
GLUE = "software.amazon.awssdk.services.glue.model"
HMS = "org.apache.hadoop.hive.metastore.api"


def iceberg(name: str, cause: str = "", message: str = "") -> Raised:
    """An exception of Iceberg's, with the class of its cause."""
    return Raised(Thrown(f"{ICEBERG}.{name}Exception", message, Thrown(cause) if cause else None))


def plain(name: str, message: str = "", cause: str = "") -> Raised:
    """Any other exception of Java's."""
    return Raised(Thrown(name, message, Thrown(cause) if cause else None))


CONFLICTS: Sequence[tuple[str, str, Exception]] = [
    ("rest", "409", iceberg("CommitFailed")),
    ("jdbc", "no row was updated", iceberg("CommitFailed")),
    ("hive", "the strict check finds another writer's", iceberg("CommitFailed", f"{HMS}.MetaException")),
    ("hive", "the lock was not given", iceberg("CommitFailed", "org.apache.iceberg.hive.LockException")),
    ("glue", "another version id", iceberg("CommitFailed", f"{GLUE}.ConcurrentModificationException")),
    ("glue", "a 500 that the SDK did not repeat", iceberg("CommitFailed", f"{GLUE}.InternalServiceException")),
    ("nessie", "another hash", iceberg("CommitFailed", "org.projectnessie.error.NessieReferenceConflictException")),
    ("hadoop", "the version exists", iceberg("CommitFailed")),
    ("hadoop", "the rename broke", iceberg("CommitFailed", "java.io.IOException")),
]
"""A conflict, the words of each catalog."""
CHECKS: Sequence[tuple[str, str, Exception]] = [
    (kind, "Iceberg's own check of files and progress", iceberg("Validation"))
    for kind in ("rest", "jdbc", "hive", "glue", "nessie", "hadoop")
]
UNSENT: Sequence[tuple[str, str, Exception]] = [
    (kind, "a clock that went back", plain("java.lang.IllegalArgumentException", "Invalid update timestamp 5: before"))
    for kind in ("rest", "jdbc", "hive", "glue", "nessie", "hadoop")
]
LOST: Sequence[tuple[str, str, Exception]] = [
    ("rest", "400", iceberg("BadRequest")),
    ("rest", "400 about the clock", iceberg("BadRequest", message="Malformed request: Invalid update timestamp 5")),
    ("rest", "401", iceberg("NotAuthorized")),
    ("rest", "403", iceberg("Forbidden")),
    ("rest", "404", iceberg("NoSuchTable")),
    ("rest", "422", iceberg("UnprocessableEntity")),
    ("rest", "500, 502, 503, 504", iceberg("CommitStateUnknown", f"{ICEBERG}.ServiceFailureException")),
    ("rest", "501", plain("java.lang.UnsupportedOperationException")),
    ("rest", "503 outside of a commit", iceberg("ServiceUnavailable")),
    ("rest", "a time-out", iceberg("REST", "java.net.SocketTimeoutException")),
    ("rest", "a connection that was cut", iceberg("REST", "org.apache.hc.core5.http.NoHttpResponseException")),
    ("rest", "an answer that is no JSON", iceberg("REST", "com.fasterxml.jackson.core.JsonParseException")),
    ("jdbc", "a connection that broke", plain("org.apache.iceberg.jdbc.UncheckedSQLException", "failed")),
    ("jdbc", "an interrupted wait", plain("org.apache.iceberg.jdbc.UncheckedInterruptedException")),
    ("hive", "a connection that broke", iceberg("CommitStateUnknown", "org.apache.thrift.TTransportException")),
    ("hive", "a lost heartbeat", iceberg("CommitStateUnknown", "org.apache.iceberg.hive.LockException")),
    ("hive", "refused by the metastore", iceberg("Validation", f"{HMS}.InvalidObjectException")),
    ("hive", "any other fault of Thrift", plain("java.lang.RuntimeException", "failed", f"{HMS}.MetaException")),
    ("glue", "no answer to any attempt", iceberg("CommitStateUnknown", "software.amazon.awssdk.SdkClientException")),
    ("glue", "refused by Glue", iceberg("Validation", f"{GLUE}.ValidationException")),
    ("glue", "no access", iceberg("Forbidden", f"{GLUE}.AccessDeniedException")),
    ("glue", "an unknown entity", iceberg("NotFound", f"{GLUE}.EntityNotFoundException")),
    ("glue", "any other 4xx", plain(f"{GLUE}.InvalidInputException")),
    ("nessie", "no answer", iceberg("CommitStateUnknown", "org.projectnessie.client.http.HttpClientException")),
    ("nessie", "the branch is gone", plain("java.lang.RuntimeException", "gone")),
    ("hadoop", "a store that fails", plain("org.apache.iceberg.exceptions.RuntimeIOException")),
    ("all", "a conflict inside of something else", plain("java.lang.RuntimeException", "x", f"{ICEBERG}.CommitFailed")),
    ("all", "a connection to the JVM that broke", ConnectionResetError("reset")),
    ("all", "a JVM that answers nothing", Py4JNetworkError("empty")),
    ("glue", "a page of a proxy, which Glue's client takes for success", NotThere()),
]
EVERY = [*CONFLICTS, *CHECKS, *UNSENT, *LOST]
PAIRS = [
    *((*row, True, REFUSED) for row in CONFLICTS),
    *((*row, False, UNKNOWN) for row in CONFLICTS),
    *((*row, has_moved, REFUSED) for row in CHECKS for has_moved in BOTH),
    *((*row, has_moved, NOT_SENT) for row in UNSENT for has_moved in BOTH),
    *((*row, has_moved, UNKNOWN) for row in LOST for has_moved in BOTH),
]


@pytest.mark.parametrize(("kind", "what", "error", "has_moved", "expected"), PAIRS)
def test_a_commit_that_the_table_does_not_show(
    kind: str, what: str, error: Exception, has_moved: bool, expected: Answer
) -> None:
    assert answer_to(error, False, has_moved, is_refused=False) is expected, (kind, what)


@pytest.mark.parametrize(("kind", "what", "error"), EVERY)
def test_the_table_decides_before_any_exception_does(kind: str, what: str, error: Exception) -> None:
    for has_moved, is_refused in product(BOTH, BOTH):
        found = [answer_to(error, has_landed, has_moved, is_refused) for has_landed in (True, None)]
        assert found == [DONE, UNKNOWN], (kind, what)


@pytest.mark.parametrize(("kind", "what", "error"), EVERY)
def test_an_attempt_that_the_validator_refused_was_not_sent(kind: str, what: str, error: Exception) -> None:
    found = [answer_to(error, False, has_moved, is_refused=True) for has_moved in BOTH]
    assert found == [REFUSED, REFUSED], (kind, what)


@dataclass(frozen=True)
class _Snapshot:
    id: int
    parent: int | None

    def snapshotId(self) -> int:  # noqa: N802  (Java's)
        return self.id

    def parentId(self) -> int | None:  # noqa: N802
        return self.parent

    def summary(self) -> dict[str, str]:
        return {"commit-id": f"commit {self.id}"}


class _Line:
    """A Java table with these snapshots on its main branch, the newest last. oldest: the first one that is not expired."""

    def __init__(self, ids: Sequence[int], oldest: int = 0) -> None:
        parents = (None, *ids)
        self._snapshots = [_Snapshot(*pair) for pair in zip(ids, parents, strict=False)][oldest:]

    _gateway_client = SimpleNamespace(gateway_property=SimpleNamespace(pool=PythonProxyPool()))

    def currentSnapshot(self) -> _Snapshot | None:  # noqa: N802
        return self._snapshots[-1] if self._snapshots else None

    def snapshot(self, number: int) -> _Snapshot | None:
        return next((one for one in self._snapshots if one.id == number), None)


@pytest.mark.parametrize(
    ("line", "base", "expected"),
    [
        pytest.param(_Line([1, 2, 3]), 3, False, id="as it was"),
        pytest.param(_Line([1, 2, 3]), 2, True, id="one snapshot more"),
        pytest.param(_Line([1, 2, 3, 4]), 1, True, id="some more"),
        pytest.param(_Line([1, 2, 3, 4], 2), 2, True, id="some more, the base expired"),
        pytest.param(_Line([1, 2, 3, 4], 3), 1, False, id="too much expired to know"),
        pytest.param(_Line([1, 2]), 3, False, id="rolled back, or an old answer"),
        pytest.param(_Line([1, 2, 4]), 3, False, id="rolled back and continued"),
        pytest.param(_Line([]), None, False, id="still empty"),
        pytest.param(_Line([1]), None, True, id="no longer empty"),
        pytest.param(_Line([]), 3, False, id="made empty"),
    ],
)
def test_a_table_has_moved_where_its_newest_snapshot_follows_the_base(
    line: _Line, base: int | None, expected: bool
) -> None:
    assert has_replaced(line, base) is expected


class _Base(Validator):
    """Of a commit that was made for this snapshot."""

    def __init__(self, base: int | None) -> None:
        self._base = base

    def base_id(self) -> int | None:
        return self._base

    def _accepts(self, snapshots: Any) -> bool:  # noqa: ARG002
        return True

    def _message(self) -> str:
        return ""


class _Believed:
    """An update whose commit is answered with success."""

    def deleteWith(self, _: object) -> None:  # noqa: N802
        pass

    def validateWith(self, _: object) -> None:  # noqa: N802
        pass

    def commit(self) -> None:
        pass


@pytest.mark.parametrize(
    ("line", "base", "is_there"),
    [
        pytest.param(_Line([1, 2, 3]), 2, True, id="the newest"),
        pytest.param(_Line([3]), None, True, id="the first"),
        pytest.param(_Line([1, 2, 3, 4, 5]), 2, True, id="others since"),
        pytest.param(_Line([1, 2, 3, 4], 2), 1, True, id="others since, the base expired"),
        pytest.param(_Line([1, 2]), 2, False, id="as it was"),
        pytest.param(_Line([]), None, False, id="still empty"),
        pytest.param(_Line([1, 2, 4, 5]), 2, False, id="others in its place"),
        pytest.param(_Line([4, 5]), None, False, id="others in its place, the first"),
        pytest.param(_Line([1, 2, 4, 5], 3), 1, False, id="others in its place, too much expired to know"),
    ],
)
def test_a_success_is_one_where_the_table_has_the_commit(line: _Line, base: int | None, is_there: bool) -> None:
    sending = Sending(line, _Base(base), ("commit-id", "commit 3"))
    if is_there:
        sending.send(_Believed())
    else:
        with pytest.raises(NotThere):
            sending.send(_Believed())


def test_a_conflict_is_one_in_whatever_it_is_wrapped_and_an_unknown_commit_is_none() -> None:
    refused = Thrown(f"{ICEBERG}.CommitFailedException", "moved on")
    wrapped = Thrown("java.lang.RuntimeException", "failed", refused)
    unknown = Thrown(f"{ICEBERG}.CommitStateUnknownException", "lost", refused)
    of_glue = Thrown(f"{GLUE}.ValidationException", "a name is too long")
    assert [is_conflict(Raised(one)) for one in (refused, wrapped, unknown, of_glue)] == [True, True, False, False]
    locked = Raised(Thrown("java.lang.RuntimeException", "x", Thrown("org.example.LockedException")))
    assert (is_conflict(locked), is_conflict(locked, "LockedException")) == (False, True)


class _Table:
    """A Java table whose next commit lands or not, and raises or not."""

    def __init__(self, lands: bool, error: Exception | None) -> None:
        self._lands, self._error = lands, error
        self._stored: dict[str, str] = {"b": "old"}
        self._seen: dict[str, str] = dict(self._stored)
        self._wanted: tuple[str, str | None] = ("", None)

    def updateProperties(self) -> _Table:  # noqa: N802  (Java's)
        return self

    def set(self, name: str, value: str) -> _Table:
        self._wanted = (name, value)
        return self

    def remove(self, name: str) -> _Table:
        self._wanted = (name, None)
        return self

    def commit(self) -> None:
        name, value = self._wanted
        if self._lands:
            self._stored = {n: v for n, v in {**self._stored, name: value}.items() if v is not None}
        if self._error is not None:
            raise self._error

    def refresh(self) -> None:
        self._seen = dict(self._stored)

    def properties(self) -> dict[str, str]:
        return self._seen


@pytest.mark.parametrize(("name", "value"), [("a", "new"), ("b", None)])
def test_a_property_whose_answer_is_lost_is_looked_up(name: str, value: str | None) -> None:
    lost = ConnectionResetError("reset")
    for table in (_Table(lands=True, error=None), _Table(lands=True, error=lost)):
        set_property(table, name, value, table.refresh)
    table = _Table(lands=False, error=lost)
    with pytest.raises(ConnectionResetError):
        set_property(table, name, value, table.refresh)


def test_only_what_a_commit_may_raise_is_looked_into() -> None:
    assert issubclass(Py4JNetworkError, lost_answers())
    with pytest.raises(ValueError, match="a bug"):
        change(_Table(lands=True, error=ValueError("a bug")), lambda: None, lambda: True)
