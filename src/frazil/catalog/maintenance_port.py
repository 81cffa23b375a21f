"""What table care asks of a catalog: to look at a table, and to change how it is stored but never what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from frazil.catalog.port import TableState
from frazil.catalog.scans import LiveFile
from frazil.catalog.table_metadata import TableMetadata
from frazil.types import DataFile, DeleteFile

Transfer = Callable[[Sequence[LiveFile], Sequence[LiveFile], Sequence[LiveFile]], Sequence[DeleteFile] | None]
"""Given files as they were read for a rewrite, the same as they are now, and the files that have their rows: deletes of the
latter for the rows that were deleted meanwhile; None where these cannot be told apart.
"""


@dataclass(frozen=True)
class Merging:
    """Data files of one partition and of the table's newest spec that become one, or several of about `most_bytes`.

    files: each with its data sequence number. folder: of the partition, as Iceberg names it; empty without one.
    """

    files: tuple[tuple[LiveFile, int], ...]
    folder: str
    most_bytes: int


Merge = Callable[[Merging], Sequence[DataFile] | None]
"""Writes the rows of some files, in their order, to new ones, in a Spark task. None where these are not for it, or cannot be
read or written: then nothing is left of it.
"""
MergeOf = Callable[[TableState], Merge | None]
"""What merges files of a table; None where none of its files are for it."""


@dataclass(frozen=True)
class Rewritten:
    """What a rewrite did: files that went and came, bytes read, and files whose rewrite was lost to another commit."""

    removed: int = 0
    added: int = 0
    size_bytes: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Compaction:
    """How data files are rewritten. options: Iceberg's own of `rewrite_data_files`. sort: columns with asc or desc; zorder:
    columns; neither: the table's own sort order, or that in which files are packed together. removes_dangling: whether
    delete files go that no data file is left for. partitions: those of the newest spec whose files are rewritten, as
    StoredData has them, for the options go for all alike; None: all.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    sort: tuple[str, ...] = ()
    zorder: tuple[str, ...] = ()
    removes_dangling: bool = False
    partitions: frozenset[str] | None = None


class Upkeep(Protocol):
    """The port. Every change is one that readers do not notice: the rows of every snapshot that is kept stay what they are.

    Methods raise ConflictError when another commit was in the way: the table is looked at anew; UnavailableError when the
    catalog, the store or Spark does not answer, or the outcome could not be found out. After either, and after a process
    has died in one, what is left behind is at most files that no snapshot names.
    """

    def metadata(self, table: str, with_files: bool) -> TableMetadata | None:
        """The table, fresh from the catalog; None where there is none. with_files: files and manifests too."""

    def compact(self, table: str, compaction: Compaction, transfer: Transfer | None = None) -> Rewritten:
        """Rewrites small data files, and those with many deleted rows, into files of the right size.

        transfer: what is done about rows that are deleted while they are rewritten; without it such a rewrite is lost.
        """

    def rewrite_deletes(self, table: str, options: Mapping[str, str]) -> Rewritten:
        """Rewrites small files of position deletes into larger ones."""

    def rewrite_manifests(self, table: str) -> Rewritten:
        """Puts small manifests together, by partition."""

    def expire(self, table: str, snapshots: Sequence[int]) -> None:
        """Forgets these snapshots and removes files that only they name; a snapshot that a branch or tag has come to name
        meanwhile is refused with ConflictError.
        """

    def carry(self, table: str) -> None:
        """Commits an empty snapshot that says again what the newest progress of every pipeline says, if it still does;
        nothing where the newest snapshot says it all.
        """

    def orphans(self, table: str, older_than_ms: int) -> list[str]:
        """Files in the table's folder, last written before that time, which its metadata does not name.

        Raises SpecError where another table's metadata lies in the same folder: its files cannot be told from orphans.
        """

    def remove(self, table: str, paths: Sequence[str]) -> None:
        """Deletes files, as far as possible."""

    def compute_statistics(self, table: str) -> None:
        """Counts the distinct values of each column in the newest snapshot, for query planners."""

    def note(self, table: str, name: str, text: str) -> None:
        """Sets one of this pipeline's own properties of the table."""
