"""Updates of primary keys in an upsert table: what belongs together may be in two records, two partitions, two batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from frazil.types import Resolved
from frazil.upsert.records.incomplete_key_updates import PendingUpdate, Place


@dataclass
class KeyUpdateState:
    """What tasks are to know of such updates (TableTarget), and which of them are incomplete."""

    #: Whether a batch is read by one task, which keeps every change until it has seen the last.
    is_single_task: bool = False
    #: Records whose row had another key, where the row of that key is not known; for the batch that is planned again.
    unpaired: frozenset[Place] = frozenset()
    #: Records without a value for a required column that no row had either; for the batch that is planned again.
    missing_required: frozenset[Place] = frozenset()
    #: Records whose other part is not waited for any longer; for the batch that is planned again.
    abandoned: frozenset[Place] = frozenset()
    #: Records that lack their other part, or the row, with the time at which that was seen.
    pending: dict[Place, PendingUpdate] = field(default_factory=dict)
    #: By topic and position in the source's log, updates whose insert alone is in the table, with the time of that commit in
    #: milliseconds since the epoch.
    applied_early: dict[tuple[str, str], int] = field(default_factory=dict)
    #: What the last batch of changes did to the table's rows.
    resolved: Resolved | None = None

    def end_batch(self) -> None:
        """Forgets what was noted for a batch that is in the table."""
        self.unpaired = self.missing_required = self.abandoned = frozenset()
