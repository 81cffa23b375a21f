"""Rows that get another key without all of their values: what was not sent is in the row of the old key.

The source deletes the old row and writes the new one, in one record or in two that name the same place of its log. Where
one task reads both, it is known which row the old one was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.upsert.changes import DELETE, UPSERT
from frazil.upsert.deduplicate import Ints, Ranked, key_codes

Bools = NDArray[np.bool_]
Place = tuple[int, int, int]
"""Number of the topic, partition and offset of a record."""
OLD_KEY = "\x00old:"
"""How columns of held rows begin that have the key of the row whose values they wait for; null where it is their own."""
KEY_CHANGED_AT = "\x00moved at"
"""A column of held rows: when they got their key, where the delete of the old one was in an earlier batch, which has left
the row and marked it with that time."""
KEY_CHANGED_ORDER = "\x00moved order"
"""A column of held rows: the ordering value of the change that gave them their key. A row of the old key with a greater one
has come since.
"""
KEY_CHANGED_IN = "\x00moved in"
"""A column of held rows: the partition of the delete of the key that they had; null where that was not here."""
LATER_KEYS = "\x00got"
"""A column of held rows whose order is that of the source's log: a list of the keys that the row has got since it had the
old one, the last one first, each with the `order` and the `partition` of the change that gave it.
"""
KEY_CHANGED = "\x00moved"
"""A column of held rows: they had another key, and wait for values that nothing in the batch has; that no row has these is
not the same as null.
"""


@dataclass(frozen=True)
class Walk:
    """Where a value was looked for. at: the change that has it, -1 where only the table can have it. origin: the change
    whose key the row in the table has. has_other_key: a row with another key was asked. is_lost: it was gone already. alone: the
    change that had another key, and whose delete was not there; -1: none. key_changes: the changes that had another key, the last
    one first.
    """

    at: int
    origin: int
    has_other_key: bool = False
    is_lost: bool = False
    alone: int = -1
    key_changes: tuple[int, ...] = ()


@dataclass(frozen=True)
class KeyUpdates:
    """Changes that lack values of a row with another key, as places: the delete of that row, -1 where it is not here.

    A source that repeats itself may bring such a change without its delete; the row is under its new key then. marks: the
    changes that mark a row as deleted.
    """

    deletes: dict[int, int] = field(default_factory=dict)
    marks: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))

    def walk(self, ranked: Ranked, before: Ints, mask: Bools, start: int) -> Walk:
        """Looks for a value that `mask` says is missing from `start`."""
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
                at = -1  # A row that the key had before, and that has gone otherwise, as by a truncate.
                break
            at = int(before[at])
        is_gone = at >= 0 and (ranked.ops[at] != UPSERT or (alone >= 0 and self.marks[at]))
        return Walk(at, origin, bool(key_changes), bool(key_changes and is_gone), alone, tuple(key_changes))

    @staticmethod
    def _is_older(ranked: Ranked, before: int, at: int) -> bool:
        """Whether the change before has another place in the log of the source: repeated ones have the same."""
        if before < 0 or ranked.read is None or ranked.order is None:
            return False
        return bool(ranked.order[before] != ranked.order[at])


def find_key_updates(
    ranked: Ranked, old_keys: Sequence[pa.Array], positions: pa.Array, marks: Bools, departed: Collection[Place]
) -> KeyUpdates:
    """Pairs every change that has an old key with the delete of that key in the same record, or at the same position of the
    source's log: of repeated ones the first, as only that one had a row. Where headers do not tell the key as the delete
    does, that counts, if there is one of each at the position. marks: the changes that mark a row as deleted.
    departed: records of deletes whose row gets another key.
    """
    updated = updated_key_places(old_keys)
    keys, old = _codes(ranked, old_keys, np.array(updated, np.int64))
    old_codes = dict(zip(updated, old.tolist(), strict=True))
    deletes: dict[Any, int] = {}
    at_position: dict[str, dict[int, int]] = {}
    are_near = np.isin(keys, old) | _have_position_of(positions, updated)
    for place in np.flatnonzero(((ranked.ops == DELETE) | marks) & are_near).tolist():
        key, position = int(keys[place]), positions[place].as_py()
        deletes[key, record_of(ranked, place)] = place
        if position is not None:
            deletes.setdefault((key, position), place)
            if record_of(ranked, place) in departed:
                at_position.setdefault(position, {}).setdefault(key, place)
    found = {}
    counts = Counter(at for at, _ in {(positions[place].as_py(), int(keys[place])) for place in updated})
    for place in updated:
        key, position = old_codes[place], positions[place].as_py()
        own = deletes.get((key, record_of(ranked, place)), -1)
        found[place] = deletes.get((key, position), -1) if own < 0 and position is not None else own
        others = list(at_position.get(position, {}).values())
        if found[place] < 0 and len(others) == counts[position] == 1:
            found[place] = others[0]
    return KeyUpdates(found, marks)


def _codes(ranked: Ranked, old_keys: Sequence[pa.Array], updated: Ints) -> tuple[Ints, Ints]:
    """The keys of all changes and the old ones of those that have one, as numbers that are the same where the keys are."""
    at, count = pa.array(updated), len(ranked)
    codes = key_codes([pa.concat_arrays([own, old.take(at)]) for own, old in zip(ranked.keys, old_keys, strict=True)])
    return codes[:count], codes[count:]


def _have_position_of(positions: pa.Array, updated: Sequence[int]) -> Bools:
    """Which changes have the position of one of these: mostly few, of all deletes of a batch."""
    of_moved = positions.take(pa.array(updated, pa.int64())).drop_null()
    return np.asarray(pc.is_in(positions, value_set=of_moved), np.bool_)


def updated_key_places(old_keys: Sequence[pa.Array]) -> list[int]:
    """The changes that have an old key."""
    has_other_key = np.zeros(len(old_keys[0]) if old_keys else 0, np.bool_)
    for key in old_keys:
        has_other_key |= np.asarray(key.is_valid())
    found: list[int] = np.flatnonzero(has_other_key).tolist()
    return found


def record_of(ranked: Ranked, place: int) -> Place:
    """Where the record of a change is."""
    return int(ranked.source[place]), int(ranked.partition[place]), int(ranked.offset[place])
