"""A table of the catalog in memory: its snapshots, branches and tags, and the files that they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema

from frazil.catalog.layout import METRICS_OF, Layout, find_column, order_of, spec_change
from frazil.catalog.maintenance_port import Tag
from frazil.catalog.port import StoredLayout, TableState
from frazil.catalog.scans import LiveFile, numbered
from frazil.errors import UnavailableError
from frazil.spec.partitioning import transform_of
from frazil.types import MAIN, DataFile, DeleteFile

_NEWEST_FORMAT = 3


@dataclass(frozen=True)
class MemorySnapshot:
    """One snapshot."""

    id: int
    #: The id of its parent; None without one.
    parent: int | None
    #: The data files that it added.
    files: tuple[DataFile, ...]
    summary: Mapping[str, str]
    #: Paths of the data files that it removed.
    removed: frozenset[str] = frozenset()
    #: The delete files that it added.
    deletes: tuple[DeleteFile, ...] = ()
    #: The delete files that it removed.
    replaced: frozenset[DeleteFile] = frozenset()


@dataclass
class StoredTable:
    """A table."""

    state: TableState
    snapshots: dict[int, MemorySnapshot] = field(default_factory=dict)
    #: The newest snapshot of each branch.
    heads: dict[str, int] = field(default_factory=dict)
    tags: dict[str, Tag] = field(default_factory=dict)
    adopted_by: set[str] = field(default_factory=set)
    next_row_id: int = 0
    expired: set[int] = field(default_factory=set)

    def head(self, branch: str) -> int | None:
        """Returns the newest snapshot of the branch, which begins at the main branch; None without one."""
        return self.heads.get(branch, self.heads.get(MAIN))

    def line(self, branch: str) -> list[MemorySnapshot]:
        """Returns the branch, the newest snapshot first, with expired snapshots: the table still has their files."""
        line = []
        snapshot_id = self.head(branch)
        while snapshot_id is not None:
            line.append(self.snapshots[snapshot_id])
            snapshot_id = self.snapshots[snapshot_id].parent
        return line

    def ancestors(self, branch: str) -> list[MemorySnapshot]:
        """Returns the branch, the newest snapshot first, as far as it is not expired."""
        return list(takewhile(lambda snapshot: snapshot.id not in self.expired, self.line(branch)))

    def is_cut(self, branch: str) -> bool:
        """Returns whether the branch begins with an expired snapshot."""
        line = self.ancestors(branch)
        return bool(line) and line[-1].parent is not None

    def number_rows(self, files: Iterable[DataFile]) -> Iterator[DataFile]:
        """Yields the files as committed: in format version 3 with the id of their first row."""
        for file in files:
            content = numbered(file.content, self.next_row_id if self.state.format_version >= _NEWEST_FORMAT else None)
            self.next_row_id += file.record_count
            yield replace(file, content=content)


def renumbered(schema: Schema, number: int) -> Schema:
    return Schema(*schema.fields, schema_id=number, identifier_field_ids=schema.identifier_field_ids)


def files_of(line: Sequence[MemorySnapshot]) -> list[DataFile]:
    """Returns the data files left by the snapshots of a branch, which are given newest first."""
    removed: set[str] = set()
    files = []
    for snapshot in line:
        files += [file for file in snapshot.files if file.path not in removed]
        removed |= snapshot.removed
    return files


def live_files(line: Sequence[MemorySnapshot]) -> list[LiveFile]:
    """Returns the data files left, the oldest first, each with the delete files that apply to it."""
    replaced = frozenset().union(*(snapshot.replaced for snapshot in line))
    deletes = [delete for snapshot in reversed(line) for delete in snapshot.deletes if delete not in replaced]
    of_file: dict[str, list[DeleteFile]] = {}
    for delete in deletes:
        of_file.setdefault(delete.data_file, []).append(delete)
    return [
        LiveFile(file.path, file.record_count, file.content, tuple(of_file.get(file.path, ())))
        for file in reversed(files_of(line))
    ]


def rearranged(state: TableState, layout: Layout) -> TableState:
    """Returns the table with the partition spec and the sort order of the layout."""
    before, spec, order = state.layout, state.partitioning, state.sorting
    if layout.partition_by is not None:
        change = spec_change(layout.partition_by, state.schema, spec)
        kept = [field for field in spec.fields if field.name not in change.removed]
        first = spec.last_assigned_field_id + 1
        for number, (term, name) in enumerate(change.added, first):
            column = find_column(state.schema, term.column)
            assert column is not None
            kept.append(PartitionField(column.field_id, number, transform_of(term.transform), name))
        spec = PartitionSpec(*kept, spec_id=spec.spec_id + 1)
    if layout.sort_by is not None:
        order = order_of(layout.sort_by, state.schema)
    return replace(
        state,
        layout=StoredLayout(
            spec.spec_id,
            spec.model_dump_json(),
            order.model_dump_json(),
            before.older_specs if spec == state.partitioning else (*before.older_specs, before.partition_spec),
        ),
    )


def refuse_strange_metrics(properties: Mapping[str, str], schema: Schema, table: str) -> None:
    """Checks, as Iceberg does, that metrics are configured for existing columns only.

    Raises: UnavailableError where a column does not exist.
    """
    for name in properties:
        column = name.removeprefix(METRICS_OF)
        if column != name and column not in schema.column_names:
            raise UnavailableError(f"the table cannot be created: {name} names no column", where=table)
