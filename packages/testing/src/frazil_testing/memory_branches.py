"""The in-memory implementation of the port of branches and tags, for tests: the same contract without a JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence

from frazil.catalog.maintenance_port import MOVE_ID, BranchMove
from frazil.catalog.table_metadata import TableMetadata, read_table_metadata
from frazil.failpoints import hit
from frazil_testing.memory_catalog import MemoryCatalog


class MemoryBranches:
    """Implements the port `Branches` for tables of `catalog`."""

    def __init__(self, catalog: MemoryCatalog) -> None:
        self._catalog = catalog

    def metadata(self, table: str) -> TableMetadata | None:
        """See Branches."""
        document = self._catalog.metadata_document(table)
        if document is None:
            return None
        return read_table_metadata(table, json.dumps(document), branch=self._catalog.branch_of(table))

    def move(self, move: BranchMove) -> int | None:
        """See Branches. The snapshot itself stands for its copy."""
        named = {move.names_snapshot: str(move.snapshot_id)} if move.names_snapshot else {}
        self._catalog.move_branch(move, {**move.marks, **named, MOVE_ID: move.id})
        return move.snapshot_id

    def move_together(self, moves: Sequence[BranchMove]) -> list[int | None]:
        """See Branches: one after another."""
        moved = []
        for move in moves:
            moved.append(self.move(move))
            hit("publish.between")
        return moved
