"""What Frazil asks of a catalog: tables with their progress, and one commit that is a compare-and-swap on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyiceberg.schema import Schema

from frazil.types import Commit, Progress


@dataclass(frozen=True)
class TableState:
    """A table as it was when it was loaded.

    schema: the current one, with field ids. io_properties: what a task needs to reach the table's store (secrets
    included: never printed). progress: of this pipeline; empty when it has none. history_lost: this pipeline has
    committed here before, but the snapshot that said how far has been expired.
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

    @property
    def credentials_end_ms(self) -> int | None:
        """When the store will refuse these `io_properties`, as far as the catalog says: another load has new ones."""
        ends = self.io_properties.get("s3.session-token-expires-at-ms")
        return int(ends) if ends and ends.isdecimal() else None


@dataclass(frozen=True)
class TableSize:
    """Of the current snapshot: rows, data files and their bytes; snapshots that can still be read."""

    row_count: int
    file_count: int
    size_bytes: int
    snapshot_count: int


class Catalog(Protocol):
    """The port. Every method raises UnavailableError when the catalog or its store does not answer."""

    def load(self, table: str) -> TableState | None:
        """The table, fresh from the catalog; None when there is none."""

    def size(self, table: str) -> TableSize:
        """What the newest snapshot's summary says."""

    def create(self, table: str, schema: Schema, properties: Mapping[str, str], format_version: int) -> TableState:
        """Makes the table (and its namespace) unless another process just did."""

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        """Commits `change(current schema)`; nothing when it changes nothing. Field ids of new fields are the catalog's."""

    def commit(self, commit: Commit) -> Progress:
        """One snapshot with the files and the progress, if the newest progress in the ancestry is `commit.expected`.

        Returns the progress as committed, also when the answer was lost but the table has our commit id. Raises
        ConflictError when the progress is another one, UnavailableError when the outcome could not be found out: the
        caller plans again from the table's progress and deletes nothing.
        """

    def delete_files(self, table: str, paths: Sequence[str]) -> None:
        """Removes files that no snapshot names, as far as possible."""
