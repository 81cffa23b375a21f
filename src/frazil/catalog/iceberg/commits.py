"""Sends commits, and decides what their answers mean, for every catalog and every update: the only module that decides it.

An exception proves nothing by itself. What was carried out may be sent again on the way, by the HTTP client, a proxy, the
JDBC pool or the AWS SDK, and the second copy is refused: so after any exception the table is loaded, and its history is the
first to be asked (docs/decisions/0034-ambiguous-commits.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from py4j.protocol import Py4JError

from frazil.catalog.iceberg.java import (
    Collector,
    ancestors_of,
    causes_of,
    head_of,
    is_clock_behind,
    java_errors,
    lent,
    on_branch,
    remove,
    summary_of,
)
from frazil.catalog.iceberg.validators import HistoryValidator, MaintenanceValidator, Validator, logged_snapshots
from frazil.catalog.progress import MAINTENANCE_ID, is_recorded, key
from frazil.clock import new_id
from frazil.types import MAIN

_CONFLICT = "org.apache.iceberg.exceptions.CommitFailedException"
_CHECK = "org.apache.iceberg.exceptions.ValidationException"
_ARGUMENT = "java.lang.IllegalArgumentException"
Refresh = Callable[[], object]
"""Refreshes the Java table of an update, within seconds also where its metadata file cannot be read: Iceberg's own method
would try for a minute and a half (see `loads`).
"""


class Answer(Enum):
    """What became of a commit that raised an exception."""

    #: The table contains the commit.
    DONE = "done"
    #: The table does not contain the commit and never will: what was written for it may be deleted.
    REFUSED = "refused"
    #: No attempt left this process; as `REFUSED`.
    NOT_SENT = "not sent"
    #: The commit may still reach the table: nothing is deleted, and the table is loaded again before its next commit.
    UNKNOWN = "unknown"


class NotThere(ConnectionError):
    """The answer was that a commit is done, and the table lacks it: it was not the catalog's own answer. Any reply with the
    status 200 is a success to Glue's client, such as the page of a proxy.
    """

    def __init__(self) -> None:
        super().__init__("the answer was that it is done, and the table does not have it")


def lost_answers() -> tuple[type[Exception], ...]:
    """Returns the classes of the exceptions that a commit may raise: those of the JVM, and of the connection to it."""
    return java_errors(Py4JError, ConnectionError)


def answer_to(error: Exception, has_landed: bool | None, has_moved: bool, is_refused: bool) -> Answer:
    """Returns what became of a commit that raised `error`.

    has_landed: whether the history of the table, loaded after the exception, has the commit; None where the history does
    not reach back far enough. has_moved: whether that history has replaced the snapshot that the last attempt was made
    for. is_refused: whether the commit's validator refused the last attempt.
    """
    if has_landed is not False:
        return Answer.DONE if has_landed else Answer.UNKNOWN
    # Iceberg itself refuses an attempt before it is sent; a catalog's own complaint, such as that of Glue or of a Hive
    # Metastore, has the same class and a cause.
    if is_refused or (_class_of(error) == _CHECK and len(causes_of(error)) == 1):
        return Answer.REFUSED
    if _class_of(error) == _CONFLICT:
        # Every catalog compares an attempt with the state that it replaces: once that is replaced, no copy of it can land.
        return Answer.REFUSED if has_moved else Answer.UNKNOWN
    return Answer.NOT_SENT if _class_of(error) == _ARGUMENT and is_clock_behind(error) else Answer.UNKNOWN


def is_conflict(error: Exception, *names: str) -> bool:
    """Returns whether another writer's commit is the reason of the exception, also as a nested cause: what was to be
    changed is loaded, and changed again if need be. It does not mean that the table lacks the commit (`answer_to`).
    names: further exceptions that mean a conflict.
    """
    class_names = [cause.getClass().getName() for cause in causes_of(error)]
    if any("CommitStateUnknown" in name for name in class_names):
        return False
    return any(wanted in name for name in class_names for wanted in (_CONFLICT, _CHECK, *names))


def _class_of(error: Exception) -> str:
    return next((str(thrown.getClass().getName()) for thrown in causes_of(error)), "")


def has_replaced(java: Any, base_id: int | None, branch: str = MAIN) -> bool:
    """Returns whether the newest snapshot of the branch follows the snapshot `base_id`; None: that of an empty table.
    A table that was rolled back, or that a catalog returned as it was before, does not.
    """
    snapshot = head_of(java, branch)
    while base_id is not None and snapshot is not None and snapshot.parentId() != base_id:
        snapshot = java.snapshot(snapshot.parentId()) if snapshot.parentId() is not None else None
    return snapshot is not None


class Sending:
    """A commit of a snapshot on its way to the catalog. Its validator admits it into the table once.

    Where Iceberg takes an exception for a refusal, it deletes the manifests of all attempts, also those of one that is in
    the table: so it deletes nothing by itself here.
    """

    def __init__(self, java: Any, validator: Validator, entry: tuple[str, str], branch: str = MAIN) -> None:
        """java: the Java table. entry: the key and the value in the snapshot's summary that no other snapshot has."""
        self._java = java
        self._branch = branch
        self._validator = validator
        self._entry = entry
        self._left = Collector()

    def send(self, update: Any) -> Any:
        """Commits an update of the table; returns its snapshot, as the table has it.

        Raises: one of `lost_answers`: `answer_to` returns what that means.
        """
        with lent(self._java, self._left, self._validator):
            update.deleteWith(self._left)
            update.validateWith(self._validator)
            on_branch(update, self._branch).commit()
        snapshot = self._own_snapshot()
        if snapshot is None:
            raise NotThere
        remove(self._java, self._left.paths)
        return snapshot

    def _own_snapshot(self) -> Any:
        """Returns the commit's snapshot of the table, which Iceberg has loaded again after the commit; None where it has
        none.
        """
        name, value = self._entry
        snapshot = head_of(self._java, self._branch)
        while snapshot is not None and summary_of(snapshot).get(name) != value:
            is_older = snapshot.snapshotId() == self._validator.base_id()
            parent = None if is_older else snapshot.parentId()
            snapshot = self._java.snapshot(parent) if parent is not None else None
        return snapshot

    def answer_to(self, error: Exception, has_landed: bool | None, java: Any) -> Answer:
        """Returns what became of the commit, as `answer_to`; deletes what Iceberg has written for a refused one. java: the
        Java table, loaded after the exception.
        """
        has_moved = has_replaced(java, self._validator.base_id(), self._branch)
        answer = answer_to(error, has_landed, has_moved, self._validator.refused)
        if answer is Answer.REFUSED:
            remove(java, self._left.paths)
        return answer


