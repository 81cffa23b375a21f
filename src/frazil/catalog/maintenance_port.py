"""The port of table maintenance: reads a table's metadata, and changes how the table is stored but never its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from frazil.catalog.port import TableState
from frazil.catalog.scans import LiveFile
from frazil.catalog.table_metadata import TableMetadata
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
