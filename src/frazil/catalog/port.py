"""The port of the catalog: tables with their progress, and a commit that is a compare-and-swap on the progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, cast

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from frazil.catalog.layout import UNARRANGED, Layout
from frazil.catalog.progress import LoggedSnapshot
from frazil.catalog.scans import Scan
from frazil.errors import ConflictError, UnavailableError
from frazil.store.properties import credentials_end_ms
from frazil.types import Commit, DataFile, Progress, RowDelta


@dataclass(frozen=True)
class StoredLayout:
    """How the rows of a table are divided and ordered in its files, as Iceberg's JSON; empty for neither."""

    #: The id of the current partition spec.
    spec_id: int = 0
    #: The current partition spec.
    partition_spec: str = ""
    #: The current sort order.
    sort_order: str = ""
    #: The other partition specs.
    older_specs: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableState:
    """A table as it was loaded."""

    #: The name, with its namespace.
    name: str
    #: The UUID, which a recreated table does not share.
    uuid: str
    #: The current schema, with field ids.
    schema: Schema
    #: The root folder of the table.
    location: str
    properties: Mapping[str, str]
    #: Iceberg's format version: 1, 2 or 3.
    format_version: int
    #: The newest progress of this pipeline; empty without one.
    progress: Progress
    #: Whether this pipeline has committed before and the snapshot with its progress has been expired, or is not shown.
    history_lost: bool = False
    #: What a task needs to reach the table's store, secrets included: never to be printed.
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: The id of the newest snapshot of the table's branch; None without a snapshot.
    head_id: int | None = None
    #: The id of the newest snapshot of the main branch; None without one.
    main_id: int | None = None
    #: This pipeline's own table properties, without their prefix.
    marks: Mapping[str, str] = field(default_factory=dict)
    #: How its rows are divided and ordered.
    layout: StoredLayout = StoredLayout()
    #: Whether tables of the catalog must keep the metadata files of older commits.
    must_keep_metadata: bool = False

    @property
    def data_location(self) -> str:
        """The folder of new data files."""
        return self.properties.get("write.data.path") or self.location

    @property
    def partitioning(self) -> PartitionSpec:
        """The current partition spec."""
        text = self.layout.partition_spec
        return PartitionSpec.model_validate_json(text) if text else PartitionSpec()

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """Every partition spec that the table has, older ones included."""
        return (*map(PartitionSpec.model_validate_json, self.layout.older_specs), self.partitioning)

    @property
    def sorting(self) -> SortOrder:
        """The current sort order."""
        text = self.layout.sort_order
        return SortOrder.model_validate_json(text) if text else UNSORTED_SORT_ORDER

    @property
    def shape(self) -> tuple[int, int, int]:
        """The ids of schema, partition spec and sort order that data files are written for."""
        return (self.schema.schema_id, self.layout.spec_id, self.sorting.order_id)

    @cached_property
    def credentials_end_ms(self) -> int | None:
        """When the store credentials in `io_properties` expire, where the catalog returns it; another load renews them."""
        return credentials_end_ms(self.io_properties)


@dataclass(frozen=True)
class TableSize:
    """The size of a table's current snapshot."""

    #: The number of rows in data files.
    row_count: int
    #: The number of data files.
    file_count: int
    #: The size of the data files.
    size_bytes: int
    #: The number of snapshots that can be read.
    snapshot_count: int
    #: The number of rows that position deletes and deletion vectors delete.
    deleted_row_count: int = 0

    @property
    def live_row_count(self) -> int:
        """The number of rows that a reader returns, if no writer left equality deletes or deletes of a removed file."""
        return max(self.row_count - self.deleted_row_count, 0)


@dataclass(frozen=True)
class Rewrite:
    """A commit that replaces data files of a table by others."""

    table: str
    #: The snapshot in which the caller read the files `removed`.
    read_at: int
    #: The id of this commit, in its summary under REWRITE_ID.
    id: str
    #: Paths of the files to be removed.
    removed: tuple[str, ...]
    #: The files to be added.
    added: tuple[DataFile, ...]
    #: Further entries of the snapshot summary, under this pipeline's keys.
    summary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Replacement:
    """A commit of replayed dead letters that replaces rows and leaves the progress unchanged."""

    table: str
    #: Data files with the new rows.
    files: tuple[DataFile, ...]
    #: The rows to be deleted.
    delta: RowDelta
    #: The newest progress that the commit was made for.
    expected: Progress
    #: A snapshot since which no other replay has added rows; None: since the table was created.
    since: int | None
    #: The id of this commit, in its summary under REPLAY_ID.
    id: str
    #: Further entries of the snapshot summary, under this pipeline's keys.
    summary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NamedAppend:
    """A commit that adds files and leaves the progress unchanged, made once: its summary has an entry of its own."""

    table: str
    #: The files to be added.
    files: Sequence[DataFile]
    #: The key of the entry, under this pipeline's keys.
    name: str
    #: The value of the entry.
    value: str
    #: A snapshot after which the entry is looked for; None: since the table was created.
    since: int | None
    #: Further entries of the snapshot summary, under this pipeline's keys.
    summary: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> dict[str, str]:
        """All entries of the snapshot summary, under this pipeline's keys."""
        return {**self.summary, self.name: self.value}


