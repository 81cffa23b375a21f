"""What Frazil asks of a catalog: tables with their progress, and one commit that is a compare-and-swap on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from frazil.catalog.history import LoggedSnapshot
from frazil.catalog.layout import UNARRANGED, Layout
from frazil.catalog.scans import Scan
from frazil.errors import ConflictError, UnavailableError
from frazil.types import Commit, DataFile, Progress, RowDelta


@dataclass(frozen=True)
class TableState:
    """A table as it was when it was loaded.

    schema: the current one, with field ids. io_properties: what a task needs to reach the table's store (secrets
    included: never printed). progress: of this pipeline; empty when it has none. history_lost: this pipeline has
    committed here before, but the snapshot that said how far has been expired. head_id: the newest snapshot of the main
    branch; None before the first. marks: the properties that are this pipeline's own, without their prefix.
    partition_spec, sort_order: those that new files get, as Iceberg's JSON; older_specs: the other partition specs.
    """

    name: str
    uuid: str
    schema: Schema
    location: str
    properties: Mapping[str, str]
    format_version: int
    spec_id: int
    is_partitioned: bool
    progress: Progress
    history_lost: bool = False
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    head_id: int | None = None
    marks: Mapping[str, str] = field(default_factory=dict)
    partition_spec: str = ""
    sort_order: str = ""
    older_specs: tuple[str, ...] = ()

    @property
    def partitioning(self) -> PartitionSpec:
        """The partition spec."""
        return PartitionSpec.model_validate_json(self.partition_spec) if self.partition_spec else PartitionSpec()

    @property
    def sorting(self) -> SortOrder:
        """The sort order."""
        return SortOrder.model_validate_json(self.sort_order) if self.sort_order else UNSORTED_SORT_ORDER

    @property
    def shape(self) -> tuple[int, int, int]:
        """The ids of schema, partition spec and sort order: what files are written for."""
        return (self.schema.schema_id, self.spec_id, self.sorting.order_id)

    @property
    def credentials_end_ms(self) -> int | None:
        """When the store will refuse these `io_properties`, as far as the catalog says: another load has new ones."""
        ends = self.io_properties.get("s3.session-token-expires-at-ms")
        return int(ends) if ends and ends.isdecimal() else None


@dataclass(frozen=True)
class TableSize:
    """Of the current snapshot: rows in data files, these and their bytes; snapshots that can still be read; rows of those
    that position deletes and deletion vectors take away.
    """

    row_count: int
    file_count: int
    size_bytes: int
    snapshot_count: int
    deleted_row_count: int = 0

    @property
    def live_row_count(self) -> int:
        """What a reader finds, where no writer has left equality deletes, or deletes of a file that is gone."""
        return max(self.row_count - self.deleted_row_count, 0)


@dataclass(frozen=True)
class StoredFile:
    """A data file of the current snapshot. has_deletes: some of its rows are deleted by other files."""

    path: str
    record_count: int
    size_bytes: int
    has_deletes: bool = False


@dataclass(frozen=True)
class Rewrite:
    """Files of a table that go, and files that come in their place, as one snapshot.

    read_at: the snapshot in which the caller saw `removed`. id: the commit's own name, in its summary under REWRITE_ID.
    words: what the summary says besides, under this pipeline's keys.
    """

    table: str
    read_at: int
    id: str
    removed: tuple[str, ...]
    added: tuple[DataFile, ...]
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Replacement:
    """Rows that take the place of others without any progress, as one snapshot: those of retried letters.

    files: the rows that come; delta: what goes. expected: the newest progress that it was made for. since: a snapshot after
    which no other retry has brought rows; None: since the table began. id: the commit's own name, in its summary under
    RETRY_ID. words: what the summary says besides, under this pipeline's keys.
    """

    table: str
    files: tuple[DataFile, ...]
    delta: RowDelta
    expected: Progress
    since: int | None
    id: str
    words: Mapping[str, str] = field(default_factory=dict)


class TableMoved(ConflictError):
    """another writer has changed what this commit takes rows from
    the changes are looked up again in the table as it is now
    """


class NotSent(UnavailableError):
    """the commit was not made, and nothing of it was sent
    Frazil retries with back-off; look at the service that is named
    """


class Catalog(Protocol):
    """The port. Every method raises UnavailableError when the catalog or its store does not answer."""

    def load(self, table: str) -> TableState | None:
        """The table, fresh from the catalog; None when there is none. SpecError when it has a column of a type that cannot
        be written. One that was dropped and made anew since it was last loaded is as any other that is loaded.
        """

    def size(self, table: str) -> TableSize:
        """What the newest snapshot's summary says."""

    def create(
        self,
        table: str,
        schema: Schema,
        properties: Mapping[str, str],
        format_version: int,
        layout: Layout = UNARRANGED,
    ) -> TableState:
        """Makes the table (and its namespace) unless another process just did. SpecError when `layout` does not fit the
        columns.
        """

    def arrange(self, table: str, layout: Layout) -> TableState:
        """Gives new files of a table the layout that is asked for, by a commit for its partition spec and one for its sort
        order; nothing where they are so already. Files that are there stay as they are. SpecError when it does not fit the
        columns.
        """

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        """Commits `change(current schema)`; nothing when it changes nothing. What the catalog makes nothing of leaves the
        table as it is. Field ids of new fields are the catalog's. SpecError when a new column has the name of a partition
        field.
        """

    def commit(self, commit: Commit) -> Progress:
        """One snapshot with the files and the progress, if the newest progress in the ancestry is `commit.expected`.

        Returns the progress as committed, also when the answer was lost but the table has our commit id, be it below that
        of another run. Raises ConflictError when the progress is another one, or the table has another shape than
        `commit.shape`; UnavailableError when the outcome could not be found out: the caller plans again from the table's
        progress and deletes nothing. NotSent when nothing was asked of the table. TableMoved, of a commit that takes rows
        away, when another writer has added, removed or deleted from files since the snapshot that it was made for.
        """

    def scan(self, table: str) -> Scan:
        """The files of a table as it was last loaded or committed to, with what is deleted of them."""

    def lock(self, table: str) -> AbstractContextManager[object]:
        """While it lasts, no other thread of this process has it: neither a batch that looks rows up in the table and takes
        them away, nor table care that puts other files in the place of those that were looked at.
        """

    def files(self, table: str) -> list[StoredFile]:
        """The data files of the newest snapshot of a table that was loaded."""

    def mark(self, table: str, name: str, value: str | None) -> None:
        """Sets one of this pipeline's own properties of a table that was loaded, or takes it away."""

    def history(self, table: str, names: Sequence[str]) -> Iterable[LoggedSnapshot]:
        """The main branch of a table as it was loaded, newest first, with what it says under `names`."""

    def rewrite(self, rewrite: Rewrite) -> None:
        """One snapshot in which files are replaced; also when the answer was lost but the table has it.

        Raises ConflictError when one of the files is gone, or when any other rewrite of this pipeline was committed since
        `read_at`: the caller looks anew. UnavailableError when the outcome could not be found out.
        """

    def append_once(self, table: str, files: Sequence[DataFile], name: str, value: str, since: int | None) -> None:
        """One snapshot with these files that says `value` under `name`, and no progress; nothing where one after the
        snapshot `since` says so already. None: since the table began.

        Raises ConflictError when another writer was in the way, UnavailableError when the outcome could not be found out or
        the history does not reach back to `since`.
        """

    def replace_once(self, replacement: Replacement) -> None:
        """One snapshot with these rows in place of others; also when the answer was lost but the table has it.

        Raises ConflictError when the newest progress is another one, another retry has brought rows since, or another writer
        has added, removed or deleted from files since the snapshot that it was made for: the caller looks anew.
        UnavailableError when the outcome could not be found out: the caller deletes nothing.
        """

    def delete_files(self, table: str, paths: Sequence[str]) -> None:
        """Removes files that no snapshot names, as far as possible."""