def send_once(
    pipeline: str,
    update: Any,
    java: Any,
    since: int,
    refresh: Refresh,
    validator: Validator | None = None,
    branch: str = MAIN,
) -> bool:
    """Commits an update of `java` that keeps its rows, made for the branch as of the snapshot `since`; returns whether the
    branch contains it. Files that the attempts wrote are deleted only where none of them succeeded. validator: called on
    every attempt too.

    Raises: one of `lost_answers`, or what `refresh` raises, where the commit may still succeed.
    """
    update_id = new_id()
    once = HistoryValidator(
        pipeline, MAINTENANCE_ID, lambda history: is_recorded(history, MAINTENANCE_ID, update_id, since) is False
    )
    entry = key(pipeline, MAINTENANCE_ID), update_id
    update.set(*entry)
    sending = Sending(java, MaintenanceValidator(once, validator), entry, branch)
    try:
        sending.send(update)
    except lost_answers() as error:
        refresh()
        logged = logged_snapshots(pipeline, (MAINTENANCE_ID,), ancestors_of(java, branch))
        has_landed = is_recorded(logged, MAINTENANCE_ID, update_id, since)
        answer = sending.answer_to(error, has_landed, java)
        if answer not in (Answer.DONE, Answer.REFUSED):
            raise
        return answer is Answer.DONE
    return True


def change(update: Any, refresh: Refresh, is_made: Callable[[], bool]) -> None:
    """Commits a change of the metadata of a Java table that writes no files and that may be repeated; returns also where
    its answer was lost and the table, refreshed, has it. is_made: whether the table has it.

    Raises: one of `lost_answers` where the table does not have it, or what `refresh` raises.
    """
    try:
        update.commit()
    except lost_answers():
        refresh()
        has_landed = False
        with suppress(*java_errors()):  # Java has no metadata of a table that is gone.
            has_landed = is_made()
        if not has_landed:
            raise


def set_property(java: Any, name: str, value: str | None, refresh: Refresh) -> None:
    """Sets a property of the Java table, or removes it where `value` is None, as `change`."""
    update = java.updateProperties()
    update = update.remove(name) if value is None else update.set(name, value)
    change(update, refresh, lambda: java.properties().get(name) == value)
