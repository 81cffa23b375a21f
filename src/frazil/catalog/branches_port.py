"""The port of branches and tags: the metadata that shows them, and a change of them that is a compare-and-swap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from frazil.catalog.maintenance_port import Transfer
from frazil.catalog.table_metadata import TableMetadata
from frazil.errors import ConflictError

MOVE_ID = "publish-id"
"""Table property, behind `frazil.<pipeline>.`: the last change of a branch that this pipeline has made besides commits."""


@dataclass(frozen=True)
class Tag:
    """A tag to be created, unless the table has one of its name."""

    snapshot_id: int
    #: How long it is kept, from the time of its snapshot on.
    max_age_ms: int


class Copy(Protocol):
    """Data files of a snapshot that had deletes, written again without the deleted rows."""

    @property
    def table(self) -> str:
        """The table."""

    @property
    def snapshot_id(self) -> int:
        """The snapshot."""


@dataclass(frozen=True)
class BranchMove:
    """A change of the newest snapshot of a branch, in one commit with properties of the table."""

    table: str
    #: None: no branch is moved, and only tags and properties change.
    branch: str | None
    #: The snapshot that the branch has until then; None where it has none.
    expected: int | None
    #: The snapshot that it has from then on; None: the branch is removed.
    snapshot_id: int | None
    #: The id of the change, in the table's property MOVE_ID.
    id: str
    #: This pipeline's own properties of the table, without their prefix; None removes one.
    marks: Mapping[str, str | None] = field(default_factory=dict)
    tags: Mapping[str, Tag] = field(default_factory=dict)
    #: Tags that are removed.
    dropped_tags: frozenset[str] = frozenset()
    #: The branch that must have the new snapshot; None: it may be on any or none.
    source: str | None = None
    #: The branch gets a new snapshot in place of the new one: with the same rows, and without delete files.
    copy: Copy | None = None
    #: The property that gets the id of the snapshot that the branch has then; empty: none does.
    names_snapshot: str = ""


class Branches(Protocol):
    """The port. Every method raises UnavailableError where the catalog does not answer."""

    def metadata(self, table: str) -> TableMetadata | None:
        """Returns the table's metadata without files, fresh from the catalog; None where it does not exist."""

    def move(self, move: BranchMove) -> int | None:
        """Commits the change; succeeds also where the response was lost and the table has it. Returns the snapshot that the
        branch has then.

        Raises: ConflictError where the branch has another snapshot than `expected`, or the table or the branch `source` does
        not have the new one any more: the caller decides again. UnavailableError where the outcome is unknown: a change that
        lands later is refused once the branch has another snapshot than `expected`.
        """

    def move_together(self, moves: Sequence[BranchMove]) -> list[int | None]:
        """Commits changes of several tables in one commit, where the catalog has such commits; otherwise one after another,
        in this order. Returns the snapshot that each branch has then.

        Raises: as `move`. Of one commit all changes have landed, or none; otherwise the first of them may have.
        """


class Copies(Protocol):
    """The port of data files without deletes. Every method raises ConflictError where the snapshot was expired;
    UnavailableError where the catalog, the store or Spark does not answer.
    """

    def write(self, table: str, snapshot_id: int, stages: tuple[Any, ...] = ()) -> Copy | None:
        """Writes the data files of a snapshot that have deletes again; None where it has no delete files. stages: as of
        Compaction.
        """

    def follow(self, copy: Copy, transfer: Transfer | None) -> None:
        """Lets the branch have the data files of a copy that main has, with the deletes since then, unless another commit
        has replaced the files. transfer: as of TableMaintenance.compact.
        """

    def abandon(self, copy: Copy) -> None:
        """Deletes the data files of a copy that no snapshot has."""


def left(branch: str, table: str) -> ConflictError:
    """Returns the error for a snapshot that the branch does not have any more."""
    return ConflictError(f"the branch `{branch}` was discarded in the meantime", where=table)
