"""The port of branches and tags on top of Iceberg's Java API.

Iceberg's own `manageSnapshots` has no compare-and-swap: `setCurrentSnapshot` retries without a check, and
`fastForwardBranch` fails after any other commit to the table. So the new metadata is built here, on the very state that
was checked, and given to the catalog, which refuses it once another state has replaced that one. A REST catalog compares
the branch alone, so that commits to other branches do not interfere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from frazil.catalog.branches_port import MOVE_ID, BranchMove, left
from frazil.catalog.iceberg.answers import is_conflict, lost_answers
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.java import is_not_there, java_errors, unavailable
from frazil.catalog.progress import key
from frazil.catalog.table_metadata import TableMetadata, read_table_metadata
from frazil.errors import ConflictError
from frazil.failpoints import hit
from frazil.types import MAIN

_TRIES = 20
"""On most catalogs every commit to the table interferes, so that publishing competes with ingestion."""


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

    def move(self, move: BranchMove) -> None:
        failure: Exception | None = None
        for _ in range(_TRIES):
            operations, base = self._loaded(move, failure)
            if self._has_landed(base, move):
                return
            _refuse_other_state(base, move)
            try:
                updated = self._updated(base, move)
                hit("publish.before")
                operations.commit(base, updated)
                hit("publish.landed")
                failure = None
            except lost_answers() as error:
                failure = error
                if not is_conflict(error):
                    break
        _, base = self._loaded(move, failure)
        if self._has_landed(base, move):
            return
        if failure is not None and not is_conflict(failure):
            raise unavailable("the branch cannot be moved", failure, move.table) from None
        raise ConflictError("other writers change the table faster than the branch can be moved", where=move.table)

    def move_together(self, moves: Sequence[BranchMove]) -> None:
        """See Branches. A server of a REST catalog may only seem to have commits of several tables, and commit them one
        after another: then the changes that have landed are completed by the others.
        """
        if len(moves) < 2 or not self._catalog.commits_together:
            for move in moves:
                self.move(move)
                hit("publish.between")
            return
        failure: Exception | None = None
        for _ in range(_TRIES):
            if self._is_complete(moves, bases := [self._loaded(move, failure)[1] for move in moves]):
                return
            for base, move in zip(bases, moves, strict=True):
                _refuse_other_state(base, move)
            updated = [self._updated(base, move) for base, move in zip(bases, moves, strict=True)]
            try:
                hit("publish.before")
                self._catalog.commit_together([*zip((move.table for move in moves), bases, updated, strict=True)])
                hit("publish.landed")
                failure = None
            except lost_answers() as error:
                failure = error
                if not is_conflict(error):
                    break
        if self._is_complete(moves, [self._loaded(move, failure)[1] for move in moves]):
            return
        if failure is not None and not is_conflict(failure):
            raise unavailable("the tables cannot be published together", failure, moves[0].table) from None
        raise ConflictError("other writers change the tables faster than they can be published", where=moves[0].table)

    def _is_complete(self, moves: Sequence[BranchMove], bases: Sequence[Any]) -> bool:
        """Returns whether the tables have all changes; makes those that are missing where they have some."""
        missing = [move for base, move in zip(bases, moves, strict=True) if not self._has_landed(base, move)]
        if len(missing) < len(moves):
            for move in missing:
                self.move(move)
            return True
        return False

    def _loaded(self, move: BranchMove, failure: Exception | None) -> tuple[Any, Any]:
        """Returns the operations of the Java table and its metadata, fresh from the catalog. failure: of the last try.

        Raises: UnavailableError where it cannot be loaded.
        """
        try:
            operations = self._catalog.java_table(move.table).operations()
            return operations, operations.current()
        except java_errors() as error:
            raise unavailable("the branch cannot be moved", failure or error, move.table) from None

    def _has_landed(self, base: Any, move: BranchMove) -> bool:
        return bool(base.properties().get(key(self._catalog.pipeline, MOVE_ID)) == move.id)

    def _updated(self, base: Any, move: BranchMove) -> Any:
        """Returns the metadata with the change."""
        iceberg = self._jvm.org.apache.iceberg
        builder = iceberg.TableMetadata.buildFrom(base)
        ref = None if move.branch is None else base.ref(move.branch)
        if move.branch is None:
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
                builder.setRef(
                    name, iceberg.SnapshotRef.tagBuilder(tag.snapshot_id).maxRefAgeMs(tag.max_age_ms).build()
                )
        for name in move.dropped_tags:
            if base.ref(name) is not None:
                builder.removeRef(name)
        marks = {**move.marks, MOVE_ID: move.id}
        properties = {key(self._catalog.pipeline, name): value for name, value in marks.items()}
        builder.setProperties({name: value for name, value in properties.items() if value is not None})
        removed = {name for name, value in properties.items() if value is None}
        if removed:
            builder.removeProperties(removed)
        return builder.build()


def _refuse_other_state(base: Any, move: BranchMove) -> None:
    """Raises ConflictError where the branch has another snapshot than expected, or a snapshot is gone."""
    ref = None if move.branch is None else base.ref(move.branch)
    if move.branch is not None and (None if ref is None else int(ref.snapshotId())) != move.expected:
        raise ConflictError(f"the branch `{move.branch}` was moved in the meantime", where=move.table)
    needed = [tag.snapshot_id for tag in move.tags.values()]
    needed += [move.snapshot_id] if move.snapshot_id is not None else []
    if any(base.snapshot(snapshot_id) is None for snapshot_id in needed):
        raise ConflictError("the snapshot was expired in the meantime", where=move.table)
    if move.source is not None and not _has(base, move.source, move.snapshot_id):
        raise left(move.source, move.table)


def _has(base: Any, branch: str, snapshot_id: int | None) -> bool:
    """Returns whether the snapshot is on the branch, which begins at main, as far as its snapshots are not expired."""
    ref = base.ref(branch) or base.ref(MAIN)
    number = None if ref is None else int(ref.snapshotId())
    while number is not None and number != snapshot_id:
        snapshot = base.snapshot(number)
        number = None if snapshot is None else snapshot.parentId()
    return number is not None
