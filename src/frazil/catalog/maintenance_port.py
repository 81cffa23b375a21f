"""The ports of what is done with a table besides batches: maintenance, branches and tags.

Maintenance reads a table's metadata, and changes how the table is stored but never its rows. A change of a branch is a
compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from frazil.catalog.port import TableState
from frazil.catalog.scans import LiveFile
from frazil.catalog.table_metadata import TableMetadata
from frazil.errors import ConflictError
from frazil.types import DataFile, DeleteFile

Transfer = Callable[[Sequence[LiveFile], Sequence[LiveFile], Sequence[LiveFile]], Sequence[DeleteFile] | None]
"""Returns delete files for new files, for rows that were deleted from the old files during a compaction; None where
these rows cannot be identified. Arguments: the old files as they were read, the old files as they are now, and the new
files.
"""


@dataclass(frozen=True)
class Merging:
    """Data files of one partition and of the table's current partition spec that are compacted into one file, or
    several of about `most_bytes`.
    """

    #: The files, each with its data sequence number.
    files: tuple[tuple[LiveFile, int], ...]
    #: The folder of the partition, as Iceberg names it; empty without a partition.
    folder: str
    #: The maximum size of a new file.
    most_bytes: int


Merge = Callable[[Merging], Sequence[DataFile] | None]
"""Writes the rows of some files, in order, to new files, in a Spark task. Returns None, and leaves no file behind,
where it does not support the files, or they cannot be read or written.
"""
MergeOf = Callable[[TableState, tuple[Any, ...]], Merge | None]
"""Returns the Merge for a table, with these stages; None where it supports none of the table's files."""


@dataclass(frozen=True)
class Rewritten:
    """The result of a rewrite."""

    #: The number of files removed.
    removed: int = 0
    #: The number of files added.
    added: int = 0
    #: The number of bytes read.
    size_bytes: int = 0
    #: The number of files whose rewrite was discarded after a conflicting commit.
    lost: int = 0


@dataclass(frozen=True)
class Compaction:
    """How data files are compacted."""

    #: Options of Iceberg's `rewrite_data_files`.
    options: Mapping[str, str] = field(default_factory=dict)
    #: Columns to sort by, each with `asc` or `desc`. Without `sort` and `zorder`: the table's own sort order.
    sort: tuple[str, ...] = ()
    #: Columns to order by on a Z-curve.
    zorder: tuple[str, ...] = ()
    #: Whether delete files without a data file are removed.
    removes_dangling: bool = False
    #: The partitions of the current spec whose files are compacted, as in StoredData; None: all. The options apply to
    #: all of them.
    partitions: frozenset[str] | None = None
    #: The data files of which at least one must be in what is compacted together; None: any.
    files: frozenset[str] | None = None
    #: What writes values of the rows beside the new files: `stages.stage.TableStage`s. Iceberg's own writer has none.
    stages: tuple[Any, ...] = ()


class TableMaintenance(Protocol):
    """The port. No change is visible to readers: the rows of every kept snapshot stay the same.

    Every method raises ConflictError after a conflicting commit: the table is planned again; UnavailableError where the
    catalog, the store or Spark does not answer, or the outcome is unknown. After either, and after a crash, at most
    orphan files are left behind.
    """

    def metadata(self, table: str, with_files: bool) -> TableMetadata | None:
        """Returns the table's metadata, fresh from the catalog; None where the table does not exist. with_files:
        includes files and manifests.
        """

    def described(self, table: str) -> tuple[str, Mapping[str, str]]:
        """Returns the table's metadata as Iceberg's JSON, and the properties for access to its store, secrets included."""

    def compact(self, table: str, compaction: Compaction, transfer: Transfer | None = None) -> Rewritten:
        """Rewrites small data files, and data files with many deleted rows, into files of the target size. transfer:
        how rows that are deleted meanwhile are found in the new files; without it such a compaction is discarded.
        """

    def rewrite_deletes(self, table: str, options: Mapping[str, str]) -> Rewritten:
        """Rewrites small files of position deletes into larger ones."""

    def rewrite_manifests(self, table: str) -> Rewritten:
        """Merges small manifests, by partition."""

    def expire(self, table: str, snapshots: Sequence[int]) -> None:
        """Expires these snapshots and deletes files that only they name.

        Raises: ConflictError where a branch or tag has come to name one of the snapshots.
        """

    def carry(self, table: str) -> None:
        """Commits an empty snapshot that repeats the newest progress of every pipeline, if it still is the newest; does
        nothing where the newest snapshot contains all of it.
        """

    def orphans(self, table: str, older_than_ms: int) -> list[str]:
        """Returns files in the table's folder that were last written before `older_than_ms` and that its metadata does
        not name.

        Raises: SpecError where another table's metadata is in the same folder, whose files would look like orphans.
        """

    def remove(self, table: str, paths: Sequence[str]) -> None:
        """Deletes files, as far as possible."""

    def compute_statistics(self, table: str) -> None:
        """Counts the distinct values of each column in the newest snapshot, for query planners."""

    def note(self, table: str, name: str, text: str) -> None:
        """Sets one of this pipeline's own properties of the table."""


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
