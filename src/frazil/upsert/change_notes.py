"""What changes need of other changes: the door to the rooms that know it, for tasks and for the driver.

Tasks note it in their reports (`report.ChangeReport`), and the driver keeps some of it for the next batch. A change that is
applied late, alone, cannot have it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from frazil.error_classes import ErrorClass
from frazil.errors import RecordError
from frazil.report import ChangeReport, TaskReport
from frazil.schema.arrow import Bools, Records
from frazil.stages.changes import Changes
from frazil.types import Place, Progress, Resolved
from frazil.upsert.emptied import Emptying, emptying_in, error_of
from frazil.upsert.key_updates import parts
from frazil.upsert.key_updates.parts import (
    KeyUpdateNotes,
    KeyUpdateSearch,
    KeyUpdateState,
    are_parts,
    key_update_notes,
)
from frazil.upsert.records.tombstones import still_last
from frazil.write.target import TableTarget

AGAIN = "produce the record to the topic again, or reset the table"
"""The remedy for a change that cannot be applied late."""
_MISSING_REQUIRED = "missing_required"
REFUSED = {
    **parts.REFUSED,
    _MISSING_REQUIRED: (
        ErrorClass.MISSING_VALUE,
        "a required column has no value: neither the record nor an existing row has one",
    ),
}
"""By the name under which places are noted, why their records are bad."""


class TaskNotes:
    """What one task notes of the changes of a table. unpaired: as for `KeyUpdateSearch`."""

    def __init__(self, target: TableTarget, unpaired: Collection[Place]) -> None:
        self._target = target
        self._key_updates = KeyUpdateSearch(target, unpaired)
        self._emptying = Emptying()

    def take(self, topic: str, changes: Changes, records: Records) -> None:
        """Notes what the changes of these records need. Each record is passed once."""
        self._key_updates.take(topic, changes, records)

    def separate(self, topic: str, changes: Changes, records: Records) -> Bools:
        """Takes the changes that are places in the order of others; returns which remain, bool `(n_changes,)`. records: one
        per change.
        """
        return self._emptying.separate(self._target, topic, changes, records)

    def close(self) -> None:
        """Decides after the last record what the batch needs."""
        self._key_updates.close()

    @property
    def is_refused(self) -> bool:
        """Whether no row of the batch may be committed, as it must be read again or the table stops."""
        return bool(self._key_updates.is_refused or self._emptying.unplaced)

    def notes(self) -> dict[str, tuple[Any, ...]]:
        """Returns what the driver reads in the task's report."""
        return {**self._key_updates.notes(), **self._emptying.notes()}


# In the driver


@dataclass
class ChangeState:
    """What is known of single changes of an upsert table, from one batch to the next."""

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


def error_in(changes: ChangeReport) -> RecordError | None:
    """Returns the error that stops the table; None where nothing does."""
    return error_of(emptying_in(changes))


def not_alone(changes: Changes) -> Iterator[tuple[Bools, str]]:
    """Yields which changes cannot be applied late and without others, bool `(n_changes,)`, why, and what to do."""
    why = "a truncate deletes all rows, and it is unknown which rows are newer"
    yield ~changes.have_keys, f"{why}: delete the older rows with another engine, or reset the table"
    yield are_parts(changes), f"the record changes several rows, or is a part of a primary-key update: {AGAIN}"


def progress_after(progress: Progress, before: Progress, report: TaskReport) -> Progress:
    """Returns the progress of a batch with what it keeps of its changes. before: the progress before the batch."""
    emptied = max(before.order.emptied, emptying_in(report.changes).emptied)
    last_deletes = still_last(before, report, progress.offsets)
    return replace(progress, order=replace(progress.order, emptied=emptied, last_deletes=last_deletes))


def dependence(changes: ChangeReport) -> str:
    """Returns why the rows depend on more than their records; empty where they do not."""
    if key_update_notes(changes) != KeyUpdateNotes():
        return "keys of rows were changed"
    if emptying_in(changes).has_some:
        return "the table was truncated"
    if any(touched_keys.buffered for touched_keys in changes.touched):
        return "changes keep values of the rows that they replace"
    return ""
