"""The catalog's twin in memory, for tests: the same promises, no JVM, and faults on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyiceberg.schema import Schema, assign_fresh_schema_ids

from frazil.catalog.port import TableSize, TableState
from frazil.catalog.progress import from_summary, to_summary
from frazil.clock import new_id
from frazil.errors import ConflictError, InvariantError, UnavailableError
from frazil.types import Commit, DataFile, Progress


@dataclass(frozen=True)
class MemorySnapshot:
    """One snapshot: its parent's id, the files it added and its summary."""

    id: int
    parent: int | None
    files: tuple[DataFile, ...]
    summary: Mapping[str, str]


@dataclass
class _Table:
    state: TableState
    snapshots: dict[int, MemorySnapshot] = field(default_factory=dict)
    head: int | None = None
    adopted_by: set[str] = field(default_factory=set)


class MemoryCatalog:
    """Tables under `root`. `losses` says what goes wrong with the next commits: `question` never arrives; of `answer`
    the commit lands and is found again; of `outcome` it lands and nobody can tell.
    """

    def __init__(self, root: Path, pipeline: str) -> None:
        self._root = root
        self._pipeline = pipeline
        self._tables: dict[str, _Table] = {}
        self._lock = threading.Lock()
        self.losses: list[str] = []

    def for_pipeline(self, pipeline: str) -> MemoryCatalog:
        """The same tables, seen by another pipeline."""
        other = MemoryCatalog(self._root, pipeline)
        other._tables = self._tables
        other._lock = self._lock
        other.losses = self.losses
        return other

    def load(self, table: str) -> TableState | None:
        """See the port."""
        found = self._tables.get(table)
        if found is None:
            return None
        progress = self._progress(found)
        lost = progress.snapshot_id is None and self._pipeline in found.adopted_by and self._is_cut(found)
        return replace(found.state, progress=progress, history_lost=lost)

    def size(self, table: str) -> TableSize:
        """See the port."""
        files = [f for snapshot in self.ancestors(table) for f in snapshot.files]
        rows, size = sum(f.record_count for f in files), sum(f.size_bytes for f in files)
        return TableSize(rows, len(files), size, len(self._tables[table].snapshots))

    def create(self, table: str, schema: Schema, properties: Mapping[str, str], format_version: int) -> TableState:
        """See the port."""
        with self._lock:
            if table not in self._tables:
                location = str(self._root / table)
                fresh = assign_fresh_schema_ids(schema)
                state = TableState(
                    table, new_id(), fresh, location, dict(properties), format_version, 0, False, Progress()
                )
                self._tables[table] = _Table(state, adopted_by={self._pipeline})
        loaded = self.load(table)
        assert loaded is not None
        return loaded

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        """See the port."""
        with self._lock:
            found = self._tables.get(table)
            if found is None:
                raise UnavailableError("the table is gone", remedy="see who dropped it", where=table)
            found.state = replace(found.state, schema=change(found.state.schema))
        loaded = self.load(table)
        assert loaded is not None
        return loaded

    def commit(self, commit: Commit) -> Progress:
        """See the port."""
        with self._lock:
            found = self._tables[commit.table]
            loss = self.losses.pop(0) if self.losses else ""
            if loss == "question":
                raise UnavailableError("the catalog does not answer")
            newest = self._progress(found)
            if newest.commit_id != commit.expected.commit_id:
                raise ConflictError("the table's progress is not the one this batch started from", where=commit.table)
            number = max(found.snapshots, default=0) + 1
            summary = to_summary(self._pipeline, commit.progress)
            found.snapshots[number] = MemorySnapshot(number, found.head, commit.files, summary)
            found.head = number
            found.adopted_by.add(self._pipeline)
            if loss == "outcome":
                raise UnavailableError("the answer to the commit was lost")
        return replace(commit.progress, snapshot_id=number)

    def delete_files(self, table: str, paths: Sequence[str]) -> None:
        """See the port."""
        snapshots = self._tables[table].snapshots.values() if table in self._tables else ()
        named = {file.path for snapshot in snapshots for file in snapshot.files}
        for path in paths:
            if path in named:
                raise InvariantError("a file that a snapshot names was to be deleted", where=path)
            Path(path).unlink(missing_ok=True)

    def ancestors(self, table: str) -> list[MemorySnapshot]:
        """Snapshots of the main branch, newest first."""
        return self._ancestors(self._tables[table])

    def roll_back(self, table: str, snapshot_id: int | None) -> None:
        """What an operator does by hand."""
        self._tables[table].head = snapshot_id

    def expire(self, table: str, snapshot_id: int) -> None:
        """Forgets one snapshot, as an operator may do by hand."""
        del self._tables[table].snapshots[snapshot_id]

    def append_foreign(self, table: str) -> None:
        """A snapshot of another writer, or of a compaction: no progress in it."""
        found = self._tables[table]
        number = max(found.snapshots, default=0) + 1
        found.snapshots[number] = MemorySnapshot(number, found.head, (), {})
        found.head = number

    @staticmethod
    def _ancestors(found: _Table) -> list[MemorySnapshot]:
        line = []
        at = found.head
        while at is not None and at in found.snapshots:
            line.append(found.snapshots[at])
            at = found.snapshots[at].parent
        return line

    def _is_cut(self, found: _Table) -> bool:
        line = self._ancestors(found)
        return bool(line) and line[-1].parent is not None

    def _progress(self, found: _Table) -> Progress:
        for snapshot in self._ancestors(found):
            progress = from_summary(self._pipeline, snapshot.summary, snapshot.id)
            if progress is not None:
                return progress
        return Progress()
