"""Validators that Iceberg calls on every commit attempt: whether the branch is still as the commit expects.

They run in a callback of the JVM to Python, inside the commit, and must never raise: an exception would look like an
unknown outcome, so every problem is a refusal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from frazil.catalog.iceberg.java import each, summary_of
from frazil.catalog.progress import LoggedSnapshot, key
from frazil.errors import ConflictError
from frazil.failpoints import hit
from frazil.types import Commit


class Validator(ABC):
    """Iceberg's SnapshotAncestryValidator."""

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("org.apache.iceberg.SnapshotAncestryValidator",)

    #: Whether the last attempt was refused.
    refused = False
    _snapshots: Any = None

    def validate(self, snapshots: Any) -> bool:
        """Called by the JVM with the snapshots of the branch, the newest first."""
        self._snapshots = snapshots
        self.refused = not self._accepts(snapshots)
        return not self.refused

    def errorMessage(self) -> str:  # noqa: N802  (the interface's name)
        """Called by the JVM, also when all is well."""
        return self._message()

    def base_id(self) -> int | None:
        """Returns the newest snapshot of the state that the last attempt was to replace; None without a snapshot."""
        snapshots = each(self._snapshots) if self._snapshots is not None else ()
        return next((int(snapshot.snapshotId()) for snapshot in snapshots), None)

    @abstractmethod
    def _accepts(self, snapshots: Any) -> bool:
        """Returns whether the commit may land on these snapshots."""

    @abstractmethod
    def _message(self) -> str:
        """Returns why it may not."""


class ProgressValidator(Validator):
    """Accepts while the newest progress is the expected one, and the table has the shape that the files were written
    for (a value of a dropped column would be in no row) and the newest snapshot that the commit requires.
    """

    def __init__(self, pipeline: str, commit: Commit, operations: Any) -> None:
        """operations: those of the Java table."""
        self._offsets = key(pipeline, "offsets")
        self._commit_id = key(pipeline, "commit-id")
        self._expected = commit.expected.commit_id
        self._shape = commit.shape
        self._head_id = commit.head_id
        self._operations = operations
        #: The commit id of the newest progress; empty without progress.
        self.newest_commit_id = ""

    def _accepts(self, snapshots: Any) -> bool:
        hit("commit.validating")
        self.newest_commit_id = ""
        for snapshot in each(snapshots):
            summary = summary_of(snapshot)
            if summary.get(self._offsets) is not None:
                self.newest_commit_id = str(summary.get(self._commit_id))
                break
        return self.newest_commit_id == self._expected and self._has_head() and self._has_shape()

    def _has_head(self) -> bool:
        return self._head_id is None or self.base_id() == self._head_id

    def _has_shape(self) -> bool:
        """Returns whether the state that this attempt replaces has the expected shape: Iceberg has just refreshed it."""
        if self._shape is None:
            return True
        now = self._operations.current()
        shape = (now.currentSchemaId(), now.defaultSpecId(), now.defaultSortOrderId()) if now is not None else None
        return self._shape == shape

    def refusal(self, table: str) -> ConflictError:
        """Returns the error of a refused commit."""
        if not self._has_head():
            return ConflictError("another writer has committed to the table in the meantime", where=table)
        if self.newest_commit_id == self._expected:
            return ConflictError(
                "the table's schema, partition spec or sort order was changed after this batch was planned", where=table
            )
        return ConflictError(
            f"the table's progress has changed since this batch was planned: found={self.newest_commit_id}", where=table
        )

    def _message(self) -> str:
        return (
            f"progress is {self.newest_commit_id or 'none'}, not {self._expected or 'none'}, or the schema, partition spec"
            " or sort order of the table has changed"
        )


class HistoryValidator(Validator):
    """Accepts while `is_right` of the branch's values under `name` and `more`."""

    def __init__(
        self, pipeline: str, name: str, is_right: Callable[[Iterable[LoggedSnapshot]], bool], *more: str
    ) -> None:
        self.name = name
        self._names = (name, *more)
        self._pipeline = pipeline
        self._is_right = is_right

    def _accepts(self, snapshots: Any) -> bool:
        return self._is_right(logged_snapshots(self._pipeline, self._names, each(snapshots)))

    def _message(self) -> str:
        return f"the table has another {self.name}, or its history was expired"


class RewriteValidator(Validator):
    """For files that replace others under the sequence number of the snapshot `read_at`: refuses where equality deletes
    were added since and no older file may be left. Iceberg drops equality deletes that are older than every file that
    was in the table before, and ignores the sequence number of the new files.

    is_all: whether no other file was in the table then.
    """

    def __init__(self, read_at: int, is_all: bool) -> None:
        self._read_at = read_at
        self._is_all = is_all

    def _accepts(self, snapshots: Any) -> bool:
        came, went = False, self._is_all
        for snapshot in each(snapshots):
            if snapshot.snapshotId() == self._read_at:
                return not (came and went)
            summary = summary_of(snapshot)
            came = came or summary.get("added-equality-deletes") not in (None, "0")
            went = went or summary.get("deleted-data-files") not in (None, "0")
        return False

    def _message(self) -> str:
        return "another writer added equality deletes in the meantime, which Iceberg would lose"


class MaintenanceValidator(Validator):
    """For a commit of table maintenance: accepts while the table does not contain it, and the other validator, if any,
    accepts it.
    """

    def __init__(self, once: HistoryValidator, other: Validator | None) -> None:
        self._once = once
        self._other = other

    def _accepts(self, snapshots: Any) -> bool:
        return self._once.validate(snapshots) and (self._other is None or self._other.validate(snapshots))

    def _message(self) -> str:
        return self._once.errorMessage() if self._once.refused or self._other is None else self._other.errorMessage()


def logged_snapshots(pipeline: str, names: Sequence[str], snapshots: Iterator[Any]) -> Iterator[LoggedSnapshot]:
    """Yields the Java snapshots of one branch, the newest first, with the values of these summary keys."""
    snapshot = next(snapshots, None)
    while snapshot is not None:
        summary = summary_of(snapshot)
        values = {name: summary.get(key(pipeline, name)) for name in names}
        parent = next(snapshots, None)
        words = {name: str(text) for name, text in values.items() if text is not None}
        is_cut = parent is None and snapshot.parentId() is not None
        yield LoggedSnapshot(snapshot.snapshotId(), words, is_cut)
        snapshot = parent
