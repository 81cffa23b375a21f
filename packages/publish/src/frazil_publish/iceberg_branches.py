"""The port of branches and tags on top of Iceberg's Java API.

Iceberg's own `manageSnapshots` has no compare-and-swap: `setCurrentSnapshot` retries without a check, and
`fastForwardBranch` fails after any other commit to the table. So the new metadata is built here, on the very state that
was checked, and given to the catalog, which refuses it once another state has replaced that one. A REST catalog compares
the branch alone, so that commits to other branches do not interfere. Where a change sets properties alone, or removes the
branch, Iceberg asks it to compare nothing: what to compare is sent with such a change (`commit_where`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.commits import is_conflict, lost_answers
from frazil.catalog.iceberg.java import is_not_there, java_errors, unavailable
from frazil.catalog.iceberg.opening import commit_where
from frazil.catalog.maintenance_port import MOVE_ID, BranchMove, left
from frazil.catalog.progress import key
from frazil.catalog.table_metadata import TableMetadata, read_table_metadata
from frazil.errors import ConflictError
from frazil.failpoints import hit
from frazil.types import MAIN
from frazil_publish.iceberg_copies import IcebergCopy, forget, staged_copy

_TRIES = 20
"""On most catalogs every commit to the table interferes, so that a move competes with ingestion."""


class IcebergBranches:
    """Implements the port `Branches` for tables of `catalog`."""

    def __init__(self, catalog: IcebergCatalog) -> None:
        self._catalog = catalog
        self._jvm = catalog.gateway.jvm

    def metadata(self, table: str) -> TableMetadata | None:
        try:
            java = self._catalog.java_table(table)
            text = str(self._jvm.org.apache.iceberg.TableMetadataParser.toJson(java.operations().current()))
        except java_errors() as error:
            if is_not_there(error):
                return None
            raise unavailable("the table metadata cannot be read", error, table) from None
        return read_table_metadata(table, text, branch=self._catalog.branch_of(table))

    def move(self, move: BranchMove) -> int | None:
        return self.move_together([move])[0]

    def move_together(self, moves: Sequence[BranchMove]) -> list[int | None]:
        """See Branches. A server of a REST catalog may only seem to have commits of several tables, and commit them one
        after another: then the changes that have landed are completed by the others.
        """
        if len(moves) > 1 and not self._catalog.commits_together:
            return [moved for move in moves for moved in self._moved_one(move)]
        failure: Exception | None = None
        refused: list[Sequence[tuple[Any, Any]]] = []
        for _ in range(_TRIES):
            loaded = [self._loaded(move, failure) for move in moves]
            if (snapshots := self._completed(moves, loaded)) is not None:
                self._forget(moves, loaded, refused)
                return snapshots
            try:
                staged = [self._staged(java, move) for java, move in zip(loaded, moves, strict=True)]
            except ConflictError:
                self._forget(moves, loaded, refused)
                raise
            try:
                hit("branch.before")
                self._commit(moves, loaded, staged)
                hit("branch.landed")
                failure = None
            except lost_answers() as error:
                failure = error
                if not is_conflict(error):
                    break
                refused.append(staged)
        snapshots = self._completed(moves, [self._loaded(move, failure) for move in moves])
        if snapshots is not None:
            return snapshots
        where = moves[0].table
        if failure is not None and not is_conflict(failure):
            raise unavailable("the branch cannot be moved", failure, where) from None
        raise ConflictError("other writers change the table faster than the branch can be moved", where=where)

    def _moved_one(self, move: BranchMove) -> Iterator[int | None]:
        yield self.move(move)
        hit("branch.between")

    def _commit(self, moves: Sequence[BranchMove], loaded: Sequence[Any], staged: Sequence[tuple[Any, Any]]) -> None:
        if len(moves) > 1:
            changes = ((move.table, *change, move.branch) for move, change in zip(moves, staged, strict=True))
            self._catalog.commit_together([*changes])
            return
        move, operations = moves[0], loaded[0].operations()
        if move.branch is not None and move.copy is None and move.snapshot_id in (move.expected, None):
            commit_where(self._catalog.gateway, operations, *staged[0], move.branch)
        else:
            operations.commit(*staged[0])

    def _forget(
        self, moves: Sequence[BranchMove], loaded: Sequence[Any], refused: Sequence[Sequence[tuple[Any, Any]]]
    ) -> None:
        """Deletes the manifests of copies that the tables lack. A refusal alone proves nothing: a request that was sent
        twice is refused the second time. Once the branch has another snapshot than expected, none of them can land.
        """
        for place, (move, java) in enumerate(zip(moves, loaded, strict=True)):
            base = java.operations().current()
            if move.copy is None or _head(base, move.branch) == move.expected:
                continue
            for _, updated in (staged[place] for staged in refused):
                if base.snapshot(updated.currentSnapshot().snapshotId()) is None:
                    forget(java, updated)

    def _completed(self, moves: Sequence[BranchMove], loaded: Sequence[Any]) -> list[int | None] | None:
        """Returns the snapshots that the branches have where the tables have all changes; makes those that are missing
        where they have some. Returns None where they have none.
        """
        bases = [java.operations().current() for java in loaded]
        have_landed = [
            bool(base.properties().get(key(self._catalog.pipeline, MOVE_ID)) == move.id)
            for base, move in zip(bases, moves, strict=True)
        ]
        if not any(have_landed):
            return None
        return [
            _head(base, move.branch) if has_landed else self.move(move)
            for base, move, has_landed in zip(bases, moves, have_landed, strict=True)
        ]

    def _loaded(self, move: BranchMove, failure: Exception | None) -> Any:
        """Returns the Java table, fresh from the catalog. failure: of the last try.

        Raises: UnavailableError where it cannot be loaded.
        """
        try:
            java = self._catalog.java_table(move.table)
            java.operations().current()
        except java_errors() as error:
            raise unavailable("the branch cannot be moved", failure or error, move.table) from None
        return java

    def _staged(self, java: Any, move: BranchMove) -> tuple[Any, Any]:
        """Returns the metadata of the Java table before and after the change.

        Raises: ConflictError where another state has replaced the expected one.
        """
        iceberg, entry = self._jvm.org.apache.iceberg, (key(self._catalog.pipeline, MOVE_ID), move.id)
        base = started = java.operations().current()
        if move.copy is not None:
            assert isinstance(move.copy, IcebergCopy)
            _refuse_other_state(base, move)  # Before manifests are written.
            base, started = staged_copy(self._jvm, java, move.copy, entry)
        _refuse_other_state(base, move)
        builder = iceberg.TableMetadata.buildFrom(started)
        ref = None if move.branch is None else base.ref(move.branch)
        copied = move.snapshot_id if move.copy is None else int(started.currentSnapshot().snapshotId())
        if move.branch is None or move.copy is not None:
            pass
        elif move.snapshot_id is None:
            builder.removeRef(move.branch)
        elif move.snapshot_id != move.expected:
            references = iceberg.SnapshotRef
            new = (
                references.branchBuilder(move.snapshot_id)
                if ref is None
                else references.builderFrom(ref, move.snapshot_id)
            )
            builder.setRef(move.branch, new.build())
        for name, tag in move.tags.items():
            if base.ref(name) is None:
                tagged = copied if tag.snapshot_id == move.snapshot_id else tag.snapshot_id
                builder.setRef(name, iceberg.SnapshotRef.tagBuilder(tagged).maxRefAgeMs(tag.max_age_ms).build())
        for name in move.dropped_tags:
            if base.ref(name) is not None:
                builder.removeRef(name)
        named = {move.names_snapshot: str(copied)} if move.names_snapshot else {}
        marks = {**move.marks, **named, MOVE_ID: move.id}
        properties = {key(self._catalog.pipeline, name): value for name, value in marks.items()}
        builder.setProperties({name: value for name, value in properties.items() if value is not None})
        removed = {name for name, value in properties.items() if value is None}
        if removed:
            builder.removeProperties(removed)
        return base, builder.build()


def _refuse_other_state(base: Any, move: BranchMove) -> None:
    """Raises ConflictError where the branch has another snapshot than expected, or a snapshot is gone."""
    if move.branch is not None and _head(base, move.branch) != move.expected:
        raise ConflictError(f"the branch `{move.branch}` was moved in the meantime", where=move.table)
    needed = [tag.snapshot_id for tag in move.tags.values()]
    needed += [move.snapshot_id] if move.snapshot_id is not None else []
    if any(base.snapshot(snapshot_id) is None for snapshot_id in needed):
        raise ConflictError("the snapshot was expired in the meantime", where=move.table)
    if move.source is not None and not _has(base, move.source, move.snapshot_id):
        raise left(move.source, move.table)


def _head(base: Any, branch: str | None) -> int | None:
    """Returns the snapshot that the branch has; None without a branch."""
    ref = None if branch is None else base.ref(branch)
    return None if ref is None else int(ref.snapshotId())


def _has(base: Any, branch: str, snapshot_id: int | None) -> bool:
    """Returns whether the snapshot is on the branch, which begins at main, as far as its snapshots are not expired."""
    number = _head(base, branch) or _head(base, MAIN)
    while number is not None and number != snapshot_id:
        snapshot = base.snapshot(number)
        number = None if snapshot is None else snapshot.parentId()
    return number is not None
