"""What the driver keeps of the changes of an upsert table from one batch to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from frazil.error_classes import ErrorClass
from frazil.types import Place, Resolved
from frazil.upsert.key_updates import state as key_updates
from frazil.upsert.key_updates.state import KeyUpdateState

_MISSING_REQUIRED = "missing_required"
REFUSED = {
    **key_updates.REFUSED,
    _MISSING_REQUIRED: (
        ErrorClass.MISSING_VALUE,
        "a required column has no value: neither the record nor an existing row has one",
    ),
}
"""By the name under which places are noted, why their records are bad."""


@dataclass
class ChangeState:
    """What is known of single changes of an upsert table."""

    #: Whether one task reads each batch and buffers every change until it has read the last.
    is_single_task: bool = False
    #: Records without a value for a required column that no earlier row had either; for the batch that is planned again.
    missing_required: frozenset[Place] = frozenset()
    #: How the last batch of changes affected the table's rows.
    resolved: Resolved | None = None
    key_updates: KeyUpdateState = field(default_factory=KeyUpdateState)

    def end_batch(self) -> None:
        """Forgets the records that were collected for a batch which is committed now."""
        self.missing_required = frozenset()
        self.key_updates.end_batch()

    def noted(self) -> tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...]:
        """Returns what tasks must know, by name (see KnownRecords)."""
        noted = {_MISSING_REQUIRED: tuple(sorted(self.missing_required)), **self.key_updates.noted()}
        return tuple((name, values) for name, values in noted.items() if values)
