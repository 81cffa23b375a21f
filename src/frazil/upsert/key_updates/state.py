"""What the driver keeps of primary-key updates from one batch to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from frazil.error_classes import ErrorClass
from frazil.kafka.port import Partition
from frazil.types import Place
from frazil.upsert.key_updates.parts import ABANDONED, APPLIED_EARLY, UNPAIRED

REFUSED = {
    UNPAIRED: (
        ErrorClass.INCOMPLETE_PRIMARY_KEY_UPDATE,
        "the primary-key update is incomplete: the record does not have all values, and the row of the old key is neither"
        " in the table nor in the batch",
    )
}
"""By the name under which places are noted, why their records are bad."""


@dataclass
class PendingUpdate:
    """The state of a primary-key update of which only one part has been read."""

    #: When the table first met the record, by the clock of the process.
    since_ms: int
    #: The ends of the partitions one minute later: the source writes both parts at once, so the other part is before
    #: these.
    ends: Mapping[Partition, int] | None = None


@dataclass
class KeyUpdateState:
    """Incomplete primary-key updates of a table."""

    #: Records whose row had another key, where the row of that key is not known; for the batch that is planned again.
    unpaired: frozenset[Place] = frozenset()
    #: Records whose other part is no longer waited for; for the batch that is planned again.
    abandoned: frozenset[Place] = frozenset()
    #: Records without their other part, or without the row, with the time at which each was first read.
    pending: dict[Place, PendingUpdate] = field(default_factory=dict)
    #: By topic and position in the source's log, updates whose insert alone is in the table, with the time of that commit in
    #: milliseconds since the epoch.
    applied_early: dict[tuple[str, str], int] = field(default_factory=dict)

    def end_batch(self) -> None:
        """Forgets the records that were collected for a batch which is committed now."""
        self.unpaired = self.abandoned = frozenset()

    def noted(self) -> dict[str, tuple[Place, ...] | tuple[tuple[str, str], ...]]:
        """Returns what tasks must know, by name (see KnownRecords)."""
        return {
            UNPAIRED: tuple(sorted(self.unpaired)),
            ABANDONED: tuple(sorted(self.abandoned)),
            APPLIED_EARLY: tuple(sorted(self.applied_early)),
        }
