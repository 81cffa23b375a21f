"""The in-memory implementation of the catalog port, for tests: the same contract without a JVM, and faults on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyiceberg.schema import Schema, assign_fresh_schema_ids

from frazil.catalog.layout import (
    UNARRANGED,
    Layout,
    is_arranged,
    order_of,
    refuse_partition_field_names,
    spec_of,
)
from frazil.catalog.maintenance_port import BranchMove, left
from frazil.catalog.port import (
    NamedAppend,
    NotSent,
    Replacement,
    Rewrite,
    StoredLayout,
    TableMoved,
    TableSize,
    TableState,
)
from frazil.catalog.progress import (
    COMMIT_ID,
    REPLAY_ID,
    REWRITE_ID,
    LoggedSnapshot,
    from_summary,
    is_recorded,
    is_undisturbed,
    is_unmoved,
    key,
    to_summary,
)
from frazil.catalog.scans import Scan
from frazil.catalog.table_metadata import read_schema
from frazil.clock import new_id
from frazil.errors import ConflictError, InvariantError, UnavailableError
from frazil.failpoints import hit
from frazil.types import MAIN, Commit, DataFile, DeleteFile, Progress, RowDelta
from frazil_testing.memory_table import (
    MemorySnapshot,
    StoredTable,
    files_of,
    live_files,
    rearranged,
    refuse_strange_metrics,
    renumbered,
)

_NEWEST_FORMAT = 3


class MemoryCatalog:
    """Implements the port `Catalog` with tables under the folder `root`."""

    def __init__(self, root: Path, pipeline: str, reach: Callable[[str], Mapping[str, str]] = lambda _: {}) -> None:
        """reach: `store_properties`, of a store that the tables are not in."""
        self._root = root
        #: Returns the branch that a table is read from and committed to.
        self.branch_of: Callable[[str], str] = lambda _: MAIN
        self._pipeline = pipeline
        self._reach = reach
        self._tables: dict[str, StoredTable] = {}
        self._lock = threading.Lock()
        #: The faults of the next commits, in order: `question`: the request never arrives; `answer`: the commit
        #: succeeds and is found again; `outcome`: it succeeds and the outcome is unknown.
        self.losses: list[str] = []

    def with_branches(self, branches: Callable[[str], str]) -> MemoryCatalog:
        """Returns this catalog. branches: returns the branch that a table is read from and committed to."""
        self.branch_of = branches
        return self

    def on_main(self, table: str) -> MemoryCatalog:
        if self.branch_of(table) == MAIN:
            return self
        return self.for_pipeline(self._pipeline).with_branches(lambda _: MAIN)

    def for_pipeline(self, pipeline: str) -> MemoryCatalog:
        """Returns the same tables as seen by another pipeline."""
        other = MemoryCatalog(self._root, pipeline, self._reach).with_branches(self.branch_of)
        other._tables = self._tables
        other._lock = self._lock
        other.losses = self.losses
        return other

    def adopt(self, state: TableState) -> None:
        """Adds a table as another catalog has it, without its snapshots."""
        marks = {key(self._pipeline, name): value for name, value in state.marks.items()}
        copied = replace(state, properties={**state.properties, **marks})
        self._tables[state.name] = StoredTable(copied, adopted_by={self._pipeline})

    def load(self, table: str) -> TableState | None:
        stored = self._tables.get(table)
        if stored is None:
            return None
        read_schema(stored.state.schema.model_dump_json(), table)
        progress = self._progress(stored)
        lost = (
            progress.snapshot_id is None
            and self._pipeline in stored.adopted_by
            and stored.is_cut(self.branch_of(stored.state.name))
        )
        prefix = key(self._pipeline, "")
        marks = {n.removeprefix(prefix): v for n, v in stored.state.properties.items() if n.startswith(prefix)}
        return replace(
            stored.state,
            progress=progress,
            history_lost=lost,
            head_id=self._head(stored),
            main_id=stored.heads.get(MAIN),
            marks=marks,
        )

    def size(self, table: str) -> TableSize:
        files = self.data_files(table)
        rows, size = sum(f.record_count for f in files), sum(f.size_bytes for f in files)
        stored = self._existing(table)
        deleted = sum(delete.record_count for file in live_files(self._line(stored)) for delete in file.deletes)
        return TableSize(rows, len(files), size, len(stored.snapshots.keys() - stored.expired), deleted)

    def create(
        self,
        table: str,
        schema: Schema,
        properties: Mapping[str, str],
        format_version: int,
        layout: Layout = UNARRANGED,
        location: str | None = None,
    ) -> TableState:
        with self._lock:
            if table not in self._tables:
                location = location or str(self._root / table)
                fresh = assign_fresh_schema_ids(schema)
                refuse_strange_metrics(properties, fresh, table)
                spec = spec_of(layout.partition_by or (), fresh, table)
                order = order_of(layout.sort_by or (), fresh, table)
                state = TableState(table, new_id(), fresh, location, dict(properties), format_version, Progress())
                state = replace(state, layout=StoredLayout(0, spec.model_dump_json(), order.model_dump_json()))
                self._tables[table] = StoredTable(state, adopted_by={self._pipeline})
        return self._loaded(table)

    def _loaded(self, table: str) -> TableState:
        loaded = self.load(table)
        assert loaded is not None
        return loaded

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        with self._lock:
            stored = self._existing(table)
            wanted = change(stored.state.schema)
            refuse_partition_field_names(stored.state.schema, wanted, stored.state.specs, table)
            if wanted != stored.state.schema:
                number = stored.state.schema.schema_id + 1
                stored.state = replace(stored.state, schema=renumbered(wanted, number))
        return self._loaded(table)

    def arrange(self, table: str, layout: Layout) -> TableState:
        with self._lock:
            stored = self._existing(table)
            state = stored.state
            if not is_arranged(layout, state.schema, state.partitioning, state.sorting, table):
                hit("layout.before")
                stored.state = rearranged(state, layout)
        return self._loaded(table)

    def commit(self, commit: Commit) -> Progress:
        with self._committing(commit.table) as stored:
            newest = self._progress(stored)
            if newest.commit_id != commit.expected.commit_id:
                landed = self._landed(stored, commit)
                if landed is not None:
                    return landed
                raise ConflictError("the table's progress has changed since this batch was planned", where=commit.table)
            if commit.head_id not in (None, self._head(stored)):
                raise ConflictError("another writer has committed to the table in the meantime", where=commit.table)
            if commit.shape not in (None, stored.state.shape):
                raise ConflictError("the table's shape was changed after this batch was planned", where=commit.table)
            if commit.delta is not None:
                self._check_delta(stored, commit.table, commit.delta)
            summary = {**commit.entries, **to_summary(self._pipeline, commit.progress)}
            number = self._add(stored, commit.files, summary, commit.delta)
            stored.adopted_by.add(self._pipeline)
        return replace(commit.progress, snapshot_id=number)

    def _landed(self, stored: StoredTable, commit: Commit) -> Progress | None:
        """Returns the progress of a commit that is on the main branch already; None where it is not.

        Raises: UnavailableError where the snapshots that show it have been expired.
        """
        for snapshot in self._ancestors(stored):
            progress = from_summary(self._pipeline, snapshot.summary, snapshot.id)
            if progress is not None and progress.commit_id == commit.progress.commit_id:
                return progress
            if snapshot.id <= (commit.expected.snapshot_id or 0):
                return None
        if stored.is_cut(self.branch_of(stored.state.name)):
            raise UnavailableError("the snapshots that show whether the commit landed were expired", where=commit.table)
        return None

    def _check_delta(self, stored: StoredTable, table: str, delta: RowDelta) -> None:
        """Checks that the table is unchanged since the snapshot that the delta was made for, and has the rows and files
        it deletes.

        Raises: NotSent, TableMoved or InvariantError where it is not.
        """
        if stored.state.format_version >= _NEWEST_FORMAT and any(
            delete_file.kind == "positions" for delete_file in delta.deletes
        ):
            raise NotSent("a table of format 3 takes deletion vectors alone", where=table)
        for snapshot in self._ancestors(stored):
            if snapshot.id == delta.read_at:
                break
            if snapshot.files or snapshot.removed or snapshot.deletes:
                raise TableMoved(where=table)
        live = {file.path: file for file in live_files(self._line(stored))}
        gone = {*delta.touched, *(file.path for file in delta.removed)} - live.keys()
        live_deletes = {delete for file in live.values() for delete in file.deletes}
        if gone or not live_deletes.issuperset(delta.replaced):
            raise TableMoved(where=table)
        left = {delete.data_file for delete in live_deletes - set(delta.replaced) if delete.kind == "vector"}
        if any(delete.data_file in left for delete in delta.deletes):
            raise InvariantError("a data file was to have two deletion vectors", where=table)

    def store_properties(self, location: str) -> Mapping[str, str]:
        """See Catalog."""
        return self._reach(location)

    def lock(self, table: str) -> AbstractContextManager[object]:  # noqa: ARG002
        """See the port; tests use one thread."""
        return nullcontext()

    def scan(self, table: str) -> Scan:
        stored = self._existing(table)
        return Scan(self._head(stored), tuple(live_files(self._line(stored))))

    def mark(self, table: str, name: str, value: str | None) -> None:
        with self._lock:
            stored = self._existing(table)
            properties = {n: v for n, v in stored.state.properties.items() if n != key(self._pipeline, name)}
            if value is not None:
                properties[key(self._pipeline, name)] = value
            stored.state = replace(stored.state, properties=properties)

    def history(self, table: str, names: Sequence[str]) -> Iterable[LoggedSnapshot]:
        return self._logged(self._existing(table), names)

    def summaries(self, table: str) -> Iterable[Mapping[str, str]]:
        return [snapshot.summary for snapshot in self._ancestors(self._existing(table))]

    def metadata_document(self, table: str) -> dict[str, Any] | None:
        """Returns the table's metadata without schemas and files, in the form of Iceberg's JSON; None without the table."""
        stored = self._tables.get(table)
        if stored is None:
            return None
        snapshots = [
            {
                "snapshot-id": snapshot.id,
                "parent-snapshot-id": snapshot.parent,
                "timestamp-ms": snapshot.id,
                "summary": {"operation": "append", **snapshot.summary},
            }
            for snapshot in stored.snapshots.values()
            if snapshot.id not in stored.expired
        ]
        refs = {name: {"snapshot-id": head, "type": "branch"} for name, head in stored.heads.items()}
        refs |= {
            name: {"snapshot-id": tag.snapshot_id, "type": "tag", "max-ref-age-ms": tag.max_age_ms}
            for name, tag in stored.tags.items()
        }
        return {
            "table-uuid": stored.state.uuid,
            "location": stored.state.location,
            "format-version": stored.state.format_version,
            "properties": dict(stored.state.properties),
            "snapshots": snapshots,
            "current-snapshot-id": stored.heads.get(MAIN),
            "refs": refs,
        }

    def move_branch(self, move: BranchMove, marks: Mapping[str, str | None]) -> None:
        """Changes the newest snapshot of a branch, and this pipeline's own properties; see the port of branches."""
        with self._committing(move.table) as stored:
            if move.branch is not None and stored.heads.get(move.branch) != move.expected:
                raise ConflictError(f"the branch `{move.branch}` was moved in the meantime", where=move.table)
            needed = {tag.snapshot_id for tag in move.tags.values()} | {move.snapshot_id} - {None}
            if not needed.isdisjoint(stored.expired) or not needed <= stored.snapshots.keys():
                raise ConflictError("the snapshot was expired in the meantime", where=move.table)
            if move.source is not None and all(s.id != move.snapshot_id for s in stored.ancestors(move.source)):
                raise left(move.source, move.table)
            if move.branch is not None:
                stored.heads.pop(move.branch, None)
            if move.branch is not None and move.snapshot_id is not None:
                stored.heads[move.branch] = move.snapshot_id
            kept_tags = {name: tag for name, tag in stored.tags.items() if name not in move.dropped_tags}
            stored.tags = {**move.tags, **kept_tags}
            named = {key(self._pipeline, name): value for name, value in marks.items()}
            kept = {name: value for name, value in stored.state.properties.items() if name not in named}
            added = {name: value for name, value in named.items() if value is not None}
            stored.state = replace(stored.state, properties={**kept, **added})

    def rewrite(self, rewrite: Rewrite) -> None:
        with self._committing(rewrite.table) as stored:
            if is_recorded(self._logged(stored, (REWRITE_ID,)), REWRITE_ID, rewrite.id, rewrite.read_at):
                return
            paths = {file.path for file in files_of(self._line(stored))}
            is_right = is_undisturbed(self._logged(stored, (REWRITE_ID,)), rewrite.read_at)
            if not is_right or not paths.issuperset(rewrite.removed):
                raise ConflictError("the files did not exist when they were read", where=rewrite.table)
            entries = {**rewrite.summary, REWRITE_ID: rewrite.id}
            summary = {key(self._pipeline, name): value for name, value in entries.items()}
            removed = tuple(file for file in files_of(self._line(stored)) if file.path in rewrite.removed)
            self._add(stored, rewrite.added, summary, RowDelta(None, removed=removed))

    def append_once(self, append: NamedAppend) -> None:
        request, table = append, append.table
        with self._committing(table) as stored:
            has_landed = is_recorded(self._logged(stored, (request.name,)), request.name, request.value, request.since)
            if has_landed is None:
                raise UnavailableError("the table's history is gone", where=table)
            if not has_landed:
                self._add(stored, request.files, {key(self._pipeline, n): v for n, v in request.entries.items()})

    def replace_once(self, replacement: Replacement) -> None:
        request, table = replacement, replacement.table
        with self._committing(table) as stored:
            history = self._logged(stored, (REPLAY_ID, COMMIT_ID))
            if not is_unmoved(history, request.since, request.expected.commit_id):
                raise ConflictError("the table is not as it was when its rows were looked up", where=table)
            self._check_delta(stored, table, request.delta)
            entries = {**request.summary, REPLAY_ID: request.id}
            self._add(stored, request.files, {key(self._pipeline, n): v for n, v in entries.items()}, request.delta)

    def _head(self, stored: StoredTable) -> int | None:
        return stored.head(self.branch_of(stored.state.name))

    def _line(self, stored: StoredTable) -> list[MemorySnapshot]:
        return stored.line(self.branch_of(stored.state.name))

    def _ancestors(self, stored: StoredTable) -> list[MemorySnapshot]:
        return stored.ancestors(self.branch_of(stored.state.name))

    def _existing(self, table: str) -> StoredTable:
        stored = self._tables.get(table)
        if stored is None:
            raise UnavailableError("the table no longer exists", remedy="find out who dropped the table", where=table)
        return stored

    @contextmanager
    def _committing(self, table: str) -> Iterator[StoredTable]:
        """Makes the block one commit to the table, with the next fault.

        Raises: UnavailableError for a request that never arrives, or an outcome that is unknown.
        """
        with self._lock:
            stored = self._existing(table)
            loss = self.losses.pop(0) if self.losses else ""
            if loss == "question":
                raise UnavailableError("the catalog does not answer")
            yield stored
            if loss == "outcome":
                raise UnavailableError("the answer to the commit was lost")

    def _add(
        self,
        stored: StoredTable,
        files: Iterable[DataFile],
        summary: Mapping[str, str],
        delta: RowDelta | None = None,
    ) -> int:
        number, delta, head = max(stored.snapshots, default=0) + 1, delta or RowDelta(None), self._head(stored)
        removed, replaced = frozenset(file.path for file in delta.removed), frozenset(delta.replaced)
        added = tuple(stored.number_rows(files))
        stored.snapshots[number] = MemorySnapshot(number, head, added, summary, removed, delta.deletes, replaced)
        stored.heads[self.branch_of(stored.state.name)] = number
        return number

    def _logged(self, stored: StoredTable, names: Sequence[str]) -> Iterable[LoggedSnapshot]:
        line = self._ancestors(stored)
        for snapshot in line:
            words = {name: snapshot.summary.get(key(self._pipeline, name)) for name in names}
            is_cut = snapshot is line[-1] and snapshot.parent is not None
            yield LoggedSnapshot(snapshot.id, {name: text for name, text in words.items() if text is not None}, is_cut)

    def delete_files(self, table: str, paths: Sequence[str]) -> None:
        snapshots = self._tables[table].snapshots.values() if table in self._tables else ()
        named = {file.path for snapshot in snapshots for file in snapshot.files}
        named |= {file.path for snapshot in snapshots for file in snapshot.deletes}
        for path in paths:
            if path in named:
                raise InvariantError("a file that a snapshot names was to be deleted", where=path)
            Path(path).unlink(missing_ok=True)

    def ancestors(self, table: str) -> list[MemorySnapshot]:
        """Returns the snapshots of the table's branch, the newest first."""
        return self._ancestors(self._tables[table])

    def data_files(self, table: str) -> list[DataFile]:
        """Returns the data files of the newest snapshot."""
        return files_of(self._line(self._existing(table)))

    def roll_back(self, table: str, snapshot_id: int | None) -> None:
        """Sets the table's branch to this snapshot, as an operator would."""
        heads, branch = self._tables[table].heads, self.branch_of(table)
        heads.pop(branch, None)
        if snapshot_id is not None:
            heads[branch] = snapshot_id

    def expire(self, table: str, snapshot_id: int) -> None:
        """Expires one snapshot, as maintenance or an operator would; later snapshots keep its files."""
        self._tables[table].expired.add(snapshot_id)

    def drop(self, table: str) -> None:
        """Drops the table, as an operator would; the next table of this name is another one."""
        with self._lock:
            del self._tables[table]

    def upgrade(self, table: str, format_version: int) -> None:
        """Raises the format version, as an operator would; existing files stay as they are."""
        with self._lock:
            stored = self._tables[table]
            stored.state = replace(stored.state, format_version=format_version)

    def append_foreign(
        self,
        table: str,
        files: tuple[DataFile, ...] = (),
        removed: frozenset[str] = frozenset(),
        deletes: tuple[DeleteFile, ...] = (),
        replaced: frozenset[DeleteFile] = frozenset(),
        summary: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Commits a snapshot of another writer, or of a compaction, without progress unless `summary` has it; returns
        its id. deletes: delete files to be added. replaced: delete files to be removed.
        """
        with self._lock:
            stored = self._tables[table]
            gone = tuple(file for file in files_of(self._line(stored)) if file.path in removed)
            return self._add(stored, files, summary, RowDelta(None, deletes, tuple(replaced), gone))

    def _progress(self, stored: StoredTable) -> Progress:
        for snapshot in self._ancestors(stored):
            progress = from_summary(self._pipeline, snapshot.summary, snapshot.id)
            if progress is not None:
                return progress
        return Progress()
