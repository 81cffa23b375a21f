"""The state of primary-key updates of an upsert table, whose two parts may be in two records, partitions or batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from frazil.types import Resolved
from frazil.upsert.records.incomplete_key_updates import PendingUpdate, Place


@dataclass
class KeyUpdateState:
    """Records with another key or without required values, and incomplete primary-key updates."""

    #: Whether one task reads each batch and buffers every change until it has read the last.
    is_single_task: bool = False
    #: Records whose row had another key, where the row of that key is not known; for the batch that is planned again.
    unpaired: frozenset[Place] = frozenset()
    #: Records without a value for a required column that no earlier row had either; for the batch that is planned
    #: again.
    missing_required: frozenset[Place] = frozenset()
    #: Records whose other part is no longer waited for; for the batch that is planned again.
    abandoned: frozenset[Place] = frozenset()
    #: Records without their other part, or without the row, with the time at which each was first read.
    pending: dict[Place, PendingUpdate] = field(default_factory=dict)
    #: By topic and position in the source's log, updates whose insert alone is in the table, with the time of that commit in
    #: milliseconds since the epoch.
    applied_early: dict[tuple[str, str], int] = field(default_factory=dict)
    #: How the last batch of changes affected the table's rows.
    resolved: Resolved | None = None

    def end_batch(self) -> None:
        """Forgets the records that were collected for a batch which is committed now."""
        self.unpaired = self.missing_required = self.abandoned = frozenset()