class TableMoved(ConflictError):
    """another writer has changed what this commit takes rows from
    the changes are looked up again in the table as it is now
    """


class NotSent(UnavailableError):
    """the commit was not made, and nothing of it was sent
    Frazil retries with back-off; look at the service that is named
    """


class Catalog(Protocol):
    """The port. Every method raises UnavailableError where the catalog or its store does not answer."""

    def load(self, table: str) -> TableState | None:
        """Returns the table, fresh from the catalog; None where it does not exist. A table that was deleted and
        recreated since the last load is loaded like any other.

        Raises: SpecError where it has a column of a type that cannot be written.
        """

    def on_main(self, table: str) -> Catalog:
        """Returns a catalog to read the table as its readers see it, at main; this one for a table without a branch."""

    def size(self, table: str) -> TableSize:
        """Returns the size of the newest snapshot, from its summary."""

    def create(
        self,
        table: str,
        schema: Schema,
        properties: Mapping[str, str],
        format_version: int,
        layout: Layout = UNARRANGED,
        location: str | None = None,
    ) -> TableState:
        """Creates the table, and its namespace, unless another process just has; returns it. The catalog may choose
        another format version. location: its root folder; None: the catalog chooses it.

        Raises: SpecError where `layout` does not match the columns, or the catalog refuses such a table.
        """

    def arrange(self, table: str, layout: Layout) -> TableState:
        """Gives new files of the table the layout, by one commit for the partition spec and one for the sort order;
        changes nothing where they are equal already. Existing files stay as they are.

        Raises: SpecError where the layout does not match the columns.
        """

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        """Commits the schema `change(current schema)`, unless it is a no-op; returns the table. Where the catalog
        ignores a change, the table stays unchanged. The catalog assigns the ids of new fields.

        Raises: SpecError where a new column has the name of a partition field.
        """

    def commit(self, commit: Commit) -> Progress:
        """Commits one snapshot with the files and the progress, if the newest progress on its branch is
        `commit.expected`. Returns the progress as committed, also where the response was lost and the table contains
        our commit id, even below a commit of another run.

        Raises: ConflictError where the progress is another one, or the table's shape or newest snapshot is not the one
        that the commit requires;
        TableMoved, for a commit that deletes rows, where another writer has added, removed or deleted from files since
        the snapshot it was made for; NotSent where no request was sent; UnavailableError where the outcome is unknown:
        the caller plans again from the table's progress and deletes no files.
        """

    def scan(self, table: str) -> Scan:
        """Returns the files of the table as last loaded or committed to, with their delete files."""

    def store_properties(self, location: str) -> Mapping[str, str]:
        """Returns what reaches a file at `location` that is not a table's, secrets included, without the credentials that
        the catalog vends for a table.

        Raises: UnavailableError where the driver finds no identity for its store.
        """

    def lock(self, table: str) -> AbstractContextManager[object]:
        """Returns a context that excludes other threads of this process from the table: a batch that looks up rows and
        deletes them, and maintenance that replaces the files that were searched.
        """

    def mark(self, table: str, name: str, value: str | None) -> None:
        """Sets one of this pipeline's own properties of a loaded table, or removes it where `value` is None."""

    def history(self, table: str, names: Sequence[str]) -> Iterable[LoggedSnapshot]:
        """Returns the snapshots of the table's branch as loaded, the newest first, with the values of the summary keys
        `names`.
        """

    def summaries(self, table: str) -> Iterable[Mapping[str, str]]:
        """Returns the whole summaries of the snapshots of the table's branch as loaded, the newest first."""

    def rewrite(self, rewrite: Rewrite) -> None:
        """Commits one snapshot that replaces files; succeeds also where the response was lost and the table contains
        it.

        Raises: ConflictError where one of the files is gone, or this pipeline committed another rewrite since
        `read_at`: the caller loads the table again. UnavailableError where the outcome is unknown.
        """

    def append_once(self, append: NamedAppend) -> None:
        """Commits one snapshot that adds files, without progress; does nothing where the table contains it already.

        Raises: ConflictError after a conflicting commit; UnavailableError where the outcome is unknown or the history
        does not reach back to the append's `since`.
        """

    def replace_once(self, replacement: Replacement) -> None:
        """Commits one snapshot that replaces rows; succeeds also where the response was lost and the table contains it.

        Raises: ConflictError where the newest progress is another one, another replay has added rows since, or another
        writer has added, removed or deleted from files since the snapshot it was made for: the caller loads the table
        again. UnavailableError where the outcome is unknown: the caller deletes no files.
        """

    def delete_files(self, table: str, paths: Sequence[str]) -> None:
        """Deletes files that no snapshot names, as far as possible."""


class _Unmade:
    """Answers the questions that come before a table is loaded; the others follow a table that was."""

    def __init__(self, reach: Callable[[str], Mapping[str, str]]) -> None:
        self._reach = reach

    def load(self, table: str) -> None:  # noqa: ARG002
        return None

    def on_main(self, table: str) -> Catalog:  # noqa: ARG002
        return cast(Catalog, self)

    def store_properties(self, location: str) -> Mapping[str, str]:
        return self._reach(location)


def catalog_without_tables(reach: Callable[[str], Mapping[str, str]] = lambda _: {}) -> Catalog:
    """Returns a catalog without tables, for reading. reach: `store_properties`."""
    return cast(Catalog, _Unmade(reach))
