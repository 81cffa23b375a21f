"""What Iceberg asks on every attempt of a commit: whether the branch still says what the commit was made for.

They run in the JVM's call back to Python, inside of the commit, and must never raise: an exception would look like an
unknown outcome, so trouble is a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from frazil.catalog.history import LoggedSnapshot
from frazil.catalog.progress import key
from frazil.errors import ConflictError
from frazil.failpoints import hit
from frazil.types import Commit


class ProgressValidator:
    """Iceberg's SnapshotAncestryValidator: true only while the newest progress is the expected one, and the table has the
    shape that the files were written for: values of a column that was dropped meanwhile would be in no row.

    Iceberg asks it on every attempt, newest snapshot first. found: the commit id of the newest progress, empty where there
    is none; refused: whether the last attempt was.
    """

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("org.apache.iceberg.SnapshotAncestryValidator",)

    def __init__(self, pipeline: str, commit: Commit, java: Any) -> None:
        self._offsets = key(pipeline, "offsets")
        self._commit_id = key(pipeline, "commit-id")
        self._expected = commit.expected.commit_id
        self._shape = commit.shape
        self._java = java
        self.found = ""
        self.refused = False

    def validate(self, snapshots: Any) -> bool:
        """Called by the JVM with the snapshots of the branch."""
        hit("commit.validating")
        self.found = ""
        iterator = snapshots.iterator()
        while iterator.hasNext():
            summary = iterator.next().summary()
            if summary.get(self._offsets) is not None:
                self.found = str(summary.get(self._commit_id))
                break
        self.refused = self.found != self._expected or not self._has_shape()
        return not self.refused

    def _has_shape(self) -> bool:
        """Of the very state that the attempt will replace: Iceberg has just refreshed it."""
        if self._shape is None:
            return True
        now = self._java.operations().current()
        return self._shape == (now.currentSchemaId(), now.defaultSpecId(), now.defaultSortOrderId())

    def refusal(self, table: str) -> ConflictError:
        """Why it has refused, for a batch."""
        if self.found == self._expected:
            return ConflictError(
                "the table's schema, partition spec or sort order was changed after this batch was planned", where=table
            )
        return ConflictError(
            f"the table's progress has changed since this batch was planned: found={self.found}", where=table
        )

    def errorMessage(self) -> str:  # noqa: N802  (the interface's name)
        """Called by the JVM, also when all is well."""
        return (
            f"progress is {self.found or 'none'}, not {self._expected or 'none'}, or the schema, partition spec or"
            " sort order of the table has changed"
        )


class HistoryValidator:
    """Iceberg's SnapshotAncestryValidator: true while `is_right` of what the branch says under `name` and `more`. refused:
    whether the last attempt was.
    """

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("org.apache.iceberg.SnapshotAncestryValidator",)

    def __init__(
        self, pipeline: str, name: str, is_right: Callable[[Iterable[LoggedSnapshot]], bool], *more: str
    ) -> None:
        self.name = name
        self._names = (name, *more)
        self.refused = False
        self._pipeline = pipeline
        self._is_right = is_right

    def validate(self, snapshots: Any) -> bool:
        """Called by the JVM with the snapshots of the branch."""
        self.refused = not self._is_right(said(self._pipeline, self._names, snapshots))
        return not self.refused

    def errorMessage(self) -> str:  # noqa: N802  (the interface's name)
        """Called by the JVM, also when all is well."""
        return f"the table has another {self.name}, or its history was expired"


class RewriteValidator:
    """Iceberg's SnapshotAncestryValidator for files that take the place of others under the sequence number of the snapshot
    `read_at`: false where equality deletes have come since then and no older file may be left. Iceberg forgets equality
    deletes that are older than every file which was in the table before, and does not ask how old the new ones are.

    is_all: whether no other file was in the table then. refused: whether the last attempt was.
    """

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("org.apache.iceberg.SnapshotAncestryValidator",)

    def __init__(self, read_at: int, is_all: bool) -> None:
        self._read_at = read_at
        self._is_all = is_all
        self.refused = False

    def validate(self, snapshots: Any) -> bool:
        """Called by the JVM with the snapshots of the branch."""
        iterator, names = snapshots.iterator(), ("added-equality-deletes", "deleted-data-files")
        is_cut, came, went = True, False, self._is_all
        while is_cut and iterator.hasNext():
            snapshot = iterator.next()
            is_cut = snapshot.snapshotId() != self._read_at
            if is_cut:
                summary = snapshot.summary()
                more, fewer = (summary.get(name) not in (None, "0") for name in names)
                came, went = came or more, went or fewer
        self.refused = is_cut or (came and went)
        return not self.refused

    def errorMessage(self) -> str:  # noqa: N802  (the interface's name)
        """Called by the JVM, also when all is well."""
        return "another writer added equality deletes in the meantime, which Iceberg would lose"


class MaintenanceValidator:
    """Iceberg's SnapshotAncestryValidator for a commit of table maintenance: true while it is not in the table already, and
    another validator, where there is one, has nothing against it.
    """

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("org.apache.iceberg.SnapshotAncestryValidator",)

    def __init__(self, once: HistoryValidator, other: RewriteValidator | None) -> None:
        self._once = once
        self._other = other

    def validate(self, snapshots: Any) -> bool:
        """Called by the JVM with the snapshots of the branch."""
        return self._once.validate(snapshots) and (self._other is None or self._other.validate(snapshots))

    def errorMessage(self) -> str:  # noqa: N802  (the interface's name)
        """Called by the JVM, also when all is well."""
        return self._once.errorMessage() if self._once.refused or self._other is None else self._other.errorMessage()


def said(pipeline: str, names: Sequence[str], snapshots: Any) -> Iterator[LoggedSnapshot]:
    """What Java snapshots of one branch say, newest first."""
    iterator = snapshots.iterator()
    has_next = iterator.hasNext()
    while has_next:
        snapshot = iterator.next()
        summary = snapshot.summary()
        found = {name: summary.get(key(pipeline, name)) for name in names}
        has_next = iterator.hasNext()
        words = {name: str(text) for name, text in found.items() if text is not None}
        yield LoggedSnapshot(snapshot.snapshotId(), words, is_cut=not has_next and snapshot.parentId() is not None)
