"""The keys that rows had before primary-key updates, and values that are in the row of the old key alone.

The source deletes the row of the old key and writes the row of the new key, in one record or in two records with the
same position in its log. Where one task reads both, the old row is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.schema.arrow import Bools, Ints, Records
from frazil.stages.changes import DELETE, UPSERT, Changes
from frazil.upsert.deduplicate import Ranked, key_codes

RecordIndex = tuple[int, int, int]
"""Number of the topic, partition and offset of a record."""
OLD_KEY = "\x00old:"
"""Name prefix of columns of buffered rows: the key of the row that has the missing values; null where it is the row's
own key.
"""
KEY_CHANGED_AT = "\x00moved at"
"""Column of buffered rows: the time of the primary-key update, where an earlier batch has marked the row of the old key
as deleted at that time.
"""
KEY_CHANGED_ORDER = "\x00moved order"
"""Column of buffered rows: the ordering value of the primary-key update. A row of the old key with a greater ordering
value was written later.
"""
KEY_CHANGED_IN = "\x00moved in"
"""Column of buffered rows: the Kafka partition of the delete of the old key; null where the delete is not in this
batch.
"""
LATER_KEYS = "\x00got"
"""Column of buffered rows in the order of the source's log: the keys that the row received after the old key, the last
first, each with the `order` and `partition` of its change.
"""
KEY_CHANGED = "\x00moved"
"""Column of buffered rows: whether the row had another key and needs values that nothing in the batch has. A missing
row is an error then, not null.
"""
Make = Callable[[Records], Sequence[pa.Array]]
"""Makes the key columns of the table from columns of records."""


@dataclass(frozen=True)
class UpdatedKeys:
    """Keys that rows had before, and the records that are parts of updates."""

    #: One array per key column, `(n_changes,)`, where some UPSERT replaces a row with another key; null where the key is
    #: unchanged. A key that could not be read is given as the row's own key. Unavailable values are in the row of the old
    #: key. Empty where no change does.
    old_keys: tuple[pa.Array, ...] = ()
    #: Per record that is one of the two parts of an update: its index, its position in the source's log, and whether it is
    #: the delete part.
    parts: Sequence[tuple[int, str, bool]] = field(default=())

    def take(self, at: pa.Array) -> UpdatedKeys:
        """See Carried."""
        return replace(self, old_keys=tuple(key.take(at) for key in self.old_keys))

    def of_records(self, rows: Ints) -> UpdatedKeys:
        """See Carried."""
        return replace(self, parts=[(int(rows[row]), position, is_delete) for row, position, is_delete in self.parts])

    def in_query(self, names: Sequence[str], columns: Records, make: Make) -> UpdatedKeys:
        """See Carried."""
        if not self.old_keys:
            return self
        old = dict(zip(names, self.old_keys, strict=True))
        before = {name: pc.coalesce(old[name], column) if name in old else column for name, column in columns.items()}
        is_changed: Bools = np.logical_or.reduce([np.asarray(key.is_valid()) for key in self.old_keys])
        mask = pa.array(is_changed)
        return replace(self, old_keys=tuple(pc.if_else(mask, key, pa.scalar(None, key.type)) for key in make(before)))


def updated_keys(changes: Changes) -> UpdatedKeys:
    """Returns what the changes carry of primary-key updates."""
    return changes.carried if isinstance(changes.carried, UpdatedKeys) else UpdatedKeys()


@dataclass(frozen=True)
class Walk:
    """The result of the search for a missing value."""

    #: The place of the change that has the value; -1 where only the table can have it.
    at: int
    #: The place of the change whose key the row in the table has.
    origin: int
    #: Whether a row with another key was consulted that was already deleted.
    is_lost: bool = False
    #: The place of a primary-key update whose delete part is not in the batch; -1 without one.
    alone: int = -1
    #: The places of the primary-key updates that were passed, the last first.
    key_changes: tuple[int, ...] = ()


@dataclass(frozen=True)
class KeyUpdates:
    """Primary-key updates that lack values. A source that repeats changes may send such an update without its delete
    part; the row is under its new key then.
    """

    #: By place of the update, the place of the delete of the old key; -1 where it is not in the batch.
    deletes: dict[int, int] = field(default_factory=dict)
    #: Which changes mark a row as deleted, bool `(n_changes,)`.
    marks: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))

    def walk(self, ranked: Ranked, before: Ints, mask: Bools, start: int) -> Walk:
        """Searches the value that `mask` reports missing at place `start`."""
        at, origin, alone = start, start, -1
        key_changes: list[int] = []
        while at >= 0 and ranked.ops[at] == UPSERT and mask[at] and not (alone >= 0 and self.marks[at]):
            delete = self.deletes.get(at)
            if delete is not None:
                key_changes.append(at)
                alone = -1 if delete >= 0 else at
            if delete is not None and delete >= 0:
                at = origin = delete
            elif delete is not None and self._is_older(ranked, int(before[at]), at):
                at = -1  # A row from before the key update, which was deleted otherwise, as with all rows.
                break
            at = int(before[at])
        is_gone = at >= 0 and (ranked.ops[at] != UPSERT or (alone >= 0 and self.marks[at]))
        return Walk(at, origin, bool(key_changes and is_gone), alone, tuple(key_changes))

    @staticmethod
    def _is_older(ranked: Ranked, before: int, at: int) -> bool:
        """Returns whether the preceding change has another position in the source's log: repeated changes have the
        same.
        """
        if before < 0 or ranked.read is None or ranked.order is None:
            return False
        return bool(ranked.order[before] != ranked.order[at])


def find_key_updates(
    ranked: Ranked, old_keys: Sequence[pa.Array], positions: pa.Array, marks: Bools, departed: Collection[RecordIndex]
) -> KeyUpdates:
    """Pairs every change that has an old key with the delete of that key, in the same record or at the same position of
    the source's log. Of repeated deletes the first is taken, because only that one had a row. Where headers name the
    key differently from the delete, the pair is accepted if there is one of each at the position.

    marks: which changes mark a row as deleted. departed: records of deletes whose row gets another key.
    """
    updated = updated_key_places(old_keys)
    keys, old = _codes(ranked, old_keys, np.array(updated, np.int64))
    old_codes = dict(zip(updated, old.tolist(), strict=True))
    deletes: dict[Any, int] = {}
    at_position: dict[str, dict[int, int]] = {}
    # Usually few of the batch's deletes have the position of an update.
    of_moved = positions.take(pa.array(updated, pa.int64())).drop_null()
    are_near = np.isin(keys, old) | np.asarray(pc.is_in(positions, value_set=of_moved), np.bool_)
    for place in np.flatnonzero(((ranked.ops == DELETE) | marks) & are_near).tolist():
        key, position = int(keys[place]), positions[place].as_py()
        deletes[key, record_of(ranked, place)] = place
        if position is not None:
            deletes.setdefault((key, position), place)
            if record_of(ranked, place) in departed:
                at_position.setdefault(position, {}).setdefault(key, place)
    deletes_by_update = {}
    counts = Counter(at for at, _ in {(positions[place].as_py(), int(keys[place])) for place in updated})
    for place in updated:
        key, position = old_codes[place], positions[place].as_py()
        own = deletes.get((key, record_of(ranked, place)), -1)
        deletes_by_update[place] = deletes.get((key, position), -1) if own < 0 and position is not None else own
        others = list(at_position.get(position, {}).values())
        if deletes_by_update[place] < 0 and len(others) == counts[position] == 1:
            deletes_by_update[place] = others[0]
    return KeyUpdates(deletes_by_update, marks)


def _codes(ranked: Ranked, old_keys: Sequence[pa.Array], updated: Ints) -> tuple[Ints, Ints]:
    """Returns the keys of all changes, and the old keys of those that have one, as numbers that are equal where the
    keys are.
    """
    at, count = pa.array(updated), len(ranked)
    codes = key_codes([pa.concat_arrays([own, old.take(at)]) for own, old in zip(ranked.keys, old_keys, strict=True)])
    return codes[:count], codes[count:]


def updated_key_places(old_keys: Sequence[pa.Array]) -> list[int]:
    """Returns the places of the changes that have an old key."""
    has_other_key = np.zeros(len(old_keys[0]) if old_keys else 0, np.bool_)
    for key in old_keys:
        has_other_key |= np.asarray(key.is_valid())
    places: list[int] = np.flatnonzero(has_other_key).tolist()
    return places


def record_of(ranked: Ranked, place: int) -> RecordIndex:
    """Returns the place of a change's record."""
    return int(ranked.source[place]), int(ranked.partition[place]), int(ranked.offset[place])
